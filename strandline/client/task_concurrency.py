"""Waits, locks, tasks and signals for event loops. ``thread_concurrency`` has the same for threads."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

#: The result of a function.
AsyncResult: TypeAlias = Awaitable[T]

AsyncLock = asyncio.Lock

#: The signals that stop a worker.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


class AsyncFlag:
    """A flag that callers can set, clear and wait for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def raised(self) -> bool:
        return self._event.is_set()

    def put_up(self) -> None:
        self._event.set()

    def take_down(self) -> None:
        self._event.clear()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until the flag is set. Returns False if that takes longer than ``seconds``."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class AsyncCrew:
    """A group of running tasks."""

    def __init__(self, size: int) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        # A pool of its own, so that functions that block for long do not occupy the threads of the event loop. Threads
        # start only when they are needed.
        self._pool = ThreadPoolExecutor(size, "strandline")

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        task = asyncio.ensure_future(work(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def join(self) -> None:
        """Wait until all tasks are done."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._pool.shutdown(wait=False)

    def begin(self, function: Callable[[Any], Any], argument: Any, seconds: float | None) -> AsyncCall:
        """Begin to call a coroutine function, or a plain function on a thread."""
        if inspect.iscoroutinefunction(function):
            return AsyncCall(asyncio.ensure_future(_outcome(function(argument))), seconds, stoppable=True)
        run = asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, function, argument)
        return AsyncCall(run, seconds, stoppable=False)


class AsyncCall:
    """A call of a function that may take ``seconds``. If it takes longer, a coroutine is cancelled. A function on a
    thread cannot be stopped."""

    def __init__(self, run: asyncio.Future[Any], seconds: float | None, *, stoppable: bool) -> None:
        self._run = run
        self._seconds = seconds
        self._stoppable = stoppable

    async def finished(self) -> bool:
        """Wait for the function, and return whether it returned in time. Raises its exception."""
        try:
            done, _ = await asyncio.wait([self._run], timeout=self._seconds)
        except asyncio.CancelledError:
            self._run.cancel()
            raise
        if not done:
            if self._stoppable:
                self._run.cancel()
            return False
        if self._run.cancelled():
            raise RuntimeError("the function waited for something that was cancelled")
        outcome = self._run.result()
        if isinstance(outcome, SystemExit):
            raise outcome
        return True

    async def end(self) -> None:
        """Wait until the function has ended, also after it took too long."""
        await asyncio.wait([self._run])
        if not self._run.cancelled():
            # An exception after the time is up changes nothing.
            self._run.exception()


async def _outcome(waits: Awaitable[Any]) -> Any:
    """The result of a coroutine. SystemExit is returned, because in a task it would end the event loop."""
    try:
        return await waits
    except SystemExit as error:
        return error


def async_check(function: Callable[[Any], Any]) -> None:
    """Every function is accepted."""


@asynccontextmanager
async def async_told_to_stop(stop: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``stop`` when the process receives a stop signal. Works only in the main thread."""
    loop = asyncio.get_running_loop()
    told = []
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, stop)
                told.append(number)
    try:
        yield
    finally:
        for number in told:
            loop.remove_signal_handler(number)
