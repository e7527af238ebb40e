"""Those who follow along: how they come in, and how they learn of logs that were not there when they came."""

from __future__ import annotations

from strandline.engine import Log
from strandline.protocols.http import Call, Handler, Later, Refusal
from strandline.protocols.tables.context import TablesContext
from strandline.protocols.tables.errors import invalid
from strandline.protocols.tables.live_stream import Asked, LiveStream
from strandline.protocols.tables.merged import Cursor
from strandline.protocols.tables.paths import PUB
from strandline.protocols.tables.read import reader_of
from strandline.protocols.tables.requests import Query
from strandline.tables import Table, TableError

NOW = "now"


class Live:
    """All of them, whatever they follow."""

    def __init__(self, context: TablesContext) -> None:
        self._context = context
        self._streams: set[LiveStream] = set()
        #: Those who wait for a log that is not there yet, by its name.
        self._waiting: dict[str, set[LiveStream]] = {}
        context.tables.listeners.append(lambda name: context.hub.post(lambda: self._made(name)))

    def __len__(self) -> int:
        return len(self._streams)

    def handler(self, table: Table, variant: str) -> Handler:
        """GET /tables/{table}/{variant}/live"""
        return lambda call: self._open(table, variant == PUB, call)

    def _open(self, table: Table, public: bool, call: Call) -> LiveStream | Later:
        context = self._context
        query = Query(call)
        parent = query.text("parent")
        after = call.head.headers.get(b"last-event-id", b"").decode("latin-1") or query.optional("after")
        user = reader_of(context, table, public, call, parent)
        if not context.slots.room(call.access):
            raise Refusal(429, "throttled", "too many streams are open", retry_after=1)

        def open() -> LiveStream:
            view = table.view(parent, user=user, public=public)
            start = _start(after, view.log, table.changes_log(parent))
            asked = Asked(table, parent, user, public, call.access, start)
            return LiveStream(context, asked, view.sees_all, self._came, self._left)

        if context.is_parent_resident(table.declaration, parent):
            return open()
        return context.elsewhere(open)

    # --- who is there ----------------------------------------------------------------------------------------------

    def _came(self, stream: LiveStream) -> None:
        self._streams.add(stream)
        for name in stream.missing:
            self._waiting.setdefault(name, set()).add(stream)

    def _left(self, stream: LiveStream) -> None:
        self._streams.discard(stream)
        for name in stream.missing:
            waiting = self._waiting.get(name)
            if waiting is not None:
                waiting.discard(stream)
                if not waiting:
                    del self._waiting[name]

    def _made(self, name: str) -> None:
        """There is a new log."""
        for stream in self._waiting.pop(name, ()):
            stream.look_for_logs()

    def drain(self) -> None:
        """The server stops: have everybody come again."""
        for stream in list(self._streams):
            stream.end()


def _start(after: str | None, rows: Log | None, changes: Log | None) -> Cursor:
    """Where to begin; refuses a cursor of something that is not there."""
    ends = Cursor(0 if rows is None else rows.head, 0 if changes is None else changes.head)
    if after is None:
        return Cursor()
    if after == NOW:
        return ends
    cursor = Cursor.parse(after)
    if cursor is None:
        raise invalid("after must be the id of an event, or now", fields=["after"])
    if cursor.rows > ends.rows or cursor.changes > ends.changes:
        raise TableError("CONFLICT", "the cursor is from behind what is there now: begin anew")
    return cursor
