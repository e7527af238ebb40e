"""One live reader of a table's feed: it gets the rows of all parents and their changes as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET

from strandline.delivery.watch import FeedPosition, FeedView, PlainSubject
from strandline.engine import Page
from strandline.engine.errors import UnknownLog
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.live_feed import MAX_BYTES, MAX_RECORDS
from strandline.protocols.tables.live_response import TableLiveResponse
from strandline.protocols.tables.wire import PurgeEvent, RestoreAllEvent, RmEvent, encode
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.live import Following
from strandline.tables import Table, User
from strandline.tables.feed import FeedSight
from strandline.tables.rows import FeedEntry, feed_entry_of

Entries = list[tuple[int, FeedEntry]]


class EntriesView(FeedView):
    """All entries of a feed. What a reader may see of them is looked up later."""

    __slots__ = ()

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": MAX_RECORDS, "max_bytes": MAX_BYTES}

    def render(self, subject: Any, after: int, page: Page) -> Entries:
        return list(zip(page.seqs, map(feed_entry_of, page.data), strict=True))


#: All live readers share this view.
ENTRIES = EntriesView(strong=False)


class FeedAsked(NamedTuple):
    """The feed that a reader asks for. ``may_read`` says which parents the API key may access."""

    table: Table
    user: User | None
    public: bool
    access: Access
    may_read: Callable[[str], bool] | None
    start: int


class FeedStream(TableLiveResponse):
    """Has a position in the log of the feed. Access is checked for each event when it is sent."""

    __slots__ = ("_asked", "_place")

    def __init__(self, context: TablesContext, asked: FeedAsked) -> None:
        super().__init__(context, asked.access, asked.user)
        self._asked = asked
        self._place: FeedPosition | None = None

    @property
    def about(self) -> tuple[str, ...]:
        return (self._asked.table.name,)

    @property
    def position(self) -> str:
        return str(self._asked.start if self._place is None else self._place.cursor)

    # --- the connection --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        place = FeedPosition(self, PlainSubject(self._asked.table.feed_log()), self._asked.start, ENTRIES)
        try:
            self._context.feeds.attach(place)
        except UnknownLog:
            self.end()
            return
        self._place = place
        self.go_on()

    def leave(self) -> None:
        if self._place is not None:
            self._context.feeds.detach(self._place)

    def following(self, most: int) -> Following:
        return Following.of(() if self._place is None else (self._place,), most)

    # --- events ----------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Send events until the reader has all, its buffer is full, or other readers have waited long enough."""
        place = self._place
        if place is None:
            return
        for page in place.pages(self._is_idle):
            if page.content:
                self.meanwhile(self._tell(page.content))
        if place.feed is not None and not place.behind and self._is_idle():
            self.be_ready()

    def _is_idle(self) -> bool:
        return self.keeps_up and not self._busy

    async def _tell(self, entries: Entries) -> None:
        data = await self._context.workers.normal.run(self._frames, entries)
        if data and not self.ended:
            self.write(data)

    def _frames(self, entries: Entries) -> bytes:
        """The frames of events that the reader may see. Runs on a worker thread."""
        asked = self._asked
        sight = FeedSight(asked.table, asked.user, asked.public, asked.may_read)
        frames = []
        for seq, entry in entries:
            data = _data(sight, entry)
            if data:
                frames.append(sse.frame(entry.op.encode(), data, b"%d" % seq))
        return b"".join(frames)


def _data(sight: FeedSight, entry: FeedEntry) -> bytes:
    """The data of an event; empty if the reader may not see it, or may no longer see it."""
    if entry.op in ("append", "update", "restore"):
        row = sight.row(entry)
        return b"" if row is None else encode(row.to_json())
    if entry.op == "rm":
        if not sight.shows(entry):
            return b""
        return encode(RmEvent(f"{entry.parent}:{entry.seq}", entry.seq, entry.soft))
    view = sight.view(entry.parent)
    if view is None:
        return b""
    # Rows of this reader may be among those of the parent, but the reader need not know the parent.
    parent = entry.parent if view.sees_all else UNSET
    return encode(PurgeEvent(parent, entry.soft) if entry.op == "purge" else RestoreAllEvent(parent))
