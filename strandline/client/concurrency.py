"""Waits, locks, tasks and signals: one version for event loops, one for threads."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from typing import Annotated, Any, TypeAlias, TypeVar

T = TypeVar("T")

#: The result of a function: awaited by the asynchronous client, returned directly by the other one.
AsyncResult: TypeAlias = Awaitable[T]
SyncResult: TypeAlias = Annotated[T, "at once"]

AsyncLock = asyncio.Lock
SyncLock = threading.Lock


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sync_sleep(seconds: float) -> None:
    time.sleep(seconds)


# --- Concurrent work and stop signals: one version with tasks, one with threads -------------------------------------

#: The signals that stop a worker.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


# --- with tasks ----------------------------------------------------------------------------------------------------


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

    async def call(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Call a coroutine function, or run a plain function on a thread. An exception is that of the function, unless
        the task itself was cancelled."""
        if inspect.iscoroutinefunction(function):
            try:
                await function(argument)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise RuntimeError("the function waited for something that was cancelled") from error
        else:
            context = copy_context()
            await asyncio.get_running_loop().run_in_executor(self._pool, context.run, function, argument)


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


# --- with threads --------------------------------------------------------------------------------------------------


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

    def call(self, function: Callable[[Any], Any], argument: Any) -> None:
        function(argument)


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
