"""Tables: the declared ones, their parents, and the rows of a parent.

Like the screens of logs, these show every row that the prefixes of the API key allow. The access rules of tables apply
to changes, which the page makes through the routes of tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from strandline.arrow import pa
from strandline.engine import Log
from strandline.protocols.console.catalogue import Catalogue, LogSums, Wanted
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.logs import DEFAULT_LIMIT, MAX_LIMIT
from strandline.protocols.console.matches import content_of
from strandline.protocols.console.table_answers import (
    ConsoleTableAnswer,
    ConsoleTablesAnswer,
    HookRow,
    ParentAnswer,
    ParentRow,
    ParentsAnswer,
    RowAnswer,
    RowsAnswer,
    TableRow,
    TableVersion,
)
from strandline.query.content_filter import ContentFilter
from strandline.service.access import Access
from strandline.service.http import Call, Reply
from strandline.service.parameters import choice, number
from strandline.service.problems import NOT_FOUND, NOT_READY, Refusal, invalid, log_not_found
from strandline.tables import Row, Table, TableDeclaration, TableError
from strandline.tables.access import find_parent
from strandline.tables.columns import sorted_seqs
from strandline.tables.names import check_parent, parse_id, rows_log
from strandline.tables.view import PAGE_BYTES, SCAN_ROWS, Condition, View

SORTS = ("name", "records", "bytes", "last")
#: The maximum number of rows in an answer.
MAX_ROWS = 500

_encode = msgspec.json.Encoder().encode


class ConsoleTables:
    def __init__(self, context: ConsoleContext, catalogue: Catalogue) -> None:
        self._context = context
        self._catalogue = catalogue

    # --- tables ------------------------------------------------------------------------------------------------------

    async def tables(self, call: Call) -> Reply:
        """GET /console/api/tables"""
        seen = [table for table in self._context.tables if may_see(table, call.access)]
        if not seen:
            return _reply(ConsoleTablesAnswer(tables=[]))
        logs, prefixes = await self._catalogue.table(), call.access.prefixes

        def look() -> Reply:
            rows = [row_of(table, logs.sums(f"{table.name}/", "table", prefixes)) for table in seen]
            return _reply(ConsoleTablesAnswer(tables=rows))

        return await self._context.work(look)

    async def table(self, call: Call) -> Reply:
        """GET /console/api/table/{table}"""
        table = self._table(call)
        logs, prefixes = await self._catalogue.table(), call.access.prefixes

        def look() -> Reply:
            declaration = table.declaration
            row = row_of(table, logs.sums(f"{table.name}/", "table", prefixes))
            answer = ConsoleTableAnswer(
                **msgspec.structs.asdict(row),
                schema=declaration.schema.document,
                versions=[
                    TableVersion(version=each.version, at=each.at, schema=each.schema, lens=each.lens)
                    for each in table.versions.recorded
                ],
                moderators=sorted(declaration.moderators),
            )
            return _reply(answer)

        return await self._context.work(look)

    async def parents(self, call: Call) -> Reply:
        """GET /console/api/table/{table}/parents"""
        table = self._table(call)
        offset = number(call, "offset", 0) or 0
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        sort = choice(call, "sort", *SORTS) or "name"
        order = choice(call, "order", "asc", "desc") or ("asc" if sort == "name" else "desc")
        under = f"{table.name}/"
        wanted = Wanted(call.query.get("search", ""), "table", call.access.prefixes, sort, order == "desc", under)
        listed = await self._catalogue.page(wanted, offset, limit)
        engine = self._context.engine

        def look() -> Reply:
            found = [log for name in listed.names if (log := engine.find(name)) is not None]
            rows = [parent_of(log.name.removeprefix(under), log.name, log) for log in found]
            return _reply(ParentsAnswer(parents=rows, total=listed.total))

        return await self._context.work(look)

    async def feed(self, call: Call) -> Reply:
        """GET /console/api/table/{table}/feed"""
        table, access = self._table(call), call.access
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_ROWS) or DEFAULT_LIMIT
        cursor = call.query.get("cursor") or None

        def look() -> Reply:
            with table_errors():
                page = table.feed(
                    limit=limit, cursor=cursor, may_read=lambda parent: access.may_touch(rows_log(table.name, parent))
                )
            return _reply(RowsAnswer(rows=_shown(page.rows), next=page.cursor))

        return await self._context.work(look)

    # --- one parent --------------------------------------------------------------------------------------------------

    async def parent(self, call: Call) -> Reply:
        """GET /console/api/table/{table}/parent"""
        table, parent = self._parent(call)

        def look() -> Reply:
            log, changes = table.rows_log(parent), table.changes_log(parent)
            owner, found = owner_of(table, parent)
            name = rows_log(table.name, parent)
            answer = ParentAnswer(
                **msgspec.structs.asdict(parent_of(parent, name, log)),
                changes_log=None if changes is None else changes.name,
                owner=owner,
                found=found,
                revision=".".join(str(each) for each in (*_state(log), *_state(changes))),
            )
            return _reply(answer)

        return await self._context.work(look)

    async def rows(self, call: Call) -> Reply:
        """GET /console/api/table/{table}/rows"""
        table, parent = self._parent(call)
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_ROWS) or DEFAULT_LIMIT
        cursor = number(call, "cursor")
        sort = call.query.get("sort") or "seq"
        descending = (choice(call, "order", "asc", "desc") or "desc") == "desc"
        condition = condition_of(content_of(call))

        def look() -> Reply:
            with table_errors():
                view = table.view(parent)
                if sort != "seq":
                    return _reply(in_order(table, view, sort, descending, cursor or 0, limit, condition))
                if descending:
                    page = view.list(limit, cursor, condition)
                    return _reply(RowsAnswer(rows=_shown(page.rows), next=page.cursor))
                after = view.list_after(cursor or 0, limit, condition)
                return _reply(RowsAnswer(rows=_shown(after.rows), next=str(after.last) if after.has_more else None))

        return await self._context.work(look)

    async def trash(self, call: Call) -> Reply:
        """GET /console/api/table/{table}/trash"""
        table, parent = self._parent(call)
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_ROWS) or DEFAULT_LIMIT
        cursor = call.query.get("cursor") or None

        def look() -> Reply:
            with table_errors():
                page = table.trash(parent, limit=limit, cursor=cursor)
            return _reply(RowsAnswer(rows=_shown(page.rows), next=page.cursor))

        return await self._context.work(look)

    async def row(self, call: Call) -> Reply:
        """GET /console/api/table/{table}/row"""
        table = self._table(call)
        with table_errors():
            id = parse_id(call.query.get("id", ""))
        self._check_parent(table, id.parent, call.access)

        def look() -> Reply:
            with table_errors():
                edits = table.history(str(id))
            row = table.read(str(id))
            if row is None:
                raise Refusal(NOT_FOUND, f"row {str(id)!r} of {table.name} does not exist")
            return _reply(RowAnswer(row=row.to_json(), edits=edits))

        return await self._context.work(look)

    # --- access ------------------------------------------------------------------------------------------------------

    def _table(self, call: Call) -> Table:
        """The table that the path names, if the API key may access some of its parents."""
        name = call.param("table")
        table = next((each for each in self._context.tables if each.name == name), None)
        if table is None or not may_see(table, call.access):
            raise Refusal(NOT_FOUND, f"the table {name!r} does not exist, or the API key may not access it")
        return table

    def _parent(self, call: Call) -> tuple[Table, str]:
        table, parent = self._table(call), call.query.get("parent")
        with table_errors():
            parent = check_parent(parent)
        self._check_parent(table, parent, call.access)
        return table, parent

    @staticmethod
    def _check_parent(table: Table, parent: str, access: Access) -> None:
        name = rows_log(table.name, parent)
        if not access.may_touch(name):
            raise log_not_found(name)


def may_see(table: Table, access: Access) -> bool:
    return access.may_touch_some(f"{table.name}/")


@contextmanager
def table_errors() -> Iterator[None]:
    """Errors of tables, with codes of the console."""
    try:
        yield
    except TableError as error:
        if error.code == "NOT_FOUND":
            raise Refusal(NOT_FOUND, error.message) from None
        if error.code == "VALIDATION_FAILED":
            raise invalid(error.message) from None
        if error.code == "UNAVAILABLE":
            raise Refusal(NOT_READY, error.message) from None
        raise


def row_of(table: Table, sums: LogSums) -> TableRow:
    declaration = table.declaration
    return TableRow(
        name=table.name,
        parent=declaration.parent_label,
        parent_is_table=isinstance(declaration.parent, TableDeclaration),
        version=table.versions.current,
        parents=sums.logs,
        rows=sums.records,
        bytes=sums.size,
        last_ts=sums.last or None,
        soft_delete=declaration.soft_delete,
        public=declaration.public_field or declaration.public,
        feed=declaration.feed,
        search=list(declaration.search_fields),
        rate_limit=declaration.rate_limit,
        hooks=[HookRow(hook=name, after_commit=later) for name, later in table.hooks.declared],
        durability=declaration.durability,
    )


def parent_of(parent: str, name: str, log: Log | None) -> ParentRow:
    if log is None or log.dropped:
        return ParentRow(parent=parent, log=name, rows=0, bytes=0, last_ts=None)
    state = log.state()
    return ParentRow(parent=parent, log=name, rows=state.count, bytes=state.size, last_ts=state.last_ts or None)


def owner_of(table: Table, parent: str) -> tuple[str | None, bool]:
    """The owner of a parent, if it has one, and whether the parent exists."""
    try:
        return find_parent(table.declaration, parent, table.tables.find_row).owner, True
    except TableError:
        return None, False


def condition_of(content: ContentFilter | None) -> Condition | None:
    """A condition on rows as clients see them; None without a filter."""
    if content is None:
        return None
    return lambda row: bool(content.matches(pa.array([_encode(row.to_json())], pa.binary()))[0])


def in_order(
    table: Table, view: View, by: str, descending: bool, start: int, limit: int, condition: Condition | None
) -> RowsAnswer:
    """The rows from a position in the order of a field."""
    seqs = sorted_seqs(table, view, by, descending)
    rows: list[Row] = []
    at, size, stop = start, 0, min(start + SCAN_ROWS, len(seqs))
    while at < stop and len(rows) < limit and size <= PAGE_BYTES:
        part = seqs[at : min(at + limit, stop)]
        # Read in ascending order, so that each block is read from the disk once.
        found = {seq: view.row(seq) for seq in sorted(part)}
        for seq in part:
            at += 1
            row = found[seq]
            if row is None or (condition is not None and not condition(row)):
                continue
            rows.append(row)
            size += len(_encode(row.payload))
            if len(rows) == limit or size > PAGE_BYTES:
                break
    return RowsAnswer(rows=_shown(rows), next=str(at) if at < len(seqs) else None)


def _state(log: Log | None) -> tuple[int, ...]:
    """Changes whenever the records of the log do."""
    return (0,) if log is None else (log.epoch, log.head, log.revision)


def _shown(rows: list[Row]) -> list[dict[str, object]]:
    return [row.to_json() for row in rows]


def _reply(answer: msgspec.Struct) -> Reply:
    return Reply(_encode(answer))
