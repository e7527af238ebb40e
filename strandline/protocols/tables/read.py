"""Reads. Pages are joined from the stored bytes. Reads that look into payloads or need the disk run on worker
threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from strandline.engine import Page
from strandline.protocols.tables.context import TablesContext, is_row_resident
from strandline.protocols.tables.errors import invalid
from strandline.protocols.tables.paths import PUB
from strandline.protocols.tables.records import RenderedRow, RowRenderer, authors_of
from strandline.protocols.tables.requests import Query
from strandline.protocols.tables.wire import (
    COMPLETE,
    HAS_MORE,
    HEAD,
    LAST,
    FeedAnswer,
    HistoryAnswer,
    PageAnswer,
    SchemaAnswer,
    VersionAnswer,
    encode,
    headers_of,
    stored,
)
from strandline.service.admission import Replying
from strandline.service.http import Call, Handler, Reply
from strandline.tables import Row, Table, TableError, User, View
from strandline.tables.names import parse_id
from strandline.tables.view import LIST_AFTER_ROWS, LIST_ROWS, PAGE_BYTES, check_cursor, check_limit, check_seq


class TableReads:
    """The reads of one table in one variant."""

    def __init__(self, context: TablesContext, table: Table, variant: str) -> None:
        self._context = context
        self._table = table
        self._public = variant == PUB

    def handler(self, op: str) -> Handler:
        handlers: dict[str, Handler] = {
            "list": self.list,
            "listAfter": self.list_after,
            "read": self.read,
            "search": self.search,
            "indexed": self.indexed,
            "counts": self.counts,
            "history": self.history,
            "trash": self.trash,
            "feed": self.feed,
        }
        return handlers[op]

    # --- pages -----------------------------------------------------------------------------------------------------

    def list(self, call: Call) -> Replying:
        """GET /tables/{table}/{variant}/list"""
        query = Query(call)
        parent, where = query.text("parent"), query.json("where")
        asked, cursor = query.page()
        limit = check_limit(asked, LIST_ROWS)
        user = self._reader(call, parent)
        before = check_cursor(cursor)

        def page(view: View, resident: bool) -> Reply | None:
            log = view.log
            if log is None:
                return Reply(encode(PageAnswer([], True, None)))
            ask = log.read_back_resident if resident else log.read_back
            found = ask(before, limit, max_bytes=PAGE_BYTES)
            if found is None:
                return None
            rows = self._joined(view, _reversed(self._rendered(view, found)))
            is_done = found.caught_up or not found.seqs
            return Reply(encode(PageAnswer(stored(rows), is_done, None if is_done else str(found.seqs[0]))))

        def slowly() -> Reply:
            table, public = self._table, self._public
            view = table.view(parent, user=user, public=public)
            if where is None and view.sees_all:
                reply = page(view, False)
                assert reply is not None
                return reply
            found = table.list(parent, limit=limit, cursor=cursor, where=where, user=user, public=public)
            return Reply(encode(PageAnswer(_shown(found.rows), found.is_done, found.cursor)))

        if where is not None:
            if not isinstance(where, Mapping):
                raise invalid("where must be a JSON object of conditions", fields=["where"])
            return self._context.elsewhere(slowly)
        return self._page(parent, user, page, slowly)

    def list_after(self, call: Call) -> Replying:
        """GET /tables/{table}/{variant}/listAfter"""
        query = Query(call)
        parent = query.text("parent")
        limit = check_limit(query.number("limit", 1, None), LIST_AFTER_ROWS)
        seq = query.number("seq", 0, 0)
        user = self._reader(call, parent)
        seq = check_seq(seq, "seq")

        def page(view: View, resident: bool) -> Reply | None:
            log = view.log
            if log is None:
                return _rows_after([], 0, False, seq)
            found = (log.read_resident if resident else log.read)(seq, limit, max_bytes=PAGE_BYTES)
            if found is None:
                return None
            rows = stored(self._joined(view, self._rendered(view, found)))
            return _rows_after(rows, found.head, not found.caught_up, found.next_after)

        def slowly() -> Reply:
            table, public = self._table, self._public
            view = table.view(parent, user=user, public=public)
            if view.sees_all:
                reply = page(view, False)
                assert reply is not None
                return reply
            found = table.list_after(parent, seq, limit=limit, user=user, public=public)
            return _rows_after(_shown(found.rows), found.head, found.has_more, found.last)

        return self._page(parent, user, page, slowly)

    def _page(
        self, parent: str, user: User | None, page: Callable[[View, bool], Reply | None], slowly: Callable[[], Reply]
    ) -> Replying:
        """A page of all rows: at once if it is in memory, otherwise on a worker thread."""
        declaration = self._table.declaration
        if declaration.with_author is None and self._context.is_parent_resident(declaration, parent):
            view = self._table.view(parent, user=user, public=self._public)
            reply = page(view, True) if view.sees_all else None
            if reply is not None:
                return reply
        return self._context.elsewhere(slowly)

    def _rendered(self, view: View, page: Page) -> Sequence[RenderedRow]:
        return RowRenderer(view.parent).page(page)

    def _joined(self, view: View, rows: Sequence[RenderedRow]) -> bytes:
        with_author = self._table.declaration.with_author
        authors = None if with_author is None else authors_of(rows, with_author)
        return b",".join([row.whole(view.user, authors) for row in rows])

    # --- one row ---------------------------------------------------------------------------------------------------

    def read(self, call: Call) -> Replying:
        """GET /tables/{table}/{variant}/read"""
        id = Query(call).text("id")
        row_id = parse_id(id)
        user = self._reader(call, row_id.parent)
        table, public = self._table, self._public

        def read() -> Reply:
            row = table.read(id, user=user, public=public)
            return Reply(encode(None if row is None else row.to_json()))

        if table.declaration.with_author is None and self._context.is_parent_resident(table.declaration, row_id.parent):
            log = table.rows_log(row_id.parent)
            if log is None or is_row_resident(log, row_id.seq):
                return read()
        return self._context.elsewhere(read)

    def history(self, call: Call) -> Replying:
        """GET /tables/{table}/{variant}/history"""
        id = Query(call).text("id")
        user = self._reader(call, parse_id(id).parent)

        def read() -> Reply:
            edits = self._table.history(id, user=user, public=self._public)
            return Reply(encode(HistoryAnswer(edits)))

        return self._context.elsewhere(read)

    def trash(self, call: Call) -> Replying:
        """GET /tables/{table}/auth/trash"""
        query = Query(call)
        parent, (limit, cursor) = query.text("parent"), query.page()
        user = self._reader(call, parent)

        def read() -> Reply:
            found = self._table.trash(parent, limit=limit, cursor=cursor, user=user)
            return Reply(encode(PageAnswer(_shown(found.rows), found.is_done, found.cursor)))

        return self._context.elsewhere(read)

    # --- all parents -----------------------------------------------------------------------------------------------

    def feed(self, call: Call) -> Replying:
        """GET /tables/{table}/{variant}/feed"""
        limit, cursor = Query(call).page()
        user, may_read = feed_reader_of(self._context, self._table, self._public, call)

        def read() -> Reply:
            found = self._table.feed(limit=limit, cursor=cursor, user=user, public=self._public, may_read=may_read)
            return Reply(encode(FeedAnswer(_shown(found.rows), found.is_done, found.cursor, found.live_cursor)))

        return self._context.elsewhere(read)

    # --- the schema ------------------------------------------------------------------------------------------------

    def schema(self, call: Call) -> Replying:
        """GET /tables/{table}/schema"""
        if not self._table.declaration.public:
            self._context.users.acting(call, "read")
            if not self._context.users.may_see(call, self._table.name):
                raise TableError("FORBIDDEN", f"the API key may not access {self._table.name}")
        versions = self._table.versions
        shown = [VersionAnswer(each.version, each.at, each.schema, each.lens) for each in versions.recorded]
        return Reply(encode(SchemaAnswer(self._table.name, versions.current, shown)))

    # --- reads that look into payloads -----------------------------------------------------------------------------

    def search(self, call: Call) -> Replying:
        """GET /tables/{table}/{variant}/search"""
        query = Query(call)
        parent, words, limit = query.text("parent"), query.text("query"), query.number("limit", 1, None)
        user = self._reader(call, parent)

        def search() -> Reply:
            found = self._table.search(parent, words, limit=limit, user=user, public=self._public)
            return Reply(encode(_shown(found.rows)), headers=headers_of({COMPLETE: found.complete}))

        return self._context.elsewhere(search)

    def indexed(self, call: Call) -> Replying:
        """GET /tables/{table}/{variant}/indexed"""
        query = Query(call)
        parent, by, limit = query.text("parent"), query.text("indexBy"), query.number("limit", 1, None)
        user = self._reader(call, parent)

        def group() -> Reply:
            groups = self._table.indexed(parent, by, limit=limit, user=user, public=self._public)
            return Reply(encode({value: _shown(rows) for value, rows in groups.items()}))

        return self._context.elsewhere(group)

    def counts(self, call: Call) -> Replying:
        """GET /tables/{table}/{variant}/counts"""
        query = Query(call)
        parent, by = query.text("parent"), query.text("by")
        user = self._reader(call, parent)

        def count() -> Reply:
            return Reply(encode(self._table.counts(parent, by, user=user, public=self._public)))

        return self._context.elsewhere(count)

    # --- the reader ------------------------------------------------------------------------------------------------

    def _reader(self, call: Call, parent: str) -> User | None:
        return reader_of(self._context, self._table, self._public, call, parent)


def reader_of(context: TablesContext, table: Table, public: bool, call: Call, parent: str) -> User | None:
    """The user who reads; refuses unknown users unless the read is public."""
    if public:
        return context.users.anybody(call)
    user = context.users.acting(call, "read")
    context.users.check_names(call, table.name, parent)
    return user


def feed_reader_of(
    context: TablesContext, table: Table, public: bool, call: Call
) -> tuple[User | None, Callable[[str], bool] | None]:
    """The user who reads the feed, and a function that returns whether the API key may access a parent."""
    if public:
        return context.users.anybody(call), None

    def may_read(parent: str) -> bool:
        try:
            context.users.check_names(call, table.name, parent)
        except TableError:
            return False
        return True

    return context.users.acting(call, "read"), may_read


def _rows_after(rows: Sequence[object], head: int, has_more: bool, last: int) -> Reply:
    return Reply(encode(rows), headers=headers_of({HEAD: head, HAS_MORE: has_more, LAST: last}))


def _shown(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [row.to_json() for row in rows]


def _reversed(rows: Sequence[RenderedRow]) -> Sequence[RenderedRow]:
    return rows[::-1]
