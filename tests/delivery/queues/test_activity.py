from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.queues.activity import PART_MS, PARTS, Activity, Window

NOW = 1_700_000_000_000


def test_rates_are_those_of_the_last_minute() -> None:
    activity = Activity(NOW)
    for second in range(0, 120):
        activity.complete(NOW + 1000 * second, 3)
        activity.fail(NOW + 1000 * second, 1, "nack")
    now = NOW + 120_000
    rates = activity.rates(now)
    assert (rates.completed, rates.failed["nack"]) == (360, 120)
    assert (rates.throughput, rates.failure_rate) == (3.0, 0.25)
    idle = activity.rates(now + 61_000)
    assert (idle.completed, idle.throughput, idle.failure_rate) == (360, 0.0, 0.0)


def test_a_queue_that_was_just_opened_is_not_measured_against_a_whole_minute() -> None:
    activity = Activity(NOW)
    activity.complete(NOW + 9000, 20)
    assert activity.rates(NOW + 10_000).throughput == 2.0
    # Not against next to nothing, either.
    assert Activity(NOW).rates(NOW).throughput == 0.0
    young = Activity(NOW)
    young.complete(NOW, 1)
    assert young.rates(NOW).throughput == 0.2


def test_only_failures_are_a_rate_of_one() -> None:
    activity = Activity(NOW)
    activity.fail(NOW, 2, "expired")
    assert activity.rates(NOW).failure_rate == 1.0


@given(st.lists(st.tuples(st.integers(-3000, 100_000), st.integers(0, 9)), max_size=40), st.integers(0, 200_000))
def test_a_window_counts_what_happened_in_it_and_at_most_a_part_more(steps: list[tuple[int, int]], last: int) -> None:
    window, now, latest = Window(NOW), NOW, NOW
    events = []
    for step, count in steps:
        now += step
        latest = max(now, latest)
        window.add(now, count)
        # A clock that was set back: it counts for the latest part.
        events.append((max(now, latest), count))
    end = latest + last
    total = window.total(end)
    assert total >= sum(count for when, count in events if when > end - (PARTS - 1) * PART_MS)
    assert total <= sum(count for when, count in events if when > end - (PARTS + 1) * PART_MS)
