"""Elements as they are appended: live responses, in process and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any

import httpx
import pytest
from support.collections_client import CollectionsClient, root_of
from support.collections_in_process import MakeStand, opened
from support.server_process import ServerProcess
from support.signed_calls import ALICE, BOB, NOW, device, headers_of
from support.topics_client import PATIENCE_SECONDS, EventStream

from strandline.collections import AppendOnly, Caller, Collection, CollectionRateLimit, FieldPermission, RateRule, Roles
from strandline.engine import Batch, Config
from strandline.signing import certificates
from strandline.signing.certificates import MAX_SKEW_S
from strandline.signing.revocations import signed_list

SIGNED = Collection(
    name="signed",
    storage_path="signed/{id}",
    read_roles=("cap:read:signed", "cap:read:*"),
    write_roles=("cap:write:signed", "cap:write:*"),
    append_only=AppendOnly(),
)
CAP = (device(), ALICE)


def numbers(elements: list[Any]) -> list[int]:
    return [element["n"] for element in elements]


def test_new_elements_are_sent_as_a_pull_shows_them(stand: MakeStand) -> None:
    server = stand(SIGNED)
    server.pushed("signed/a", {"n": 1}, author=ALICE, cap=CAP)
    tail = server.live("signed/a", cap=CAP)
    assert tail.events() == []
    server.pushed("signed/a", {"n": 2, "text": "two\nlines"}, {"n": 3}, author=ALICE, cap=CAP)
    events = tail.events()
    assert [event.json for event in events] == server.pull("signed/a", "last=2", cap=CAP).items
    assert [(event.event, event.id) for event in events] == [("element", str(event.json["ts"])) for event in events]


@pytest.mark.parametrize(
    ("query", "headers", "shown"),
    [
        ("", {}, []),
        ("checkpoint=0", {}, [0, 1, 2]),
        ("checkpoint=1", {}, [1, 2]),
        ("checkpoint=10", {}, [2]),
        ("checkpoint=20", {}, []),
        ("checkpoint=15", {}, [2]),
        ("checkpoint=0", {"last_event_id": "10"}, [2]),
        ("", {"last_event_id": "0"}, [0, 1, 2]),
    ],
)
def test_a_response_starts_after_a_time(
    stand: MakeStand, query: str, headers: dict[str, str], shown: list[int]
) -> None:
    server = stand(opened())
    for number in range(3):
        server.push("events", {"n": number}, number * 10)
    tail = server.live("events", query, **headers)
    assert numbers(tail.elements()) == shown
    server.push("events", {"n": 3}, 30)
    assert numbers(tail.elements()) == [3]


def test_a_document_need_not_exist(stand: MakeStand) -> None:
    server = stand(opened("rooms", "rooms/{room}"))
    tails = [server.live("rooms/a"), server.live("rooms/a", "checkpoint=5"), server.live("rooms/b", "checkpoint=0")]
    server.push("rooms/a", {"n": 1}, 5)
    server.push("rooms/a", {"n": 2}, 6)
    assert [numbers(tail.elements()) for tail in tails] == [[1, 2], [2], []]
    server.push("rooms/b", {"n": 3})
    assert [numbers(tail.elements()) for tail in tails] == [[], [], [3]]


def test_elements_that_are_not_later_than_the_checkpoint_are_left_out_as_in_a_pull(stand: MakeStand) -> None:
    server = stand(opened())
    server.push("events", {"n": 1}, 10)
    tail = server.live("events", "checkpoint=20")
    for number, ts in ((2, 15), (3, 20), (4, 25)):
        server.push("events", {"n": number}, ts)
    assert numbers(tail.elements()) == [4]
    assert [item["data"]["n"] for item in server.pull("events", "checkpoint=20").items] == [4]


def test_a_long_document_is_sent_piece_by_piece_to_a_reader_that_keeps_up(stand: MakeStand) -> None:
    server = stand(opened(max_pull_limit=10, allow_full=False))
    server.pushed("events", *({"n": number} for number in range(300)))
    tail = server.live("events", "checkpoint=0")
    assert numbers(tail.elements()) == [*range(300)]
    tail.sink.full = True
    server.push("events", {"n": 300})
    assert numbers(tail.elements()) == [300]
    server.push("events", {"n": 301})
    assert tail.elements() == [], "it has not read the last one"
    tail.sink.full = False
    tail.stream.resumed()
    assert numbers(tail.elements()) == [301]


def test_fields_that_the_caller_may_not_see_are_left_out(stand: MakeStand) -> None:
    secret = FieldPermission(read_roles=("cap:read:*",))
    roles = {"read_roles": ("cap:read:*", "cap:read:events"), "write_roles": ("public",)}
    server = stand(opened(field_permissions={"secret": secret}, **roles))
    reader = (device(ALICE, BOB, ops=["read"], collections=["events"], paths=["**"]), BOB)
    tails = [server.live("events", cap=CAP), server.live("events", cap=reader)]
    server.push("events", {"n": 1, "secret": 2})
    assert [tail.elements() for tail in tails] == [[{"n": 1, "secret": 2}], [{"n": 1}]]


def test_a_caller_who_sees_no_elements_gets_none(stand: MakeStand) -> None:
    server = stand(opened(field_permissions={"items": FieldPermission(read_roles=("admin",))}))
    tail = server.live("events", "checkpoint=0")
    server.push("events", {"n": 1})
    assert tail.elements() == []
    assert server.pull("events").json["data"] == {}


def test_a_document_that_has_expired_is_shown_again_with_the_next_element(stand: MakeStand) -> None:
    server = stand(opened(ttl_ms=1000))
    server.push("events", {"n": 1})
    server.clock.advance(1001)
    tail = server.live("events", "checkpoint=0")
    assert tail.elements() == []
    assert server.pull("events").json["data"] == {}
    server.push("events", {"n": 2})
    assert numbers(tail.elements()) == numbers([item["data"] for item in server.pull("events").items]) == [1, 2]


# --- who may ----------------------------------------------------------------------------------------------------------


def test_a_response_needs_the_role_and_the_signature_of_a_pull(stand: MakeStand) -> None:
    server = stand(SIGNED)
    unauthorized, forbidden = (401, "Unauthorized"), (403, "Forbidden")
    assert server.get("/live/signed/a").error == forbidden
    assert server.get("/live/signed/a", authorization="Cap x").error == unauthorized
    other = (device(ALICE, BOB, ops=["read"], collections=["signed"], paths=["signed/b"]), BOB)
    assert server.get("/live/signed/a", cap=other).error == forbidden
    assert server.live("signed/b", cap=other).elements() == []
    writer = (device(ALICE, BOB, ops=["write"], collections=["*"], paths=["**"]), BOB)
    assert server.get("/live/signed/a", cap=writer).error == forbidden
    # The signature is good for one response, and for this address only.
    headers = headers_of(*CAP, "GET", "/live/signed/a", b"", NOW)
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    assert server.get("/live/signed/a?checkpoint=0", **sent).error == unauthorized
    assert server.get("/pull/signed/a?last=1", **sent).error == unauthorized
    server.live("signed/a", **sent)
    assert server.get("/live/signed/a", **sent).error == unauthorized


@pytest.mark.parametrize("idle", [True, False])
def test_a_response_ends_when_the_certificate_expires(stand: MakeStand, idle: bool) -> None:
    server = stand(SIGNED)
    certificate = certificates.mint_device(
        ALICE, ALICE.public, device()["subKem"], certificates.everything(), now_s=NOW // 1000, ttl_s=3600
    )
    tail = server.live("signed/a", cap=(certificate, ALICE))
    server.clock.advance((3600 + MAX_SKEW_S) * 1000)
    server.face._tails.check()
    server.pushed("signed/a", {"n": 1}, author=ALICE, cap=CAP)
    assert numbers(tail.elements()) == [1]
    server.clock.advance(1001)
    if idle:
        server.face._tails.check()
    else:
        server.pushed("signed/a", {"n": 2}, author=ALICE, cap=CAP)
    (event,) = tail.events()
    assert (event.event, event.json) == ("end", {"error": "Unauthorized"})
    assert tail.sink.is_closed
    assert len(server.responses) == 0


def test_a_response_ends_when_the_certificate_is_revoked(stand: MakeStand, tmp_path: Path) -> None:
    path = tmp_path / "revoked.json"
    path.write_text(json.dumps(signed_list(ALICE, 1, [])))
    server = stand(SIGNED, opened(), revocations=(str(path),))
    certificate = device(ALICE, BOB)
    tail, of_alice = server.live("signed/a", cap=(certificate, BOB)), server.live("signed/a", cap=CAP)
    public = server.live("events")
    revoked = [{"sub": certificate["sub"], "nonce": certificate["nonce"], "exp": certificate["exp"]}]
    path.write_text(json.dumps(signed_list(ALICE, 2, revoked)))
    server.watch_revocations()
    server.face._tails.check()
    (event,) = tail.events()
    assert (event.event, event.json) == ("end", {"error": "Unauthorized"})
    server.pushed("signed/a", {"n": 1}, author=ALICE, cap=CAP)
    server.push("events", {"n": 2})
    assert (numbers(of_alice.elements()), numbers(public.elements()), tail.events()) == ([1], [2], [])


def test_roles_of_a_program_decide_as_for_pulls(stand: MakeStand) -> None:
    async def enricher(caller: Caller, params: Any) -> list[str]:
        return ["guest"] if params["room"] == "lobby" else []

    server = stand(opened("rooms", "rooms/{room}", read_roles=("guest",)), roles=Roles(enricher=enricher))
    assert server.get("/live/rooms/vault").error == (403, "Forbidden")
    server.push("rooms/lobby", {"n": 1})
    tail = server.live("rooms/lobby", "checkpoint=0")
    assert numbers(tail.elements()) == [1]


# --- refusals and ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "headers", "error"),
    [
        ("/live/events?checkpoint=x", {}, (400, "Invalid checkpoint")),
        ("/live/events?checkpoint=-1", {}, (400, "Invalid checkpoint")),
        ("/live/events?since=1", {},
         (400, "unknown parameter 'since'; expected 'checkpoint', or none for new elements only")),
        ("/live/events?checkpoint=1&last=1", {},
         (400, "unknown parameter 'last'; expected 'checkpoint', or none for new elements only")),
        ("/live/events", {"last_event_id": "x"}, (400, "Invalid Last-Event-ID")),
        ("/live/aged?checkpoint=1", {}, (400, "checkpoint_too_old")),
        ("/live/aged", {"last_event_id": "1"}, (400, "checkpoint_too_old")),
        ("/live/gone", {}, (400, "live_not_supported")),
        ("/live/inbox", {}, (404, "Not Found")),
        ("/live/nothing", {}, (404, "Not Found")),
        ("/live/taken", {}, (409, "not_a_document")),
        ("/live/events", {"accept": "application/json"},
         (406, "the answer is an event stream; send Accept: text/event-stream")),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused(
    stand: MakeStand, target: str, headers: dict[str, str], error: tuple[int, str]
) -> None:
    server = stand(
        opened(), opened("aged", "aged", max_checkpoint_age_ms=5), opened("gone", "gone", persist=False),
        opened("inbox", "inbox", push_only=True), opened("taken", "taken"),
    )  # fmt: skip
    server.engine.create("taken", Config(), batch=Batch.of(b"1")).wait()
    assert server.get(target, **headers).error == error
    assert len(server.responses) == 0


def test_a_response_takes_a_slot_and_a_turn_of_the_rate_limit(stand: MakeStand) -> None:
    limits = CollectionRateLimit(pull=RateRule(window_ms=1000, max_requests=2))
    server = stand(opened(), opened("few", "few", rate_limit=limits), streams=2)
    first = server.live("events")
    server.live("few")
    assert server.get("/live/events").status == 429
    assert server.get("/live/few").status == 429
    first.stream.closed()
    server.live("events")
    assert server.get("/pull/few?last=1").error == (429, "Rate limit exceeded")


def test_a_log_of_another_protocol_in_the_place_of_the_document_ends_the_response(stand: MakeStand) -> None:
    server = stand(opened("any", "{id}"))
    tail = server.live("a")
    server.engine.create("a", Config(), batch=Batch.of(b"1")).wait()
    (event,) = tail.events()
    assert (event.event, event.json["error"]) == ("end", "not_a_document")


def test_a_document_that_is_removed_and_made_again_is_followed(stand: MakeStand) -> None:
    """A document is removed if its first append fails."""
    server = stand(opened())
    server.push("events", {"n": 1}, 10)
    tail = server.live("events")
    server.engine.log("events").drop().wait()
    assert tail.events() == []
    server.push("events", {"n": 2}, 20)
    assert numbers(tail.elements()) == [2]


def test_a_response_that_is_closed_leaves_nothing(stand: MakeStand) -> None:
    server = stand(opened("rooms", "rooms/{room}"))
    server.push("rooms/a", {"n": 1})
    tails = [server.live("rooms/a"), server.live("rooms/b")]
    assert len(server.responses) == 2
    for tail in tails:
        tail.stream.closed()
    assert (len(server.responses), len(server.face._tails.feeds), server.face._tails._waiting) == (0, 0, {})
    server.push("rooms/b", {"n": 1})
    server.settle()


# --- over HTTP --------------------------------------------------------------------------------------------------------


@contextmanager
def following(client: CollectionsClient, target: str, **headers: str) -> Iterator[EventStream]:
    host = str(client.http.base_url).removeprefix("http://")
    sent = headers_of(root_of(ALICE), ALICE, "GET", target, ts=int(time() * 1000), host=host)
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    with client.http.stream("GET", target, headers=sent, timeout=PATIENCE_SECONDS) as response:
        if response.status_code != 200:
            raise AssertionError(f"{response.status_code} {response.read()!r}")
        assert response.headers["content-type"].startswith("text/event-stream")
        yield EventStream(response)


@pytest.mark.both_lanes
@pytest.mark.parametrize(("mount", "path"), [("", "signed"), ("/team", "chat"), ("/v1/team", "chat")])
def test_elements_come_over_http_and_a_reader_goes_on_where_it_was(
    served: ServerProcess, name: str, mount: str, path: str
) -> None:
    with CollectionsClient(served.url, ALICE) as alice:
        document = f"{path}/{name}"
        times = [alice.push(document, {"n": 1}, mount=mount).json()["timestamp"]]
        with following(alice, f"{mount}/live/{document}?checkpoint=0") as events:
            assert events.next().json["data"] == {"n": 1}
            for number in (2, 3):
                times.append(alice.push(document, {"n": number}, mount=mount).json()["timestamp"])
                event = events.next()
                assert (event.event, event.id, event.json["data"]) == ("element", str(times[-1]), {"n": number})
            assert event.json == alice.pull(document, "last=1", mount=mount)["data"]["items"][0]
        with following(alice, f"{mount}/live/{document}?checkpoint=0", last_event_id=str(times[0])) as events:
            assert [events.next().json["ts"] for _ in range(2)] == times[1:]


@pytest.mark.both_lanes
def test_a_revoked_certificate_ends_the_response_over_http(lane: str, tmp_path: Path, name: str) -> None:
    revoked = tmp_path / "revoked.json"
    revoked.write_text(json.dumps(signed_list(ALICE, 1, [])))
    config = tmp_path / "strandline.toml"
    collection = 'name = "events"\nstorage_path = "events/{id}"\nread_roles = ["cap:read:*"]\nappend_only = true\n'
    config.write_text(f'[collections]\nrevocations = ["{revoked}"]\n\n[[collections.collection]]\n{collection}')
    server = ServerProcess(tmp_path / "data", fast_lane=lane == "fast", config=config).start()
    certificate = root_of(ALICE)
    try:
        with httpx.Client(base_url=server.url, trust_env=False) as http:
            target, host = f"/live/events/{name}", server.url.removeprefix("http://")
            headers = headers_of(certificate, ALICE, "GET", target, ts=int(time() * 1000), host=host)
            with http.stream("GET", target, headers=headers, timeout=PATIENCE_SECONDS) as response:
                assert response.status_code == 200
                entry = {member: certificate[member] for member in ("sub", "nonce", "exp")}
                revoked.write_text(json.dumps(signed_list(ALICE, 2, [entry])))
                (event,) = EventStream(response).ended()
        assert (event.event, event.json) == ("end", {"error": "Unauthorized"})
    finally:
        server.end()
