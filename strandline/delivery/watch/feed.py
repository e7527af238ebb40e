"""The feed of a log: its live readers, and the pages they get, rendered once for all readers at the same position.

Readers pull. A reader is notified that there may be new records (``deliver``) and requests the page at its position
when it can take one. A slow reader costs only its cursor, and gets larger pages the further it lags.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from strandline.delivery.hub import SLICE_SECONDS, Hub, Waiter
from strandline.engine import Log, Page
from strandline.engine.commit import Commit
from strandline.engine.errors import DamagedFile, EngineError, UnknownLog

log = logging.getLogger(__name__)

#: How many readers are notified between two checks of the time.
LOOK_EVERY = 8


class Subject(Protocol):
    """A log as its protocol sees it."""

    log: Log
    consumed_at: int | None

    def priority(self, now: int) -> int: ...


class FeedView(ABC):
    """Which records of a log a reader gets, and how they are rendered.

    Readers with the same filter share one view object, and with it the rendered pages.
    """

    __slots__ = ("__weakref__", "strong")

    def __init__(self, strong: bool) -> None:
        #: Whether only durable records are delivered.
        self.strong = strong

    @abstractmethod
    def arguments(self, subject: Any) -> dict[str, Any]:
        """The filters and limits of a page, as arguments of ``Log.read``."""

    @abstractmethod
    def render(self, subject: Any, after: int, page: Page) -> Any:
        """The content for a page that has records or a tombstone."""


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
        """There may be new records: take the page if there is room for it, and move the position."""

    @abstractmethod
    def gone(self, place: FeedPosition) -> None:
        """The log was dropped; the position is already detached."""

    @abstractmethod
    def paced(self, place: FeedPosition) -> None:
        """The server is too busy for this log; deliveries resume by themselves."""

    @abstractmethod
    def failed(self, place: FeedPosition, error: Exception) -> None:
        """The log cannot be read."""


class FeedPosition:
    """The position of a reader in a log. ``epoch`` is that of the log in which the cursor was taken."""

    __slots__ = ("cursor", "epoch", "feed", "queued", "reader", "subject", "view")

    def __init__(self, reader: FeedReader, subject: Subject, cursor: int, view: FeedView) -> None:
        self.reader = reader
        self.subject = subject
        self.cursor = cursor
        self.epoch = subject.log.epoch
        self.view = view
        #: None while the position is not attached.
        self.feed: Feed | None = None
        self.queued = False

    @property
    def behind(self) -> bool:
        """Whether there may be records that were not delivered yet."""
        return self.cursor != self.subject.log.head or self.epoch != self.subject.log.epoch

    def move(self, piece: FeedPage) -> None:
        self.cursor = piece.next_after
        self.epoch = self.subject.log.epoch


_Key = tuple[int, int, FeedView]


def _tell(tell: Callable[..., None], place: FeedPosition, *arguments: Any) -> None:
    """Call a method of a reader. If it fails, the other readers are still notified."""
    try:
        tell(place, *arguments)
    except Exception:
        log.exception("a reader of %r failed", place.subject.log)


class FeedKeeper(Protocol):
    """The owner of feeds, as a feed sees it."""

    def held(self, feed: Feed) -> bool:
        """Whether the log must wait because the server is too busy."""

    def forget(self, feed: Feed) -> None:
        """The log has no readers any more."""


class Feed(Waiter):
    """Created by a :class:`FeedKeeper`; a task of the scheduler while readers must be notified."""

    __slots__ = (
        "_durable", "_hub", "_keeper", "_loading", "_pieces", "_stamp", "_syncing", "_tasks", "_todo", "paused",
        "places", "subject",
    )  # fmt: skip

    def __init__(self, hub: Hub, subject: Subject, keeper: FeedKeeper) -> None:
        self._hub = hub
        self._keeper = keeper
        self.subject = subject
        self.places: dict[FeedPosition, None] = {}
        #: Whether it waits for the server to be less busy.
        self.paused = False
        self._todo: list[FeedPosition] = []
        #: Rendered pages, kept during deliveries while the log does not change.
        self._pieces: dict[_Key, FeedPage] = {}
        self._stamp: tuple[int, ...] = ()
        self._loading: dict[_Key, dict[FeedPosition, None]] | None = None
        self._tasks: set[asyncio.Task[None]] | None = None
        #: The last seq that is known to be durable.
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
        """Notify the reader of the position soon."""
        if not place.queued:
            place.queued = True
            self._todo.append(place)
            self._hub.submit(self)

    def queue_all(self) -> None:
        for place in list(self.places):
            self.queue(place)

    def run(self) -> None:
        """Notify waiting readers, or as many as a slice of time allows; the rest follow in the next turn."""
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
        """Deliver to one reader. A failure does not affect the others."""
        try:
            place.reader.deliver(place)
        except Exception as error:
            log.exception("a delivery of %r failed", place.subject.log)
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
        """The next page at the position; None: not available now, and the reader is notified later."""
        if self._keeper.held(self):
            return None
        self._check_stamp()
        piece = self._pieces.get((place.cursor, place.epoch, place.view))
        return self._read(place) if piece is None else piece

    def _check_stamp(self) -> None:
        """Drop the pages after a delete or an eviction, which takes effect at once for readers that did not get
        them."""
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
            return None  # the log was dropped, and the notification is on its way
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
        """Read the page on another thread, once for all readers at the position."""
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
            if not isinstance(failure, DamagedFile):  # which is logged where it is found
                log.error("cannot read %r after seq %d", self.subject.log, key[0], exc_info=failure)
            for place in waiting:
                _tell(place.reader.failed, place, failure)
        if page is None:
            return
        self._check_stamp()
        try:
            self._make(key, page)
        except Exception as error:
            log.exception("cannot render %r after seq %d", self.subject.log, key[0])
            for place in waiting:
                _tell(place.reader.failed, place, error)
            return
        for place in waiting:
            self._deliver(place)
        if not self._todo:
            self._pieces.clear()

    # --- durability ------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Find out which records are durable, and sync the rest; waiting readers are notified then."""
        log = self.subject.log
        if self._syncing or self._durable >= log.head:
            return
        if log.config.durability == "fsync":
            self._durable = log.head
            return
        try:
            commit = log.sync()
        except EngineError:
            return  # the log is closing, dropped, or cannot write: nothing more becomes durable
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
        """Remove records that are not durable yet from a page; False if none is left."""
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


#: How often the pressure is checked for logs of negative priority.
RETRY_SECONDS = 0.1


class Pacing(Protocol):
    """Says whether the server is too busy for logs of negative priority."""

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
        """Notify the reader of the position of new records from now on; it requests existing records itself.

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
        """Stop notifying the reader of the position, if it is attached."""
        feed, place.feed = place.feed, None
        place.queued = False
        if feed is not None:
            feed.places.pop(place, None)
            if not feed.places:
                self.forget(feed)

    def forget(self, feed: Feed) -> None:
        """Called when the log has no readers any more."""
        log = feed.subject.log
        self.hub.unwatch(log, feed)
        self.hub.scheduler.withdraw(feed)
        self._paused.discard(feed)
        self._feeds.pop(log.epoch, None)

    # --- pressure --------------------------------------------------------------------------------------------------

    def held(self, feed: Feed) -> bool:
        """Logs of negative priority wait while the server sheds load."""
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
