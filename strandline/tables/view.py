"""The rows of a parent that a reader sees, and conditions on rows.

A condition looks like ``{"optionIdx": 1, "score": {"$gte": 3}, "own": true, "or": [{…}, {…}]}``. All members of a group
must hold, and at least one group of ``or``. A field is compared with a value, or with the operators ``$gt``, ``$gte``,
``$lt``, ``$lte`` and ``$between`` (inclusive). ``own`` selects the reader's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from strandline.engine import Log, Record
from strandline.nearest_name import did_you_mean
from strandline.tables.access import check_public, find_parent, is_public, no_parent
from strandline.tables.errors import TableError, invalid
from strandline.tables.names import RowId
from strandline.tables.rows import Row, RowPage, RowsAfter, author_in, row_of
from strandline.tables.step import read_row
from strandline.tables.users import User, id_of

if TYPE_CHECKING:
    from strandline.tables.table import Table

#: These limits bound the work per row.
MAX_CLAUSES = 256
MAX_DEPTH = 16

#: Returns whether a row matches.
Condition = Callable[[Row], bool]

_MISSING = object()
_OF_ROWS: dict[str, Callable[[Row], Any]] = {
    "id": lambda row: row.id,
    "seq": lambda row: row.seq,
    "userId": lambda row: row.user,
    "createdAt": lambda row: row.created_at,
    "updatedAt": lambda row: row.updated_at,
    "idempotencyKey": lambda row: row.idempotency_key,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def compile_where(where: object, user: str | None, fields: Sequence[str] | None) -> Condition:
    """Compile a condition. ``fields`` are the declared fields, or None if any field is allowed. Raises TableError."""
    return _Compiler(user, fields).group(where, 0)


class _Compiler:
    def __init__(self, user: str | None, fields: Sequence[str] | None) -> None:
        self._user = user
        self._fields = fields
        self._clauses = 0

    def group(self, where: object, depth: int) -> Condition:
        if not isinstance(where, Mapping):
            raise invalid("where must be an object of conditions", "where")
        if depth > MAX_DEPTH:
            raise invalid(f"where has more than {MAX_DEPTH} levels of nesting", "where")
        conditions = [self._clause(name, wanted, depth) for name, wanted in where.items()]
        if len(conditions) == 1:
            return conditions[0]
        return lambda row: all(condition(row) for condition in conditions)

    def _clause(self, name: str, wanted: object, depth: int) -> Condition:
        self._clauses += 1
        if self._clauses > MAX_CLAUSES:
            raise invalid(f"where has more than {MAX_CLAUSES} conditions", "where")
        if name == "own":
            if wanted is not True:
                raise invalid("own in where must be true", "where")
            user = self._user
            return lambda row: row.user == user
        if name == "or":
            if not isinstance(wanted, Sequence) or isinstance(wanted, str) or not wanted:
                raise invalid("or in where must be a list of groups of conditions", "where")
            groups = [self.group(group, depth + 1) for group in wanted]
            return lambda row: any(group(row) for group in groups)
        return self._field(name, wanted)

    def _field(self, name: str, wanted: object) -> Condition:
        value_of = _OF_ROWS.get(name)
        if value_of is None:
            if self._fields is not None and name not in self._fields:
                raise invalid(f"where names an unknown field: {name!r}{did_you_mean(str(name), self._fields)}", "where")
            value_of = lambda row: row.payload.get(name, _MISSING)  # noqa: E731
        if not isinstance(wanted, Mapping) or not any(str(key).startswith("$") for key in wanted):
            return lambda row: is_same(value_of(row), wanted)
        tests = [_comparison(operator, bound) for operator, bound in wanted.items()]
        return lambda row: all(test(value_of(row)) for test in tests)


def _comparison(operator: str, bound: Any) -> Callable[[Any], bool]:
    if operator == "$between":
        if not isinstance(bound, Sequence) or isinstance(bound, str) or len(bound) != 2:
            raise invalid("$between in where requires a list of two values", "where")
        low, high = (_check_bound(operator, each) for each in bound)
        return lambda value: is_comparable(value, low) and is_comparable(value, high) and low <= value <= high
    compare = _COMPARISONS.get(operator)
    if compare is None:
        raise _unknown(operator)
    _check_bound(operator, bound)
    return lambda value: is_comparable(value, bound) and compare(value, bound)


def _check_bound(operator: str, bound: Any) -> Any:
    if isinstance(bound, bool) or not isinstance(bound, int | float | str):
        raise invalid(f"{operator} in where requires a number or a string", "where")
    return bound


def _unknown(operator: str) -> TableError:
    known = ", ".join([*_COMPARISONS, "$between"])
    return invalid(f"unknown operator {operator!r} in where: expected one of {known}", "where")


def is_same(value: Any, wanted: Any) -> bool:
    """Equality as in JSON: 1 equals 1.0, but not true."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(is_same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, Mapping):
        return value.keys() == wanted.keys() and all(is_same(value[key], wanted[key]) for key in value)
    return bool(value == wanted)


