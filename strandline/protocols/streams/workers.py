"""A few threads for questions that take long: so few that they leave the machine to those who read and write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from time import perf_counter
from typing import TypeVar

from strandline.protocols.streams.errors import request_timeout

#: More would wait for each other: there is one interpreter, and an index is extended by one at a time.
THREADS = 2

T = TypeVar("T")


class Workers:
    """``active`` threads are at work now, ``queued`` questions wait for one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(THREADS, "question")
        self._lock = Lock()
        self._unfinished = 0

    @property
    def active(self) -> int:
        return min(self._unfinished, THREADS)

    @property
    def queued(self) -> int:
        return max(self._unfinished - THREADS, 0)

    async def run(self, work: Callable[[], T], until: float) -> T:
        """What ``work`` gives, unless it is not there ``until`` then (of ``perf_counter``): the request is refused, and
        if nobody has begun with it, nobody will."""
        answer = self._threads.submit(work)
        # Counted until it really ends, which a thread may do later than anybody waits for it.
        with self._lock:
            self._unfinished += 1
        answer.add_done_callback(self._ended)
        future = asyncio.wrap_future(answer, loop=self._loop)
        done, _ = await asyncio.wait({future}, timeout=max(until - perf_counter(), 0))
        if not done:
            answer.cancel()
            raise request_timeout()
        return future.result()

    def _ended(self, answer: Future[T]) -> None:
        with self._lock:
            self._unfinished -= 1

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
