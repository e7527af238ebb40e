"""Admission: serve a request now, delay it briefly, or refuse it with a retry hint.

The server measures its pressure ten times a second, as a number from 0 to 1: how late the event loop is because of its
own work, and how many deliveries wait. Below a threshold requests are served at once. Above it writes wait for a few
milliseconds, so that more of them share a flush; writes to urgent logs wait less. At high pressure, requests for the
least urgent logs are refused; at full pressure, requests for all but the most urgent logs. A patient request waits
instead of being refused.

Writes also wait while records arrive faster than they can be sealed. The delay starts when half of the budget for
unsealed records is in use and grows with it. The engine refuses records that do not fit into the budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Protocol, TypeVar

from strandline.delivery.hub import Hub
from strandline.engine.commit import Commit
from strandline.engine.errors import SOON_MS, SealingBehind
from strandline.service.http import Later, LaterCommitted, Reply
from strandline.service.problems import Throttled

#: How often the pressure is measured.
SAMPLE_MS = 100
#: At this pressure writes start to wait, up to PARK_MAX_MS at full pressure.
PARK_FROM = 0.2
PARK_MAX_MS = 20.0
#: At SHED_FROM, logs with a negative priority are no longer delivered and accept no writes, until the pressure falls
#: below SHED_UNTIL.
SHED_FROM = 0.8
SHED_UNTIL = 0.6
#: At this pressure only logs with at least the priority URGENT accept writes.
REFUSE_FROM = 0.98
URGENT = 750
#: The weight of a new measurement in the average, and the upper bound of a measurement, as a multiple of the target:
#: a single long pause does not mean that the server is busy.
_WEIGHT = 0.2
_MOST = 20.0
#: The number of waiting deliveries that counts as full pressure.
FULL_DEPTH = 20_000
#: Writes wait once this share of the budget for unsealed records is in use.
SLOW_FROM = 0.5
#: How long a write waits when the budget is full. The delay grows with the square, so that it hardly affects a short
#: burst. It limits 16 connections with writes of 500 KiB to 8 MB/s, which any disk can seal.
SLOW_MAX_MS = 1_000.0
#: Even a patient request is served after this time.
MAX_PARKED_SECONDS = 10.0


class Depth(Protocol):
    def __len__(self) -> int: ...


class Pressure:
    """How busy the server is. ``sample`` measures the pressure; call it every SAMPLE_MS on the event loop's thread.

    Delays of the loop up to ``target_ms`` do not count; ten times as much is full pressure. The loop can also be
    late because other processes use the processors. Therefore a delay counts in proportion to the share of the
    interval in which the loop's thread was running. ``clock`` returns seconds, ``cpu_clock`` the processor time of the
    calling thread in seconds.

    ``waiting`` holds the waiting deliveries. ``unsealed`` returns the share of the budget for unsealed records in use.
    """

    def __init__(
        self,
        waiting: Depth,
        target_ms: float = 5.0,
        unsealed: Callable[[], float] = lambda: 0.0,
        *,
        clock: Callable[[], float] = perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._unsealed = unsealed
        self._waiting = waiting
        self._target_ms = target_ms
        self._clock = clock
        self._cpu_clock = cpu_clock
        #: When the last sample was taken; None before the first sample, which only starts the measurement.
        self._sampled_at: float | None = None
        self._cpu_at = 0.0
        self._late_ms = 0.0
        #: 0.0 below PARK_FROM.
        self.level = 0.0
        self.shedding = False
        #: Number of refused requests.
        self.throttled = 0
        #: Whether writes may have to wait. Almost always False, and then a write checks nothing else.
        self.holds_writes = False
        #: How long a write waits because of the unsealed records.
        self._sealing_ms = 0.0
        #: Number of writes that were delayed because of the unsealed records.
        self.slowed = 0

    def sample(self) -> None:
        """Measure the pressure now."""
        self.note(self._own_lateness_ms())

    def note(self, late_ms: float) -> None:
        """Add a measurement: how late the loop was because of its own work."""
        self._late_ms += (late_ms - self._late_ms) * _WEIGHT
        by_time = (self._late_ms - self._target_ms) / (9 * self._target_ms)
        by_depth = len(self._waiting) / FULL_DEPTH
        level = min(1.0, max(by_time, by_depth))
        self.level = level if level >= PARK_FROM else 0.0
        self.shedding = level >= SHED_FROM or (self.shedding and level >= SHED_UNTIL)
        share = self._unsealed()
        over = max(0.0, min(1.0, (share - SLOW_FROM) / (1.0 - SLOW_FROM)))
        self._sealing_ms = SLOW_MAX_MS * over * over
        self.holds_writes = self.level > 0.0 or over > 0.0

    def _own_lateness_ms(self) -> float:
        """The part of this sample's delay that the loop's own work caused."""
        now, cpu = self._clock(), self._cpu_clock()
        elapsed, worked = now - (now if self._sampled_at is None else self._sampled_at), cpu - self._cpu_at
        self._sampled_at, self._cpu_at = now, cpu
        late_ms = elapsed * 1000 - SAMPLE_MS
        return min(late_ms * min(1.0, worked / elapsed), _MOST * self._target_ms) if late_ms > 0 else 0.0

    def write_delay_ms(self, priority: int, patient: bool) -> float:
        """The same as ``delay_ms``, for a request that writes."""
        delay = self.delay_ms(priority, patient)
        if self._sealing_ms:
            self.slowed += 1
        return max(delay, self._sealing_ms)

    def delay_ms(self, priority: int, patient: bool) -> float:
        """How long a request for a log of this priority must wait. Raises Throttled if the request is refused; a
        patient request is never refused."""
        level = self.level
        if not level:
            return 0.0
        refused = (self.shedding and priority < 0) or (level >= REFUSE_FROM and priority < URGENT)
        if refused and not patient:
            self.throttled += 1
            raise Throttled(int(SOON_MS * (1 + level)))  # twice as long at full pressure
        urgency = max(0.0, min(1.0, (priority + 1000) / 2000))
        return PARK_MAX_MS * level * (1.0 - urgency) + (PARK_MAX_MS if refused else 0.0)


T = TypeVar("T")
#: The answer of a handler without a stream.
Replying = Reply | Later | Awaitable[Reply]
#: Serves an admitted request, given the milliseconds that it has waited.
Act = Callable[[float], Replying]
#: The milliseconds to wait, by priority and by whether the request is patient.
_Delay = Callable[[int, bool], float]


class Urgency(Protocol):
    """A log with a priority."""

    def priority(self, now: int) -> int:
        """The priority at a time in milliseconds, from -1000 to 1000."""


class Admission:
    """Every protocol calls ``read`` or ``write`` to serve a request. A refused request raises :class:`Throttled`."""

    def __init__(self, hub: Hub, pressure: Pressure) -> None:
        self.pressure = pressure
        #: Called for a commit that waits for the disk: whether to flush on the event loop. A server replaces it.
        self.flushes_in_place: Callable[[], bool] = lambda: False
        self._hub = hub

    def read(self, act: Act, log: Urgency | None = None) -> Replying:
        """Call ``act`` now, or after the delay that the pressure requires. Without a ``log``, for example when the
        request creates one, the priority is 0."""
        if not self.pressure.level:
            return act(0.0)
        return self._admit(self.pressure.delay_ms, act, log)

    def write(self, act: Act, log: Urgency | None = None, *, patient: bool = False) -> Replying:
        """The same as ``read``, for a request that writes records: it also waits while sealing is behind. A patient
        request waits instead of being refused."""
        delay = self.pressure.write_delay_ms
        if patient:
            # Even without pressure: the engine may refuse the records, and then the request waits and retries.
            return self._admit_later(delay, act, log, delay(self._priority(log), True), True)
        if not self.pressure.holds_writes:
            return act(0.0)
        return self._admit(delay, act, log)

    def _priority(self, log: Urgency | None) -> int:
        return 0 if log is None else log.priority(self._hub.now())

    def _admit(self, delay: _Delay, act: Act, log: Urgency | None) -> Replying:
        delay_ms = delay(self._priority(log), False)
        return self._admit_later(delay, act, log, delay_ms, False) if delay_ms else act(0.0)

    async def _admit_later(self, delay: _Delay, act: Act, log: Urgency | None, delay_ms: float, patient: bool) -> Reply:
        started, pressure = perf_counter(), self.pressure
        while True:
            await asyncio.sleep(delay_ms / 1000)
            waited = perf_counter() - started
            is_patient = patient and waited <= MAX_PARKED_SECONDS
            if is_patient and pressure.shedding:
                delay_ms = delay(self._priority(log), True)
                if delay_ms:
                    continue
            try:
                return await reply_of(act(waited * 1000))
            except SealingBehind as error:
                # Nothing has been written.
                if not is_patient:
                    raise
                delay_ms = max(delay(self._priority(log), True), error.retry_after_ms / 10)

    def after(self, commit: Commit[T], make: Callable[[T], Reply]) -> Reply | Later:
        """The reply that ``make`` builds from the commit's value, as soon as the commit is done."""
        if commit.done or self.flushes_in_place():
            return make(commit.wait())
        later = LaterCommitted()

        def settle() -> None:
            try:
                reply = make(commit.wait())
            except Exception as error:
                later.fail(error)
            else:
                later.settle(reply)

        self._hub.on_done(commit, settle)
        return later


async def reply_of(answer: Replying) -> Reply:
    """Wait for the reply."""
    reply = answer if isinstance(answer, Reply) else await answer
    assert isinstance(reply, Reply)
    return reply
