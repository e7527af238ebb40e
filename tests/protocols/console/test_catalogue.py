"""Logs in any order, a page at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.console_in_process import NOW, ConsoleStand

from strandline.engine import Batch
from strandline.protocols.console.catalogue import KEEP_MS, MAX_PREFIXES, SORTS, STALE_MS


def names(stand: ConsoleStand, query: str = "", **options: Any) -> list[str]:
    return [row["name"] for row in stand.get(f"/logs?{query}", **options)["logs"]]


def furnish(stand: ConsoleStand) -> None:
    stand.log("orders", "first", "second")
    stand.put("jobs", type="queue")
    stand.stream("pictures", "image/png", b"\x00" * 100)
    stand.engine.create("basket/1", notes={"collection": "baskets"}).wait()
    stand.engine.create("votes/1", notes={"table": "votes"}).wait()
    stand.log("_own", 1)


def test_a_log_is_shown_with_what_is_true_of_it(stand: ConsoleStand) -> None:
    stand.log("orders", "first", "second", durability="memory")
    assert stand.get("/logs") == {
        "logs": [
            {
                "name": "orders",
                "kind": "topic",
                "durability": "memory",
                "head": 2,
                "earliest": 1,
                "records": 2,
                "bytes": 15,
                "rate": 0.0,
                "recent": [],
                "lag": None,
                "last_ts": NOW,
            }
        ],
        "total": 1,
    }


def test_logs_of_every_protocol_are_listed_and_the_servers_own_are_not(stand: ConsoleStand) -> None:
    furnish(stand)
    kinds = {row["name"]: row["kind"] for row in stand.get("/logs")["logs"]}
    assert kinds == {
        "basket/1": "collection",
        "jobs": "queue",
        "orders": "topic",
        "pictures": "stream",
        "votes/1": "table",
    }
    for name, kind in kinds.items():
        assert names(stand, f"kind={kind}") == [name]


def test_names_are_searched_in_capitals_or_not(stand: ConsoleStand) -> None:
    furnish(stand)
    stand.log("ORDERS-2")
    assert names(stand, "search=rders") == ["ORDERS-2", "orders"]
    assert names(stand, "search=Orders&kind=topic&order=desc") == ["orders", "ORDERS-2"]
    assert stand.get("/logs?search=nothing") == {"logs": [], "total": 0}


def test_logs_are_sorted_by_what_one_wants_to_know(stand: ConsoleStand) -> None:
    stand.log("small", "x" * 50)
    stand.clock.advance(1)
    stand.log("large", 1, 2, 3)
    stand.log("empty")
    assert names(stand, "sort=records") == ["large", "small", "empty"]
    assert names(stand, "sort=records&order=asc") == ["empty", "small", "large"]
    assert names(stand, "sort=bytes") == ["small", "large", "empty"]
    assert names(stand, "sort=last") == ["large", "small", "empty"]
    assert names(stand, "sort=last&order=asc") == ["small", "large", "empty"], "what is not known comes last"
    stand.sample()
    stand.log("small", 1)
    stand.sample()
    assert names(stand, "sort=rate")[0] == "small"


def test_the_lag_is_that_of_the_slowest_consumer(stand: ConsoleStand) -> None:
    stand.log("behind", *range(10)).move_cursor("consumer:one", 3).wait()
    stand.engine.log("behind").move_cursor("consumer:two", 9).wait()
    stand.log("with", *range(10)).move_cursor("consumer:one", 10).wait()
    stand.log("alone", 1).move_cursor("router:other", 0).wait()
    rows = {row["name"]: row["lag"] for row in stand.get("/logs?sort=lag")["logs"]}
    assert list(rows.items()) == [("behind", 7), ("with", 0), ("alone", None)]
    assert names(stand, "sort=lag&order=asc") == ["with", "behind", "alone"]


def test_a_key_sees_the_names_it_may_touch(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "app:read:app-|api-,all:read") as stand:
        for name in ("app-1", "app-2", "api-1", "other"):
            stand.log(name)
        for query in ("", "sort=records", "search=p"):
            found = stand.get(f"/logs?{query}", key="app")
            assert sorted(row["name"] for row in found["logs"]) == ["api-1", "app-1", "app-2"]
            assert found["total"] == 3
        assert len(names(stand, key="all")) == 4


def test_what_was_deleted_and_is_kept_for_its_forks_is_not_listed(stand: ConsoleStand) -> None:
    stand.stream("source", "application/json", b"1")
    forked = stand.ask("PUT", "/v1/stream/fork", b"", stream_forked_from="/v1/stream/source")
    assert forked.status == 201, forked
    assert stand.ask("DELETE", "/v1/stream/source").status == 204
    for query in ("", "sort=records"):
        assert names(stand, query) == ["fork"]
        assert stand.get(f"/logs?{query}")["total"] == 1
    assert stand.get("/overview")["totals"]["logs"] == 1


@pytest.mark.parametrize(
    "query", ["sort=colour", "order=up", "kind=cat", "limit=0", "limit=1001", "offset=-1", "offset=x"]
)
def test_what_makes_no_sense_is_refused(stand: ConsoleStand, query: str) -> None:
    assert stand.refused(f"/logs?{query}") == (400, "invalid_request")


NAMES = st.lists(st.text("abAB/1é_", min_size=1, max_size=4), max_size=20, unique=True)


@settings(max_examples=25)
@given(
    names=NAMES,
    counts=st.lists(st.integers(0, 3), min_size=20, max_size=20),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(["asc", "desc"]),
    search=st.sampled_from(["", "a", "1"]),
    limit=st.integers(1, 7),
    small=st.sampled_from([0, 100]),
)
def test_pages_put_together_are_the_whole_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    counts: list[int],
    sort: str,
    order: str,
    search: str,
    limit: int,
    small: int,
) -> None:
    with ConsoleStand(tmp_path_factory.mktemp("stand"), small=small) as stand:
        for name, count in zip(names, counts, strict=False):
            log = stand.engine.create(name).wait()
            if count:
                stand.clock.advance(1)
                log.append(Batch([b"1" * count] * count)).wait()
        query = urlencode({"sort": sort, "order": order, "search": search, "limit": limit})
        rows: list[Any] = []
        while True:
            page = stand.get(f"/logs?{query}&offset={len(rows)}")
            rows += page["logs"]
            assert len(page["logs"]) == min(limit, page["total"] - len(rows) + len(page["logs"]))
            if len(rows) >= page["total"]:
                break
        wanted = sorted(each for each in names if each[0] != "_" and search in each.lower())
        assert sorted(row["name"] for row in rows) == wanted
        column = {"last": "last_ts"}.get(sort, sort)
        values = [row[column] for row in rows]
        known = [value for value in values if value is not None]
        assert values == [*known, *[None] * (len(values) - len(known))]
        assert known == sorted(known, reverse=order == "desc")


def test_a_large_table_is_kept_while_pages_are_turned(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, small=0) as stand:
        stand.log("one", 1)
        assert names(stand, "sort=records") == ["one"]
        stand.log("two", 1, 2)
        assert names(stand, "sort=records") == ["one"], "the order is that of a moment ago"
        assert names(stand) == ["one", "two"], "that of names is always as of now"
        stand.log("one", 3)
        assert stand.get("/logs?sort=records")["logs"][0]["records"] == 2, "and so is what is shown"
        stand.clock.advance(KEEP_MS)
        assert names(stand, "sort=records") == ["one"], "nobody waits for the new one"
        stand.run(stand.catalogue.made())
        assert names(stand, "sort=records") == ["one", "two"]
        stand.log("three", *range(9))
        stand.clock.advance(STALE_MS)
        assert names(stand, "sort=records")[0] == "three", "what is that old is not shown any more"


def test_a_log_that_is_dropped_while_its_page_is_made_is_left_out(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, small=0) as stand:
        stand.log("one", 1)
        stand.log("two", 1)
        assert len(names(stand, "sort=records")) == 2
        stand.engine.log("one").drop().wait()
        assert names(stand, "sort=records") == ["two"]


def test_names_may_be_anything_printable(stand: ConsoleStand) -> None:
    for name in ("a/b/c", "records/tail", "ünïcode", "with space", "100%"):
        stand.log(name, {"name": name})
        assert stand.get(f"/log/{quote(name, safe='')}")["name"] == name
        for below in ("records", "keys"):
            stand.get(f"/log/{quote(name, safe='')}/{below}")
        assert names(stand, urlencode({"search": name})) == [name]


def test_names_are_found_by_the_parts_of_their_prefixes(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "all,shops:read:shop:eu:|other") as stand:
        for name in ("shop:eu:orders", "shop:eu:payments", "shop:us:orders", "shop:us/web", "single:one", "other"):
            stand.log(name)

        def prefixes(under: str = "", key: str = "all") -> dict[str, int]:
            answer = stand.get(f"/prefixes?{urlencode({'under': under})}", key=key)
            return {one["prefix"]: one["logs"] for one in answer["prefixes"]}

        assert prefixes() == {"shop:": 4}
        assert prefixes("shop:") == {"shop:eu:": 2}
        assert prefixes("shop:eu:") == {}
        assert prefixes(key="shops") == {"shop:": 2}
        assert prefixes("none:") == {}
        assert names(stand, "under=shop:us", key="all") == ["shop:us/web", "shop:us:orders"]
        assert names(stand, "under=shop:", key="shops") == ["shop:eu:orders", "shop:eu:payments"]
        assert names(stand, "under=shop:&search=orders", key="all") == ["shop:eu:orders", "shop:us:orders"]


def test_the_prefixes_with_the_most_names_are_shown(stand: ConsoleStand) -> None:
    for number in range(MAX_PREFIXES + 5):
        for at in range(3 if number < MAX_PREFIXES else 2):
            stand.log(f"group-{number:03}:{at}")
    shown = [one["prefix"] for one in stand.get("/prefixes")["prefixes"]]
    assert shown == [f"group-{number:03}:" for number in range(MAX_PREFIXES)]