def is_comparable(value: Any, bound: Any) -> bool:
    """Whether the values can be ordered: two numbers, or two strings."""
    if isinstance(value, bool):
        return False
    return isinstance(value, str) if isinstance(bound, str) else isinstance(value, int | float)


#: A page examines at most this many rows, even if few of them match.
SCAN_ROWS = 16_384
#: Rows per read when some rows are skipped.
READ_ROWS = 1_024
#: The approximate maximum size of a page.
PAGE_BYTES = 8 << 20
LIST_ROWS, LIST_AFTER_ROWS, MAX_ROWS = 50, 500, 1_000


class View:
    """The rows of one parent as one reader sees them; made by :meth:`Table.view`."""

    def __init__(self, table: Table, parent: str, log: Log | None, user: str | None, sees_all: bool) -> None:
        self._table = table
        self.parent = parent
        #: The log of the rows, or None if nothing was appended yet.
        self.log = log
        self.user = user
        #: If False, the reader sees only their own rows.
        self.sees_all = sees_all

    def shows(self, author: str | None) -> bool:
        """Whether the reader may see the rows of this author."""
        return self.sees_all or author == self.user

    def dress(self, rows: Iterable[Row]) -> list[Row]:
        """Add the data about the author and ``own`` to the rows."""
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
        return self.dress([row])[0] if row is not None and self.shows(row.user) else None

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

    def list_after(self, after: int, limit: int, condition: Condition | None = None) -> RowsAfter:
        """The oldest rows with a seq above ``after``."""
        head = 0 if self.log is None else self.log.head
        if self.log is None or after >= head:
            return RowsAfter([], head, False, after)
        rows: list[Row] = []
        scanned, caught_up = 0, False
        wants_all = self.sees_all and condition is None
        ask = limit if wants_all else max(READ_ROWS, limit)
        while len(rows) < limit and scanned < SCAN_ROWS and not caught_up:
            page = self.log.read(after, ask, max_bytes=PAGE_BYTES)
            caught_up, head, after = page.caught_up, page.head, page.next_after
            scanned += max(len(page), 1)
            for record in page:
                row = self._row(record, condition)
                if row is not None:
                    rows.append(row)
                    if len(rows) == limit and record.seq < after:
                        after, caught_up = record.seq, False
                        break
            if wants_all and rows:
                break
        return RowsAfter(self.dress(rows), head, not caught_up, after)

    def _row(self, record: Record, condition: Condition | None) -> Row | None:
        """The row of a record if the reader may see it and it matches. Records of other authors are not decoded."""
        if not self.sees_all and not self.shows(author_in(record.meta)):
            return None
        row = row_of(self.parent, record)
        return row if condition is None or condition(row) else None


def view_of(table: Table, parent: str, user: User | None, public: bool) -> View:
    """See :meth:`Table.view`."""
    declaration = table.declaration
    log = table.rows_log(parent)
    if public:
        check_public(declaration)
        if not is_public(declaration, find_parent(declaration, parent, table.tables.find_row)):
            raise no_parent(declaration, parent)
        return View(table, parent, log, id_of(user), True)
    if user is None:
        return View(table, parent, log, None, True)
    found = find_parent(declaration, parent, table.tables.find_row)
    return View(table, parent, log, user.id, found.is_owned_by(user))


def check_limit(limit: object, default: int) -> int:
    """The number of rows to return: the requested number, up to the maximum."""
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
