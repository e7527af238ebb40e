"""Records of any log, from anywhere in it, forwards and backwards."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.console_in_process import NOW, ConsoleStand

from strandline.engine import Batch, Log
from strandline.protocols.console.read import backwards, backwards_with_key, forwards


def seqs(page: Any) -> list[int]:
    return [record["seq"] for record in page["records"]]


def test_json_is_embedded_as_it_was_written(stand: ConsoleStand) -> None:
    log = stand.log("orders")
    log.append(Batch.of(b'{"a": 1.50}', "key", "node", b'{"trace":"x"}')).wait()
    answered = stand.ask("GET", "/console/api/log/orders/records")
    assert b'"data":{"a": 1.50}' in answered.body
    assert answered.json == {
        "records": [
            {"seq": 1, "ts": NOW, "key": "key", "node": "node", "meta": {"trace": "x"}, "data": {"a": 1.5}},
        ],
        "tombstone": None,
        "head": 1,
        "earliest": 1,
        "first": 1,
        "next_after": 1,
        "caught_up": True,
    }


@pytest.mark.parametrize(
    ("media_type", "body", "member"),
    [
        ("text/plain", "grüße\n".encode(), {"text": "grüße\n"}),
        ("text/plain", b"\xff", {"base64": "/w=="}),
        ("application/xml", b"<a/>", {"text": "<a/>"}),
        ("image/png", b"\x89PNG", {"base64": "iVBORw=="}),
        ("application/octet-stream", b"text", {"base64": "dGV4dA=="}),
        ("application/ld+json", b'{"a":1}', {"data": {"a": 1}}),
        ("application/ld+json", b"{", {"text": "{"}),
    ],
)
def test_what_is_no_json_is_shown_as_what_it_is(
    stand: ConsoleStand, media_type: str, body: bytes, member: dict[str, Any]
) -> None:
    stand.stream("stream", media_type, body)
    assert stand.get("/log/stream/records")["records"] == [{"seq": 1, "ts": NOW, **member}]


def test_meta_that_is_no_json_is_shown_all_the_same(stand: ConsoleStand) -> None:
    stand.log("orders").append(Batch.of(b"1", meta=b"\x00")).wait()
    assert stand.get("/log/orders/records")["records"][0]["meta"] == {"base64": "AA=="}


def test_an_amended_record_shows_its_new_data_and_a_hidden_one_is_not_shown(stand: ConsoleStand) -> None:
    log = stand.log("votes", 1, 2, 3)
    log.amend(2, b'"other"').wait()
    log.hide(seqs=[1]).wait()
    assert [record["data"] for record in stand.get("/log/votes/records")["records"]] == ["other", 3]


def test_records_are_found_by_time_and_by_key(stand: ConsoleStand) -> None:
    for number in range(6):
        stand.log("orders", number, keys=[f"user-{number % 3}"])
        stand.clock.advance(10)
    assert seqs(stand.get(f"/log/orders/records?at={NOW + 30}")) == [4, 5, 6]
    assert seqs(stand.get(f"/log/orders/records?at={NOW + 21}&limit=1")) == [4]
    assert seqs(stand.get("/log/orders/records?key=user-1")) == [2, 5]
    assert seqs(stand.get("/log/orders/records?prefix=user-&after=4")) == [5, 6]
    assert seqs(stand.get("/log/orders/records?key=user-1&before=5")) == [2]
    assert seqs(stand.get("/log/orders/records?prefix=user&before=6&limit=2")) == [4, 5]
    assert stand.get("/log/orders/records?key=none&before=6")["caught_up"] is True


def test_what_was_lost_is_shown_where_it_was(stand: ConsoleStand) -> None:
    log = stand.log("capped", *range(10), cap_records=4)
    forwards = stand.get("/log/capped/records")
    assert seqs(forwards) == [7, 8, 9, 10]
    lost = {"gap_from": 1, "gap_to": 6, "reason": "cap", "earliest": 7, "head": 10, "missed": 6}
    assert forwards["tombstone"] == lost
    assert stand.get("/log/capped/records?before=11&limit=2")["tombstone"] is None
    back = stand.get("/log/capped/records?before=9")
    assert (seqs(back), back["tombstone"], back["caught_up"]) == ([7, 8], lost, True)
    log.skip(3, "lost").wait()
    stand.log("capped", 14)
    back = stand.get("/log/capped/records?before=100")
    assert (seqs(back), back["tombstone"]["gap_from"], back["tombstone"]["gap_to"]) == ([14], 11, 13)
    assert (back["first"], back["caught_up"]) == (14, False)
    assert seqs(stand.get("/log/capped/records?before=14")) == [8, 9, 10]


def test_sealed_records_are_read_from_the_disk(stand: ConsoleStand) -> None:
    stand.log("orders", *range(50), keys=["even", "odd"] * 25)
    stand.engine.seal()
    stand.log("orders", *range(10), keys=["even", "odd"] * 5)
    assert seqs(stand.get("/log/orders/records?before=52&limit=3")) == [49, 50, 51]
    assert seqs(stand.get("/log/orders/records?key=odd&before=100&limit=7")) == [48, 50, 52, 54, 56, 58, 60]


def test_a_log_that_is_empty_has_nothing_either_way(stand: ConsoleStand) -> None:
    stand.log("empty")
    for query in ("", "?before=5", "?before=0", "?before=5&key=a", "?after=0", "?at=0"):
        page = stand.get(f"/log/empty/records{query}")
        assert (page["records"], page["first"], page["caught_up"]) == ([], None, True), query


@pytest.mark.parametrize("query", ["after=1&before=2", "after=x", "at=yesterday", "limit=0", "limit=1001", "before=-1"])
def test_what_makes_no_sense_is_refused(stand: ConsoleStand, query: str) -> None:
    stand.log("orders", 1)
    assert stand.refused(f"/log/orders/records?{query}") == (400, "invalid_request")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("skip"), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.integers(1, 30)),
        st.tuples(st.just("hide"), st.integers(1, 30)),
        st.tuples(st.just("seal"), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(steps=STEPS, limit=st.integers(1, 5), cap=st.sampled_from([0, 4]))
def test_pages_put_together_are_the_log_in_either_direction(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], limit: int, cap: int
) -> None:
    with ConsoleStand(tmp_path_factory.mktemp("stand")) as stand:
        log = stand.log("log", cap_records=cap)
        for what, number in steps:
            if what == "append":
                keys = [f"key-{each % 2}" for each in range(number)]
                log.append(Batch([b"1"] * number, keys=keys)).wait()
            elif what == "skip":
                log.skip(number, "lost").wait()
            elif what == "delete":
                log.delete(seqs=[number]).wait()
            elif what == "hide":
                log.hide(seqs=[number]).wait()
            else:
                stand.engine.seal()
        everything = pages_forwards(log, limit)
        assert everything == pages_backwards(log, limit)
        with_key = pages_forwards(log, limit, "key-1")
        assert set(with_key) <= set(everything)
        assert with_key == pages_backwards(log, limit, "key-1")


def pages_forwards(log: Log, limit: int, key: str | None = None) -> list[int]:
    seqs, after = list[int](), 0
    while True:
        page = forwards(log, after, None, limit, key, None)
        seqs += [record.seq for record in page.records]
        if page.caught_up:
            return seqs
        assert page.next_after > after
        after = page.next_after


def pages_backwards(log: Log, limit: int, key: str | None = None) -> list[int]:
    seqs, before = list[int](), log.head + 1
    while True:
        found = backwards(log, before, limit) if key is None else backwards_with_key(log, before, limit, key, None)
        seqs = [record.seq for record in found.records] + seqs
        assert len(found.records) <= limit
        if found.caught_up:
            return seqs
        before = found.records[0].seq
