"""Numbers as they are shown, and the powers that buckets are named by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.query.contributions import exponents, text_of
from strandline.query.values import plain, power_name


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_powers_of_integers_are_exact(values: list[int]) -> None:
    found = exponents(np.array(values, np.int64)).tolist()
    assert found == [max(abs(value), 1).bit_length() - 1 for value in values]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30))
def test_powers_of_floats_are_exact(values: list[float]) -> None:
    for value, power in zip(values, exponents(np.array(values, np.float64)).tolist(), strict=True):
        size = max(abs(value), 1.0)
        assert 2.0**power <= size
        assert size / 2 < 2.0**power


def test_buckets_are_named_as_javascript_writes_numbers() -> None:
    assert power_name(0) == "1"
    assert power_name(69) == "590295810358705651712"
    assert power_name(70) == "1.1805916207174113e+21"


@pytest.mark.parametrize(("value", "shown"), [(2.0, 2), (2.5, 2.5), (1e300, 1e300), (7, 7), (None, None), (-0.0, 0)])
def test_whole_numbers_are_shown_without_a_fraction(value: object, shown: object) -> None:
    assert plain(value) == shown
    assert type(plain(value)) is type(shown)


def test_dimensions_are_shown_as_texts() -> None:
    assert [text_of(value) for value in (True, False, 5, 1.5, 2.0)] == ["true", "false", "5", "1.5", "2"]
