"""Rows that tasks stage on a server and that the driver appends by reference, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrow_client import ArrowClient
from support.server_process import ServerProcess

from strandline.history.remote import ServerTarget
from strandline.pipeline.source.frames import ROWS
from strandline.pipeline.source.option_values import BadOption
from strandline.pipeline.source.options import LogLocation, WriteOptions
from strandline.pipeline.source.stream_writer import append_batch, runs_of, staged, staged_rows, writer_name


@pytest.fixture
def arrow(server: ServerProcess) -> Iterator[ArrowClient]:
    client = ArrowClient(server.url)
    yield client
    client.close()


class Query:
    """What Spark does with a sink: the partitions of a batch are staged by tasks, and committed by the driver."""

    def __init__(self, url: str, *, positions: bool = False, max_rows: int = 1000) -> None:
        self.options = WriteOptions(place=LogLocation(url=url), batch_rows=4)
        self.target: Any = ServerTarget(url)
        self.positions = positions
        self.max_rows = max_rows

    def stage(self, partitions: Sequence[Sequence[tuple[str, int]]]) -> list[Any]:
        return [
            part
            for rows in partitions
            for part in staged(iter(self._batches(rows)), self.options, positions=self.positions)
        ]

    def commit(self, batch: int, parts: Sequence[Any]) -> None:
        append_batch(self.target, staged_rows(parts), "q", batch, "w", positions=self.positions, max_rows=self.max_rows)

    def _batches(self, rows: Sequence[tuple[str, int]]) -> list[Any]:
        origin = ("s" if self.positions else None,)
        made = [
            {"log": log, "data": b"%d" % number, "key": f"k{number}", "source": origin[0],
             "position": number if self.positions else None}
            for log, number in rows
        ]  # fmt: skip
        return [pa.RecordBatch.from_pylist(made, schema=ROWS)] if made else []


def split(rows: Sequence[tuple[str, int]], partitions: int, seed: int) -> list[list[tuple[str, int]]]:
    """The rows in any order, in some partitions."""
    random, left = Random(seed), list(rows)
    random.shuffle(left)
    return [left[start::partitions] for start in range(partitions)]


def test_a_batch_that_comes_again_in_other_partitions_and_another_order_is_appended_once(arrow: ArrowClient) -> None:
    one, two = "stream-writer-a", "stream-writer-b"
    rows = [(log, number) for number in range(40) for log in (one, two)]
    query = Query(arrow.url)
    first = query.stage(split(rows, 3, 1))
    # The driver dies between the appends to the two logs.
    query.target = DyingTarget(query.target)
    with pytest.raises(InterruptedError):
        query.commit(0, first)
    assert (len(arrow.seqs(one)), arrow.request("GET", f"records/{two}").status_code) == (40, 404)
    query.target = query.target.target
    for seed, partitions in ((2, 5), (3, 1)):
        query.commit(0, query.stage(split(rows, partitions, seed)))
    for log in (one, two):
        assert sorted(arrow.values(log)) == list(range(40))
        assert {row["key"] for row in arrow.read(log).to_pylist()} == {f"k{number}" for number in range(40)}


class DyingTarget:
    """Dies after the first append."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def append_staged(self, *arguments: Any, **options: Any) -> None:
        self.target.append_staged(*arguments, **options)
        raise InterruptedError


def test_rows_with_positions_are_in_order_and_a_large_batch_goes_on_where_it_was(arrow: ArrowClient) -> None:
    log = "stream-writer-positions"
    rows = [(log, number) for number in range(50)]
    query = Query(arrow.url, positions=True, max_rows=20)
    first = query.stage(split(rows, 4, 1))
    query.target = DyingTarget(query.target)
    with pytest.raises(InterruptedError):
        query.commit(0, first)
    assert arrow.values(log) == list(range(20))
    query.target = query.target.target
    query.commit(0, query.stage(split(rows, 2, 2)))
    assert arrow.values(log) == list(range(50))
    query.commit(1, query.stage(split([(log, number) for number in range(50, 60)], 3, 3)))
    assert arrow.values(log) == list(range(60))


def test_rows_that_the_log_does_not_accept_fail_the_task_and_leave_nothing_staged(
    arrow: ArrowClient, server: ServerProcess
) -> None:
    log = "stream-writer-invalid"
    query = Query(arrow.url)
    bad = pa.RecordBatch.from_pylist([{"log": log, "data": b"{"}], schema=ROWS)
    before = sorted(server.data.glob("staged/*"))
    with pytest.raises(Exception, match=r"row 1: .* not valid JSON"):
        staged(iter([*query._batches([(log, number) for number in range(9)]), bad]), query.options, positions=False)
    assert sorted(server.data.glob("staged/*")) == before


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=30))
def test_runs_are_the_rows_in_their_order(rows: list[tuple[int, int]]) -> None:
    parts, places = (np.array([row[each] for row in rows], np.int64) for each in (0, 1))
    used, runs = runs_of(parts, places)
    assert [(used[part], first + at) for part, first, count in runs for at in range(count)] == rows
    assert json.dumps(runs)


def test_a_stream_is_known_by_its_name_or_by_where_its_checkpoint_is() -> None:
    place = LogLocation(path="/d")
    assert writer_name(WriteOptions(place=place, writer="w", checkpoint="/c")) == "w"
    names = {writer_name(WriteOptions(place=place, checkpoint=each)) for each in ("/c", "/c/", "file:///c", "file:/c")}
    assert len(names) == 1
    assert names != {writer_name(WriteOptions(place=place, checkpoint="/d"))}
    with pytest.raises(BadOption, match="set the option writer"):
        writer_name(WriteOptions(place=place))
    with pytest.raises(BadOption, match="1 to 55 printable"):
        writer_name(WriteOptions(place=place, writer="w" * 56))
