"""Subscriptions in the console: their state, their lag and their failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.console_in_process import ConsoleStand

from strandline.delivery.subscriptions.webhooks import WebhookAnswer
from strandline.protocols.console.subscriptions import MAX_SHOWN

JSON = {"content_type": "application/json"}
ROOT = "/v1/stream/__ds/subscriptions"


class Receiver:
    """Stands for the network: the test answers the webhooks."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[WebhookAnswer], None]] = []

    def check(self, url: str) -> None:
        pass

    def deliver(self, url: str, body: bytes, headers: Any, tell: Callable[[WebhookAnswer], None]) -> None:
        self.waiting.append(tell)

    def stop(self) -> None:
        pass


@pytest.fixture
def receiver(stand: ConsoleStand) -> Receiver:
    receiver = Receiver()
    stand.streams_face.subscribing.subscriptions._courier = receiver
    return receiver


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ConsoleStand]:
    with ConsoleStand(tmp_path / "guarded", keys="root,mail:r:mail,other:r:other,writer:w") as stand:
        yield stand


def put(stand: ConsoleStand, name: str, body: Any, key: str = "") -> None:
    assert stand.ask("PUT", f"{ROOT}/{name}", body, key=key).status == 201


def append(stand: ConsoleStand, stream: str, count: int = 1, key: str = "") -> None:
    stand.ask("PUT", f"/v1/stream/{stream}", key=key, **JSON)
    stand.settle()
    assert stand.ask("POST", f"/v1/stream/{stream}", list(range(count)), key=key).status in (200, 204)
    stand.settle()


def test_a_server_without_subscriptions_has_an_empty_list(stand: ConsoleStand) -> None:
    assert stand.get("/subscriptions") == {"subscriptions": [], "total": 0, "failing": 0}
    assert stand.refused("/subscription/nobody") == (404, "not_found")


def test_a_webhook_is_shown_from_its_wake_to_its_end(stand: ConsoleStand, receiver: Receiver) -> None:
    put(
        stand,
        "mailer",
        {
            "type": "webhook",
            "pattern": "mail/*",
            "webhook": {"url": "https://example.org/"},
            "description": "sends mail",
        },
    )
    (row,) = stand.get("/subscriptions")["subscriptions"]
    assert (row["type"], row["pattern"], row["target"]) == ("webhook", "mail/*", "https://example.org/")
    assert (row["state"], row["logs"], row["lag"], row["delivered_at"]) == ("idle", 0, 0, None)
    append(stand, "mail/ann", 3)
    row = stand.get("/subscription/mailer")
    assert (row["state"], row["logs"], row["pending"], row["lag"], row["generation"]) == ("sending", 1, 1, 3, 1)
    assert row["shown"] == [
        {"name": "mail/ann", "exists": True, "named": False, "matched": True, "acked": 0, "head": 3, "lag": 3}
    ]
    stand.clock.advance(5_000)
    stand.do(lambda: receiver.waiting.pop()(WebhookAnswer(delivered=False, why="it responded with status 500")))
    row = stand.get("/subscription/mailer")
    assert (row["state"], row["failures"]) == ("retrying", 1)
    assert row["last_failure"] == {"at": stand.engine.now(), "why": "it responded with status 500"}
    assert row["retry_at"] > stand.engine.now()
    stand.clock.advance(60_000)
    stand.do(stand.streams_face.subscribing.subscriptions.ring)
    stand.do(lambda: receiver.waiting.pop()(WebhookAnswer(delivered=True)))
    row = stand.get("/subscription/mailer")
    assert (row["state"], row["failures"], row["delivered_at"]) == ("leased", 0, stand.engine.now())
    assert row["leased_until"] == stand.engine.now() + row["lease_ms"]
    # The reason stays.
    assert row["last_failure"]["why"] == "it responded with status 500"


def test_a_worker_that_claims_a_wake_is_its_holder(stand: ConsoleStand) -> None:
    put(stand, "indexer", {"type": "pull-wake", "streams": ["docs", "later"], "wake_stream": "wakes"})
    append(stand, "docs", 2)
    row = stand.get("/subscription/indexer")
    assert (row["state"], row["target"], row["named"]) == ("waiting", "wakes", ["docs", "later"])
    assert [(log["name"], log["exists"], log["named"], log["lag"]) for log in row["shown"]] == [
        ("docs", True, True, 2),
        ("later", False, True, 0),
    ]
    assert stand.ask("POST", f"{ROOT}/indexer/claim", {"worker": "w1"}).status == 200
    row = stand.get("/subscription/indexer")
    assert (row["state"], row["holder"], row["delivered_at"]) == ("leased", "w1", stand.engine.now())


def test_failing_ones_come_first_and_a_search_finds_any_text(stand: ConsoleStand, receiver: Receiver) -> None:
    for name in ("b", "a", "c"):
        put(stand, name, {"type": "webhook", "streams": [f"s-{name}"], "webhook": {"url": f"https://{name}.org/"}})
    append(stand, "s-c")
    stand.do(lambda: receiver.waiting.pop()(WebhookAnswer(delivered=False, why="refused")))
    found = stand.get("/subscriptions")
    assert [row["id"] for row in found["subscriptions"]] == ["c", "a", "b"]
    assert (found["total"], found["failing"]) == (3, 1)
    assert [row["id"] for row in stand.get("/subscriptions?offset=1&limit=1")["subscriptions"]] == ["a"]
    for words in ("B.ORG", "s-b"):
        assert [row["id"] for row in stand.get(f"/subscriptions?search={words}")["subscriptions"]] == ["b"]
    assert stand.refused("/subscriptions?limit=0")[0] == 400


def test_more_streams_than_can_be_shown_are_counted(stand: ConsoleStand) -> None:
    names = [f"n{number:04}" for number in range(MAX_SHOWN + 10)]
    put(stand, "many", {"type": "pull-wake", "streams": names, "wake_stream": "wakes"})
    append(stand, names[-1])
    row = stand.get("/subscription/many")
    assert (row["logs"], len(row["shown"]), len(row["named"])) == (MAX_SHOWN + 10, MAX_SHOWN, MAX_SHOWN)
    # Those with unacknowledged records come first.
    assert row["shown"][0]["name"] == names[-1]


def test_a_key_sees_only_subscriptions_to_its_names(guarded: ConsoleStand) -> None:
    put(guarded, "mailer", {"type": "pull-wake", "pattern": "mail/**", "wake_stream": "mail/wakes"}, key="root")
    put(guarded, "all", {"type": "pull-wake", "pattern": "**", "wake_stream": "mail/all"}, key="root")
    seen = {key: guarded.get("/subscriptions", key=key) for key in ("root", "mail", "other")}
    assert {key: [row["id"] for row in found["subscriptions"]] for key, found in seen.items()} == {
        "root": ["all", "mailer"],
        "mail": ["mailer"],
        "other": [],
    }
    assert guarded.get("/subscription/mailer", key="mail")["id"] == "mailer"
    assert guarded.refused("/subscription/mailer", key="other")[0] == 403
    assert guarded.refused("/subscriptions", key="writer")[0] == 403
