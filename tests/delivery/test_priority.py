from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.scheduler import (
    AGE_LIMIT_MS,
    FORGOTTEN_AFTER_MS,
    HALF_LIFE_MS,
    MANUAL_LIMIT,
    RECENT_MAX,
    age_boost,
    base_priority,
    recency,
)

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("idle_ms", "worth"),
    [
        (-5, 500),
        (0, 500),
        (HALF_LIFE_MS, 250),
        (2 * HALF_LIFE_MS, 125),
        (3 * HALF_LIFE_MS, 62),
        (FORGOTTEN_AFTER_MS - 1, 0),
        (FORGOTTEN_AFTER_MS, 0),
        (1 << 60, 0),
    ],
)
def test_what_was_consumed_is_worth_half_after_every_half_life(idle_ms: int, worth: int) -> None:
    assert recency(idle_ms) == pytest.approx(worth, abs=1)


@given(st.integers(0, FORGOTTEN_AFTER_MS - 1))
def test_the_table_is_as_good_as_the_formula(idle_ms: int) -> None:
    assert recency(idle_ms) == pytest.approx(RECENT_MAX * 2 ** (-idle_ms / HALF_LIFE_MS), abs=1)


@given(st.integers(0, 2 * FORGOTTEN_AFTER_MS), st.integers(0, 10_000))
def test_being_left_alone_never_makes_a_log_more_urgent(idle_ms: int, longer: int) -> None:
    assert recency(idle_ms + longer) <= recency(idle_ms)


def test_a_manual_priority_replaces_what_its_use_would_give_a_log() -> None:
    assert base_priority(7, True, NOW, NOW) == 7
    assert base_priority(0, True, NOW, NOW) == 0
    assert base_priority(-3, False, None, NOW) == -3


def test_a_manual_priority_has_its_bounds() -> None:
    assert base_priority(5_000, True, None, NOW) == MANUAL_LIMIT
    assert base_priority(-5_000, True, None, NOW) == -MANUAL_LIMIT


def test_a_log_that_nobody_reads_or_that_does_not_want_to_be_judged_by_it_is_worth_nothing() -> None:
    assert base_priority(None, True, None, NOW) == 0
    assert base_priority(None, False, NOW, NOW) == 0
    assert base_priority(None, True, NOW - HALF_LIFE_MS, NOW) == 250


def test_waiting_adds_to_the_priority_for_a_while() -> None:
    assert [age_boost(waited) for waited in (-1, 0, 10, 1_000, 2_500, AGE_LIMIT_MS)] == [0, 0, 1, 100, 250, 1000]
    assert age_boost(AGE_LIMIT_MS + 60_000) == age_boost(AGE_LIMIT_MS)
