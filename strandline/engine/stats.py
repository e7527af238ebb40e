"""What an engine counts while it works: what its logs hold, what was written, and how long flushes take."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import msgspec

#: The upper bounds of the histogram's buckets, in microseconds.
FLUSH_BOUNDS = (50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 10_000.0, 50_000.0, 100_000.0, float("inf"))


class Totals:
    """Live records and their bytes over many logs, and how many logs of each durability. The logbooks keep it up."""

    __slots__ = ("logs", "records", "size")

    def __init__(self) -> None:
        self.logs: dict[str, int] = {}
        self.records = 0
        self.size = 0

    def count(self, durability: str, logs: int) -> None:
        self.logs[durability] = self.logs.get(durability, 0) + logs


#: Where a logbook counts that belongs to no engine, or no longer.
NOWHERE = Totals()


class Histogram(msgspec.Struct, frozen=True):
    """``counts[i]`` is how many were ``bounds[i]`` or less; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    count: int


class FlushTimes:
    """How long flushes took, in microseconds."""

    def __init__(self) -> None:
        self._buckets = [0] * len(FLUSH_BOUNDS)
        self._sum = 0.0

    def add(self, microseconds: float) -> None:
        self._buckets[bisect_left(FLUSH_BOUNDS, microseconds)] += 1
        self._sum += microseconds

    def histogram(self) -> Histogram:
        counts = tuple(accumulate(self._buckets))
        return Histogram(FLUSH_BOUNDS, counts, self._sum, counts[-1])


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What :meth:`Engine.stats` tells. What was written and flushed counts from the opening on."""

    logs: int
    #: Live records and their bytes over all logs.
    records: int
    size: int
    #: The bytes that are not sealed yet, and how many may be.
    journal_bytes: int
    unsealed_budget: int
    #: Changes that were refused because the budget was used up.
    refused: int
    #: Rounds of housekeeping that went well, and the bytes of the journal that the last of them sealed.
    rounds: int
    round_bytes: int
    frames: int
    bytes_written: int
    rotations: int
    flushes: int
    flush_us: Histogram
    #: Commits that wait for a flush, and the most that ever did.
    pending: int
    pending_peak: int
    segments: int
    #: Segments that a read has found damaged or missing since the opening.
    damaged_segments: int
    cached_bytes: int
    read_only: bool
