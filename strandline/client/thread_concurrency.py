"""Waits, locks and signals for threads. ``task_concurrency`` has the same for event loops.

Imported by every program that uses the client, so it does not import asyncio.
"""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from contextlib import contextmanager
from contextvars import copy_context
from typing import Annotated, Any, TypeAlias, TypeVar

T = TypeVar("T")

#: The result of a function, which the asynchronous client awaits.
SyncResult: TypeAlias = Annotated[T, "at once"]

SyncLock = threading.Lock

#: The signals that stop a worker.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def sync_sleep(seconds: float) -> None:
    time.sleep(seconds)


class SyncFlag:
    """A flag that callers can set, clear and wait for."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def raised(self) -> bool:
        return self._event.is_set()

    def put_up(self) -> None:
        self._event.set()

    def take_down(self) -> None:
        self._event.clear()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the flag is set. Returns False if that takes longer than ``seconds``."""
        return self._event.wait(seconds)


class SyncCrew:
    """A group of running threads."""

    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, "strandline")
        self._futures: set[Future[None]] = set()

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        future = self._pool.submit(work, *arguments)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    def join(self) -> None:
        """Wait until all calls are done."""
        wait_for_all(self._futures.copy())
        self._pool.shutdown()

    def begin(self, function: Callable[[Any], Any], argument: Any, seconds: float | None) -> SyncCall:
        """Prepare a call of a function."""
        return SyncCall(function, argument, seconds)


class SyncCall:
    """A call of a function that may take ``seconds``. If there is a limit, the function runs on a thread of its own,
    which cannot be stopped."""

    def __init__(self, function: Callable[[Any], Any], argument: Any, seconds: float | None) -> None:
        self._function = function
        self._argument = argument
        self._seconds = seconds
        self._thread: threading.Thread | None = None
        self._raised: BaseException | None = None

    def finished(self) -> bool:
        """Call the function, and return whether it returned in time. Raises its exception."""
        if self._seconds is None:
            self._function(self._argument)
            return True
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="strandline-job")
        self._thread.start()
        self._thread.join(self._seconds)
        if self._thread.is_alive():
            return False
        if self._raised is not None:
            raise self._raised
        return True

    def end(self) -> None:
        """Wait until the function has ended, also after it took too long."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._function(self._argument)
        except BaseException as error:
            self._raised = error


def sync_check(function: Callable[[Any], Any]) -> None:
    if inspect.iscoroutinefunction(function):
        raise TypeError("the handler is a coroutine function: use the worker of an AsyncClient")


@contextmanager
def sync_told_to_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` when the process receives a stop signal. Works only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(*_: object) -> None:
        # A thread calls stop, because the main thread may hold the lock that stop needs.
        threading.Thread(target=stop).start()

    before = {number: signal.signal(number, told) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
