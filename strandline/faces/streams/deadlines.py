"""Answers that must not take longer than a while: all have the same time, so they are a queue and need one timer."""

from __future__ import annotations

import asyncio
from collections import deque

from strandline.faces.meters import Meter
from strandline.faces.web import Later, Refusal

#: How often it is looked whose time is up.
_STEP_SECONDS = 0.1


class Pending(Later):
    """An answer that is waited for. Settled by whoever is first: the one who has it, or the clock."""

    __slots__ = ("begun", "over", "size", "until")

    def __init__(self, begun: float, until: float, size: int) -> None:
        super().__init__()
        self.begun = begun
        self.until = until
        self.size = size
        self.over = False


class Deadlines:
    """``count`` and ``size`` are what waits now: answers, and the bytes that they are about. How long each has waited
    goes to ``waits``, in microseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, refusal: Refusal, waits: Meter) -> None:
        self._loop = loop
        self._seconds = seconds
        self._refusal = refusal
        self._waits = waits
        self._waiting: deque[Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.count = 0
        self.size = 0

    def begin(self, size: int) -> Pending:
        now = self._loop.time()
        pending = Pending(now, now + self._seconds, size)
        self._waiting.append(pending)
        self.count += 1
        self.size += size
        if self._timer is None:
            self._timer = self._loop.call_later(_STEP_SECONDS, self._look)
        return pending

    def end(self, pending: Pending) -> bool:
        """The answer is there; False if it was too late for it. What was waited for no longer takes room either way."""
        self.count -= 1
        self.size -= pending.size
        self._waits.add(int((self._loop.time() - pending.begun) * 1_000_000))
        if pending.over:
            return False
        pending.over = True
        return True

    def _look(self) -> None:
        now, waiting = self._loop.time(), self._waiting
        try:
            while waiting and (waiting[0].over or waiting[0].until <= now):
                pending = waiting.popleft()
                if not pending.over:
                    pending.over = True
                    pending.fail(self._refusal)
        finally:
            self._timer = self._loop.call_later(_STEP_SECONDS, self._look) if waiting else None
