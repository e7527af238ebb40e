"""One timer for the leases and retries of all subscriptions, on the wall clock because leases outlive restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from strandline.delivery.hub import Hub
from strandline.delivery.subscriptions.subscription import Subscription

#: The maximum wait. The wall clock may be changed while the timer waits.
MAX_WAIT_MS = 10_000


class Timer:
    """Calls ``due`` with each subscription that is due. ``due`` must not raise."""

    def __init__(self, hub: Hub, due: Callable[[Subscription], None]) -> None:
        self._hub = hub
        self._due = due
        self._heap: list[tuple[int, int, Subscription]] = []
        self._order = count()
        self._handle: asyncio.TimerHandle | None = None
        self._stopped = False

    def set(self, subscription: Subscription) -> None:
        """Schedule the subscription. Call this whenever its ``due_at`` has changed."""
        at = subscription.due_at
        if not at or subscription.timer_at == at:
            return
        subscription.timer_at = at
        heappush(self._heap, (at, next(self._order), subscription))
        if self._heap[0][2] is subscription:
            self._wind()

    def ring(self) -> None:
        """Process all subscriptions that are due."""
        now, heap = self._hub.now(), self._heap
        due = []
        while heap and heap[0][0] <= now:
            at, _, subscription = heappop(heap)
            if subscription.timer_at == at:
                subscription.timer_at = 0
                due.append(subscription)
        try:
            for subscription in due:
                if not subscription.removed:
                    self._due(subscription)
                    self.set(subscription)
        finally:
            self._wind()

    def stop(self) -> None:
        self._stopped = True
        self._unwind()

    def _unwind(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wind(self) -> None:
        self._unwind()
        if self._heap and not self._stopped:
            wait = min(max(self._heap[0][0] - self._hub.now(), 0), MAX_WAIT_MS)
            self._handle = self._hub.loop.call_later(wait / 1000, self.ring)


FIRST_MS = 1_000
MAX_MS = 60_000
#: Delays vary randomly by this share, so that retries spread out.
JITTER = 0.2


def retry_delay_ms(failures: int, jitter: Callable[[], float]) -> int:
    """The delay after this many consecutive failures. ``jitter`` returns numbers from 0 to 1."""
    delay = min(FIRST_MS << min(failures - 1, 16), MAX_MS)
    return round(delay * (1 + JITTER * (2 * jitter() - 1)))
