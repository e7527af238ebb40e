"""Opens live responses, and notifies them of logs that are created later."""

from __future__ import annotations

from strandline.engine import Log
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.errors import invalid
from strandline.protocols.tables.feed_stream import FeedAsked, FeedStream
from strandline.protocols.tables.live_feed import MergedCursor
from strandline.protocols.tables.live_stream import Asked, LiveStream
from strandline.protocols.tables.paths import FEED_LIVE, PUB
from strandline.protocols.tables.read import feed_reader_of, reader_of
from strandline.protocols.tables.requests import Query
from strandline.service.http import Call, Handler, Later
from strandline.tables import Table, TableError

NOW = "now"


class LiveReads:
    """Opens live responses, and notifies them when a log that they wait for is created."""

    def __init__(self, context: TablesContext) -> None:
        self._context = context
        #: The responses that wait for a log that does not exist yet, by the name of the log.
        self._waiting: dict[str, set[LiveStream]] = {}
        context.tables.listeners.append(lambda name: context.hub.post(lambda: self._made(name)))

    def handler(self, table: Table, variant: str, op: str) -> Handler:
        """GET /tables/{table}/{variant}/live and …/feed/live"""
        opened = self._open_feed if op == FEED_LIVE else self._open
        return lambda call: opened(table, variant == PUB, call)

    def _open(self, table: Table, public: bool, call: Call) -> LiveStream | Later:
        context = self._context
        query = Query(call)
        parent = query.text("parent")
        after = _after(call)
        user = reader_of(context, table, public, call, parent)
        context.live.check_room(call.access)

        def open() -> LiveStream:
            view = table.view(parent, user=user, public=public)
            start = _start(after, view.log, table.changes_log(parent))
            asked = Asked(table, parent, user, public, call.access, start)
            return LiveStream(context, asked, view, self._came, self._left)

        if context.is_parent_resident(table.declaration, parent):
            return open()
        return context.elsewhere(open)

    def _open_feed(self, table: Table, public: bool, call: Call) -> FeedStream:
        context, after = self._context, _after(call)
        user, may_read = feed_reader_of(context, table, public, call)
        context.live.check_room(call.access)
        start = _feed_start(after, table.feed_log())
        return FeedStream(context, FeedAsked(table, user, public, call.access, may_read, start))

    # --- open responses --------------------------------------------------------------------------------------------

    def _came(self, stream: LiveStream) -> None:
        for name in stream.missing:
            self._waiting.setdefault(name, set()).add(stream)

    def _left(self, stream: LiveStream) -> None:
        for name in stream.missing:
            waiting = self._waiting.get(name)
            if waiting is not None:
                waiting.discard(stream)
                if not waiting:
                    del self._waiting[name]

    def _made(self, name: str) -> None:
        """A log was created."""
        for stream in self._waiting.pop(name, ()):
            stream.look_for_logs()


def _after(call: Call) -> str | None:
    """The cursor of the last event that the reader got."""
    return call.head.headers.get(b"last-event-id", b"").decode("latin-1") or Query(call).optional("after")


def _feed_start(after: str | None, feed: Log) -> int:
    """The seq in the feed to start after."""
    if after is None:
        return 0
    if after == NOW:
        return feed.head
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise invalid(f"after {after!r} is not valid: it must be the id of an event, or now", fields=["after"])
    if int(after) > feed.head:
        raise TableError("CONFLICT", "cursor is past the end of the feed; reconnect without a cursor")
    return int(after)


def _start(after: str | None, rows: Log | None, changes: Log | None) -> MergedCursor:
    """The cursor to start from; refuses a cursor past the end of the logs."""
    ends = MergedCursor(0 if rows is None else rows.head, 0 if changes is None else changes.head)
    if after is None:
        return MergedCursor()
    if after == NOW:
        return ends
    cursor = MergedCursor.parse(after)
    if cursor is None:
        raise invalid(f"after {after!r} is not valid: it must be the id of an event, or now", fields=["after"])
    if cursor.rows > ends.rows or cursor.changes > ends.changes:
        raise TableError("CONFLICT", "cursor is past the end of the rows; reconnect without a cursor")
    return cursor
