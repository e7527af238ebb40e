"""Samples of the overview for longer than ten minutes: averages of a day and of a week."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile

from strandline.protocols.console.wire import SampleAnswer

MINUTE_MS = 60_000
#: A day of minutes and a week of ten minutes: about a thousand samples each.
MINUTES = 1440
TENS = 1008
#: The maximum number of samples in an answer: a chart has no room for more.
MAX_SHOWN = 360


class SampleHistory:
    """Use it on one thread at a time."""

    def __init__(self) -> None:
        #: The time of the last minute of an earlier run.
        self.last = 0
        self._minutes = _Averages(MINUTE_MS, MINUTES)
        self._tens = _Averages(10 * MINUTE_MS, TENS)

    def add(self, sample: SampleAnswer) -> None:
        """Add a sample; they come in the order of their times."""
        minute = self._minutes.add(sample)
        if minute is not None:
            self._tens.add(minute)

    def restore(self, minutes: Iterable[SampleAnswer]) -> None:
        """Add the minutes of an earlier run, oldest first, before all others. One that is out of order is left out: the
        clock was set back."""
        for minute in minutes:
            if minute.at > self.last:
                self.last = minute.at
                self._minutes.keep(minute)
                self._tens.add(minute)

    def minutes_after(self, at: int) -> list[SampleAnswer]:
        """The complete minutes after this time that are in memory."""
        return self._minutes.done_after(at)

    def week(self) -> list[SampleAnswer]:
        """The samples of the last week, one per ten minutes."""
        return list(self._tens.complete())

    def since(self, since: int, now: int) -> list[SampleAnswer]:
        """At most ``MAX_SHOWN`` samples from this time on, oldest first."""
        averages = self._minutes if now - since <= MINUTES * MINUTE_MS else self._tens
        found = [sample for sample in averages.complete() if sample.at >= since]
        size = -(-len(found) // MAX_SHOWN)
        if size <= 1:
            return found
        return [average(found[start : start + size]) for start in range(0, len(found), size)]


class _Averages:
    """One sample per interval."""

    def __init__(self, interval_ms: int, most: int) -> None:
        self._interval_ms = interval_ms
        self._done: deque[SampleAnswer] = deque(maxlen=most)
        self._open: list[SampleAnswer] = []

    def add(self, sample: SampleAnswer) -> SampleAnswer | None:
        """Returns the average of an interval that has ended."""
        ended = None
        if self._open and self._open[0].at // self._interval_ms != sample.at // self._interval_ms:
            ended = average(self._open)
            self._done.append(ended)
            self._open = []
        self._open.append(sample)
        return ended

    def keep(self, ended: SampleAnswer) -> None:
        """Add the average of an interval."""
        self._done.append(ended)

    def done_after(self, at: int) -> list[SampleAnswer]:
        found = list(takewhile(lambda one: one.at > at, reversed(self._done)))
        return found[::-1]

    def complete(self) -> Iterator[SampleAnswer]:
        """The averages, and that of the current interval."""
        yield from self._done
        if self._open:
            yield average(self._open)


def average(samples: list[SampleAnswer]) -> SampleAnswer:
    """One sample for several: the mean of rates and medians, and the maximum of what may not become too high."""
    return SampleAnswer(
        at=samples[-1].at,
        appends=_mean(one.appends for one in samples),
        bytes=_mean(one.bytes for one in samples),
        requests=_mean(one.requests for one in samples),
        errors=_mean(one.errors for one in samples),
        latency_p50_ms=_known_mean(one.latency_p50_ms for one in samples),
        latency_p99_ms=_highest(one.latency_p99_ms for one in samples),
        flush_p50_us=_known_mean(one.flush_p50_us for one in samples),
        flush_p99_us=_highest(one.flush_p99_us for one in samples),
        rss_bytes=max(one.rss_bytes for one in samples),
        live_bytes=samples[-1].live_bytes,
        connections=max(one.connections for one in samples),
        pressure=max(one.pressure for one in samples),
        disk_bytes=samples[-1].disk_bytes,
        disk_free_bytes=samples[-1].disk_free_bytes,
    )


def _mean(values: Iterable[float]) -> float:
    """Rounded: a sum of rounded numbers has many digits."""
    listed = list(values)
    return round(sum(listed) / len(listed), 3)


def _known_mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _mean(known) if known else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
