"""The keys of a log, and what a delete by key would take."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.console_in_process import ConsoleStand


def furnish(stand: ConsoleStand) -> None:
    stand.log("orders", *range(6), keys=["b", "a", None, "a", "ab", "b"])
    stand.engine.seal()
    stand.log("orders", *range(3), keys=["c", "a", "ab"])


def test_keys_are_listed_in_order_with_how_many_records_they_have(stand: ConsoleStand) -> None:
    furnish(stand)
    assert stand.get("/log/orders/keys") == {
        "keys": [
            {"key": "a", "records": 3, "last_seq": 8},
            {"key": "ab", "records": 2, "last_seq": 9},
            {"key": "b", "records": 2, "last_seq": 6},
            {"key": "c", "records": 1, "last_seq": 7},
        ],
        "more": False,
    }


def test_what_is_deleted_does_not_count(stand: ConsoleStand) -> None:
    furnish(stand)
    stand.engine.log("orders").delete(seqs=[1, 6, 8]).wait()
    found = {row["key"]: (row["records"], row["last_seq"]) for row in stand.get("/log/orders/keys")["keys"]}
    assert found == {"a": (2, 4), "ab": (2, 9), "c": (1, 7)}


KEYS = st.lists(st.one_of(st.none(), st.text("abé", min_size=1, max_size=3)), max_size=20)


@settings(max_examples=30)
@given(keys=KEYS, sealed=st.integers(0, 20), prefix=st.sampled_from(["", "a", "ab"]), limit=st.integers(1, 4))
def test_pages_of_keys_put_together_are_all_of_them(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str | None], sealed: int, prefix: str, limit: int
) -> None:
    with ConsoleStand(tmp_path_factory.mktemp("stand")) as stand:
        stand.log("log", *range(len(keys[:sealed])), keys=keys[:sealed])
        stand.engine.seal()
        stand.log("log", *range(len(keys[sealed:])), keys=keys[sealed:])
        found: list[Any] = []
        while True:
            after = f"&after={quote(found[-1]['key'])}" if found else ""
            page = stand.get(f"/log/log/keys?prefix={prefix}&limit={limit}{after}")
            found += page["keys"]
            if not page["more"]:
                break
        wanted = sorted({key for key in keys if key is not None and key.startswith(prefix)})
        assert [(row["key"], row["records"]) for row in found] == [(key, keys.count(key)) for key in wanted]


def test_a_preview_says_what_would_go(stand: ConsoleStand) -> None:
    furnish(stand)
    removal = stand.get("/log/orders/removal?key=a")
    assert (removal["records"], removal["bytes"], removal["first_seq"], removal["last_seq"]) == (3, 3, 2, 8)
    assert [record["seq"] for record in removal["sample"]] == [2, 4, 8]
    assert stand.engine.log("orders").state().count == 9, "nothing has gone"
    nothing = {"records": 0, "bytes": 0, "first_seq": None, "last_seq": None, "sample": []}
    assert stand.get("/log/orders/removal?key=none") == nothing
    assert stand.get("/log/orders/removal?before=1") == nothing


CONDITIONS = [{"key": "a"}, {"prefix": "a"}, {"before": 5}, {"before": 100}, {"key": "a", "before": 4}]


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("fork", [False, True])
def test_what_is_foretold_is_what_goes(stand: ConsoleStand, conditions: dict[str, Any], fork: bool) -> None:
    furnish(stand)
    log = stand.engine.log("orders")
    log.delete(seqs=[4]).wait()
    if fork:
        log = stand.engine.fork("fork", log, 3).wait()
        stand.log("fork", 1, 2, 3, keys=["a", "b", "a"])
    query = "&".join(f"{name}={value}" for name, value in conditions.items())
    foretold = stand.get(f"/log/{log.name}/removal?{query}")
    gone = log.delete(**conditions).wait()
    assert (foretold["records"], foretold["bytes"]) == (gone.count, gone.size)


def test_a_preview_needs_a_condition_and_the_right_to_delete(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "both:read+delete,looks:read,deletes:delete") as stand:
        stand.log("orders", 1, keys=["a"])
        assert stand.refused("/log/orders/removal", key="both") == (400, "invalid_request")
        for key in ("looks", "deletes"):
            assert stand.refused("/log/orders/removal?key=a", key=key) == (403, "forbidden")
        assert stand.get("/log/orders/removal?key=a", key="both")["records"] == 1
