"""One reader who is told of rows as they come, and of what becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

from strandline.delivery.hub import SLICE_SECONDS, Waiter
from strandline.delivery.watch import Place, Reader
from strandline.engine import Log, Page
from strandline.engine.errors import DamagedFile, UnknownLog
from strandline.protocols import http
from strandline.protocols.access import Access
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.json import Authors, Rendered, authors_of
from strandline.protocols.tables.live_views import CHANGES, ROWS, Change, LiveLog, Noted
from strandline.protocols.tables.merged import Cursor, Stretch, Told, merge
from strandline.tables import Table, TableError
from strandline.tables.names import changes_log, rows_log

log = logging.getLogger(__name__)

#: A reader that hears nothing for this long is told that the connection is alive.
HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": \n\n"
#: A reader that does not even take the last word of a stream is cut off after this time.
CUT_OFF_SECONDS = 5.0
#: How long a client waits before it comes again.
RETRY = b"retry: 1000\n\n"
NOTHING = Stretch[Any]((), 0, True)


class Asked(NamedTuple):
    """What a reader wants to be told of."""

    table: Table
    parent: str
    user: str | None
    public: bool
    access: Access
    start: Cursor


class LiveStream(http.Stream, Reader):
    """Its places are in the log of rows and in that of changes; either may not be there yet."""

    __slots__ = (
        "_asked", "_busy", "_came", "_changes", "_context", "_cursor", "_ended", "_everything", "_holds_slot", "_left",
        "_must_look", "_parent_watch", "_paused_at", "_ready", "_rows", "_sink", "_task", "rings_at",
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
        when the connection is open, and when it is not any more."""
        self._context = context
        self._asked = asked
        self._everything = everything
        self._came = came
        self._left = left
        self._cursor = asked.start
        self._rows: Place | None = None
        self._changes: Place | None = None
        self._parent_watch: ParentWatch | None = None
        self._sink: http.Sink | None = None
        #: Kept here so that it is not collected while it runs.
        self._task: asyncio.Task[None] | None = None
        #: Something is being looked up on another thread; what is told next waits for it.
        self._busy = False
        #: Whether it may still be told has to be looked at first.
        self._must_look = False
        #: When the reader stopped taking anything; 0.0: it keeps up.
        self._paused_at = 0.0
        self._ended = False
        self._holds_slot = False
        #: Whether it was told that it has caught up.
        self._ready = False
        self.rings_at: float | None = None

    # --- the connection --------------------------------------------------------------------------------------------

    def opened(self, sink: http.Sink) -> None:
        self._sink = sink
        self._holds_slot = self._context.slots.acquire(self._asked.access)
        if not self._holds_slot:
            self.end(TableError("THROTTLED", "too many streams are open"))
            return
        self._write(RETRY)
        self._context.alarms.set(self, self._now() + HEARTBEAT_SECONDS)
        self.look_for_logs()
        if not self._ended:
            self._came(self)

    def resumed(self) -> None:
        if self._paused_at and not self._ended:
            self._paused_at = 0.0
            self._go_on()

    def closed(self) -> None:
        self._leave()
        self._context.alarms.cancel(self)
        if self._holds_slot:
            self._holds_slot = False
            self._context.slots.release(self._asked.access)

    def end(self, error: TableError | None = None) -> None:
        """Say why, if there is something to say, and close."""
        if self._ended or self._sink is None:
            return
        if error is not None:
            about = {"error": {"code": error.code, "message": error.message, **error.more}}
            self._sink.write(b"event: end\ndata: %b\n\n" % msgspec.json.encode(about))
        self._leave()
        self._context.alarms.set(self, self._now() + CUT_OFF_SECONDS)
        self._sink.close()

    def too_slow(self) -> None:
        self.end(TableError("THROTTLED", "the reader does not keep up; connect again with the last id"))

    def _leave(self) -> None:
        self._ended = True
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
        if self._ended:
            return
        try:
            self._find_logs()
        except TableError as error:
            self.end(error)
            return
        self._go_on()

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

    def _attach(self, log: Log | None, cursor: int, view: Any) -> Place | None:
        if log is None:
            return None
        place = Place(self, LiveLog(log, self._asked.parent), cursor, view)
        try:
            self._context.feeds.attach(place)
        except UnknownLog:
            return None
        return place

    # --- what is new -----------------------------------------------------------------------------------------------

    def deliver(self, place: Place) -> None:
        self._go_on()

    def _go_on(self) -> None:
        """Tell as much as there is and the reader takes, for as long as others need not wait."""
        until = perf_counter() + SLICE_SECONDS
        while not (self._busy or self._paused_at or self._ended):
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

    def _stretch(self, place: Place | None) -> Stretch[Any] | None:
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
            cursor = bytes(self._cursor)
            self._write(b'id: %b\nevent: ready\ndata: {"cursor":"%b"}\n\n' % (cursor, cursor))

    def _tell(self, told: Told) -> None:
        with_author = self._asked.table.declaration.with_author
        rows = None if with_author is not None else self._changed_rows(told, resident=True)
        if rows is not None:
            self._write(self._frames(told, rows, None))
            return
        self._meanwhile(self._tell_later(told))

    async def _tell_later(self, told: Told) -> None:
        data = await asyncio.to_thread(self._frames_of, told)
        if not self._ended:
            self._write(data)

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
        self._go_on()

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
                frame = self._row_frame(b"append", item, authors)
            else:
                frame = self._change_frame(item.change, rows, authors)
            if frame:
                frames.append(b"id: %d.%d\n%b" % (*cursor, frame))
        return b"".join(frames)

    def _row_frame(self, kind: bytes, row: Rendered, authors: Authors | None) -> bytes:
        user = self._asked.user
        if not self._everything and row.user != user:
            return b""
        return _frame(kind, row.whole(user, authors))

    def _change_frame(self, change: Change, rows: dict[int, Rendered], authors: Authors | None) -> bytes:
        """What a change is told as; nothing if it is none of this reader's business, or no longer so."""
        op, parent = change.op, self._asked.parent
        if op in ("update", "restore"):
            row = None if change.seq is None else rows.get(change.seq)
            return b"" if row is None else self._row_frame(op.encode(), row, authors)
        if op == "rm":
            if not self._everything and change.author != self._asked.user:
                return b""
            about = {"id": f"{parent}:{change.seq}", "seq": change.seq, "soft": change.soft}
            return _frame(b"rm", msgspec.json.encode(about))
        if op == "purge":
            return _frame(b"purge", msgspec.json.encode({"parent": parent, "soft": change.soft}))
        if op == "restoreAll":
            return _frame(b"restoreAll", msgspec.json.encode({"parent": parent}))
        return b""

    def _write(self, data: bytes) -> None:
        assert self._sink is not None
        if data and not self._sink.write(data) and not self._paused_at:
            self._paused_at = self._now()

    # --- whether it may still be told ------------------------------------------------------------------------------

    def check_sight(self) -> None:
        """Something has happened to the parent: see whether this reader may still be told, before it is told more."""
        self._must_look = True
        self._go_on()

    async def _look(self) -> None:
        asked = self._asked
        try:
            view = await asyncio.to_thread(asked.table.view, asked.parent, user=asked.user, public=asked.public)
        except TableError as error:
            self.end(error)
            return
        self._everything = view.sees_all

    # --- what else happens -----------------------------------------------------------------------------------------

    def ring(self, now: float) -> float | None:
        """Nothing was said for a while, or nothing was taken."""
        assert self._sink is not None
        timeout = self._context.settings.slow_consumer_timeout_ms / 1000
        if self._ended or (self._paused_at and now - self._paused_at >= timeout):
            self._leave()
            self._sink.abort()
            return None
        if not self._paused_at:
            self._write(HEARTBEAT)
            if self._asked.table.declaration.parent_row is not None:
                # Nobody says when something changes elsewhere.
                self.check_sight()
        return now + HEARTBEAT_SECONDS

    def gone(self, place: Place) -> None:
        """A log was dropped: whoever comes again finds out what is there instead."""
        self.end()

    def paced(self, place: Place) -> None:
        pass

    def failed(self, place: Place, error: Exception) -> None:
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.warning("a live reader of %r ends behind %s: %s", self.about, self._cursor, error)
        damaged = isinstance(error, DamagedFile)
        self.end(TableError("DAMAGED_DATA" if damaged else "INTERNAL", "the rows cannot be read"))

    def _now(self) -> float:
        return self._context.hub.loop.time()


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


def _frame(kind: bytes, data: bytes) -> bytes:
    if b"\n" in data or b"\r" in data:
        # Between the members of an object as somebody wrote it down; within a string there is none.
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: %b\ndata: %b\n\n" % (kind, data)
