"""An event loop that tests turn by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from strandline.engine import ManualClock


class Handle:
    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HandLoop:
    """The part of an event loop that queues need. Its time is the clock's, and ``pass_time`` moves it."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = count()
        self.fetches = 0

    def call_soon(self, action: Callable[..., object], *arguments: object, context: object = None) -> None:
        self._ready.append(lambda: action(*arguments))

    call_soon_threadsafe = call_soon

    def call_later(self, seconds: float, action: Callable[..., object], *arguments: object) -> Handle:
        handle = Handle(lambda: action(*arguments))
        heapq.heappush(self._timers, (self._clock.now() + seconds * 1000, next(self._numbers), handle))
        return handle

    def run_in_executor(self, _: None, action: Callable[..., Any], *arguments: object) -> Any:
        self.fetches += 1
        future: asyncio.Future[Any] = asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

        def run() -> None:
            try:
                future.set_result(action(*arguments))
            except Exception as error:
                future.set_exception(error)

        self.call_soon(run)
        return future

    def get_debug(self) -> bool:
        return False

    def turn(self) -> None:
        while self._ready:
            self._ready.popleft()()

    def pass_time(self, milliseconds: int) -> None:
        until = self._clock.now() + milliseconds
        self.turn()
        while self._timers and self._timers[0][0] <= until:
            when, _, handle = heapq.heappop(self._timers)
            if handle.cancelled:
                continue
            self._clock.advance(max(0, int(when) - self._clock.now()))
            handle.action()
            self.turn()
        self._clock.advance(until - self._clock.now())

    @property
    def timers(self) -> int:
        return sum(not handle.cancelled for _, _, handle in self._timers)
