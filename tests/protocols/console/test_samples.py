from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocols.console.overview import quantile, resident_bytes

BOUNDS = (10.0, 100.0, inf)


@pytest.mark.parametrize(
    ("counts", "part", "expected"),
    [((0, 0, 0), 0.5, None), ((10, 10, 10), 0.5, 5.0), ((5, 10, 10), 0.75, 55.0), ((0, 0, 4), 0.99, 100.0)],
)
def test_a_quantile_is_found_within_its_bucket(counts: tuple[int, ...], part: float, expected: float | None) -> None:
    assert quantile(BOUNDS, counts, part) == expected


@given(st.lists(st.integers(0, 100), min_size=3, max_size=3).filter(any))
def test_a_larger_part_never_ends_earlier(counts: list[int]) -> None:
    cumulative = [sum(counts[: end + 1]) for end in range(3)]
    values = [quantile(BOUNDS, cumulative, part) for part in (0.1, 0.5, 0.99)]
    assert values == sorted(value for value in values if value is not None)


def test_the_process_has_something_in_memory() -> None:
    assert resident_bytes() > 1 << 20
