from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocols.arrow.encoder import encoded

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def batch(numbers: list[int]) -> Any:
    return pa.record_batch([pa.array(numbers, pa.int64()), pa.array(map(str, numbers), pa.string())], schema=SCHEMA)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=4), st.sampled_from([None, "zstd", "lz4"]))
@settings(max_examples=60, deadline=None)
def test_the_pieces_make_a_stream_of_the_same_batches(batches: list[list[int]], compression: str | None) -> None:
    pieces = list(encoded(SCHEMA, iter([batch(numbers) for numbers in batches]), compression))
    assert len(pieces) == len(batches) + 1
    reader = pa.ipc.open_stream(b"".join(pieces))
    assert reader.schema == SCHEMA
    assert [found.to_pydict()["n"] for found in reader] == batches


def test_a_stream_of_nothing_has_its_schema() -> None:
    (piece,) = encoded(SCHEMA, iter([]))
    assert pa.ipc.open_stream(piece).read_all().schema == SCHEMA


def test_part_of_a_batch_takes_no_more_room_than_it_needs() -> None:
    whole = batch(list(range(1000)))
    first, _ = encoded(SCHEMA, iter([whole.slice(500, 10)]))
    assert len(first) < 2000
