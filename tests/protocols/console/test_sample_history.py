"""Averages of samples."""

from __future__ import annotations

from strandline.protocols.console.sample_history import MAX_SHOWN, MINUTE_MS, SampleHistory, average
from strandline.protocols.console.wire import SampleAnswer

HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def sample(at: int, **values: float | None) -> SampleAnswer:
    rates = dict.fromkeys(("appends", "bytes", "requests", "errors", "pressure"), 0.0)
    numbers = dict.fromkeys(("rss_bytes", "live_bytes", "connections"), 0)
    times = dict.fromkeys(("latency_p50_ms", "latency_p99_ms", "flush_p50_us", "flush_p99_us"))
    return SampleAnswer(at=at, **{**rates, **numbers, **times, **values})  # type: ignore[arg-type]


def test_an_average_has_the_mean_of_rates_and_the_highest_of_limits() -> None:
    first = sample(1000, appends=1.0, latency_p50_ms=4.0, latency_p99_ms=9.0, rss_bytes=70, live_bytes=5, pressure=0.5)
    second = sample(2000, appends=2.0, latency_p50_ms=6.0, latency_p99_ms=7.0, rss_bytes=60, live_bytes=4)
    assert average([first, second, sample(3000)]) == sample(
        3000, appends=1.0, latency_p50_ms=5.0, latency_p99_ms=9.0, rss_bytes=70, live_bytes=0, pressure=0.5
    )


def test_a_day_has_minutes_and_a_week_ten_minutes() -> None:
    history = SampleHistory()
    days = 8
    for at in range(0, days * DAY_MS, MINUTE_MS):
        history.add(sample(at, appends=float(at // DAY_MS)))
    now = days * DAY_MS
    hour = history.since(now - HOUR_MS, now)
    assert [one.at for one in hour] == list(range(now - HOUR_MS, now, MINUTE_MS))
    day = history.since(now - DAY_MS, now)
    assert (len(day), {one.appends for one in day}) == (MAX_SHOWN, {7.0})
    week = history.since(now - 7 * DAY_MS, now)
    assert MAX_SHOWN - 30 < len(week) <= MAX_SHOWN
    assert week[0].at < now - 7 * DAY_MS + 2 * HOUR_MS
    assert week[0].appends == 1.0
    assert history.since(0, now)[0].at < week[0].at


def test_the_current_minute_is_shown_as_well() -> None:
    history = SampleHistory()
    assert history.since(0, 1000) == []
    history.add(sample(500, appends=3.0))
    assert [one.appends for one in history.since(0, 1000)] == [3.0]
    assert history.since(600, 1000) == []
