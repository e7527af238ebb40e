"""The activity of a queue: how many deliveries began, succeeded and failed since the process started, and lately."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

#: How a delivery failed: a worker returned the job, its lease expired, or its connection closed.
Cause: TypeAlias = Literal["nack", "expired", "disconnected"]

#: Rates are those of the last minute, which is counted in parts.
PART_MS = 5_000
PARTS = 12


class Window:
    """Counts what happened in the last minute, with a bounded error of one part."""

    __slots__ = ("_counts", "_part")

    def __init__(self, now: int) -> None:
        self._counts = [0] * PARTS
        self._part = now // PART_MS

    def add(self, now: int, count: int) -> None:
        part = now // PART_MS
        if part > self._part:
            self._advance(part)
        # If the clock was set back, it counts for the latest part.
        self._counts[self._part % PARTS] += count

    def total(self, now: int) -> int:
        self._advance(now // PART_MS)
        return sum(self._counts)

    def _advance(self, part: int) -> None:
        for passed in range(max(self._part + 1, part - PARTS + 1), part + 1):
            self._counts[passed % PARTS] = 0
        self._part = max(self._part, part)


class QueueRates(NamedTuple):
    """``claimed``, ``completed`` and ``failed`` count deliveries since the process started."""

    claimed: int
    completed: int
    failed: dict[Cause, int]
    #: Completed jobs per second in the last minute.
    throughput: float
    #: Of the deliveries that ended in the last minute, the fraction that failed, from 0 to 1.
    failure_rate: float


class Activity:
    """Not thread-safe: the caller holds the queue's lock."""

    __slots__ = ("_completed", "_failed", "_since", "completed", "failed")

    def __init__(self, now: int) -> None:
        self.completed = 0
        self.failed: dict[Cause, int] = dict.fromkeys(get_args(Cause), 0)
        self._since = now
        self._completed = Window(now)
        self._failed = Window(now)

    def complete(self, now: int, count: int) -> None:
        self.completed += count
        self._completed.add(now, count)

    def fail(self, now: int, count: int, cause: Cause) -> None:
        self.failed[cause] += count
        self._failed.add(now, count)

    def rates(self, now: int, claimed: int = 0) -> QueueRates:
        completed, failed = self._completed.total(now), self._failed.total(now)
        # The current part is not over, and the queue may have been open for less than a minute.
        covered_ms = min((PARTS - 1) * PART_MS + now % PART_MS, now - self._since)
        throughput = 1000 * completed / max(covered_ms, PART_MS)
        failure_rate = failed / (completed + failed) if failed else 0.0
        return QueueRates(claimed, self.completed, dict(self.failed), throughput, failure_rate)
