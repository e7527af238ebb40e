from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.queues.backoff import MAX_DELAY_MS, Backoff

backoffs = st.builds(
    Backoff,
    delay_ms=st.integers(1, MAX_DELAY_MS),
    factor=st.floats(1, 1000),
    max_ms=st.integers(0, MAX_DELAY_MS),
    jitter=st.floats(0, 1),
)
deliveries = st.integers(1, 1 << 40)


def test_the_delay_doubles_up_to_its_maximum() -> None:
    backoff = Backoff(1000, 2.0, 10_000)
    assert [backoff.after(delivery, lambda: 0.9) for delivery in range(0, 7)] == [
        0,
        1000,
        2000,
        4000,
        8000,
        10_000,
        10_000,
    ]


def test_without_a_delay_there_is_none_whatever_the_rest_is() -> None:
    assert Backoff(0, 1000.0, 10_000, 1.0).after(30, lambda: 0.0) == 0


def test_jitter_only_shortens() -> None:
    backoff = Backoff(1000, 1.0, 10_000, 0.5)
    assert [backoff.after(1, lambda chance=chance: chance) for chance in (0.0, 0.5, 1.0)] == [1000, 750, 500]


@given(backoffs, deliveries, st.floats(0, 1))
def test_a_delay_is_within_its_bounds(backoff: Backoff, delivery: int, chance: float) -> None:
    full = backoff.after(delivery, lambda: 0.0)
    delay = backoff.after(delivery, lambda: chance)
    assert 0 <= delay <= full <= min(backoff.max_ms, MAX_DELAY_MS)
    assert delay >= int(full * (1 - backoff.jitter)) - 1
    assert delay == backoff.after(delivery, lambda: chance)


@given(backoffs, st.integers(1, 100))
def test_a_later_failure_never_waits_less(backoff: Backoff, delivery: int) -> None:
    assert backoff.after(delivery, lambda: 0.0) <= backoff.after(delivery + 1, lambda: 0.0)
