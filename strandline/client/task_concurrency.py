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
