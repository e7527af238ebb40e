from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.subscriptions.timer import retry_delay_ms


def test_intervals_double_from_a_second_to_a_minute() -> None:
    delays = [retry_delay_ms(failures, lambda: 0.5) for failures in range(1, 9)]
    assert delays == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_jitter_is_a_fifth_either_way(failures: int, jitter: float) -> None:
    plain = retry_delay_ms(failures, lambda: 0.5)
    assert 0.8 * plain <= retry_delay_ms(failures, lambda: jitter) <= 1.2 * plain
