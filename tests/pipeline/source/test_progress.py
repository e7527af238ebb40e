from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.engine import Engine
from strandline.pipeline.source.frames import ROWS, BadFrame
from strandline.pipeline.source.progress import LostCheckpoint
from strandline.pipeline.source.stream_writer import append_batch, local_rows
from strandline.pipeline.source.targets import DirectoryTarget


class Killed(Exception):
    pass


class DyingTarget(DirectoryTarget):
    """The process dies at one of the appends: before it is made, or before anybody learns that it was."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.left = 1 << 30
        self.late = False

    def append(self, *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0 and not self.late:
            raise Killed
        done = super().append(*arguments, **options)
        if self.left < 0:
            raise Killed
        return done


@pytest.fixture
def target(tmp_path: Path) -> Iterator[DyingTarget]:
    with Engine.open(tmp_path / "data", background=False) as engine:
        yield DyingTarget(engine)


def rows(*found: tuple[str | None, int | None, int], log: str = "b") -> Any:
    """Rows of a source, a position and a number that is the payload."""
    return pa.Table.from_pylist(
        [
            {"log": log, "data": b"%d" % number, "source": source, "position": position}
            for source, position, number in found
        ],
        schema=ROWS,
    )


def write(
    target: DirectoryTarget, table: Any, query: str, batch: int, *, size: int = 3, positions: bool = True
) -> None:
    append_batch(target, local_rows(table, positions=positions), query, batch, "w", positions=positions, max_rows=size)


def read(target: DirectoryTarget, log: str = "b") -> list[int]:
    found = target._engine.find(log)
    return [] if found is None else [int(record.data) for record in found.read(0, 10_000)]


ONE = [("a", number, number) for number in range(1, 9)]
NOWHERE = [(None, None, number) for number in range(1, 9)]


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("appends", range(4))
def test_a_batch_that_was_interrupted_anywhere_is_completed_when_it_comes_again(
    target: DyingTarget, positions: bool, late: bool, appends: int
) -> None:
    batch = rows(*(ONE if positions else NOWHERE))
    target.left, target.late = appends, late
    try:
        write(target, batch, "q", 0, positions=positions)
    except Killed:
        pass
    target.left = 1 << 30
    write(target, batch, "q", 0, positions=positions)
    write(target, batch, "q", 0, positions=positions)
    assert read(target) == list(range(1, 9))


def test_rows_without_positions_that_come_in_another_order_are_refused_rather_than_doubled(target: DyingTarget) -> None:
    target.left = 1
    with pytest.raises(Killed):
        write(target, rows(*NOWHERE), "q", 0, positions=False)
    target.left = 1 << 30
    with pytest.raises(LostCheckpoint, match="3 rows of batch 0 are in log 'b' already"):
        write(target, rows(*reversed(NOWHERE)), "q", 0, positions=False)
    assert read(target) == [1, 2, 3]


def test_rows_with_positions_may_come_in_any_order(target: DyingTarget) -> None:
    target.left = 1
    with pytest.raises(Killed):
        write(target, rows(*ONE), "q", 0)
    target.left = 1 << 30
    write(target, rows(*reversed(ONE)), "q", 0)
    assert read(target) == list(range(1, 9))


def test_a_lost_checkpoint_doubles_nothing_where_rows_have_positions(target: DyingTarget) -> None:
    write(target, rows(*ONE[:5]), "first", 0)
    write(target, rows(*ONE[5:7]), "first", 1)
    for place, each in enumerate(ONE):
        write(target, rows(each), "second", place)
    assert read(target) == list(range(1, 9))


def test_a_lost_checkpoint_is_refused_where_they_have_none(target: DyingTarget) -> None:
    write(target, rows(*NOWHERE), "first", 0, positions=False)
    for batch in (0, 1):
        with pytest.raises(LostCheckpoint, match="the checkpoint is lost, or another query"):
            write(target, rows(*NOWHERE), "second", batch, positions=False)
    with pytest.raises(LostCheckpoint):
        write(target, rows(*ONE), "second", 2)
    assert read(target) == list(range(1, 9))


def test_a_checkpoint_that_was_put_back_in_time_is_refused_too(target: DyingTarget) -> None:
    for batch in range(3):
        write(target, rows((None, None, batch)), "q", batch, positions=False)
    with pytest.raises(LostCheckpoint):
        write(target, rows((None, None, 9)), "q", 1, positions=False)
    assert read(target) == [0, 1, 2]


def test_nothing_is_appended_to_any_log_if_one_of_them_refuses(target: DyingTarget) -> None:
    write(target, rows((None, None, 1), log="z"), "first", 0, positions=False)
    both = pa.concat_tables([rows((None, None, 2), log="a"), rows((None, None, 3), log="z")])
    with pytest.raises(LostCheckpoint):
        write(target, both, "second", 0, positions=False)
    assert read(target, "a") == []


def test_rows_that_come_late_are_appended_and_then_positions_are_not_believed_any_more(target: DyingTarget) -> None:
    """A join gives rows in an order of its own."""
    write(target, rows(("a", 5, 5)), "first", 0)
    write(target, rows(("a", 3, 3)), "first", 1)
    assert read(target) == [5, 3]
    with pytest.raises(LostCheckpoint):
        write(target, rows(("a", 4, 4)), "second", 0)


def test_rows_of_one_position_go_together(target: DyingTarget) -> None:
    target.left = 1
    with pytest.raises(Killed):
        write(target, rows(("a", 1, 10), ("a", 1, 11), ("a", 2, 20), ("a", 2, 21)), "first", 0)
    assert read(target) == [10, 11]
    target.left = 1 << 30
    write(target, rows(("a", 1, 10), ("a", 1, 11), ("a", 2, 20), ("a", 2, 21)), "second", 0)
    assert read(target) == [10, 11, 20, 21]
    with pytest.raises(BadFrame, match="too many rows have position 3 of source 'a'"):
        write(target, rows(*[("a", 3, 30)] * 4), "second", 1)


LENGTHS = st.fixed_dictionaries({name: st.integers(0, 12) for name in "abc"})
#: How often a batch is killed, after how many appends, and whether the last of them was made.
KILLS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=2)
#: Up to which share of what is there a batch goes, how it is killed, and whether the checkpoint is lost then.
BATCHES = st.lists(st.tuples(st.integers(1, 4), KILLS, st.integers(0, 3)), max_size=8)


@settings(max_examples=40, deadline=None)
@given(LENGTHS, BATCHES, st.randoms(use_true_random=False))
def test_whatever_happens_every_row_is_there_once(lengths: dict[str, int], batches: list[Any], random: Any) -> None:
    """Batches cut anywhere, kills at any append, repetitions in another order, and checkpoints that get lost."""
    with TemporaryDirectory() as place, Engine.open(place, background=False) as engine:
        target = DyingTarget(engine)
        query, batch, done = 0, 0, dict.fromkeys(lengths, 0)
        for share, kills, lost in [*batches, (1, [], 1)]:
            end = {name: done[name] + (length - done[name]) // share for name, length in lengths.items()}
            found = [
                (name, seq, 1000 * ord(name) + seq) for name in done for seq in range(done[name] + 1, end[name] + 1)
            ]
            for target.left, target.late in [*kills, (1 << 30, False)]:
                random.shuffle(found)
                try:
                    write(target, rows(*found), f"q{query}", batch)
                except Killed:
                    pass
            batch, done = batch + 1, end
            if lost == 0:
                query, batch, done = query + 1, 0, dict.fromkeys(lengths, 0)
        numbers = read(target)
        assert sorted(numbers) == [1000 * ord(name) + seq for name in "abc" for seq in range(1, lengths[name] + 1)]
        for name in lengths:
            of_source = [number for number in numbers if number // 1000 == ord(name)]
            assert of_source == sorted(of_source)
