"""A few threads for questions that take long: so few that they leave the machine to those who read and write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

from strandline.faces.streams.errors import request_timeout

#: More would wait for each other: there is one interpreter, and an index is extended by one at a time.
THREADS = 2

T = TypeVar("T")


class Workers:
    """``active`` work now, ``queued`` wait for one of the threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(THREADS, "question")
        self._running = 0

    @property
    def active(self) -> int:
        return min(self._running, THREADS)

    @property
    def queued(self) -> int:
        return self._running - self.active

    async def run(self, work: Callable[[], T], until: float) -> T:
        """What ``work`` gives, unless it is not there ``until`` then (of ``perf_counter``): the request is refused, and
        if nobody has begun with it, nobody will."""
        self._running += 1
        future = self._loop.run_in_executor(self._threads, work)
        future.add_done_callback(self._ended)
        done, _ = await asyncio.wait({future}, timeout=max(until - perf_counter(), 0))
        if not done:
            future.cancel()
            raise request_timeout()
        return future.result()

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # whoever waited has it, or was told that it took too long

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
