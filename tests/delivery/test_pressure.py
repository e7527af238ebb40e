from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.pressure import (
    FULL_DEPTH,
    PARK_FROM,
    PARK_MAX_MS,
    REFUSE_FROM,
    RETRY_AFTER_MS,
    SHED_FROM,
    SHED_UNTIL,
    URGENT,
    Pressure,
    Throttled,
)

TARGET_MS = 5.0


class Depth:
    """So many deliveries wait."""

    def __init__(self, waiting: int = 0) -> None:
        self.waiting = waiting

    def __len__(self) -> int:
        return self.waiting


def late(milliseconds: float, times: int = 60, pressure: Pressure | None = None) -> Pressure:
    """A loop that was so late, again and again."""
    pressure = pressure or Pressure(Depth(), TARGET_MS)
    for _ in range(times):
        pressure.sample(milliseconds)
    return pressure


def late_for(level: float) -> float:
    """How late the loop has to be all the time for that level."""
    return TARGET_MS * (1 + 9 * level)


def test_a_loop_in_time_is_no_pressure() -> None:
    pressure = late(TARGET_MS)
    assert (pressure.level, pressure.shedding) == (0.0, False)
    assert pressure.delay_ms(-1000, False) == 0.0


def test_a_single_pause_is_no_pressure_however_long() -> None:
    pressure = late(60_000, times=1)
    assert pressure.level < SHED_FROM
    assert not pressure.shedding
    assert late(0, 10, pressure).level == 0.0


def test_ten_times_the_target_is_full_pressure() -> None:
    assert late(10 * TARGET_MS).level == pytest.approx(1.0, abs=0.01)
    assert late(1_000_000).level == 1.0


def test_what_waits_to_be_delivered_is_pressure_too() -> None:
    depth = Depth(FULL_DEPTH // 2)
    pressure = late(0, 1, Pressure(depth, TARGET_MS))
    assert pressure.level == 0.5
    depth.waiting = 0
    assert late(0, 1, pressure).level == 0.0


def test_low_pressure_counts_as_none() -> None:
    assert late(late_for(PARK_FROM - 0.01)).level == 0.0
    assert late(late_for(PARK_FROM + 0.01)).level >= PARK_FROM


def test_under_some_pressure_writes_wait_and_urgent_ones_less() -> None:
    pressure = late(late_for(0.5))
    delays = [pressure.delay_ms(priority, False) for priority in (-1000, 0, 500, 1000)]
    assert delays == sorted(delays, reverse=True)
    assert delays[0] == pytest.approx(PARK_MAX_MS * 0.5, rel=0.01)
    assert delays[-1] == 0.0
    assert pressure.throttled == 0


def test_under_high_pressure_the_least_urgent_are_sent_away() -> None:
    pressure = late(late_for(SHED_FROM + 0.02))
    with pytest.raises(Throttled) as caught:
        pressure.delay_ms(-1, False)
    assert RETRY_AFTER_MS < caught.value.retry_after_ms <= 2 * RETRY_AFTER_MS
    assert pressure.delay_ms(0, False) > 0
    assert pressure.throttled == 1


def test_they_are_let_in_again_only_when_it_has_become_much_quieter() -> None:
    pressure = late(late_for(SHED_FROM + 0.02))
    late(late_for((SHED_FROM + SHED_UNTIL) / 2), pressure=pressure)
    assert pressure.shedding
    late(late_for(SHED_UNTIL - 0.02), pressure=pressure)
    assert not pressure.shedding
    late(late_for((SHED_FROM + SHED_UNTIL) / 2), pressure=pressure)
    assert not pressure.shedding


def test_at_the_very_top_only_the_most_urgent_get_through() -> None:
    pressure = late(1_000_000)
    for priority in (-1000, 0, URGENT - 1):
        with pytest.raises(Throttled):
            pressure.delay_ms(priority, False)
    assert pressure.delay_ms(URGENT, False) < PARK_MAX_MS
    assert pressure.delay_ms(1000, False) == 0.0
    assert pressure.throttled == 3


def test_whoever_is_patient_waits_instead() -> None:
    pressure = late(1_000_000)
    assert pressure.delay_ms(0, True) > PARK_MAX_MS
    assert pressure.throttled == 0


@given(st.lists(st.floats(0, 1e6)), st.integers(0, 2 * FULL_DEPTH), st.integers(-1000, 1000), st.booleans())
def test_a_delay_is_bounded_and_refusals_are_for_the_impatient_only(
    samples: list[float], waiting: int, priority: int, patient: bool
) -> None:
    pressure = Pressure(Depth(waiting), TARGET_MS)
    for sample in samples:
        pressure.sample(sample)
        assert pressure.level == 0.0 or PARK_FROM <= pressure.level <= 1.0
    try:
        assert 0.0 <= pressure.delay_ms(priority, patient) <= 2 * PARK_MAX_MS
    except Throttled:
        assert not patient
        assert (pressure.shedding and priority < 0) or (pressure.level >= REFUSE_FROM and priority < URGENT)
