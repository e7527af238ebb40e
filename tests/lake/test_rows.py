from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.history.pieces import record_batch
from strandline.lake.layout import RECORDS, lake_rows, split_text


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=5), st.text(max_size=5).map(str.encode)), max_size=30), st.integers(1, 9))
def test_a_payload_is_text_or_bytes_and_never_both(values: list[bytes], start: int) -> None:
    # Some of many: a text among others must be found in whichever group it is.
    data = pa.array([*(b"x" for _ in range(start * 300)), *values], pa.binary()).slice(start)
    text, other = split_text(data)
    for value, as_text, as_bytes in zip(data.to_pylist(), text.to_pylist(), other.to_pylist(), strict=True):
        try:
            assert (as_text, as_bytes) == (value.decode(), None)
        except UnicodeDecodeError:
            assert (as_text, as_bytes) == (None, value)


def test_every_record_has_the_version_of_its_place() -> None:
    seqs = pa.array([1, 4, 5, 9, 10])
    nothing = pa.nulls(5, pa.string())
    data = pa.array([b"{}"] * 5, pa.binary())
    batch = record_batch("a", 7, seqs, [1, 2, 3, 4, 5], nothing, nothing, pa.nulls(5, pa.binary()), data)
    assert lake_rows(batch, [(5, 1), (10, 3)]).column("version").to_pylist() == [0, 0, 1, 1, 3]
    plain = lake_rows(batch)
    assert plain.schema == RECORDS
    assert plain.column("version").to_pylist() == [0] * 5
