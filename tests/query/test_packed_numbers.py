"""Packed numbers are the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.query.columns import NumberColumn
from strandline.query.packed_numbers import PackedNumberColumn, pack_numbers

integers = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1)
decimals = st.lists(st.integers(-(10**9), 10**9).map(lambda number: number / 100), min_size=1)
others = st.one_of(st.integers(-(2**80), 2**80), st.floats(allow_nan=False, allow_infinity=False))


def packed(values: np.ndarray[Any, Any]) -> PackedNumberColumn | None:
    found = pack_numbers(values)
    return None if found is None else PackedNumberColumn(*found, None)


@given(st.one_of(integers, decimals), others, st.data())
def test_packed_numbers_compare_as_they_are(values: list[Any], other: Any, data: st.DataObject) -> None:
    plain = NumberColumn(np.array(values), None)
    column = packed(plain.values)
    assert column is not None
    assert column.values.tolist() == values
    assert column.values.dtype == plain.values.dtype
    assert column.bounds == plain.bounds
    some = np.array(data.draw(st.lists(st.sampled_from(range(len(values))))), np.int64)
    assert column.take(some).tolist() == plain.take(some).tolist()
    for value in (other, data.draw(st.sampled_from(values))):
        assert column.equal(value).tolist() == [each == value for each in values]
        assert column.compare(">", value).tolist() == [each > value for each in values]
        assert column.compare(">=", value).tolist() == [each >= value for each in values]
        assert column.compare("<", value).tolist() == [each < value for each in values]
        assert column.compare("<=", value).tolist() == [each <= value for each in values]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_are_packed_only_if_nothing_is_lost(values: list[float]) -> None:
    column = packed(np.array(values))
    if column is not None:
        assert [repr(value) for value in column.values.tolist()] == [repr(value) for value in values]


@pytest.mark.parametrize(
    ("values", "bytes_each"),
    [([5, 5], 1), ([-100, 155], 1), ([0, 256], 2), ([10**15, 10**15 + 70_000], 4), ([1.25, 100.0], 2)],
)
def test_the_smallest_type_is_used(values: list[Any], bytes_each: int) -> None:
    found = pack_numbers(np.array(values))
    assert found is not None
    assert found[0].itemsize == bytes_each


@pytest.mark.parametrize("values", [[], [0, 2**32], [-(2**63), 2**63 - 1], [0.1 + 0.2], [-0.0, 1.0], [1e300]])
def test_other_numbers_are_not_packed(values: list[Any]) -> None:
    assert pack_numbers(np.array(values)) is None
