"""One reader who is told of rows as they come, and of what becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, NamedTuple

from strandline.delivery.hub import SLICE_SECONDS, Waiter
from strandline.delivery.watch import FeedPosition, FeedReader
from strandline.engine import Log, Page
from strandline.engine.errors import DamagedFile, UnknownLog
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.errors import error_body
from strandline.protocols.tables.json import Authors, Rendered, authors_of
from strandline.protocols.tables.live_feed import CHANGES, ROWS, Change, Cursor, LiveLog, Noted, Stretch, Told, merge
from strandline.protocols.tables.wire import PurgeEvent, ReadyEvent, RestoreAllEvent, RmEvent, encode
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.live import Ending, LiveResponse
from strandline.tables import Table, TableError
from strandline.tables.names import changes_log, rows_log

log = logging.getLogger(__name__)

NOTHING = Stretch[Any]((), 0, True)


class Asked(NamedTuple):
    """What a reader wants to be told of."""

    table: Table
    parent: str
    user: str | None
    public: bool
    access: Access
    start: Cursor


class LiveStream(LiveResponse, FeedReader):
    """Its places are in the log of rows and in that of changes; either may not be there yet."""

    __slots__ = (
        "_asked", "_busy", "_came", "_changes", "_context", "_cursor", "_everything", "_left", "_must_look",
        "_parent_watch", "_ready", "_rows", "_task",
    )  # fmt: skip

    def __init__(
        self,
        context: TablesContext,
        asked: Asked,
        everything: bool,
        came: Callable[[LiveStream], None],
        left: Callable[[LiveStream], None],
    ) -> None:
        """``everything``: all rows are for this reader, not only those that it wrote. ``came`` and ``left`` are called
        when the connection is open, and when the response has ended."""
        super().__init__(context.live, asked.access)
        self._context = context
        self._asked = asked
        self._everything = everything
        self._came = came
        self._left = left
        self._cursor = asked.start
        self._rows: FeedPosition | None = None
        self._changes: FeedPosition | None = None
        self._parent_watch: ParentWatch | None = None
        #: Kept here so that it is not collected while it runs.
        self._task: asyncio.Task[None] | None = None
        #: Another thread looks something up; what is sent next waits for it.
        self._busy = False
        #: Whether the reader may still see the parent has to be checked first.
        self._must_look = False
        #: Whether the reader got the event that says that it has caught up.
        self._ready = False

    # --- the connection --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.look_for_logs()
        if not self.ended:
            self._came(self)

    def last_message(self, ending: Ending) -> bytes:
        return b"" if ending is Ending.SHUTDOWN else _end_frame(TableError("THROTTLED", ending.value))

    def leave(self) -> None:
        context = self._context
        for place in (self._rows, self._changes):
            if place is not None:
                context.feeds.detach(place)
        if self._parent_watch is not None:
            self._parent_watch.stop()
        self._left(self)

    @property
    def about(self) -> tuple[str, str]:
        """The table and the parent."""
        return self._asked.table.name, self._asked.parent

    # --- the logs --------------------------------------------------------------------------------------------------

    def look_for_logs(self) -> None:
        """Attach to what is there by now, and tell what is in it."""
        if self.ended:
            return
        try:
            self._find_logs()
        except TableError as error:
            self.end(_end_frame(error))
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
            # It may have changed between the first look and this one.
            self._must_look = self._parent_watch is not None

    @property
    def missing(self) -> list[str]:
        """The names of the logs that are not there yet."""
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

    # --- what is new -----------------------------------------------------------------------------------------------

    def deliver(self, place: FeedPosition) -> None:
        self.go_on()

    def go_on(self) -> None:
        """Tell as much as there is and the reader takes, for as long as others need not wait."""
        until = perf_counter() + SLICE_SECONDS
        while self.keeps_up and not self._busy:
            if self._must_look:
                self._must_look = False
                self._meanwhile(self._look())
                return
            # Changes first: whatever they are about was there before them.
            changes = self._stretch(self._changes)
            rows = self._stretch(self._rows)
            if changes is None or rows is None:
                return
            told, behind = merge(self._cursor, rows, changes)
            if behind == self._cursor and not told:
                self._be_ready()
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
        """What comes next at a place; None: it has to be loaded, and then this reader is told."""
        if place is None:
            return NOTHING
        if place.feed is None or not place.behind:
            return Stretch((), place.cursor, True)
        piece = place.feed.piece(place)
        if piece is None:
            return None
        return Stretch(piece.content or (), piece.next_after, piece.caught_up)

    def _move(self, behind: Cursor) -> None:
        if self._rows is not None:
            self._rows.cursor = behind.rows
        if self._changes is not None:
            self._changes.cursor = behind.changes
        self._cursor = Cursor(
            self._cursor.rows if self._rows is None else behind.rows,
            self._cursor.changes if self._changes is None else behind.changes,
        )

    def _be_ready(self) -> None:
        if not self._ready:
            self._ready = True
            self.write(sse.frame(b"ready", encode(ReadyEvent(str(self._cursor))), bytes(self._cursor)))

    def _tell(self, told: Told) -> None:
        with_author = self._asked.table.declaration.with_author
        rows = None if with_author is not None else self._changed_rows(told, resident=True)
        if rows is not None:
            self.write(self._frames(told, rows, None))
            return
        self._meanwhile(self._tell_later(told))

    async def _tell_later(self, told: Told) -> None:
        data = await self._context.workers.normal.run(self._frames_of, told)
        if not self.ended:
            self.write(data)

    def _meanwhile(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that takes longer; nothing else is told until it is."""
        self._busy = True
        self._task = self._context.hub.loop.create_task(self._do(work))

    async def _do(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._fail(error)
        self._busy = False
        self.go_on()

    def _frames_of(self, told: Told) -> bytes:
        """On another thread: with whatever has to be read or looked up."""
        rows = self._changed_rows(told, resident=False)
        assert rows is not None
        with_author = self._asked.table.declaration.with_author
        authors: Authors | None = None
        if with_author is not None:
            appended = [item for _, item in told if isinstance(item, Rendered)]
            authors = authors_of([*appended, *rows.values()], with_author)
        return self._frames(told, rows, authors)

    def _changed_rows(self, told: Told, *, resident: bool) -> dict[int, Rendered] | None:
        """The rows, as they are now, that were updated or restored and are there, by seq; None: that needs a disk."""
        rows: dict[int, Rendered] = {}
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

    def _frames(self, told: Told, rows: dict[int, Rendered], authors: Authors | None) -> bytes:
        frames = []
        for cursor, item in told:
            if isinstance(item, Rendered):
                kind, data = "append", self._row(item, authors)
            else:
                kind, data = item.change.op, self._change(item.change, rows, authors)
            if data:
                frames.append(sse.frame(kind.encode(), data, bytes(cursor)))
        return b"".join(frames)

    def _row(self, row: Rendered, authors: Authors | None) -> bytes:
        user = self._asked.user
        return row.whole(user, authors) if self._everything or row.user == user else b""

    def _change(self, change: Change, rows: dict[int, Rendered], authors: Authors | None) -> bytes:
        """The data of a change; empty if this reader may not see it, or not any more."""
        op, parent = change.op, self._asked.parent
        if op in ("update", "restore"):
            row = None if change.seq is None else rows.get(change.seq)
            return b"" if row is None else self._row(row, authors)
        if op == "rm":
            if not self._everything and change.author != self._asked.user:
                return b""
            return encode(RmEvent(f"{parent}:{change.seq}", change.seq, change.soft))
        if op == "purge":
            return encode(PurgeEvent(parent, change.soft))
        if op == "restoreAll":
            return encode(RestoreAllEvent(parent))
        return b""

    # --- whether it may still be told ------------------------------------------------------------------------------

    def check_sight(self) -> None:
        """Something has happened to the parent: see whether this reader may still be told, before it is told more."""
        self._must_look = True
        self.go_on()

    async def _look(self) -> None:
        asked = self._asked
        try:
            view = await self._context.workers.normal.run(
                asked.table.view, asked.parent, user=asked.user, public=asked.public
            )
        except TableError as error:
            self.end(_end_frame(error))
            return
        self._everything = view.sees_all

    # --- what else happens -----------------------------------------------------------------------------------------

    def ring(self, now: float) -> float | None:
        """Also check the parent of a table whose rows are elsewhere: no log shows when such a row changes."""
        after = super().ring(now)
        if self.keeps_up and self._asked.table.declaration.parent_row is not None:
            self.check_sight()
        return after

    def gone(self, place: FeedPosition) -> None:
        """A log was dropped. The client connects again and finds what is there instead."""
        self.end()

    def paced(self, place: FeedPosition) -> None:
        pass

    def failed(self, place: FeedPosition, error: Exception) -> None:
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.warning("a live reader of %r ends after %s: %s", self.about, self._cursor, error)
        damaged = isinstance(error, DamagedFile)
        self.end(_end_frame(TableError("DAMAGED_DATA" if damaged else "INTERNAL", "the rows cannot be read")))


class ParentWatch(Waiter):
    """Wakes a reader when something becomes of the row that the parent is."""

    __slots__ = ("_hub", "_log", "_wake")

    def __init__(self, context: TablesContext, log: Log, wake: Callable[[], None]) -> None:
        self._hub = context.hub
        self._log = log
        self._wake = wake
        self._hub.watch(log, self)

    @classmethod
    def of(cls, context: TablesContext, asked: Asked, wake: Callable[[], None]) -> ParentWatch | None:
        """None when the parent is no row of a table, or when nothing has ever been changed beside it."""
        log = context.changes_above(asked.table, asked.parent)
        return None if log is None else cls(context, log, wake)

    def wake(self, log: Log) -> None:
        self._wake()

    def stop(self) -> None:
        self._hub.unwatch(self._log, self)


def _one(log: Log, seq: int, resident: bool) -> Page | None:
    return log.read_resident(seq - 1, 1) if resident else log.read(seq - 1, 1)


def _end_frame(error: TableError) -> bytes:
    """The last message: why the response ends."""
    return sse.frame(b"end", error_body(error.code, error.message, error.more))
