"""What the tests of watching share: a reader that takes down what it gets, and an event loop to run it on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from strandline.delivery.hub import Hub
from strandline.delivery.watch import FeedPosition, FeedReader, Feeds, FeedView
from strandline.engine import Batch, Config, Engine, Log, ManualClock, Page
from strandline.engine.disk import Disk
from strandline.service.admission import Pressure

NOW = 1_700_000_000_000


class Subject:
    def __init__(self, log: Log, priority: int = 0) -> None:
        self.log = log
        self.consumed_at: int | None = None
        self.urgency = priority

    def priority(self, now: int) -> int:
        return self.urgency


class Texts(FeedView):
    """Shows records as a list of (seq, text), and a loss as its range; counts how often it was asked to."""

    __slots__ = ("limit", "rendered", "without")

    def __init__(self, limit: int = 100, strong: bool = False, without: str | None = None) -> None:
        super().__init__(strong)
        self.limit = limit
        self.without = without
        self.rendered = 0

    def arguments(self, subject: Subject) -> dict[str, Any]:
        return {"limit": self.limit, "without_nodes": None if self.without is None else {self.without}}

    def render(self, subject: Subject, after: int, page: Page) -> list[Any]:
        self.rendered += 1
        lost = [] if page.tombstone is None else [(page.tombstone.gap_from, page.tombstone.gap_to)]
        return [*lost, *((record.seq, record.data.decode()) for record in page)]


class Notebook(FeedReader):
    """Takes everything, unless it is told to be ``busy``."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.busy = False
        self.ended: list[int] = []
        self.paces = 0
        self.failures: list[Exception] = []
        self.after: Callable[[FeedPosition], None] = lambda place: None

    def deliver(self, place: FeedPosition) -> None:
        feed = place.feed
        if self.busy or feed is None:
            return
        piece = feed.piece(place)
        if piece is None:
            return
        place.move(piece)
        if piece.content is not None:
            self.got.append(piece.content)
        if not piece.caught_up:
            feed.queue(place)
        self.after(place)

    def gone(self, place: FeedPosition) -> None:
        self.ended.append(place.subject.log.head)

    def paced(self, place: FeedPosition) -> None:
        self.paces += 1

    def failed(self, place: FeedPosition, error: Exception) -> None:
        self.failures.append(error)


class Stand:
    """An engine that is driven by hand, with feeds on it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.clock = ManualClock(NOW)
        self.hub = Hub(self.clock.now)
        self.pressure = Pressure(self.hub.scheduler)
        self.feeds = Feeds(self.hub, self.pressure)

    def make(self, name: str = "a", **config: Any) -> Log:
        return self.engine.create(name, Config(**config)).wait()

    def place(self, subject: Subject, view: FeedView, cursor: int = 0, reader: Notebook | None = None) -> FeedPosition:
        """A reader that is told of everything from the cursor on."""
        place = FeedPosition(reader or Notebook(), subject, cursor, view)
        self.feeds.attach(place)
        assert place.feed is not None
        place.feed.queue(place)
        return place


async def settle(until: Callable[[], bool] | None = None) -> None:
    """Let everything happen that can happen; or, where another thread has a part in it, what is waited for."""
    if until is not None:
        async with asyncio.timeout(10):
            while not until():
                await asyncio.sleep(0.001)
    for _ in range(50):
        await asyncio.sleep(0)


def on_a_stand(path: Path | Disk, scenario: Callable[[Stand], Awaitable[None]]) -> None:
    engine = Engine.open(path, clock=ManualClock(NOW), background=False)

    async def run() -> None:
        await scenario(Stand(engine))

    try:
        asyncio.run(run())
    finally:
        engine.close()


def write(log: Log, *texts: str, node: str | None = None) -> None:
    for text in texts:
        log.append(Batch.of(text.encode(), node=node)).wait()


def notes(place: FeedPosition) -> list[Any]:
    """What the place's reader got, piece by piece."""
    assert isinstance(place.reader, Notebook)
    return place.reader.got
