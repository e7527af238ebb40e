"""Time as an argument: the engine never asks the system clock by itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

log = logging.getLogger(__name__)

#: A server whose time differs from the system clock by up to this much approaches it gradually. A larger difference
#: would take more than ten days, so it is not approached at all. A time in a data directory that is further ahead
#: than this comes from a wrong clock and is ignored.
MAX_AHEAD_MS = 24 * 3_600_000
#: A record that is further ahead of the clock than this does not hold back the records after it. Clients whose
#: clocks are a little ahead stay below: within this bound times never go backwards in a log.
FUTURE_MS = 5 * 60_000
#: The server's time runs faster or slower by one part in this many until it agrees with the system clock. Times to live
#: and leases are then wrong by 10% at most, and a step of an hour is made up for in ten hours.
SLEW_PARTS = 10
#: A forward step beyond MAX_AHEAD_MS is followed if the system clock still says so after this time. An operator
#: who set the clock to a wrong year has as long to correct it before anything expires.
HOLD_MS = 3_600_000
#: Smaller steps of the system clock are not logged: a leap second, or the first correction by an NTP daemon.
STEP_MS = 1_000
#: How often the own time is compared with the system clock. A comparison takes a few microseconds.
COMPARE_MS = 100

_NS = 1_000_000
#: Goes on while the machine is suspended, where the system has such a clock.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def later(last: int, ts: int) -> int:
    """The later of two times that were written down one after the other. The second one if the first is more than a day
    ahead of it: that was a wrong clock."""
    return ts if ts > last or last - ts > MAX_AHEAD_MS else last


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since the Unix epoch. May jump; the engine makes it never go backwards by less than a day."""
        ...

    def continue_from(self, ts: int) -> None:
        """The data directory has seen this time: give no earlier one. Called once, by the engine that opens it."""
        ...


class SystemClock:
    """The system clock as it is. For what must agree with other machines: signatures and certificates."""

    def now(self) -> int:
        return time.time_ns() // _NS

    def continue_from(self, ts: int) -> None:
        """The engine holds the time by itself."""


class _Course(NamedTuple):
    """The own time is ``at`` when the elapsed time is ``since``, and then makes up for ``gap``. All in nanoseconds."""

    at: int
    since: int
    gap: int
    compare_at: int

    def reading(self, elapsed: int) -> int:
        passed = elapsed - self.since
        if not self.gap:
            return self.at + passed
        made_up = min(passed // SLEW_PARTS, abs(self.gap))
        return self.at + passed + (made_up if self.gap > 0 else -made_up)


class SteadyClock:
    """The system clock at the start, and from then on elapsed time. So times to live, leases and windows last as long
    as they should, whatever becomes of the system clock.

    If the system clock is set, the own time approaches it by running 10% faster or slower. It never goes backwards.
    Beyond MAX_AHEAD_MS it does not approach: a forward step is followed after HOLD_MS, a backward step at the next
    start. Every step is logged. Any thread may use it. ``wall`` and ``elapsed`` give nanoseconds.
    """

    def __init__(self, wall: Callable[[], int] = time.time_ns, elapsed: Callable[[], int] | None = None) -> None:
        self._wall = wall
        self._elapsed = elapsed or partial(time.clock_gettime_ns, _ELAPSED)
        self._lock = threading.Lock()
        #: How far the system clock was ahead at the last comparison, and since when by more than MAX_AHEAD_MS.
        self._difference = 0
        self._far_since: int | None = None
        since = self._elapsed()
        self._course = _Course(wall(), since, 0, since + COMPARE_MS * _NS)

    def now(self) -> int:
        # Every request and every append asks several times, so the usual case is kept short.
        elapsed = self._elapsed()
        course = self._course
        at, since, gap, compare_at = course
        if elapsed >= compare_at:
            return self._compare(elapsed).reading(elapsed) // _NS
        return (course.reading(elapsed) if gap else at + elapsed - since) // _NS

    def continue_from(self, ts: int) -> None:
        with self._lock:
            elapsed = self._elapsed()
            own = self._course.reading(elapsed)
            ahead = ts * _NS - own
            if ahead <= 0:
                return
            if ahead >= STEP_MS * _NS:
                log.warning(
                    "the system clock is %s behind the last write to the data directory; the server continues from the"
                    " time of that write and runs %s",
                    _span(ahead),
                    _pace(-ahead),
                )
            self._set_course(own + ahead, elapsed, self._wall() - own - ahead)

    def _compare(self, elapsed: int) -> _Course:
        with self._lock:
            course = self._course
            if elapsed < course.compare_at:
                return course
            own = course.reading(elapsed)
            difference = self._wall() - own
            expected = self._difference + course.at + elapsed - course.since - own
            step = difference - expected
            if abs(difference) <= MAX_AHEAD_MS * _NS:
                self._far_since = None
            elif self._far_since is None:
                self._far_since = elapsed
            if abs(step) >= STEP_MS * _NS:
                _log_step(step, difference)
            if self._far_since is not None and difference > 0 and elapsed - self._far_since >= HOLD_MS * _NS:
                log.warning(
                    "the system clock has been %s ahead of the server's time for %s; the server now follows it",
                    _span(difference),
                    _span(HOLD_MS * _NS),
                )
                own, difference, self._far_since = own + difference, 0, None
            return self._set_course(own, elapsed, difference)

    def _set_course(self, own: int, elapsed: int, difference: int) -> _Course:
        self._difference = difference
        # Less than a millisecond is not worth a slower reading of the clock.
        gap = difference if _NS <= abs(difference) <= MAX_AHEAD_MS * _NS else 0
        self._course = _Course(own, elapsed, gap, elapsed + COMPARE_MS * _NS)
        return self._course


def _log_step(step: int, difference: int) -> None:
    direction = "forward" if step > 0 else "back"
    if abs(difference) > MAX_AHEAD_MS * _NS:
        plan = "keeps its own time. " + (
            f"It follows the system clock if that has not been corrected in {_span(HOLD_MS * _NS)}"
            if difference > 0
            else "Restart it to use the system clock, or correct the system clock"
        )
    elif abs(difference) < STEP_MS * _NS:
        plan = "agrees with it again and expires nothing early or late"
    else:
        plan = f"goes by elapsed time and runs {_pace(difference)}"
    log.warning("the system clock stepped %s by %s; the server %s", direction, _span(abs(step)), plan)


def _pace(difference: int) -> str:
    word = "faster" if difference > 0 else "slower"
    return f"{100 // SLEW_PARTS}% {word} for {_span(abs(difference) * SLEW_PARTS)}, until both agree"


def _span(ns: int) -> str:
    return f"{ns / 1e9:.3f} s"


class ManualClock:
    """A clock that is turned by hand, for tests and simulations."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def continue_from(self, ts: int) -> None:
        """Only a hand turns it."""

    def advance(self, milliseconds: int) -> None:
        self._now += milliseconds

    def set(self, now: int) -> None:
        self._now = now
