"""Waiting and locking, once for event loops and once for threads: the two halves of what is otherwise one source."""

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

#: What a function gives that the caller awaits, or has at once.
AsyncResult: TypeAlias = Awaitable[T]
SyncResult: TypeAlias = Annotated[T, "at once"]

AsyncLock = asyncio.Lock
SyncLock = threading.Lock


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sync_sleep(seconds: float) -> None:
    time.sleep(seconds)


# --- Doing several things at a time, and being told to stop: once with tasks, once with threads ---------------------

#: What asks a program to end.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


# --- with tasks ----------------------------------------------------------------------------------------------------


class AsyncFlag:
    """Is raised at some time, and can be waited for."""

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
        """Whether it was raised within that time."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class AsyncCrew:
    """Things that are under way."""

    def __init__(self, size: int) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        # Of its own, because functions that block for long would keep everybody else from the loop's threads. None is
        # started before it is needed.
        self._pool = ThreadPoolExecutor(size, "strandline")

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        task = asyncio.ensure_future(work(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def join(self) -> None:
        """Wait until all are done."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._pool.shutdown(wait=False)

    async def call(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Call a function of either kind; one that may block does so on a thread."""
        if inspect.iscoroutinefunction(function):
            await function(argument)
        else:
            context = copy_context()
            await asyncio.get_running_loop().run_in_executor(self._pool, context.run, function, argument)


def async_check(function: Callable[[Any], Any]) -> None:
    """Any function will do."""


@asynccontextmanager
async def async_told_to_stop(stop: Callable[[], None]) -> AsyncIterator[None]:
    """``stop`` is called when the process is asked to end. Only the main thread can have that."""
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
    """Is raised at some time, and can be waited for."""

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
        """Whether it was raised within that time."""
        return self._event.wait(seconds)


class SyncCrew:
    """Things that are under way."""

    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, "strandline")
        self._futures: set[Future[None]] = set()

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        future = self._pool.submit(work, *arguments)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    def join(self) -> None:
        """Wait until all are done."""
        wait_for_all(self._futures.copy())
        self._pool.shutdown()

    def call(self, function: Callable[[Any], Any], argument: Any) -> None:
        function(argument)


def sync_check(function: Callable[[Any], Any]) -> None:
    if inspect.iscoroutinefunction(function):
        raise TypeError("this is a coroutine function: it needs the worker of an AsyncClient")


@contextmanager
def sync_told_to_stop(stop: Callable[[], None]) -> Iterator[None]:
    """``stop`` is called when the process is asked to end. Only the main thread can have that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(*_: object) -> None:
        # The main thread may be holding the very lock that stop needs.
        threading.Thread(target=stop).start()

    before = {number: signal.signal(number, told) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
