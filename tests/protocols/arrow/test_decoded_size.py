from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrow_client import encode

from strandline.protocols.arrow.decoder import decompressed_size

ROWS = st.lists(st.none() | st.binary(max_size=50), max_size=30)


@given(ROWS, st.sampled_from(["zstd", "lz4"]), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_compressed_stream_weighs_what_it_holds(rows: list[Any], compression: str, shared: bool) -> None:
    column = pa.array(rows, pa.binary())
    table = pa.table(
        {"a": column.dictionary_encode() if shared else column, "b": pa.array(range(len(rows)), pa.int64())}
    )
    plain, compressed = decompressed_size(encode(table)), decompressed_size(encode(table, compression))
    # What is not compressed is padded: each of a few buffers to a multiple of eight bytes.
    assert compressed <= plain <= compressed + 100


def test_a_small_body_that_stands_for_a_large_one_is_seen_through() -> None:
    body = encode(pa.table({"a": ["x" * (10 << 20)]}), "zstd")
    assert len(body) < 10_000
    assert decompressed_size(body) > 10 << 20


@pytest.mark.parametrize("body", [b"abc", b"\xff" * 100, encode(pa.table({"a": ["x"]}))[:100]])
def test_what_is_no_stream_is_an_error_of_arrows(body: bytes) -> None:
    with pytest.raises((pa.ArrowException, OSError)):
        decompressed_size(body)
