"""Background work: tasks that repeat until the process ends, and a record of the tasks that fail.

An error never ends a task. The error is logged, the task is retried after a pause that doubles with every consecutive
failure, and :class:`Health` reports the task as failing until it succeeds again.
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

#: Errors caused by the machine, such as a full disk. They are logged without a traceback.
_EXPECTED = (EngineError, OSError)


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is currently failing."""

    task: str
    #: When the first of the consecutive failures happened, in milliseconds since 1970.
    since: int
    #: The number of consecutive failures.
    failures: int
    #: The last error, without details that only an operator may see. The log has the full error.
    error: str


class Health:
    """Records which background tasks are failing. Thread-safe. ``now`` returns milliseconds since 1970."""

    def __init__(self, now: Callable[[], int] | None = None) -> None:
        self._now = now or SystemClock().now
        self._lock = threading.Lock()
        self._failing: dict[str, Trouble] = {}
        self._totals: dict[str, int] = {}

    def know(self, task: str) -> None:
        """Register a task with a failure count of 0."""
        with self._lock:
            self._totals.setdefault(task, 0)

    def failed(self, task: str, error: BaseException) -> int:
        """Record a failure and return the number of consecutive failures."""
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
        # There is rarely a failure to clear, and checking that needs no lock.
        if task in self._failing:
            with self._lock:
                self._failing.pop(task, None)
            log.info("%s recovered", task)

    def troubles(self) -> list[Trouble]:
        """Return the tasks that are currently failing."""
        with self._lock:
            return list(self._failing.values())

    def totals(self) -> dict[str, int]:
        """Return the number of failures since the start, by task."""
        with self._lock:
            return dict(self._totals)


def delay_after(failures: int) -> float:
    """Return the pause after this number of consecutive failures, in seconds."""
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 20), MAX_DELAY_SECONDS)


class Task:
    """A repeated task. Logs, metrics and probes show its ``name``."""

    def __init__(
        self, name: str, act: Callable[[], object], health: Health, *, max_delay: float = MAX_DELAY_SECONDS
    ) -> None:
        self.name = name
        self._act = act
        self._health = health
        self._max_delay = max_delay
        health.know(name)

    def attempt(self) -> float:
        """Run the task once. Return 0.0 after a success, otherwise the seconds to wait before the next attempt."""
        try:
            self._act()
        except Exception as error:
            return self.failed(error)
        self._health.succeeded(self.name)
        return 0.0

    def failed(self, error: BaseException) -> float:
        """Record and log a failure. Return the seconds to wait before the next attempt."""
        delay = min(delay_after(self._health.failed(self.name, error)), self._max_delay)
        report(f"{self.name} failed; next attempt in {delay:.1f} s", error)
        return delay

    def succeeded(self) -> None:
        self._health.succeeded(self.name)


def report(what: str, error: BaseException) -> None:
    """Log an error, with a traceback unless the machine caused it."""
    log.error("%s: %s", what, error, exc_info=None if isinstance(error, _EXPECTED) else error)


class BackgroundThread(threading.Thread):
    """A thread that repeats a task until ``end`` is called.

    ``wait`` blocks until there is work, and ``release`` makes it return when the thread should end. ``pause`` waits
    after a failure; by default, ``end`` cuts the pause short. ``died`` is called if the thread ends in any other way.
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
                # The failed work still has to be done.
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
        """Tell the thread to return. Join the thread to wait until it has."""
        self._ending.set()
        self._release()
