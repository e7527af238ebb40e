"""Runs hooks that are coroutine functions, after the writes that they belong to are durable.

They run on an event loop of their own, on a thread that starts with the first of them. So they delay neither writes nor
the event loop of a server. Each call runs at most once: a process that is killed loses the calls that have not run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from strandline.engine import Commit
from strandline.engine.errors import SOON_MS
from strandline.tables.errors import TableError

log = logging.getLogger(__name__)

#: The number of calls that may wait or run. Each holds a row in memory.
MAX_CALLS = 10_000
#: The number of calls that run at the same time. Services that hooks notify often allow about as many connections.
CALLS_AT_ONCE = 64
#: The time limit of a call. A call that never ended would take the place of others.
CALL_SECONDS = 30.0
#: How long closing waits for the calls of writes that are durable.
CLOSE_SECONDS = 10.0
#: How long closing waits for the thread after its calls were cancelled. A hook that blocks the thread keeps it longer.
_JOIN_SECONDS = 5.0


class HookCall(NamedTuple):
    """A call of the hook of a table."""

    table: str
    hook: str
    start: Callable[[], Coroutine[Any, Any, object]]


class HookRunner:
    """Call ``reserve`` before a write, and ``follow`` with its commit. Any thread may do so.

    ``failures`` counts failed calls by table and hook, ``refused`` the writes that were refused because too many calls
    were waiting.
    """

    def __init__(self, max_calls: int = MAX_CALLS, seconds: float = CALL_SECONDS) -> None:
        self._max_calls = max_calls
        self._seconds = seconds
        self._changed = threading.Condition()
        self._held = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: Used by the loop's thread.
        self._waiting: deque[HookCall] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._ended = False
        self.failures: dict[tuple[str, str], int] = {}
        self.refused = 0

    @property
    def held(self) -> int:
        """The number of calls that are reserved, waiting or running."""
        return self._held

    def reserve(self, count: int) -> None:
        """Reserve room for the calls of a write. Raises TableError if there is none."""
        with self._changed:
            if self._closed:
                raise TableError("UNAVAILABLE", "the tables are closed")
            if count > self._max_calls:
                message = f"the write calls hooks {count} times, the maximum is {self._max_calls}: split the write"
                raise TableError("VALIDATION_FAILED", message)
            if self._held + count > self._max_calls:
                self.refused += 1
                message = f"{self._held} calls of hooks are waiting, the maximum is {self._max_calls}: retry later"
                raise TableError("THROTTLED", message, retryAfter=SOON_MS)
            if self._loop is None:
                self._begin()
            self._held += count

    def release(self, count: int) -> None:
        with self._changed:
            self._held -= count
            self._changed.notify_all()

    def follow(self, commit: Commit[Any], calls: Sequence[HookCall]) -> None:
        """Run the reserved calls once the commit is durable."""
        commit.add_done_callback(lambda done: self._start(done, calls))

    def _start(self, commit: Commit[Any], calls: Sequence[HookCall]) -> None:
        try:
            commit.wait()
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._take, calls)
        except Exception as error:  # the write failed, or the loop is closed
            self._drop(calls, error)

    def _drop(self, calls: Sequence[HookCall], reason: object) -> None:
        log.warning("%d calls of hooks were dropped: %s", len(calls), reason)
        self.release(len(calls))

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Refuse further writes with such hooks, and wait for the calls of writes that are durable. Calls that have not
        ended after ``seconds`` are cancelled."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._held, seconds)
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(self._end)
            thread.join(_JOIN_SECONDS)

    # --- the loop's thread -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="table hooks", daemon=True)
        self._thread.start()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            if self._running:
                loop.run_until_complete(asyncio.wait(self._running))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _end(self) -> None:
        dropped = len(self._waiting) + len(self._running)
        if dropped:
            log.warning("%d calls of hooks had not ended when the tables were closed", dropped)
        self._ended = True
        self.release(len(self._waiting))
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        asyncio.get_running_loop().stop()

    def _take(self, calls: Sequence[HookCall]) -> None:
        if self._ended:
            self._drop(calls, "the tables are closed")
            return
        self._waiting.extend(calls)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < CALLS_AT_ONCE:
            task = asyncio.get_running_loop().create_task(self._run(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._fill()

    async def _run(self, call: HookCall) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await call.start()
        except BaseException as error:  # anything else would end the thread
            key = (call.table, call.hook)
            self.failures[key] = self.failures.get(key, 0) + 1
            log.error("the hook %s of the table %s failed: %r", call.hook, call.table, error, exc_info=error)
        finally:
            self.release(1)
