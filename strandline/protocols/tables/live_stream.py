"""One live reader: it gets the rows of a parent and their changes as they come."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

from strandline.delivery.hub import SLICE_SECONDS, Waiter
from strandline.delivery.watch import FeedPosition
from strandline.engine import Log, Page
from strandline.engine.errors import UnknownLog
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.live_feed import (
    CHANGES,
    ROWS,
    LiveLog,
    MergedCursor,
    Noted,
    ShownChange,
    Stretch,
    Told,
    merge,
)
from strandline.protocols.tables.live_response import TableLiveResponse, end_frame
from strandline.protocols.tables.records import Authors, RenderedRow, authors_of
from strandline.protocols.tables.wire import PurgeEvent, RestoreAllEvent, RmEvent, encode
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.live import Following
from strandline.tables import Table, TableError, User
from strandline.tables.names import changes_log, rows_log
from strandline.tables.view import View

NOTHING = Stretch[Any]((), 0, True)


class Asked(NamedTuple):
    """The rows that a reader asks for."""

    table: Table
    parent: str
    user: User | None
    public: bool
    access: Access
    start: MergedCursor


class LiveStream(TableLiveResponse):
    """Has a position in the log of rows and in the log of changes; either log may not exist yet."""

    __slots__ = (
        "_asked", "_came", "_changes", "_cursor", "_left", "_must_look", "_parent_watch", "_rows", "_view",
    )  # fmt: skip

    def __init__(
        self,
        context: TablesContext,
        asked: Asked,
        view: View,
        came: Callable[[LiveStream], None],
        left: Callable[[LiveStream], None],
    ) -> None:
        """``view`` says which rows the reader sees. ``came`` is called when the connection is open, ``left`` when the
        response has ended."""
        super().__init__(context, asked.access, asked.user)
        self._asked = asked
        self._view = view
        self._came = came
        self._left = left
        self._cursor = asked.start
        self._rows: FeedPosition | None = None
        self._changes: FeedPosition | None = None
        self._parent_watch: ParentWatch | None = None
        #: Whether to check that the reader may still see the parent, before more is sent.
        self._must_look = False

    # --- the connection --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.look_for_logs()
        if not self.ended:
            self._came(self)

    def leave(self) -> None:
        context = self._context
        for place in (self._rows, self._changes):
            if place is not None:
                context.feeds.detach(place)
        if self._parent_watch is not None:
            self._parent_watch.stop()
        self._left(self)

    def following(self, most: int) -> Following:
        return Following.of([place for place in (self._rows, self._changes) if place is not None], most)

    @property
    def about(self) -> tuple[str, ...]:
        """The table and the parent."""
        return self._asked.table.name, self._asked.parent

    @property
    def position(self) -> str:
        return str(self._cursor)

    # --- the logs --------------------------------------------------------------------------------------------------

    def look_for_logs(self) -> None:
        """Attach to the logs that exist by now, and send their events."""
        if self.ended:
            return
        try:
            self._find_logs()
        except TableError as error:
            self.end(end_frame(error))
            return
        self.go_on()

    def _find_logs(self) -> None:
        table, parent = self._asked.table, self._asked.parent
        if self._rows is None:
            self._rows = self._attach(table.rows_log(parent), self._cursor.rows, ROWS)
        if self._changes is None:
            self._changes = self._attach(table.changes_log(parent), self._cursor.changes, CHANGES)
        if self._parent_watch is None:
            self._parent_watch = ParentWatch.of(self._context, self._asked, self.check_sight)
            # The parent may have changed since the request was checked.
            self._must_look = self._parent_watch is not None

    @property
    def missing(self) -> list[str]:
        """The names of the logs that do not exist yet."""
        asked = self._asked
        names = []
        if self._rows is None:
            names.append(rows_log(asked.table.name, asked.parent))
        if self._changes is None:
            names.append(changes_log(asked.table.name, asked.parent))
        above = self._context.above(asked.table.declaration, asked.parent)
        if above is not None and self._parent_watch is None:
            names.append(changes_log(asked.table.declaration.parent_label, above.parent))
        return names

    def _attach(self, log: Log | None, cursor: int, view: Any) -> FeedPosition | None:
        if log is None:
            return None
        place = FeedPosition(self, LiveLog(log, self._asked.parent), cursor, view)
        try:
            self._context.feeds.attach(place)
        except UnknownLog:
            return None
        return place

    # --- events ----------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Send events until the reader has all, its buffer is full, or other readers have waited long enough."""
        until = perf_counter() + SLICE_SECONDS
        while self.keeps_up and not self._busy:
            if self._must_look:
                self._must_look = False
                self.meanwhile(self._look())
                return
            # Changes are read first, so that the rows that they are about are in the rows that are read next.
            changes = self._stretch(self._changes)
            rows = self._stretch(self._rows)
            if changes is None or rows is None:
                return
            told, behind = merge(self._cursor, rows, changes)
            if behind == self._cursor and not told:
                self.be_ready()
                return
            self._move(behind)
            if told:
                self._tell(told)
            if perf_counter() > until:
                self._go_on_later()
                return

    def _go_on_later(self) -> None:
        for place in (self._rows, self._changes):
            if place is not None and place.feed is not None:
                place.feed.queue(place)
                return

    def _stretch(self, place: FeedPosition | None) -> Stretch[Any] | None:
        """The next items at a position; None while they are loaded, which wakes this reader later."""
        if place is None:
            return NOTHING
        if place.feed is None or not place.behind:
            return Stretch((), place.cursor, True)
        piece = place.feed.piece(place)
        if piece is None:
            return None
        return Stretch(piece.content or (), piece.next_after, piece.caught_up)

    def _move(self, behind: MergedCursor) -> None:
        if self._rows is not None:
            self._rows.cursor = behind.rows
        if self._changes is not None:
            self._changes.cursor = behind.changes
        self._cursor = MergedCursor(
            self._cursor.rows if self._rows is None else behind.rows,
            self._cursor.changes if self._changes is None else behind.changes,
        )

    def _tell(self, told: Told) -> None:
        with_author = self._asked.table.declaration.with_author
        rows = None if with_author is not None else self._changed_rows(told, resident=True)
        if rows is not None:
            self.write(self._frames(told, rows, None))
            return
        self.meanwhile(self._tell_later(told))

    async def _tell_later(self, told: Told) -> None:
        data = await self._context.workers.normal.run(self._frames_of, told)
        if not self.ended:
            self.write(data)

    def _frames_of(self, told: Told) -> bytes:
        """The frames of events, with everything that must be read or looked up. Runs on a worker thread."""
        rows = self._changed_rows(told, resident=False)
        assert rows is not None
        with_author = self._asked.table.declaration.with_author
        authors: Authors | None = None
        if with_author is not None:
            appended = [item for _, item in told if isinstance(item, RenderedRow)]
            authors = authors_of([*appended, *rows.values()], with_author)
        return self._frames(told, rows, authors)

    def _changed_rows(self, told: Told, *, resident: bool) -> dict[int, RenderedRow] | None:
        """The current contents of rows that were updated or restored, by seq; None if that needs the disk."""
        rows: dict[int, RenderedRow] = {}
        for _, item in told:
            if isinstance(item, Noted) and item.change.op in ("update", "restore"):
                seq = item.change.seq
                place = self._rows
                if seq is None or seq in rows or place is None:
                    continue
                page = _one(place.subject.log, seq, resident)
                if page is None:
                    return None
                if page.seqs and page.seqs[0] == seq:
                    live_log: Any = place.subject
                    rows[seq] = live_log.renderer.page(page)[0]
        return rows

    # --- frames ----------------------------------------------------------------------------------------------------

    def _frames(self, told: Told, rows: dict[int, RenderedRow], authors: Authors | None) -> bytes:
        frames = []
        for cursor, item in told:
            if isinstance(item, RenderedRow):
                kind, data = "append", self._row(item, authors)
            else:
                kind, data = item.change.op, self._change(item.change, rows, authors)
            if data:
                frames.append(sse.frame(kind.encode(), data, bytes(cursor)))
        return b"".join(frames)

    def _row(self, row: RenderedRow, authors: Authors | None) -> bytes:
        return row.whole(self._view.user, authors) if self._view.shows(row.user) else b""

    def _change(self, change: ShownChange, rows: dict[int, RenderedRow], authors: Authors | None) -> bytes:
        """The data of a change; empty if this reader may not see it, or may no longer see it."""
        op, parent = change.op, self._asked.parent
        if op in ("update", "restore"):
            row = None if change.seq is None else rows.get(change.seq)
            return b"" if row is None else self._row(row, authors)
        if op == "rm":
            if not self._view.shows(change.author):
                return b""
            return encode(RmEvent(f"{parent}:{change.seq}", change.seq, change.soft))
        if op == "purge":
            return encode(PurgeEvent(parent, change.soft))
        if op == "restoreAll":
            return encode(RestoreAllEvent(parent))
        return b""

    # --- access ----------------------------------------------------------------------------------------------------

    def check_sight(self) -> None:
        """The parent has changed: check whether this reader may still see it before more is sent."""
        self._must_look = True
        self.go_on()

    async def _look(self) -> None:
        asked = self._asked
        try:
            self._view = await self._context.workers.normal.run(
                asked.table.view, asked.parent, user=asked.user, public=asked.public
            )
        except TableError as error:
            self.end(end_frame(error))

    # --- other events ----------------------------------------------------------------------------------------------

    def ring(self, now: float) -> float | None:
        """For a parent whose row is not in a log, check access from time to time: no log shows its changes."""
        after = super().ring(now)
        if self.keeps_up and self._asked.table.declaration.parent_row is not None:
            self.check_sight()
        return after


class ParentWatch(Waiter):
    """Wakes a reader when the row that is the parent changes."""

    __slots__ = ("_hub", "_log", "_wake")

    def __init__(self, context: TablesContext, log: Log, wake: Callable[[], None]) -> None:
        self._hub = context.hub
        self._log = log
        self._wake = wake
        self._hub.watch(log, self)

    @classmethod
    def of(cls, context: TablesContext, asked: Asked, wake: Callable[[], None]) -> ParentWatch | None:
        """None if the parent is not a row of a table, or if its table has no log of changes there yet."""
        log = context.changes_above(asked.table, asked.parent)
        return None if log is None else cls(context, log, wake)

    def wake(self, log: Log) -> None:
        self._wake()

    def stop(self) -> None:
        self._hub.unwatch(self._log, self)


def _one(log: Log, seq: int, resident: bool) -> Page | None:
    return log.read_resident(seq - 1, 1) if resident else log.read(seq - 1, 1)
