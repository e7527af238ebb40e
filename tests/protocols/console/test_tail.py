"""Records as they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.console_in_process import ConsoleStand, Opened

from strandline.engine import Batch


def told(tail: Opened) -> list[int]:
    events = tail.events()
    assert all(kind == "record" for kind, _ in events), events
    return [record["seq"] for _, record in events]


def last_id(tail: Opened) -> str:
    """Reads everything, and gives the id of the last event."""
    tail._stand.settle()
    return [block.id for block in tail.sink.blocks() if block.id is not None][-1]


def test_only_what_is_new_is_told_unless_one_says_where_to_begin(stand: ConsoleStand) -> None:
    stand.log("orders", 1, 2, 3)
    new, from_two, all_of_it = (stand.tail(f"/log/orders/tail{query}") for query in ("", "?after=2", "?after=0"))
    assert (told(new), told(from_two), told(all_of_it)) == ([], [3], [1, 2, 3])
    stand.log("orders", 4)
    assert (told(new), told(from_two), told(all_of_it)) == ([4], [4], [4])


def test_a_record_is_told_as_it_is_read(stand: ConsoleStand) -> None:
    tail = stand.tail(f"/log/{'orders'}/tail") if stand.log("orders") else None
    assert tail is not None
    stand.engine.log("orders").append(Batch.of(b'{\n"a":1\n}', "key", meta=b'{"b":2}')).wait()
    ((_, record),) = tail.events()
    assert [record] == stand.get("/log/orders/records")["records"]


def test_whoever_comes_back_goes_on_where_it_was(stand: ConsoleStand) -> None:
    stand.log("orders", 1, 2)
    tail = stand.tail("/log/orders/tail?after=0")
    seen = last_id(tail)
    tail.close()
    stand.log("orders", 3)
    assert told(stand.tail("/log/orders/tail?after=0", last_event_id=seen)) == [3]


def test_a_log_that_was_made_anew_is_told_from_its_start(stand: ConsoleStand) -> None:
    stand.log("orders", 1, 2)
    tail = stand.tail("/log/orders/tail?after=0")
    seen = last_id(tail)
    stand.engine.log("orders").drop().wait()
    stand.log("orders", "a", "b", "c")
    (kind, tombstone), *records = stand.tail("/log/orders/tail", last_event_id=seen).events()
    assert (kind, tombstone["reason"]) == ("tombstone", "recreated")
    assert [record["data"] for _, record in records] == ["a", "b", "c"]


def test_what_was_lost_on_the_way_is_told(stand: ConsoleStand) -> None:
    stand.log("capped", *range(5), cap_records=2)
    (kind, lost), *records = stand.tail("/log/capped/tail?after=0").events()
    assert (kind, lost["gap_from"], lost["gap_to"], lost["reason"]) == ("tombstone", 1, 3, "cap")
    assert [record["seq"] for _, record in records] == [4, 5]


def test_the_end_of_a_log_is_told(stand: ConsoleStand) -> None:
    stand.log("orders", 1)
    tail = stand.tail("/log/orders/tail")
    stand.engine.log("orders").drop().wait()
    ((kind, end),) = tail.events()
    assert (kind, end["log"], tail.sink.is_closed) == ("dropped", "orders", True)


def test_who_does_not_keep_up_gets_everything_later(stand: ConsoleStand) -> None:
    stand.log("orders")
    tail = stand.tail("/log/orders/tail")
    tail.sink.full = True
    stand.log("orders", 1)
    stand.settle()
    stand.log("orders", *range(2, 400))
    stand.settle()
    assert len(tail.sink.data) < 1_000
    tail.resume()
    assert told(tail) == list(range(1, 400))


def test_an_idle_reader_is_told_that_the_connection_is_alive_and_one_that_takes_nothing_is_cut_off(
    stand: ConsoleStand,
) -> None:
    stand.log("orders")
    tail = stand.tail("/log/orders/tail")
    alarms, start = stand.live.alarms, stand.do(stand.live.now)
    stand.do(lambda: alarms.ring(start + 16))
    assert [block.comment for block in tail.sink.blocks()][-1] == ""
    tail.sink.full = True
    stand.log("orders", 1)
    stand.settle()
    tail.sink.blocks()
    stand.do(lambda: tail.stream.too_slow(1.0))
    assert [kind for kind, _ in tail.events()] == ["end"]
    stand.do(lambda: alarms.ring(start + 60))
    assert tail.sink.aborted


def test_sealed_records_are_told_from_the_disk(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, cache_bytes=1) as stand:
        stand.log("orders", *range(300))
        stand.engine.seal()
        stand.log("orders", *range(3))
        tail = stand.tail("/log/orders/tail?after=0")
        found: list[int] = []
        while len(found) < 303:
            found += told(tail)
        assert found == list(range(1, 304))


def test_a_stream_that_is_not_accepted_is_refused(stand: ConsoleStand) -> None:
    stand.log("orders")
    assert stand.refused("/log/orders/tail", accept="application/json") == (406, "not_acceptable")
    assert stand.refused("/log/orders/tail?after=x") == (400, "invalid_request")


@settings(max_examples=25)
@given(steps=st.lists(st.one_of(st.integers(1, 5), st.just("away"), st.just("full")), max_size=15))
def test_whatever_happens_on_the_way_every_record_is_told_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    with ConsoleStand(tmp_path_factory.mktemp("stand")) as stand:
        log, told_to, seen = stand.log("log"), list[int](), ""
        tail = stand.tail("/log/log/tail?after=0")

        def read() -> str:
            stand.settle()
            blocks = [block for block in tail.sink.blocks() if block.event == "record"]
            told_to.extend(block.json["seq"] for block in blocks)
            return blocks[-1].id or "" if blocks else seen

        for step in steps:
            if step == "away":
                seen = read()
                tail.close()
                tail = stand.tail("/log/log/tail?after=0", **({"last_event_id": seen} if seen else {}))
            elif step == "full":
                tail.sink.full = True
            else:
                log.append(Batch([b"1"] * step)).wait()
                stand.settle()
        tail.resume()
        read()
        assert told_to == list(range(1, log.head + 1))
