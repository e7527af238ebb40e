"""How busy the server is, from 0 to 1, and what it asks others to do about it.

Every tenth of a second the pressure is measured: how long the loop takes to come around, and how much waits to be
delivered. While it is low nobody notices anything. As it rises, writes wait a little (those to urgent logs less), which
lets them share their flushes; when it is high the least urgent ones are sent away with a time to come back, and at the
very top everybody but the most urgent. Whoever says that they rather wait than fail are let in, however late.

Writes are also slowed down when more is written than can be sealed: from half of the budget for unsealed records on,
every write waits, and longer the fuller the budget is. The engine refuses what does not fit into the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

#: How often the pressure is measured.
SAMPLE_MS = 100
#: From here on writes are made to wait, up to so many milliseconds at full pressure.
PARK_FROM = 0.2
PARK_MAX_MS = 20.0
#: From here on logs of negative priority are not delivered and take no writes, until the pressure is below the second.
SHED_FROM = 0.8
SHED_UNTIL = 0.6
#: From here on only the logs of the highest band take writes.
REFUSE_FROM = 0.98
URGENT = 750
#: How much of a new measurement goes into the average, and what it counts at the most, in targets: a single pause,
#: however long, is no pressure.
_WEIGHT = 0.2
_MOST = 20.0
#: So many deliveries waiting are full pressure.
FULL_DEPTH = 20_000
RETRY_AFTER_MS = 1_000
#: From this share of the budget for unsealed records on, writes wait.
SLOW_FROM = 0.5
#: How long a write waits when the budget is full. The wait grows with the square, so that a short burst is hardly
#: slowed down; and 16 connections that write 500 KiB each time are held to 8 MB/s, which any disk can seal.
SLOW_MAX_MS = 1_000.0


class Throttled(Exception):
    """The server is too busy for this one now."""

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(f"the server is busy, try again in {retry_after_ms} ms")
        self.retry_after_ms = retry_after_ms


class Depth(Protocol):
    def __len__(self) -> int: ...


class Pressure:
    """``target_ms`` is how late the loop may be without anybody calling it busy; ten times that is full pressure.

    ``unsealed`` says how full the budget for unsealed records is: 1.0 is all of it.
    """

    def __init__(self, waiting: Depth, target_ms: float = 5.0, unsealed: Callable[[], float] = lambda: 0.0) -> None:
        self._unsealed = unsealed
        self._waiting = waiting
        self._target_ms = target_ms
        self._late_ms = 0.0
        #: 0.0 while nothing needs to be done about it.
        self.level = 0.0
        self.shedding = False
        #: How many requests were sent away so far.
        self.throttled = 0
        #: Whether a write has to ask for its delay. False nearly always: writes look at nothing else.
        self.holds_writes = False
        #: How long a write waits because of the unsealed records.
        self._sealing_ms = 0.0
        #: How many writes were slowed down because of the unsealed records.
        self.slowed = 0

    def sample(self, late_ms: float) -> None:
        """Take in how late the loop was this time."""
        self._late_ms += (min(late_ms, _MOST * self._target_ms) - self._late_ms) * _WEIGHT
        by_time = (self._late_ms - self._target_ms) / (9 * self._target_ms)
        by_depth = len(self._waiting) / FULL_DEPTH
        level = min(1.0, max(by_time, by_depth))
        self.level = level if level >= PARK_FROM else 0.0
        self.shedding = level >= SHED_FROM or (self.shedding and level >= SHED_UNTIL)
        share = self._unsealed()
        over = max(0.0, min(1.0, (share - SLOW_FROM) / (1.0 - SLOW_FROM)))
        self._sealing_ms = SLOW_MAX_MS * over * over
        self.holds_writes = self.level > 0.0 or over > 0.0

    def write_delay_ms(self, priority: int, patient: bool) -> float:
        """As ``delay_ms``, for a request that writes."""
        delay = self.delay_ms(priority, patient)
        if self._sealing_ms:
            self.slowed += 1
        return max(delay, self._sealing_ms)

    def delay_ms(self, priority: int, patient: bool) -> float:
        """How long a request for a log of this priority waits first; raises Throttled unless it is patient."""
        level = self.level
        if not level:
            return 0.0
        refused = (self.shedding and priority < 0) or (level >= REFUSE_FROM and priority < URGENT)
        if refused and not patient:
            self.throttled += 1
            raise Throttled(int(RETRY_AFTER_MS * (1 + level)))
        urgency = max(0.0, min(1.0, (priority + 1000) / 2000))
        return PARK_MAX_MS * level * (1.0 - urgency) + (PARK_MAX_MS if refused else 0.0)
