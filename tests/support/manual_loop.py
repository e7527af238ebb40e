"""What the routers' tests share: an event loop that is turned by hand, and an engine with routers on it."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

from strandline.delivery.hub import Hub
from strandline.delivery.routers import Router, RouterDefinition, Routers
from strandline.engine import Batch, Config, Engine, Log, ManualClock, Options, Record
from strandline.engine.disk import Disk

NOW = 1_700_000_000_000


class HandTurnedLoop:
    """As much of an event loop as the hub needs. Nothing happens unless ``turn`` or ``advance`` is called."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = count()

    def call_soon(self, action: Callable[..., object], *arguments: object, context: object = None) -> None:
        self._ready.append(lambda: action(*arguments))

    call_soon_threadsafe = call_soon

    def call_later(self, seconds: float, action: Callable[..., object], *arguments: object) -> _Timer:
        timer = _Timer(lambda: action(*arguments))
        heapq.heappush(self._timers, (self.now_ms + seconds * 1000, next(self._order), timer))
        return timer

    def run_in_executor(self, _: None, action: Callable[..., object], *arguments: object) -> Any:
        """Done in the next turn, as if another thread had been quick."""
        work = _Work()
        self.call_soon(lambda: work.do(action, arguments))
        return work

    def turn(self) -> None:
        """Do everything that can be done without time going by."""
        while self._ready:
            self._ready.popleft()()

    def advance(self, milliseconds: float) -> None:
        until = self.now_ms + milliseconds
        self.turn()
        while self._timers and self._timers[0][0] <= until:
            self.now_ms, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.action()
            self.turn()
        self.now_ms = until

    @property
    def timers(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self._timers)


class _Timer:
    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Work:
    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], object]] = []
        self._error: Exception | None = None

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self._callbacks.append(callback)

    def do(self, action: Callable[..., object], arguments: tuple[object, ...]) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self._error = error
        for callback in self._callbacks:
            callback(self)

    def cancelled(self) -> bool:
        return False

    def exception(self) -> Exception | None:
        return self._error


class House:
    """An engine with routers, and the loop that they are on."""

    def __init__(self, path: Path | Disk, **options: object) -> None:
        self.clock = ManualClock(NOW)
        self.engine = Engine.open(
            path,
            Options(**options),  # type: ignore[arg-type]
            clock=self.clock,
            background=False,
        )
        self.loop = HandTurnedLoop()
        self.hub = Hub(self.clock.now, cast(asyncio.AbstractEventLoop, self.loop))
        self.routers = Routers(self.engine, self.hub)

    def log(self, name: str, **config: object) -> Log:
        """The log of this name, made if need be."""
        found = self.engine.find(name)
        return found or self.engine.create(name, Config(**config)).wait()  # type: ignore[arg-type]

    def route(self, source: str, dest: str, name: str = "", **how: object) -> Router:
        self.log(source)
        self.log(dest)
        name = name or f"{source}->{dest}"
        self.routers.put(RouterDefinition(name=name, source=source, dest=dest, **how)).wait()  # type: ignore[arg-type]
        return self.router(name)

    def router(self, name: str) -> Router:
        router = self.routers.get(name)
        assert router is not None
        return router

    def write(self, name: str, *data: str, **columns: Any) -> None:
        """All in one batch; ``key``, ``node`` and ``meta`` are the same for all of them."""
        size = len(data)
        self.log(name).append(
            Batch(
                [text.encode() for text in data],
                keys=None if "key" not in columns else [columns["key"]] * size,
                nodes=None if "node" not in columns else [columns["node"]] * size,
                metas=None if "meta" not in columns else [columns["meta"]] * size,
            )
        ).wait()

    def turn(self) -> None:
        self.loop.turn()

    def records(self, name: str) -> list[Record]:
        """All records of a log; a page ends where something is missing."""
        log, found, after = self.log(name), list[Record](), 0
        while after < log.head:
            page = log.read(after, 100_000)
            found += page
            after = page.next_after
        return found

    def texts(self, name: str) -> list[str]:
        return [record.data.decode() for record in self.records(name)]

    def frames(self) -> int:
        return self.engine.stats().frames


@contextmanager
def house(path: Path | Disk, **options: object) -> Iterator[House]:
    built = House(path, **options)
    try:
        yield built
    finally:
        built.engine.close()
