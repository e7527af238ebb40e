"""Rows as they come, over HTTP."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.server_process import StartServer
from support.tables_client import POLLS, Bed, TablesClient
from support.topics_client import Event, EventStream


def told(event: Event) -> tuple[Any, ...]:
    """The kind of an event, and what it is about."""
    data = event.json
    assert event.event is not None
    if event.event in ("append", "update", "restore"):
        return event.event, data["seq"], data.get("optionIdx")
    return event.event, data.get("seq", data.get("parent", data.get("cursor")))


def take(events: EventStream, count: int) -> list[tuple[Any, ...]]:
    return [told(events.next()) for _ in range(count)]


def live(table: str, parent: str, variant: str = "pub", **query: str) -> str:
    further = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/tables/{table}/{variant}/live?parent={parent}{further}"


@pytest.mark.parametrize("variant", ["auth", "pub"])
def test_everything_that_happens_is_told_in_order(bed: Bed, poll: str, variant: str) -> None:
    ann, bob = bed.user("ann"), bed.user("bob")
    with ann.events(live("vote", poll, variant)) as events:
        assert take(events, 1) == [("ready", "0.0")]
        ids = [bob.append("vote", poll, {"optionIdx": at})["id"] for at in range(2)]
        bob.write("vote", "update", id=ids[0], patch={"optionIdx": 7})
        assert take(events, 3) == [("append", 1, 0), ("append", 2, 1), ("update", 1, 7)]
        bob.write("vote", "rm", id=ids[0])
        event = events.next()
        assert (event.event, event.json) == ("rm", {"id": ids[0], "seq": 1, "soft": True})
        bob.write("vote", "restore", id=ids[0])
        assert take(events, 1) == [("restore", 1, 7)]
        ann.write("vote", "purgeByParent", parent=poll)
        event = events.next()
        assert (event.event, event.json) == ("purge", {"parent": poll, "soft": True})
        ann.write("vote", "restoreByParent", parent=poll)
        event = events.next()
        assert (event.event, event.json) == ("restoreAll", {"parent": poll})
        bob.write("vote", "rm", id=ids[1], hard=True)
        event = events.next()
        assert (event.event, event.json["soft"]) == ("rm", False)
        ann.write("vote", "purgeByParent", parent=poll, hard=True)
        event = events.next()
        assert (event.event, event.json) == ("purge", {"parent": poll, "soft": False})
        assert event.id == "2.7"


def test_a_row_is_told_as_reads_show_it(bed: Bed, poll: str) -> None:
    ann, bob = bed.user("ann"), bed.user("bob")
    with bob.events(live("vote", poll)) as events:
        events.wait_for("ready")
        id = bob.append("vote", poll, {"optionIdx": 1, "comment": "one\ntwo"}, idempotencyKey="k")["id"]
        assert events.next().json == bob.read("vote", "read", variant="pub", id=id)
        ann.write("vote", "update", id=id, patch={"comment": "three"})
        event = events.next()
        assert event.json == bob.read("vote", "read", variant="pub", id=id)
        assert (event.json["own"], event.json["author"]) == (True, {"name": "Bob"})


def test_whoever_comes_again_goes_on_where_they_were(bed: Bed, poll: str) -> None:
    ann, bob = bed.user("ann"), bed.user("bob")
    for at in range(3):
        bob.append("vote", poll, {"optionIdx": at})
    with ann.events(live("vote", poll)) as events:
        assert take(events, 4) == [("append", 1, 0), ("append", 2, 1), ("append", 3, 2), ("ready", "3.0")]
        bob.write("vote", "update", id=f"{poll}:2", patch={"optionIdx": 9})
        event = events.next()
        assert (told(event), event.id) == (("update", 2, 9), "3.1")
    bob.append("vote", poll, {"optionIdx": 3})
    bob.write("vote", "rm", id=f"{poll}:1")
    missed = [("append", 4, 3), ("rm", 1), ("ready", "4.2")]
    with ann.events(live("vote", poll, after="3.1")) as events:
        assert take(events, 3) == missed
    with ann.events(live("vote", poll), last_event_id="3.1") as events:
        assert take(events, 3) == missed
    # A browser repeats its first address: the header counts.
    with ann.events(live("vote", poll, after="0.0"), last_event_id="4.2") as events:
        assert take(events, 1) == [("ready", "4.2")]
    with ann.events(live("vote", poll, after="now")) as events:
        assert take(events, 1) == [("ready", "4.2")]
        bob.append("vote", poll, {"optionIdx": 4})
        assert take(events, 1) == [("append", 5, 4)]


def test_a_cursor_from_behind_the_end_is_a_conflict(bed: Bed, poll: str) -> None:
    ann = bed.user("ann")
    for after in ("1.0", "0.1"):
        error = ann.refusal("GET", live("vote", poll, after=after), status=409)
        assert error["code"] == "CONFLICT"


def test_a_reader_is_told_of_their_own_rows_and_the_owner_of_all(bed: Bed, poll: str) -> None:
    ann, bob, eve = bed.user("ann"), bed.user("bob"), bed.user("eve")
    bob.append("vote", poll, {"optionIdx": 0})
    with bob.events(live("vote", poll, "auth")) as of_bob, ann.events(live("vote", poll, "auth")) as of_ann:
        assert take(of_bob, 2) == [("append", 1, 0), ("ready", "1.0")]
        assert take(of_ann, 2) == [("append", 1, 0), ("ready", "1.0")]
        eve.append("vote", poll, {"optionIdx": 1})
        eve.write("vote", "update", id=f"{poll}:2", patch={"optionIdx": 2})
        eve.write("vote", "rm", id=f"{poll}:2")
        bob.append("vote", poll, {"optionIdx": 3})
        bob.write("vote", "rm", id=f"{poll}:3")
        ann.write("vote", "purgeByParent", parent=poll)
        assert take(of_bob, 3) == [("append", 3, 3), ("rm", 3), ("purge", poll)]
        seen = take(of_ann, 5)
        assert [one[0] for one in seen] == ["append", "update", "rm", "append", "rm"]


def test_who_listens_before_there_is_anything_hears_of_the_first_row(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    with bob.events(live("message", parent)) as events, bob.events(live("audit", parent + "-x")) as others:
        assert take(events, 1) == [("ready", "0.0")]
        assert take(others, 1) == [("ready", "0.0")]
        bob.append("message", parent, {"content": "hello"})
        assert events.next().json["content"] == "hello"
        bob.write("message", "update", id=f"{parent}:1", patch={"content": "changed"})
        assert events.next().json["content"] == "changed"
        bob.append("audit", parent + "-x", {"what": "something"})
        assert others.next().json["what"] == "something"


def test_what_a_hook_writes_is_told_too(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    with bob.events(live("audit", "messages", after="now")) as events:
        events.wait_for("ready")
        id = bob.append("message", parent, {"content": "hello"})["id"]
        while events.next().json["what"] != id:
            pass


def test_public_reads_that_are_withdrawn_end_for_who_listens(bed: Bed, poll: str) -> None:
    ann, bob = bed.user("ann"), bed.user("bob")
    bob.append("vote", poll, {"optionIdx": 0})
    with bob.events(live("vote", poll)) as of_bob, ann.events(live("vote", poll, "auth")) as of_ann:
        of_bob.wait_for("ready")
        of_ann.wait_for("ready")
        ann.write("poll", "update", id=poll, patch={"title": "Dinner?"})
        bob.append("vote", poll, {"optionIdx": 1})
        assert take(of_bob, 1) == [("append", 2, 1)]
        ann.write("poll", "update", id=poll, patch={"isPublic": False})
        ann.append("vote", poll, {"optionIdx": 2})
        (event,) = of_bob.ended()
        assert (event.event, event.json["error"]["code"]) == ("end", "NOT_FOUND")
        # Whose poll it is may go on.
        assert take(of_ann, 2) == [("append", 2, 1), ("append", 3, 2)]
    assert bob.refusal("GET", live("vote", poll), status=404)["code"] == "NOT_FOUND"


def test_with_its_parent_a_row_goes_out_of_sight(bed: Bed, parent: str) -> None:
    ann = bed.user("ann")
    poll = ann.append("poll", parent, {"title": "Lunch?"})["id"]
    with ann.events(live("vote", poll, "auth")) as events:
        events.wait_for("ready")
        ann.write("poll", "rm", id=poll)
        (event,) = events.ended()
        assert event.json["error"]["code"] == "NOT_FOUND"


def test_a_page_of_an_allowed_origin_may_follow(bed: Bed, parent: str) -> None:
    bob = bed.user()
    bob.append("message", parent, {"content": "hello"})
    with bob.events(live("message", parent), origin="http://localhost:5173") as events:
        assert events.response.headers["access-control-allow-origin"] == "http://localhost:5173"
        assert events.response.headers["content-type"].startswith("text/event-stream")


def test_many_rows_come_in_order_while_more_are_written(bed: Bed, parent: str) -> None:
    bob = bed.user("bob")
    items = [{"payload": {"content": "x" * 200}}] * 100

    def write() -> None:
        other = TablesClient(bed.server.url, "bob")
        for at in range(10):
            other.write("message", "appendBulk", parent=parent, items=items)
            other.write("message", "update", id=f"{parent}:{at * 100 + 1}", patch={"content": f"edited {at}"})
        other.close()

    for _ in range(5):
        bob.write("message", "appendBulk", parent=parent, items=items)
    writer = threading.Thread(target=write)
    with bob.events(live("message", parent)) as events:
        writer.start()
        seen, edits = [], []
        while len(seen) < 1500 or len(edits) < 10:
            event = events.next(60)
            if event.event == "append":
                seen.append(event.json["seq"])
            elif event.event == "update":
                assert event.json["seq"] <= len(seen)
                edits.append(event.json["content"])
        writer.join()
    assert seen == list(range(1, 1501))
    assert edits == [f"edited {at}" for at in range(10)]


@pytest.mark.both_lanes
def test_streams_are_bounded_in_number_and_end_with_the_server(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, declare=POLLS, max_sse_connections=2)
    client = TablesClient(server.url, "bob")
    with client.events(live("message", "p")) as one, client.events(live("message", "q")) as other:
        one.wait_for("ready")
        other.wait_for("ready")
        assert client.refusal("GET", live("message", "r"), status=429)["code"] == "THROTTLED"
        server.terminate()
        assert one.ended() == other.ended() == []
    client.close()
    assert server.wait() == 0
