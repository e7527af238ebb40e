"""The feed of a table over HTTP: the rows of all parents, and what happens to them."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_process import StartServer
from support.tables_client import POLLS, Bed, TablesClient
from support.topics_client import EventStream

pytestmark = pytest.mark.both_lanes


@pytest.fixture
def hidden_poll(bed: Bed, parent: str) -> str:
    """A poll of Dan's that is not public."""
    poll: str = bed.user("dan").append("poll", f"{parent}-hidden", {"title": "Secret?", "isPublic": False})["id"]
    return poll


def cursor(client: TablesClient) -> str:
    found: str = client.read("vote", "feed", variant="pub", limit=1)["liveCursor"]
    return found


def of(rows: list[Any], *polls: str) -> list[str]:
    """The ids of rows of these polls; other tests use the same table."""
    return [row["id"] for row in rows if row["parent"] in polls]


def feed(variant: str, after: str, **query: str) -> str:
    further = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/tables/vote/{variant}/feed/live?after={after}{further}"


def told(events: EventStream, count: int) -> list[tuple[Any, ...]]:
    found = []
    for event in (events.next() for _ in range(count)):
        data = event.json
        found.append((event.event, data.get("id", data.get("parent")), data.get("optionIdx")))
    return found


def test_pages_have_the_rows_of_all_parents_that_the_reader_may_see(bed: Bed, poll: str, hidden_poll: str) -> None:
    bob, dan = bed.user("bob"), bed.user("dan")
    ids = [client.append("vote", parent, {"optionIdx": at})["id"] for at, (client, parent) in enumerate(
        [(bob, poll), (dan, hidden_poll), (dan, poll), (bob, poll)]
    )]  # fmt: skip
    polls = (poll, hidden_poll)
    page = bob.read("vote", "feed", variant="pub")
    assert of(page["page"], *polls) == [ids[3], ids[2], ids[0]]
    assert page["page"][0] == bob.read("vote", "read", variant="pub", id=ids[3])
    assert of(bob.read("vote", "feed")["page"], *polls) == [ids[3], ids[0]]
    assert of(dan.read("vote", "feed")["page"], *polls) == [ids[2], ids[1]]
    assert of(bed.user("ann").read("vote", "feed")["page"], *polls) == [ids[3], ids[2], ids[0]]
    first = dan.read("vote", "feed", limit=1)
    second = dan.read("vote", "feed", limit=1, cursor=first["continueCursor"])
    assert of([*first["page"], *second["page"]], *polls) == [ids[2], ids[1]]
    assert not first["isDone"]
    assert dan.refused_read("vote", "feed", status=400, cursor="x")["code"] == "VALIDATION_FAILED"
    assert "has no operation" in dan.refusal("GET", "/tables/poll/auth/feed", status=404)["message"]


def test_what_happens_after_a_page_is_told(bed: Bed, poll: str, hidden_poll: str) -> None:
    ann, bob, dan = bed.user("ann"), bed.user("bob"), bed.user("dan")
    other = ann.append("poll", f"{poll}-other", {"title": "Dinner?"})["id"]
    with bed.user("eve").events(feed("pub", cursor(bob))) as events:
        assert events.next().event == "ready"
        bob.append("vote", poll, {"optionIdx": 1})
        dan.append("vote", hidden_poll, {"optionIdx": 2})
        dan.append("vote", other, {"optionIdx": 3})
        bob.write("vote", "update", id=f"{poll}:1", patch={"optionIdx": 4})
        assert told(events, 3) == [("append", f"{poll}:1", 1), ("append", f"{other}:1", 3), ("update", f"{poll}:1", 4)]
        bob.write("vote", "rm", id=f"{poll}:1")
        bob.write("vote", "restore", id=f"{poll}:1")
        ann.write("vote", "purgeByParent", parent=other)
        ann.write("vote", "restoreByParent", parent=other)
        assert told(events, 4) == [
            ("rm", f"{poll}:1", None), ("restore", f"{poll}:1", 4), ("purge", other, None), ("restoreAll", other, None),
        ]  # fmt: skip
        # A poll that is no longer public is not told of any more.
        ann.write("poll", "update", id=other, patch={"isPublic": False})
        ann.append("vote", other, {"optionIdx": 5})
        bob.append("vote", poll, {"optionIdx": 6})
        assert told(events, 1) == [("append", f"{poll}:2", 6)]


def test_readers_of_their_own_rows_do_not_learn_of_other_parents(bed: Bed, poll: str, hidden_poll: str) -> None:
    bob, dan = bed.user("bob"), bed.user("dan")
    with bob.events(feed("auth", cursor(bob))) as events:
        assert events.next().event == "ready"
        dan.append("vote", hidden_poll, {"optionIdx": 1})
        dan.append("vote", poll, {"optionIdx": 2})
        dan.write("vote", "rm", id=f"{poll}:1")
        bob.append("vote", poll, {"optionIdx": 3})
        event = events.next()
        assert (event.event, event.json["id"], event.json["own"]) == ("append", f"{poll}:2", True)
        bed.user("ann").write("vote", "purgeByParent", parent=poll)
        event = events.next()
        assert (event.event, event.json) == ("purge", {"soft": True})


def test_a_reader_continues_after_the_last_event(bed: Bed, poll: str) -> None:
    bob = bed.user("bob")
    start = cursor(bob)
    for at in range(3):
        bob.append("vote", poll, {"optionIdx": at})
    with bob.events(feed("pub", start)) as events:
        first = events.next()
        assert first.json["optionIdx"] == 0
        assert first.id is not None
    with bob.events(feed("pub", first.id)) as events:
        assert told(events, 3)[:2] == [("append", f"{poll}:2", 1), ("append", f"{poll}:3", 2)]
    with bob.events("/tables/vote/pub/feed/live?after=now") as events:
        assert events.next().event == "ready"
    for after, code, status in (
        ("x", "VALIDATION_FAILED", 400),
        ("1.2", "VALIDATION_FAILED", 400),
        ("99999999", "CONFLICT", 409),
    ):
        error = bob.refusal(
            "GET", f"/tables/vote/pub/feed/live?after={after}", status=status, headers={"accept": "text/event-stream"}
        )
        assert error["code"] == code


def test_an_api_key_sees_only_the_parents_that_it_may_access(start_server: StartServer, lane: str) -> None:
    server = start_server(declare=POLLS, keys="all,some:read+write+delete+admin:audit/a", lane=lane)
    everything, some = TablesClient(server.url, key="all"), TablesClient(server.url, key="some")
    for parent in ("a1", "b1", "a2"):
        everything.append("audit", parent, {"what": parent})
    assert [row["what"] for row in everything.read("audit", "feed")["page"]] == ["a2", "b1", "a1"]
    assert [row["what"] for row in some.read("audit", "feed")["page"]] == ["a2", "a1"]
    with some.events("/tables/audit/auth/feed/live?after=0") as events:
        assert [events.next().json.get("what") for _ in range(3)] == ["a1", "a2", None]
