"""A task that appends, is interrupted, and is tried again, while the attempt before may still be at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.engine import Engine
from strandline.pipeline.source.frames import ROWS
from strandline.pipeline.source.options import LogLocation, WriteOptions
from strandline.pipeline.source.targets import DirectoryTarget
from strandline.pipeline.source.writer import FrameAppender, chunks

OPTIONS = WriteOptions(place=LogLocation(path="/"), batch_rows=3)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[DirectoryTarget]:
    with Engine.open(tmp_path / "data", background=False) as engine:
        yield DirectoryTarget(engine)


def rows(first: int, last: int, log: str = "a") -> Any:
    return pa.Table.from_pylist(
        [{"log": log, "data": b"%d" % number} for number in range(first, last + 1)], schema=ROWS
    )


def read(target: DirectoryTarget, log: str = "a") -> list[int]:
    found = target._engine.find(log)
    return [] if found is None else [int(record.data) for record in found.read(0, 1000)]


def test_an_attempt_goes_on_behind_what_the_one_before_appended(target: DirectoryTarget) -> None:
    FrameAppender(target, "job-1", OPTIONS, False).append("a", rows(1, 5))
    again = FrameAppender(target, "job-1", OPTIONS, True)
    again.append("a", rows(1, 4))
    again.append("b", rows(1, 2, "b"))
    again.append("a", rows(5, 9))
    assert read(target) == list(range(1, 10))
    assert read(target, "b") == [1, 2]
    assert again.logs == ["a", "b"]


def test_attempts_that_run_at_the_same_time_append_everything_once(target: DirectoryTarget) -> None:
    first, second = FrameAppender(target, "job-1", OPTIONS, False), FrameAppender(target, "job-1", OPTIONS, True)
    first.append("a", rows(1, 4))
    second.append("a", rows(1, 6))
    first.append("a", rows(5, 9))
    second.append("a", rows(7, 12))
    first.append("a", rows(10, 12))
    assert read(target) == list(range(1, 13))


def test_tasks_of_one_job_do_not_know_of_each_other(target: DirectoryTarget) -> None:
    for task in range(3):
        FrameAppender(target, f"job-{task}", OPTIONS, False).append("a", rows(1, 2))
    assert read(target) == [1, 2] * 3


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 5))
def test_chunks_hold_all_rows_in_order_and_no_more_than_they_may(sizes: list[int], most: int) -> None:
    table = pa.table({"data": pa.array([bytes(size) for size in sizes], pa.binary())})
    found = list(chunks(table, most, 40))
    assert [place for start, end in found for place in range(start, end)] == list(range(len(sizes)))
    for start, end in found:
        assert end - start <= most
        assert end - start == 1 or sum(sizes[start:end]) <= 40
