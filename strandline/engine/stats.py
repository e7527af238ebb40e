"""The engine's counters: the contents of its logs, the bytes written, and the duration of flushes."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf

import msgspec

#: The upper bounds of the histogram's buckets, in microseconds.
FLUSH_BOUNDS = (50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0, float("inf"))


class Totals:
    """Live records and their bytes over many logs, the bytes that wait for the flush to become live, and the number of
    logs of each durability. The logbooks keep it up to date. ``at_risk`` counts the records that were ever appended to
    logs whose writes do not wait for a replica."""

    __slots__ = ("at_risk", "logs", "pending_size", "records", "size")

    def __init__(self) -> None:
        self.logs: dict[str, int] = {}
        self.records = 0
        self.size = 0
        self.pending_size = 0
        self.at_risk = 0

    def count(self, durability: str, logs: int) -> None:
        self.logs[durability] = self.logs.get(durability, 0) + logs


#: Used by logbooks that belong to no engine.
NOWHERE = Totals()


class Histogram(msgspec.Struct, frozen=True):
    """``counts[i]`` is the number of values up to ``bounds[i]``; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    count: int


class FlushTimes:
    """Durations of flushes, in microseconds."""

    def __init__(self) -> None:
        self._buckets = [0] * len(FLUSH_BOUNDS)
        self._sum = 0.0
        #: The duration of the last flush; infinite before the first one.
        self.last = inf

    def add(self, microseconds: float) -> None:
        self.last = microseconds
        self._buckets[bisect_left(FLUSH_BOUNDS, microseconds)] += 1
        self._sum += microseconds

    def histogram(self) -> Histogram:
        counts = tuple(accumulate(self._buckets))
        return Histogram(FLUSH_BOUNDS, counts, self._sum, counts[-1])


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The result of :meth:`Engine.stats`. Written and flushed bytes are counted since the engine was opened."""

    logs: int
    #: Live records of all logs, and their bytes.
    records: int
    size: int
    #: The unsealed bytes, and their limit.
    journal_bytes: int
    unsealed_budget: int
    #: Changes that were refused because the budget was exhausted.
    refused: int
    #: The number of successful rounds of housekeeping, and the journal bytes that the last one sealed.
    rounds: int
    round_bytes: int
    frames: int
    bytes_written: int
    rotations: int
    flushes: int
    flush_us: Histogram
    #: Commits that wait for a flush, and the highest number so far.
    pending: int
    pending_peak: int
    segments: int
    #: Segments that a read has found damaged or missing since the engine was opened.
    damaged_segments: int
    cached_bytes: int
    read_only: bool
