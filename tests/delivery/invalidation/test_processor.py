from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.invalidation_clients import change, declare, field_key, membership_key, touching, watch_key

from strandline.delivery.invalidation.processor import keys_of
from strandline.delivery.invalidation.templates import Template
from strandline.schema.profiles.touch_settings import MemorySettings, TouchSettings

BY_A = Template(declare("posts", "a"), 1, 0, 0)
Row = dict[str, Any]


def watch(a: str) -> int:
    return watch_key("posts", a=a)


def member(a: str) -> int:
    return membership_key("posts", a=a)


def field(name: str, a: str) -> int:
    return field_key("posts", name, a=a)


@pytest.mark.parametrize(
    ("operation", "before", "after", "keys"),
    [
        ("insert", None, {"a": "x"}, {watch("x"), member("x")}),
        ("insert", None, {"a": None}, set()),
        ("insert", None, {"b": 1}, set()),
        ("delete", {"a": "x"}, None, {watch("x"), member("x")}),
        ("delete", None, None, None),
        ("delete", {"b": 1}, None, None),
        ("update", {"a": "x"}, {"a": "y"}, {watch("x"), member("x"), watch("y"), member("y")}),
        ("update", {"a": None}, {"a": "y"}, {watch("y"), member("y")}),
        ("update", {"a": "x", "b": 1}, {"a": "x", "b": 1}, {watch("x")}),
        ("update", {"a": "x", "b": 1, "c": 2}, {"a": "x", "b": 3, "c": 2}, {watch("x"), field("b", "x")}),
        ("update", {"a": "x", "b": 1}, {"a": "x", "b": True}, {watch("x"), field("b", "x")}),
        ("update", {"a": "x"}, {"a": "x", "b": None}, {watch("x"), field("b", "x")}),
        ("update", {"a": "x", "b": [1]}, {"a": "x", "b": [2]}, {watch("x")}),
        ("update", {"a": "x", "b": [1]}, {"a": "x", "b": 2}, {watch("x"), field("b", "x")}),
        ("update", None, {"a": "x"}, None),
        ("update", {"b": 1}, {"a": "x"}, None),
        ("update", {"a": None}, {"a": None}, set()),
    ],
)
def test_what_a_change_touches(operation: str, before: Row | None, after: Row | None, keys: set[int] | None) -> None:
    found = keys_of(BY_A, operation, before, after)
    assert (None if found is None else set(found)) == keys


def test_a_table_is_touched_once_per_interval_and_nothing_is_lost_by_that(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(coarse_interval_ms=1000)) as stand:
        runtime = stand.runtime
        stand.append(change("posts", "delete"))
        stand.run()
        assert stand.generation == 1
        stand.append(change("posts", "delete"), change("posts", "delete"))
        stand.pass_time(500)
        assert stand.generation == 1
        assert not runtime.settled
        assert runtime.processor.owed == 1
        stand.pass_time(500)
        assert stand.generation == 2
        assert runtime.processor.touches_table == 2


