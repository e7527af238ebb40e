"""The feed of a log: its live readers, and the pages they get, rendered once for all readers at the same position.

Readers pull. The feed calls a reader's ``deliver`` when there may be new records, and the reader requests the page at
its position when it can take one. A slow reader costs only its cursor, and gets larger pages the further it lags.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Protocol

from strandline.delivery.hub import SLICE_SECONDS, Hub, Waiter
from strandline.engine import Log, Page
from strandline.engine.commit import Commit
from strandline.engine.errors import DamagedFile, EngineError, UnknownLog
from strandline.engine.record import FLUSHED

log = logging.getLogger(__name__)

#: The time slice is checked after this many readers.
LOOK_EVERY = 8


class Subject(Protocol):
    """The log of a feed and its delivery priority."""

    log: Log
    consumed_at: int | None

    def priority(self, now: int) -> int: ...


class PlainSubject:
    """A log without a delivery priority of its own."""

    __slots__ = ("consumed_at", "log")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.consumed_at: int | None = None

    def priority(self, now: int) -> int:
        return 0


class FeedView(ABC):
    """Which records of a log a reader gets, and how they are rendered.

    Readers with the same filter share one view object, and with it the rendered pages.
    """

    __slots__ = ("__weakref__", "strong")

    def __init__(self, strong: bool) -> None:
        #: Deliver only durable records.
        self.strong = strong

    @abstractmethod
    def arguments(self, subject: Any) -> dict[str, Any]:
        """The filters and limits of a page, as keyword arguments of ``Log.read``."""

    @abstractmethod
    def render(self, subject: Any, after: int, page: Page) -> Any:
        """Render a page that has records or a tombstone."""


class FeedPage:
    """The rendered page at a position. ``content`` is None if no record is shown; the cursor may advance anyway."""

    __slots__ = ("caught_up", "content", "head", "next_after")

    def __init__(self, page: Page, content: Any) -> None:
        self.next_after = page.next_after
        self.caught_up = page.caught_up
        self.head = page.head
        self.content = content


class FeedReader(ABC):
    """A live reader of one or more logs. All calls are made on the event loop."""

    __slots__ = ()

    @abstractmethod
    def deliver(self, place: FeedPosition) -> None:
        """Called when there may be new records. Take the page at the position if there is room for it, and advance the
        position."""

    @abstractmethod
    def gone(self, place: FeedPosition) -> None:
        """Called when the log was dropped. The position is already detached."""

    @abstractmethod
    def paced(self, place: FeedPosition) -> None:
        """Called when the server is too busy for this log. Deliveries resume without a call by the reader."""

    @abstractmethod
    def failed(self, place: FeedPosition, error: Exception) -> None:
        """Called when the log cannot be read."""


class FeedPosition:
    """The position of a reader in a log. ``epoch`` is the epoch of the log to which the cursor belongs."""

    __slots__ = ("cursor", "epoch", "feed", "queued", "reader", "subject", "view")

    def __init__(self, reader: FeedReader, subject: Subject, cursor: int, view: FeedView) -> None:
        self.reader = reader
        self.subject = subject
        self.cursor = cursor
        self.epoch = subject.log.epoch
        self.view = view
        #: None while the position is not attached to a feed.
        self.feed: Feed | None = None
        self.queued = False

    @property
    def behind(self) -> bool:
        """Whether the log may hold records that were not delivered yet."""
        return self.cursor != self.subject.log.head or self.epoch != self.subject.log.epoch

    def move(self, piece: FeedPage) -> None:
        self.cursor = piece.next_after
        self.epoch = self.subject.log.epoch

    def pages(self, wants_more: Callable[[], bool]) -> Iterator[FeedPage]:
        """Yield the available pages, and advance the position before each, while the reader wants more. Ends when other
        readers have waited long enough; the reader is then called again."""
        until = perf_counter() + SLICE_SECONDS
        while self.feed is not None and self.behind and wants_more():
            before = self.cursor, self.epoch
            piece = self.feed.piece(self)
            if piece is None:
                return
            self.move(piece)
            if piece.content is None and before == (self.cursor, self.epoch):
                return
            yield piece
            if perf_counter() > until:
                if self.feed is not None:
                    self.feed.queue(self)
                return


_Key = tuple[int, int, FeedView]


def _tell(tell: Callable[..., None], place: FeedPosition, *arguments: Any) -> None:
    """Notify one reader. An exception is logged, so the other readers are still notified."""
    try:
        tell(place, *arguments)
    except Exception:
        log.exception("%r: a live reader failed", place.subject.log)


class FeedKeeper(Protocol):
    """The owner of the feeds, as seen by a feed."""

    def held(self, feed: Feed) -> bool:
        """Whether deliveries of the log are paused because the server is busy."""

    def forget(self, feed: Feed) -> None:
        """Remove a feed that has no readers left."""


class Feed(Waiter):
    """The live readers of one log. The scheduler runs the feed while readers are waiting for a call."""

    __slots__ = (
        "_durable", "_hub", "_keeper", "_loading", "_pieces", "_stamp", "_syncing", "_tasks", "_todo", "paused",
        "places", "subject",
    )  # fmt: skip

    def __init__(self, hub: Hub, subject: Subject, keeper: FeedKeeper) -> None:
        self._hub = hub
        self._keeper = keeper
        self.subject = subject
        self.places: dict[FeedPosition, None] = {}
        #: Deliveries are paused until the server is less busy.
        self.paused = False
        self._todo: list[FeedPosition] = []
        #: Rendered pages. Kept until the current deliveries end or the log changes.
        self._pieces: dict[_Key, FeedPage] = {}
        self._stamp: tuple[int, ...] = ()
        self._loading: dict[_Key, dict[FeedPosition, None]] | None = None
        self._tasks: set[asyncio.Task[None]] | None = None
        #: The highest sequence number known to be durable.
        self._durable = 0
        self._syncing = False

    # --- scheduling ------------------------------------------------------------------------------------------------

    def priority(self, now: int) -> int:
        return self.subject.priority(now)

    def wake(self, log: Log) -> None:
        if log.dropped:
            self._end()
            return
        todo = self._todo
        for place in self.places:
            if not place.queued:
                place.queued = True
                todo.append(place)
        self.run()

    def queue(self, place: FeedPosition) -> None:
        """Schedule a call of the position's reader."""
        if not place.queued:
            place.queued = True
            self._todo.append(place)
            self._hub.submit(self)

    def queue_all(self) -> None:
        for place in list(self.places):
            self.queue(place)

    def run(self) -> None:
        """Call the queued readers until the time slice ends. The next turn calls the rest."""
        todo, self._todo = self._todo, []
        until = perf_counter() + SLICE_SECONDS
        for at, place in enumerate(todo, 1):
            place.queued = False
            if place.feed is self:
                self._deliver(place)
            if at < len(todo) and not at % LOOK_EVERY and perf_counter() > until:
                self._todo = todo[at:] + self._todo
                break
        if self._todo:
            self._hub.submit(self)
        else:
            self._pieces.clear()

    @staticmethod
    def _deliver(place: FeedPosition) -> None:
        """Call one reader. If it raises, the other readers are still served."""
        try:
            place.reader.deliver(place)
        except Exception as error:
            log.exception("%r: a delivery to a live reader failed", place.subject.log)
            _tell(place.reader.failed, place, error)

    def _end(self) -> None:
        places, self.places = list(self.places), {}
        self._keeper.forget(self)
        for place in places:
            place.feed = None
            place.queued = False
            _tell(place.reader.gone, place)

    # --- pages -----------------------------------------------------------------------------------------------------

    def piece(self, place: FeedPosition) -> FeedPage | None:
        """The page at the position, or None if it is not available yet. The reader is called again once it is."""
        if self._keeper.held(self):
            return None
        self._check_stamp()
        piece = self._pieces.get((place.cursor, place.epoch, place.view))
        return self._read(place) if piece is None else piece

    def _check_stamp(self) -> None:
        """Discard the rendered pages if the log has changed, so that no reader gets a deleted or evicted record."""
        log = self.subject.log
        stamp = (log.head, log.revision, self._durable)
        if stamp != self._stamp:
            self._stamp = stamp
            self._pieces.clear()

    def _read(self, place: FeedPosition) -> FeedPage | None:
        if place.view.strong:
            self._sync()
        key = (place.cursor, place.epoch, place.view)
        if self._loading is not None and key in self._loading:
            self._loading[key][place] = None
            return None
        try:
            page = self.subject.log.read_resident(place.cursor, **self._arguments(place))
        except UnknownLog:
            return None  # the wake-up that announces the drop is already scheduled
        except EngineError as error:
            self._hub.loop.call_soon(place.reader.failed, place, error)
            return None
        if page is None:
            self._load(key, place)
            return None
        return self._make(key, page)

    def _arguments(self, place: FeedPosition) -> dict[str, Any]:
        arguments = place.view.arguments(self.subject)
        if place.epoch != self.subject.log.epoch:
            arguments["epoch"] = place.epoch
        return arguments

    def _make(self, key: _Key, page: Page) -> FeedPage | None:
        after, _, view = key
        if view.strong and not self._cut(page, after):
            return None
        content = None
        if page.seqs or page.tombstone is not None:
            content = view.render(self.subject, after, page)
            self.subject.consumed_at = self._hub.now()
        piece = self._pieces[key] = FeedPage(page, content)
        return piece

    # --- pages that are not in memory ------------------------------------------------------------------------------

    def _load(self, key: _Key, place: FeedPosition) -> None:
        """Read the page on another thread, once for all readers at this position."""
        if self._loading is None:
            self._loading = {}
            self._tasks = set()
        assert self._tasks is not None
        self._loading[key] = {place: None}
        task = self._hub.loop.create_task(self._fetch(key, self._arguments(place)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, key: _Key, arguments: dict[str, Any]) -> None:
        page, failure = None, None
        try:
            page = await self._hub.in_thread(self.subject.log.read, key[0], **arguments)
        except UnknownLog:
            pass
        except Exception as error:
            failure = error
        assert self._loading is not None
        waiting = [place for place in self._loading.pop(key) if place.feed is self]
        if failure is not None:
            if not isinstance(failure, DamagedFile):  # damage is logged once, where it is found
                log.error("%r: cannot read the records after seq %d", self.subject.log, key[0], exc_info=failure)
            for place in waiting:
                _tell(place.reader.failed, place, failure)
        if page is None:
            return
        self._check_stamp()
        try:
            self._make(key, page)
        except Exception as error:
            log.exception("%r: cannot render the records after seq %d", self.subject.log, key[0])
            for place in waiting:
                _tell(place.reader.failed, place, error)
            return
        for place in waiting:
            self._deliver(place)
        if not self._todo:
            self._pieces.clear()

    # --- durable records -------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Request a sync of the records that are not durable yet. Strong readers are called when it is done."""
        log = self.subject.log
        if self._syncing or self._durable >= log.head:
            return
        if log.config.durability in FLUSHED:
            self._durable = log.head
            return
        try:
            commit = log.sync()
        except EngineError:
            return  # the log is closing, dropped or not writable: no more records become durable
        if commit.done:
            self._durable = commit.wait()
        else:
            self._syncing = True
            commit.add_done_callback(lambda done: self._hub.post(lambda: self._synced(done)))

    def _synced(self, commit: Commit[int]) -> None:
        self._syncing = False
        try:
            self._durable = max(self._durable, commit.wait())
        except EngineError:
            return
        for place in list(self.places):
            if place.view.strong:
                self.queue(place)

    def _cut(self, page: Page, after: int) -> bool:
        """Remove the records that are not durable yet from a page. Returns False if no record is left."""
        durable = self._durable
        if page.next_after <= durable:
            return True
        if page.tombstone is not None and page.tombstone.gap_to > durable:
            return False
        at = bisect_right(page.seqs, durable)
        for column in (page.seqs, page.ts, page.data, page.keys, page.nodes, page.metas):
            del column[at:]
        page.next_after = durable
        page.caught_up = False
        return durable > after or page.tombstone is not None


#: How often to check whether the server is still too busy for logs of negative priority.
RETRY_SECONDS = 0.1


class Pacing(Protocol):
    """Reports whether the server is too busy for logs of negative priority."""

    shedding: bool


class Feeds:
    """All feeds of a server. Used on the event loop only."""

    def __init__(self, hub: Hub, pressure: Pacing) -> None:
        self.hub = hub
        self._pressure = pressure
        self._feeds: dict[int, Feed] = {}
        self._paused: set[Feed] = set()

    def __len__(self) -> int:
        """The number of watched logs."""
        return len(self._feeds)

    def attach(self, place: FeedPosition) -> None:
        """Start calling the position's reader when the log changes. The reader itself requests the records that exist
        already.

        Raises UnknownLog if the log was dropped.
        """
        assert place.feed is None
        log = place.subject.log
        feed = self._feeds.get(log.epoch)
        if feed is None:
            feed = Feed(self.hub, place.subject, self)
            self.hub.watch(log, feed)
            self._feeds[log.epoch] = feed
        feed.places[place] = None
        place.feed = feed

    def detach(self, place: FeedPosition) -> None:
        """Stop calling the position's reader. Does nothing if the position is not attached."""
        feed, place.feed = place.feed, None
        place.queued = False
        if feed is not None:
            feed.places.pop(place, None)
            if not feed.places:
                self.forget(feed)

    def forget(self, feed: Feed) -> None:
        """Remove a feed that has no readers left."""
        log = feed.subject.log
        self.hub.unwatch(log, feed)
        self.hub.scheduler.withdraw(feed)
        self._paused.discard(feed)
        self._feeds.pop(log.epoch, None)

    # --- pauses under load -----------------------------------------------------------------------------------------

    def held(self, feed: Feed) -> bool:
        """Whether the feed is paused: logs of negative priority wait while the server sheds load."""
        if feed.paused:
            return True
        if not self._pressure.shedding or feed.subject.priority(self.hub.now()) >= 0:
            return False
        feed.paused = True
        if not self._paused:
            self.hub.loop.call_later(RETRY_SECONDS, self.retry)
        self._paused.add(feed)
        for place in list(feed.places):
            place.reader.paced(place)
        return True

    def retry(self) -> None:
        """Resume the feeds for which the server is no longer too busy."""
        now = self.hub.now()
        try:
            for feed in list(self._paused):
                if not self._pressure.shedding or feed.subject.priority(now) >= 0:
                    self._paused.discard(feed)
                    feed.paused = False
                    feed.queue_all()
        finally:
            if self._paused:
                self.hub.loop.call_later(RETRY_SECONDS, self.retry)
