"""What is ready to be delivered, and in which order.

Tasks wait in bands by their priority, first come first served within a band. The bands are served in turns, the
urgent ones with more tasks per turn, so nobody starves; and whoever waits climbs, because waiting adds to the priority.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from strandline.delivery.priority import age_boost

#: The least priority of each band, and how many tasks it may have done per turn.
BANDS = ((750, 8), (500, 4), (250, 2), (0, 1), (-(1 << 62), 1))
#: How often those who wait are looked at for having climbed.
AGING_TICK_MS = 50


class Task(Protocol):
    """Something to do once. ``priority`` is asked when it is submitted and while it waits."""

    def priority(self, now: int) -> int: ...

    def run(self) -> None: ...


class Scheduler:
    """Not thread-safe: it lives on the event loop. ``now`` is always given, in milliseconds."""

    def __init__(self) -> None:
        self._bands: list[deque[tuple[Task, int]]] = [deque() for _ in BANDS]
        self._waiting: set[Task] = set()
        self._turn = 0
        self._credit = BANDS[0][1]
        self._aged_at = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, task: Task, now: int) -> None:
        """Have the task done; one that waits already is not done twice."""
        if task not in self._waiting:
            self._waiting.add(task)
            self._bands[_band(task.priority(now))].append((task, now))

    def withdraw(self, task: Task) -> None:
        """Forget the task if it waits."""
        self._waiting.discard(task)

    def take(self, now: int) -> Task | None:
        """The task whose turn it is, taken out; None when nothing waits."""
        if not self._waiting:
            return None
        if now - self._aged_at >= AGING_TICK_MS:
            self._let_age(now)
        while True:
            band = self._bands[self._turn]
            while band and self._credit:
                task, _ = band.popleft()
                if task in self._waiting:
                    self._credit -= 1
                    self._waiting.remove(task)
                    return task
            if not any(self._bands):
                return None
            self._turn = (self._turn + 1) % len(BANDS)
            self._credit = BANDS[self._turn][1]

    def _let_age(self, now: int) -> None:
        self._aged_at = now
        moved: list[list[tuple[Task, int]]] = [[] for _ in BANDS]
        for at, band in enumerate(self._bands):
            if at == 0:
                continue
            stay: deque[tuple[Task, int]] = deque()
            for task, since in band:
                if task not in self._waiting:
                    continue
                target = _band(task.priority(now) + age_boost(now - since))
                if target < at:
                    moved[target].append((task, since))
                else:
                    stay.append((task, since))
            self._bands[at] = stay
        for at, tasks in enumerate(moved):
            self._bands[at].extend(tasks)


def _band(priority: int) -> int:
    for index, (least, _) in enumerate(BANDS):
        if priority >= least:
            return index
    raise AssertionError("the last band takes everything")
