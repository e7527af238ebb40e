"""The projection: what it forgets, and that it keeps no more than it needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.queues.state import STALE_ENTRIES, Grant, JobState, State


def test_jobs_that_are_done_with_leave_no_timers_behind() -> None:
    state = State()
    for number in range(1, 5000):
        state.grant(Grant("a", number, 1_000_000 + number, [number]))
        state.forget(number)
    assert len(state._timers) <= STALE_ENTRIES + 1
    assert state.next_change() is None


def test_extending_a_lease_over_and_over_keeps_its_timer() -> None:
    state = State()
    state.grant(Grant("a", 1, 100, [1]))
    for deadline in range(101, 1000):
        state.extend([1], deadline)
    assert len(state._timers) <= STALE_ENTRIES + 3
    assert state.next_change() == 1000
    state.sweep(999)
    assert state.in_flight == 1
    state.sweep(1000)
    assert (state.in_flight, state.first_ready()) == (0, (0, 0, 1))


def test_what_is_below_a_floor_is_forgotten_also_when_it_came_after_the_last_look() -> None:
    state = State()
    state.grant(Grant("a", 1, 100, [5, 6]))
    state.forget_below(6)
    assert set(state.jobs) == {6}
    state.grant(Grant("a", 3, 100, [7, 9]))
    state.add(JobState(8, until=50), 0)
    state.forget_below(9)
    assert set(state.jobs) == {9}
    assert (state.in_flight, state.delayed) == (1, 0)


def test_looking_for_the_lowest_job_again_and_again_keeps_no_more_than_there_are() -> None:
    state = State()
    for number in range(1, 3000):
        state.add(JobState(number), 0)
        state.forget(number)
        state.forget_below(1)
    assert len(state._lowest or []) <= STALE_ENTRIES + 1
    assert len(state._ready) <= STALE_ENTRIES + 1
    assert state.first_ready() is None


def test_a_forgotten_job_that_is_put_back_stays_forgotten() -> None:
    state = State()
    state.add(JobState(1), 0)
    state.add(JobState(2), 0)
    assert state.first_ready() == (0, 1, 1)
    taken = state.take_ready()
    state.forget(1)
    state.put_back([taken])
    assert state.first_ready() == (0, 1, 2)


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(1, 50)), unique_by=lambda job: job[1]), st.integers(0, 9))
def test_the_next_jobs_can_be_named_without_taking_them_out(jobs: list[tuple[int, int]], count: int) -> None:
    state = State()
    for priority, seq in jobs:
        state.add(JobState(seq, priority), 0)
    named = state.next_ready(count)
    taken = []
    while state.first_ready() is not None and len(taken) < count:
        taken.append(state.take_ready().seq)
    assert named == taken
