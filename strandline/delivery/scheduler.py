"""The priority of a log, and the order in which logs with new records are delivered.

A manual priority is used unchanged. Without one, a log that was consumed just now has the priority 500, which halves
with every half-life. Priority grows while a delivery waits. It only decides which log is served first.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

#: Manual priorities are clamped to this range.
MANUAL_LIMIT = 1000
#: The priority of a log that was consumed just now.
RECENT_MAX = 500
HALF_LIFE_MS = 30_000
#: The automatic priority is 0 after this much time without a consumer.
FORGOTTEN_AFTER_MS = 300_000
#: The priority that each second of waiting adds, and the time after which it stops growing.
AGE_PER_SECOND = 100
AGE_LIMIT_MS = 10_000

#: 500 · 2^(-x), tabulated in steps so that no power is computed per delivery.
_STEP_MS = FORGOTTEN_AFTER_MS // 256
_DECAY = [RECENT_MAX * 2 ** (-(step * _STEP_MS) / HALF_LIFE_MS) for step in range(258)]


def recency(idle_ms: int) -> int:
    """The automatic priority of a log that was last consumed ``idle_ms`` ago."""
    if idle_ms <= 0:
        return RECENT_MAX
    if idle_ms >= FORGOTTEN_AFTER_MS:
        return 0
    step, rest = divmod(idle_ms, _STEP_MS)
    low, high = _DECAY[step], _DECAY[step + 1]
    return round(low + (high - low) * rest / _STEP_MS)


def base_priority(manual: int | None, automatic: bool, consumed_at: int | None, now: int) -> int:
    """The priority of a log before aging. ``manual`` overrides the automatic priority."""
    if manual is not None:
        return max(-MANUAL_LIMIT, min(MANUAL_LIMIT, manual))
    if not automatic or consumed_at is None:
        return 0
    return recency(now - consumed_at)


def age_boost(waited_ms: int) -> int:
    """The priority that ``waited_ms`` of waiting adds."""
    return AGE_PER_SECOND * max(0, min(waited_ms, AGE_LIMIT_MS)) // 1000


#: The lowest priority of each band, and how many of its tasks run per turn.
BANDS = ((750, 8), (500, 4), (250, 2), (0, 1), (-(1 << 62), 1))
#: How often waiting tasks are moved to a higher band.
AGING_TICK_MS = 50


class DeliveryTask(Protocol):
    """A task to run once. ``priority`` is called when the task is submitted and again while it waits."""

    def priority(self, now: int) -> int: ...

    def run(self) -> None: ...


class Scheduler:
    """Runs on the event loop only and is not thread-safe. The caller passes ``now`` in milliseconds."""

    def __init__(self) -> None:
        self._bands: list[deque[tuple[DeliveryTask, int]]] = [deque() for _ in BANDS]
        self._waiting: set[DeliveryTask] = set()
        self._turn = 0
        self._credit = BANDS[0][1]
        self._aged_at = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, task: DeliveryTask, now: int) -> None:
        """Queue the task. Does nothing if the task is already waiting."""
        if task not in self._waiting:
            self._waiting.add(task)
            self._bands[_band(task.priority(now))].append((task, now))

    def withdraw(self, task: DeliveryTask) -> None:
        """Remove the task if it is waiting."""
        self._waiting.discard(task)

    def take(self, now: int) -> DeliveryTask | None:
        """Remove and return the next task, or None if none is waiting."""
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
        moved: list[list[tuple[DeliveryTask, int]]] = [[] for _ in BANDS]
        for at, band in enumerate(self._bands):
            if at == 0:
                continue
            stay: deque[tuple[DeliveryTask, int]] = deque()
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
    raise AssertionError("the last band accepts every priority")
