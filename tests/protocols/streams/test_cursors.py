from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocols.streams.offsets import cursor

FIRST = 1_728_432_000_000


def test_cursors_count_intervals_of_20_seconds_since_october_9th_2024() -> None:
    assert cursor(FIRST, "") == 0
    assert cursor(FIRST + 19_999, "") == 0
    assert cursor(FIRST + 20_000, "") == 1
    assert cursor(FIRST + 86_400_000, "") == 4320


def test_a_clock_that_is_wrong_gives_no_negative_cursor() -> None:
    assert cursor(0, "") == 0


@given(st.integers(FIRST, 2 * FIRST), st.integers(0, 10**14))
def test_whoever_comes_with_the_present_cursor_or_a_later_one_gets_a_later_one(now: int, theirs: int) -> None:
    mine = cursor(now, str(theirs))
    assert mine > theirs or mine == cursor(now, "")
    assert mine >= cursor(now, "")
    assert mine - max(theirs, cursor(now, "")) <= 180


@pytest.mark.parametrize("theirs", ["", "abc", "-5", "1.5", "9" * 16, "٣"])
def test_a_cursor_that_is_none_is_passed_over(theirs: str) -> None:
    assert cursor(FIRST + 40_000, theirs) == 2
