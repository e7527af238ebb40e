"""Background work: tasks that are repeated for as long as the process runs, and a record of those that fail.

An error never ends such a task. The error is logged, the task is tried again after a pause that doubles with every
failure in a row, and :class:`Health` says that the task fails until it succeeds again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from strandline.engine.clock import SystemClock
from strandline.engine.errors import EngineError, shown

log = logging.getLogger(__name__)

#: The pause after the first failure, and the longest pause, in seconds.
FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 60.0

#: Errors that come from the machine, such as a full disk: they need no traceback.
_EXPECTED = (EngineError, OSError)


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A task that fails at the moment."""

    task: str
    #: When the first of the failures in a row happened, in milliseconds since 1970.
    since: int
    #: The number of failures in a row.
    failures: int
    #: The last error, with nothing that only an operator may know; the log has all of it.
    error: str


class Health:
    """Which background tasks fail. Any thread may use it. ``now`` gives milliseconds since 1970."""

    def __init__(self, now: Callable[[], int] | None = None) -> None:
        self._now = now or SystemClock().now
        self._lock = threading.Lock()
        self._failing: dict[str, Trouble] = {}
        self._totals: dict[str, int] = {}

    def know(self, task: str) -> None:
        """Count the failures of the task, beginning with 0."""
        with self._lock:
            self._totals.setdefault(task, 0)

    def failed(self, task: str, error: BaseException) -> int:
        """Note a failure; returns how many there have been in a row."""
        with self._lock:
            self._totals[task] = self._totals.get(task, 0) + 1
            before = self._failing.get(task)
            failures = 1 if before is None else before.failures + 1
            self._failing[task] = Trouble(
                task=task,
                since=self._now() if before is None else before.since,
                failures=failures,
                error=type(error).__name__ if isinstance(error, EngineError) else shown(error),
            )
            return failures

    def succeeded(self, task: str) -> None:
        # Nearly always there is nothing to clear, and then no lock is needed to see that.
        if task in self._failing:
            with self._lock:
                self._failing.pop(task, None)
            log.info("%s works again", task)

    def troubles(self) -> list[Trouble]:
        """The tasks that fail at the moment."""
        with self._lock:
            return list(self._failing.values())

    def totals(self) -> dict[str, int]:
        """The number of failures since the start, by task."""
        with self._lock:
            return dict(self._totals)


def delay_after(failures: int) -> float:
    """The pause after so many failures in a row, in seconds."""
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 20), MAX_DELAY_SECONDS)


class Task:
    """Something to do again and again. ``name`` is what the log, the metrics and the probes call it."""

    def __init__(
        self, name: str, act: Callable[[], object], health: Health, *, max_delay: float = MAX_DELAY_SECONDS
    ) -> None:
        self.name = name
        self._act = act
        self._health = health
        self._max_delay = max_delay
        health.know(name)

    def attempt(self) -> float:
        """Do it. Returns 0.0 after a success, else the seconds to wait before the next attempt."""
        try:
            self._act()
        except Exception as error:
            return self.failed(error)
        self._health.succeeded(self.name)
        return 0.0

    def failed(self, error: BaseException) -> float:
        """Note and log a failure. Returns the seconds to wait before the next attempt."""
        delay = min(delay_after(self._health.failed(self.name, error)), self._max_delay)
        report(f"{self.name} failed; next attempt in {delay:.1f} s", error)
        return delay

    def succeeded(self) -> None:
        self._health.succeeded(self.name)


def report(what: str, error: BaseException) -> None:
    """Log an error, with a traceback unless the machine is the cause."""
    log.error("%s: %s", what, error, exc_info=None if isinstance(error, _EXPECTED) else error)


class BackgroundThread(threading.Thread):
    """A thread that repeats a task until ``end``.

    ``wait`` blocks until there is something to do, and ``release`` makes it return when the thread is to end. ``pause``
    waits after a failure; by default ``end`` cuts it short. ``died`` is called if the thread ends in any other way.
    """

    def __init__(
        self,
        task: Task,
        wait: Callable[[], object],
        release: Callable[[], object],
        *,
        pause: Callable[[float], object] | None = None,
        died: Callable[[BaseException], object] = lambda error: None,
    ) -> None:
        super().__init__(name=f"strandline-{task.name}", daemon=True)
        self._task = task
        self._wait_for_work = wait
        self._release = release
        self._ending = threading.Event()
        self._pause = pause or self._ending.wait
        self._died = died

    def run(self) -> None:
        try:
            delay = 0.0
            while not self._ending.is_set():
                # After a failure the work is still to be done.
                if delay:
                    self._pause(delay)
                else:
                    self._wait_for_work()
                if not self._ending.is_set():
                    delay = self._task.attempt()
        except BaseException as error:
            self._died(error)
            raise

    def end(self) -> None:
        """Let the thread return; join it to know that it has."""
        self._ending.set()
        self._release()
