"""One timer for all live streams. Each idle stream costs one heap entry instead of a timer."""

from __future__ import annotations

import asyncio
import logging
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

log = logging.getLogger(__name__)

#: Alarms that are due within this many seconds ring together.
TOGETHER_SECONDS = 0.002
#: How long to wait before an alarm that raised rings again.
RETRY_SECONDS = 10.0


class Alarm(Protocol):
    """An object that is called at a set time. ``rings_at`` is that time; only :class:`Alarms` sets it."""

    rings_at: float | None

    def ring(self, now: float) -> float | None:
        """Called at the set time. Returns the next time to ring, or None to stop."""


class Alarms:
    """Times are times of the loop's clock. Each alarm has at most one time; setting another replaces it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, alarm: Alarm, when: float) -> None:
        alarm.rings_at = when
        heappush(self._heap, (when, next(self._order), alarm))
        if self._heap[0][2] is alarm:
            self._wind()

    def cancel(self, alarm: Alarm) -> None:
        alarm.rings_at = None

    def ring(self, now: float) -> None:
        """Ring all alarms that are due. Entries whose time was replaced or cancelled are skipped."""
        heap, due = self._heap, []
        while heap and heap[0][0] <= now + TOGETHER_SECONDS:
            due.append(heappop(heap))
        for when, _, alarm in due:
            if alarm.rings_at != when:
                continue
            alarm.rings_at = None
            try:
                after = alarm.ring(now)
            except Exception:
                log.exception("alarm %r failed", alarm)
                after = now + RETRY_SECONDS
            if after is not None and alarm.rings_at is None:
                alarm.rings_at = after
                heappush(heap, (after, next(self._order), alarm))

    def stop(self) -> None:
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _wind(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer = self._loop.call_at(self._heap[0][0], self._due)

    def _due(self) -> None:
        try:
            self.ring(self._loop.time())
        finally:
            self._wind()