def test_everything_but_changes_is_passed_over(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        nothing = [b"5", b"[]", b"{}", b"no JSON", b'{"headers":{"control":"reset"}}', b'{"type":"posts"}']
        nothing += [b'{"type":"","headers":{"operation":"insert"}}', b'{"type":"posts","headers":{"operation":"move"}}']
        stand.append(*nothing)
        stand.run()
        assert stand.runtime.follower.rows == len(nothing)
        assert stand.runtime.follower.empty_batches == 1
        assert stand.runtime.settled
        assert stand.generation == 0


def test_rows_that_nobody_waits_on_are_not_recorded(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        stand.activate(declare("posts", "a"))
        stand.wait(watch("x"), templates=(BY_A.id,))
        stand.append(change("posts", "insert", {"a": "y"}))
        stand.run()
        processor = stand.runtime.processor
        assert processor.skipped_cold_key == 2
        assert processor.touches_template == 0
        stand.append(change("posts", "insert", {"a": "x"}))
        stand.run()
        assert processor.skipped_cold_key == 3
        assert processor.touches_template == 1


def test_templates_that_nobody_waits_on_are_not_looked_at(tmp_path: Path) -> None:
    with touching(tmp_path) as stand:
        stand.activate(declare("posts", "a"))
        stand.pass_time(9000)
        stand.runtime.attend()
        stand.pass_time(5000)
        stand.append(change("posts", "insert", {"a": "y"}))
        stand.run()
        assert stand.runtime.processor.skipped_cold_template == 1
        assert stand.runtime.processor.skipped_cold_key == 0


def test_beyond_the_budget_whole_templates_are_touched(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(fine_budget_per_batch=1)) as stand:
        stand.activate(declare("posts", "a"))
        clients = [stand.wait(watch(name), templates=(BY_A.id,)) for name in "xyz"]
        stand.append(*(change("posts", "insert", {"a": name}) for name in "uvxww"))
        stand.run()
        assert [client.verdict for client in clients] == ["touched", "touched", "touched"]
        assert stand.runtime.processor.dropped_by_budget == 1
        assert stand.runtime.processor.skipped_template_bucket == 1


def test_without_tokens_whole_templates_are_touched_until_there_are_some(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(fine_burst_tokens=1, fine_tokens_per_second=1)) as stand:
        stand.activate(declare("posts", "a"))

        def insert_x() -> str | None:
            """What becomes of somebody who waits on another row, when there is one more that somebody waits on."""
            client = stand.wait(watch("q"), templates=(BY_A.id,))
            stand.wait(watch("x"), templates=(BY_A.id,))
            stand.append(change("posts", "insert", {"a": "x"}))
            stand.pass_time(100)
            return client.verdict

        assert insert_x() is None
        assert insert_x() == "touched"
        stand.pass_time(2000)
        assert insert_x() is None


@pytest.mark.parametrize(
    ("reserved", "mode", "kind"), [(5, "restricted", "templateKey"), (0, "coarseOnly", "tableKey")]
)
def test_far_behind_rows_are_not_told_apart(tmp_path: Path, reserved: int, mode: str, kind: str) -> None:
    configuration = TouchSettings(lag_degrade=3, lag_recover=1, lag_reserved_budget_per_batch=reserved)
    with touching(tmp_path, configuration) as stand:
        stand.activate(declare("posts", "a"))
        waiting = stand.wait(watch("x"), templates=(BY_A.id,))
        nameless = stand.wait(watch("x"))
        stand.append(*(change("posts", "insert", {"a": "y"}) for _ in range(3)))
        late = stand.wait(watch("x"), templates=(BY_A.id,))
        assert stand.runtime.mode == mode
        stand.run()
        assert [client.verdict for client in (waiting, nameless, late)] == ["touched"] * 3
        assert late.answer is not None
        assert late.answer.kind == kind
        assert stand.runtime.mode == "fine"


@pytest.mark.parametrize(
    ("policy", "told"),
    [("coarse", {"x", "y", "z"}), ("skipBefore", {"y"}), ("error", {"x", "y", "z", "other table"})],
)
def test_a_change_that_does_not_say_what_was_before(tmp_path: Path, policy: Any, told: set[str]) -> None:
    with touching(tmp_path, TouchSettings(on_missing_before=policy)) as stand:
        stand.activate(declare("posts", "a"))
        clients = {name: stand.wait(watch(name), templates=(BY_A.id,)) for name in "xyz"}
        clients["other table"] = stand.wait(watch_key("users", a="x"), coarse=True)
        stand.append(change("posts", "update", {"a": "y"}))
        stand.run()
        assert {name for name, client in clients.items() if client.verdict == "touched"} == told


def test_who_waits_on_many_keys_makes_all_keys_interesting(tmp_path: Path) -> None:
    with touching(tmp_path, TouchSettings(memory=MemorySettings(key_index_max_keys=2))) as stand:
        stand.activate(declare("posts", "a"))
        broad = stand.wait(*(watch(name) for name in "uvx"), templates=(BY_A.id,))
        assert not stand.runtime.processor.filters_keys
        assert stand.runtime.waiters.broad_fine == 1
        stand.append(change("posts", "insert", {"a": "y"}))
        stand.run()
        assert broad.verdict is None
        stand.append(change("posts", "insert", {"a": "x"}))
        stand.pass_time(200)
        assert broad.verdict == "touched"
