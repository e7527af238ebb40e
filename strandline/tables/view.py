"""What a reader sees of the rows of a parent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from strandline.engine import Log, Record
from strandline.tables.access import find_parent, is_public, no_parent
from strandline.tables.errors import TableError, invalid
from strandline.tables.names import RowId
from strandline.tables.results import RowPage, RowsAfter
from strandline.tables.rows import Row, author_in, row_of
from strandline.tables.step import read_row
from strandline.tables.where import Condition

if TYPE_CHECKING:
    from strandline.tables.table import Table

#: A page never takes longer than looking at so many rows, however few of them are wanted.
SCAN_ROWS = 16_384
#: Rows that are read at a time where some are passed over.
READ_ROWS = 1_024
#: A page has no more than about so many bytes, however few rows that are.
PAGE_BYTES = 8 << 20
LIST_ROWS, LIST_AFTER_ROWS, MAX_ROWS = 50, 500, 1_000


class View:
    """The rows of one parent as one reader sees them; made by :meth:`Table.view`."""

    def __init__(self, table: Table, parent: str, log: Log | None, user: str | None, sees_all: bool) -> None:
        self._table = table
        self.parent = parent
        #: The log of the rows; None as long as there has never been one.
        self.log = log
        self.user = user
        #: Else only those of whoever reads.
        self.sees_all = sees_all

    def shows(self, row: Row) -> bool:
        return self.sees_all or row.user == self.user

    def dress(self, rows: Iterable[Row]) -> list[Row]:
        """The rows with what is said about their authors."""
        look_up, user = self._table.declaration.with_author, self.user
        if look_up is None and user is None:
            return list(rows)
        known: dict[str, object] = {}
        dressed = []
        for row in rows:
            changes: dict[str, object] = {} if user is None else {"own": row.user == user}
            if look_up is not None:
                if row.user is not None and row.user not in known:
                    known[row.user] = look_up(row.user)
                changes["author"] = None if row.user is None else known[row.user]
            dressed.append(replace(row, **changes))
        return dressed

    def row(self, seq: int) -> Row | None:
        row = None if self.log is None else read_row(self.log, RowId(self.parent, seq))
        return self.dress([row])[0] if row is not None and self.shows(row) else None

    def list(self, limit: int, before: int | None, condition: Condition | None) -> RowPage:
        """The newest rows with a seq below ``before``."""
        if self.log is None:
            return RowPage([], True, None)
        rows: list[Row] = []
        scanned, is_done = 0, False
        wants_all = self.sees_all and condition is None
        ask = limit if wants_all else max(READ_ROWS, limit)
        while len(rows) < limit and scanned < SCAN_ROWS and not is_done:
            page = self.log.read_back(before, ask, max_bytes=PAGE_BYTES)
            is_done = page.caught_up
            for record in reversed(list(page)):
                if len(rows) == limit:
                    is_done = False
                    break
                before, scanned = record.seq, scanned + 1
                row = self._row(record, condition)
                if row is not None:
                    rows.append(row)
            if wants_all:
                break
        return RowPage(self.dress(rows), is_done, None if is_done else str(before))

    def list_after(self, after: int, limit: int) -> RowsAfter:
        """The oldest rows with a seq above ``after``."""
        head = 0 if self.log is None else self.log.head
        if self.log is None or after >= head:
            return RowsAfter([], head, False, after)
        rows: list[Row] = []
        scanned, caught_up = 0, False
        ask = limit if self.sees_all else max(READ_ROWS, limit)
        while len(rows) < limit and scanned < SCAN_ROWS and not caught_up:
            page = self.log.read(after, ask, max_bytes=PAGE_BYTES)
            caught_up, head, after = page.caught_up, page.head, page.next_after
            scanned += max(len(page), 1)
            for record in page:
                row = self._row(record, None)
                if row is not None:
                    rows.append(row)
                    if len(rows) == limit and record.seq < after:
                        after, caught_up = record.seq, False
                        break
            if self.sees_all and rows:
                break
        return RowsAfter(self.dress(rows), head, not caught_up, after)

    def _row(self, record: Record, condition: Condition | None) -> Row | None:
        """The row of a record if it is for this reader and wanted. Others are not even decoded, where that can be."""
        if not self.sees_all and author_in(record.meta) != self.user:
            return None
        row = row_of(self.parent, record)
        return row if condition is None or condition(row) else None


def look(table: Table, parent: str, user: str | None, public: bool) -> View:
    """See :meth:`Table.view`."""
    declaration = table.declaration
    log = table.rows_log(parent)
    if public:
        if not declaration.public:
            raise TableError("NOT_FOUND", f"{declaration.name} has no public reads")
        if not is_public(declaration, find_parent(declaration, parent, table.tables.find_row)):
            raise no_parent(declaration, parent)
        return View(table, parent, log, user, True)
    if user is None:
        return View(table, parent, log, None, True)
    found = find_parent(declaration, parent, table.tables.find_row)
    return View(table, parent, log, user, found.is_owned_by(user))


def check_limit(limit: object, default: int) -> int:
    """How many rows to give: what was asked for, but no more than anybody gets."""
    if limit is None:
        return default
    if type(limit) is not int or limit < 1:
        raise invalid("limit must be a whole number above 0", "limit")
    return min(limit, MAX_ROWS)


def check_seq(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise invalid(f"{name} must be a whole number, 0 or more", name)
    return value


def check_cursor(cursor: object) -> int | None:
    if cursor is None:
        return None
    if type(cursor) is not str or not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise invalid("cursor must be the continueCursor of an earlier page", "cursor")
    return int(cursor)
