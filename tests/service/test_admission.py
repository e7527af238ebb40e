"""How busy the server is, and which requests wait or are refused because of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.engine.errors import SOON_MS
from strandline.service.admission import (
    FULL_DEPTH,
    PARK_FROM,
    PARK_MAX_MS,
    REFUSE_FROM,
    SAMPLE_MS,
    SHED_FROM,
    SHED_UNTIL,
    URGENT,
    Pressure,
)
from strandline.service.problems import Throttled

TARGET_MS = 5.0


class Depth:
    """A number of deliveries that wait."""

    def __init__(self, waiting: int = 0) -> None:
        self.waiting = waiting

    def __len__(self) -> int:
        return self.waiting


class Loop:
    """An event loop whose samples are late. Its thread spends ``share`` of the time on a processor."""

    def __init__(self, depth: Depth | None = None, share: float = 1.0, unsealed: float = 0.0) -> None:
        self.share = share
        self._seconds = self._cpu_seconds = 0.0
        self.pressure = Pressure(
            depth or Depth(),
            TARGET_MS,
            lambda: unsealed,
            clock=lambda: self._seconds,
            cpu_clock=lambda: self._cpu_seconds,
        )
        self.pressure.sample()

    def late(self, milliseconds: float, times: int = 60) -> Pressure:
        for _ in range(times):
            elapsed = (SAMPLE_MS + milliseconds) / 1000
            self._seconds += elapsed
            self._cpu_seconds += elapsed * self.share
            self.pressure.sample()
        return self.pressure


def late(milliseconds: float, times: int = 60) -> Pressure:
    """A loop that works all the time, and is late again and again."""
    return Loop().late(milliseconds, times)


def late_for(level: float) -> float:
    """How late the loop has to be all the time for that level."""
    return TARGET_MS * (1 + 9 * level)


def test_a_loop_in_time_is_no_pressure() -> None:
    pressure = late(TARGET_MS)
    assert (pressure.level, pressure.shedding) == (0.0, False)
    assert pressure.delay_ms(-1000, False) == 0.0


def test_a_single_pause_is_no_pressure_however_long() -> None:
    loop = Loop()
    pressure = loop.late(60_000, times=1)
    assert pressure.level < SHED_FROM
    assert not pressure.shedding
    assert loop.late(0, 10).level == 0.0


def test_ten_times_the_target_is_full_pressure() -> None:
    assert late(10 * TARGET_MS).level == pytest.approx(1.0, abs=0.01)
    assert late(1_000_000).level == 1.0


def test_a_busy_machine_is_not_a_busy_server() -> None:
    """Other processes have the processors: the loop of a server without load is late, but it hardly works."""
    loop = Loop(share=0.002)
    pressure = loop.late(1_000)
    assert (pressure.level, pressure.shedding, pressure.holds_writes) == (0.0, False, False)
    loop.share = 1.0
    assert loop.late(1_000).level == 1.0, "now it is the server that works"


def test_eight_clients_on_a_busy_machine_are_served_at_once() -> None:
    """The loop works for a tenth of the time and gets a processor 40 ms late, again and again."""
    assert Loop(share=0.1).late(40).level == 0.0


def test_lateness_counts_in_proportion_to_the_work_of_the_loop() -> None:
    # 100 ms late every time would be full pressure.
    assert Loop(share=1.0).late(100).level == 1.0
    assert Loop(share=0.25).late(100).level == pytest.approx((25 - TARGET_MS) / (9 * TARGET_MS), abs=0.01)


def test_what_waits_to_be_delivered_is_pressure_too() -> None:
    depth = Depth(FULL_DEPTH // 2)
    loop = Loop(depth)
    assert loop.late(0, 1).level == 0.5
    depth.waiting = 0
    assert loop.late(0, 1).level == 0.0


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
    assert SOON_MS < caught.value.retry_after_ms <= 2 * SOON_MS
    assert pressure.delay_ms(0, False) > 0
    assert pressure.throttled == 1


def test_they_are_let_in_again_only_when_it_has_become_much_quieter() -> None:
    loop, between = Loop(), late_for((SHED_FROM + SHED_UNTIL) / 2)
    loop.late(late_for(SHED_FROM + 0.02))
    assert loop.late(between).shedding
    assert not loop.late(late_for(SHED_UNTIL - 0.02)).shedding
    assert not loop.late(between).shedding


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
    loop = Loop(Depth(waiting))
    pressure = loop.pressure
    for sample in samples:
        loop.late(sample, times=1)
        assert pressure.level == 0.0 or PARK_FROM <= pressure.level <= 1.0
    try:
        assert 0.0 <= pressure.delay_ms(priority, patient) <= 2 * PARK_MAX_MS
    except Throttled:
        assert not patient
        assert (pressure.shedding and priority < 0) or (pressure.level >= REFUSE_FROM and priority < URGENT)
