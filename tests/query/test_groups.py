"""Grouping whole arrays, compared with Python, row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.query.groups import BLOCK_ROWS, Groups, numbered

#: Keys that are dense, keys that are far apart, and keys whose combinations exceed 64 bits.
keys = st.one_of(
    st.integers(0, 3), st.integers(-(10**6), 10**6), st.sampled_from([-(2**61), 2**61, 0]), st.integers(0, 60)
)
rows = st.lists(st.tuples(keys, keys, keys), min_size=1, max_size=30)
pieces_of_rows = st.lists(rows, min_size=1, max_size=4)


def grouped(pieces: Sequence[Sequence[tuple[int, ...]]]) -> Groups:
    return Groups([[np.array(column, np.int64) for column in zip(*piece, strict=True)] for piece in pieces])


@given(st.lists(keys))
def test_integers_are_numbered_in_ascending_order(values: list[int]) -> None:
    distinct, places = numbered(np.array(values, np.int64))
    assert distinct.tolist() == sorted(set(values))
    assert [distinct[place] for place in places] == values


@given(pieces_of_rows)
def test_groups_are_the_distinct_keys_in_ascending_order(pieces: list[list[tuple[int, int, int]]]) -> None:
    groups = grouped(pieces)
    found = list(zip(*(key.tolist() for key in groups.keys), strict=True))
    assert found == sorted({row for piece in pieces for row in piece})
    assert len(groups) == len(found)
    assert [[found[group] for group in piece.of_row] for piece in groups.pieces] == pieces


def by_group(values: list[list[tuple[int, float]]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for group, value in (each for piece in values for each in piece):
        found.setdefault(group, []).append(value)
    return dict(sorted(found.items()))


def measured(values: list[list[tuple[int, float]]], dtype: type) -> tuple[Groups, list[np.ndarray]]:
    groups = grouped([[(group,) for group, _ in piece] for piece in values])
    return groups, [np.array([value for _, value in piece], dtype) for piece in values]


integers = st.one_of(st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**63 - 1, -(2**63)]))


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), integers), min_size=1), min_size=1, max_size=3))
def test_integers_are_exact_at_any_size(values: list[list[tuple[int, int]]]) -> None:
    groups, columns = measured(values, np.int64)
    numbers, wide = groups.integers(columns)
    expected = by_group(values)
    assert [wide.get(group, number) for group, number in enumerate(numbers.tolist())] == [
        sum(each) for each in expected.values()
    ]
    assert all(not -(2**63) <= value < 2**63 for value in wide.values())
    assert groups.least(columns).tolist() == [min(each) for each in expected.values()]
    assert groups.greatest(columns).tolist() == [max(each) for each in expected.values()]


floats = st.floats(-1e12, 1e12, allow_nan=False)
pieces_of_floats = st.lists(st.lists(st.tuples(st.integers(0, 5), floats), min_size=1), min_size=1, max_size=3)


def compensated(values: list[float]) -> float:
    total = error = 0.0
    for value in values:
        added = value - error
        reached = total + added
        error = (reached - total) - added
        total = reached
    return total


@pytest.mark.parametrize("way", ["in steps", "one by one", "in blocks"])
@given(values=pieces_of_floats)
def test_floats_are_compensated_in_the_order_of_the_rows(way: str, values: list[list[tuple[int, float]]]) -> None:
    groups, columns = measured(values, np.float64)
    ways = {
        "in steps": groups._floats_in_steps,
        "one by one": groups._floats_one_by_one,
        "in blocks": groups._floats_in_blocks,
    }
    assert ways[way](columns).tolist() == [compensated(each) for each in by_group(values).values()]


@given(values=pieces_of_floats)
def test_counts_may_be_fractions(values: list[list[tuple[int, float]]]) -> None:
    groups, columns = measured(values, np.float64)
    assert groups.counts(columns).tolist() == [sum(each, 0.0) for each in by_group(values).values()]


def test_large_groups_are_added_up_in_blocks() -> None:
    generator = np.random.default_rng(1)
    rows = 20 * BLOCK_ROWS + 7
    numbers = generator.normal(size=rows) * 10.0 ** generator.integers(-8, 12, rows)
    owners = generator.integers(0, 3, rows)
    groups = Groups([[owners]])
    exact = [math.fsum(numbers[owners == group]) for group in range(3)]
    whole = groups._floats_in_blocks([numbers])
    assert whole.tolist() == pytest.approx(exact, rel=1e-14)
    cut = Groups([[owners[:1000]], [owners[1000:]]])
    assert cut._floats_in_blocks([numbers[:1000], numbers[1000:]]).tolist() == whole.tolist()


def test_the_way_to_add_up_floats_depends_on_the_rows() -> None:
    few = [[(0, 0.1)] * 2000, [(1, 0.1)]]
    groups, columns = measured(few, np.float64)
    assert groups.floats(columns).tolist() == [compensated([0.1] * 2000), 0.1]
    many = [[(number % 7000, 0.1) for number in range(20_000)]]
    groups, columns = measured(many, np.float64)
    assert groups.floats(columns)[0] == compensated([0.1] * 3)
    deep = [[(number % 2, 0.1) for number in range(20_000)]]
    groups, columns = measured(deep, np.float64)
    assert groups.floats(columns).tolist() == pytest.approx([1000.0, 1000.0], rel=1e-15)
