"""One timer for all queues: removes jobs whose last lease expires, also if no one uses their queue."""

from __future__ import annotations

import asyncio
from functools import partial
from heapq import heappop, heappush

from strandline.delivery.hub import Hub
from strandline.delivery.queues.queue import Queue
from strandline.engine.background import delay_after, report

#: The maximum wait of the timer. Later times are checked again when it fires.
MAX_TIMER_SECONDS = 3600.0


class ExpiryTimer:
    """``expect`` is the alarm of queues. Jobs are read on another thread and removed on the event loop's thread."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        #: A heap of times, with numbers that make entries comparable, and queues.
        self._due: list[tuple[int, int, Queue]] = []
        self._made = 0
        self._timer: asyncio.TimerHandle | None = None
        #: Consecutive failures by queue.
        self._failures: dict[Queue, int] = {}
        self._stopped = False

    def expect(self, queue: Queue, when: int) -> None:
        """Bury the queue's exhausted jobs at this time. Can be called from any thread."""
        self._hub.post(partial(self._add, queue, when))

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _add(self, queue: Queue, when: int) -> None:
        self._made += 1
        heappush(self._due, (when, self._made, queue))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and not self._stopped:
            seconds = (self._due[0][0] - self._hub.now()) / 1000
            self._timer = self._hub.loop.call_later(min(max(seconds, 0.0), MAX_TIMER_SECONDS), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._hub.now()
        queues: dict[Queue, None] = {}
        while self._due and self._due[0][0] <= now:
            queues[heappop(self._due)[2]] = None
        for queue in queues:
            self._hub.in_thread(queue.bring_exhausted).add_done_callback(partial(self._bury, queue))
        self._set_timer()

    def _bury(self, queue: Queue, brought: asyncio.Future[None]) -> None:
        if self._stopped or brought.cancelled():
            return
        try:
            brought.result()
            queue.remove_exhausted()
        except Exception as error:
            if not queue.log.dropped:
                self._retry_later(queue, error)
        else:
            self._failures.pop(queue, None)

    def _retry_later(self, queue: Queue, error: Exception) -> None:
        failures = self._failures[queue] = self._failures.get(queue, 0) + 1
        delay = delay_after(failures)
        report(f"queue {queue.log.name!r}: cannot move or drop failed jobs; next attempt in {delay:.1f} s", error)
        self._add(queue, self._hub.now() + int(delay * 1000))
