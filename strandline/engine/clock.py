"""Clocks. The engine gets its time from a clock that is passed in and never reads the system clock itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

log = logging.getLogger(__name__)

#: If the server's time differs from the system clock by at most this much, the server approaches it gradually. A larger
#: difference would take more than ten days, so the server does not approach it. A timestamp in a data directory that is
#: further ahead than this comes from a wrong clock and is ignored.
MAX_AHEAD_MS = 24 * 3_600_000
#: A record that is further ahead of the clock than this does not raise the times of the records after it. Clients whose
#: clocks are slightly ahead stay below it. Within this bound, times never go backwards in a log.
FUTURE_MS = 5 * 60_000
#: The server's time runs faster or slower by one part in this many until it agrees with the system clock. Retention and
#: leases are then off by at most 10%, and a step of one hour takes ten hours to correct.
SLEW_PARTS = 10
#: The server follows a forward step beyond MAX_AHEAD_MS if the system clock has not been corrected after this time. An
#: operator who set the clock to a wrong year can correct it before anything expires.
HOLD_MS = 3_600_000
#: Smaller steps of the system clock are not logged, such as a leap second or the first correction by an NTP daemon.
STEP_MS = 1_000
#: How often the server's time is compared with the system clock. A comparison takes a few microseconds.
COMPARE_MS = 100

_NS = 1_000_000
#: This clock also counts the time during which the machine is suspended, on systems that have such a clock.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def later(last: int, ts: int) -> int:
    """Return the later of two times that were recorded one after the other. If ``last`` is more than a day ahead of
    ``ts``, return ``ts``: ``last`` came from a wrong clock."""
    return ts if ts > last or last - ts > MAX_AHEAD_MS else last


class Clock(Protocol):
    def now(self) -> int:
        """Return milliseconds since the Unix epoch. The value may jump; the engine hides backward jumps of less than a
        day."""
        ...

    def continue_from(self, ts: int) -> None:
        """Never return a time before ``ts``, the last time in the data directory. The engine calls this once, when it
        opens."""
        ...


class SystemClock:
    """The system clock, unchanged. Use it for times that must agree with other machines: signatures and
    certificates."""

    def now(self) -> int:
        return time.time_ns() // _NS

    def continue_from(self, ts: int) -> None:
        """Do nothing: the engine itself keeps the time from going backwards."""


class _Course(NamedTuple):
    """The server's time is ``at`` when the elapsed time is ``since``, and then corrects ``gap``. All values are
    nanoseconds."""

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
    """Starts at the system clock and then counts elapsed time, so that retention, leases and time windows keep their
    length when the system clock changes.

    When the system clock is set, the server's time approaches it by running 10% faster or slower, and never goes
    backwards. If the difference exceeds MAX_AHEAD_MS, the server does not approach it: it follows a forward step after
    HOLD_MS, and a backward step at the next start. Every step is logged. Thread-safe. ``wall`` and ``elapsed`` return
    nanoseconds.
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
        # Every request and every append reads the time several times, so the common case is short.
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
        # A difference below one millisecond is not worth a slower reading of the clock.
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
    """A clock that only moves when a test or simulation sets it."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def continue_from(self, ts: int) -> None:
        """Do nothing: only the test sets the time."""

    def advance(self, milliseconds: int) -> None:
        self._now += milliseconds

    def set(self, now: int) -> None:
        self._now = now
