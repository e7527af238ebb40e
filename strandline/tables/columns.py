"""Columns: one field of all rows of a parent, held in memory as integer codes, for counting and grouping.

A column is built on first use and then kept current. New rows are read once. Existing rows are read again only if the
changes log says that they were edited or restored. Counting a million rows again takes a few milliseconds.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from strandline.engine import Log, Page
from strandline.engine.reads.status import live_ranges_of
from strandline.nearest_name import did_you_mean
from strandline.tables.errors import TableError, invalid
from strandline.tables.names import RowId
from strandline.tables.rows import Counts, Row, author_in, change_of
from strandline.tables.step import read_row

if TYPE_CHECKING:
    from strandline.tables.table import Table
    from strandline.tables.view import View

Codes = npt.NDArray[np.int32]
Seqs = npt.NDArray[np.int64]

#: The column of the row authors. No field can have this name.
USER = "$user"
#: A field with more distinct values than this cannot be counted, because every value is kept in memory.
MAX_VALUES = 100_000
#: Rows per read.
READ_ROWS = 16_384
#: The code of a row that was not read, because it was hidden or does not exist.
UNREAD = -1

#: Returns the field's value in each row of a page, as text.
Values = Callable[[Page], Iterable[str]]


class ColumnSnapshot(NamedTuple):
    """The ``codes`` of the rows with these ``seqs``, ascending. A code is an index into ``values``."""

    seqs: Seqs
    codes: Codes
    values: list[str]


class RowColumn:
    """One field of the rows of one parent. Thread-safe."""

    def __init__(self, log: Log, field: str) -> None:
        self._log = log
        self._field = field
        self._values: Values = _authors if field == USER else _values_of(field)
        self._lock = threading.Lock()
        self._words: dict[str, int] = {}
        #: Indexed by sequence number.
        self._codes: Codes = np.full(1024, UNREAD, np.int32)
        self._through = 0
        self._told = 0
        self._revision = -1
        #: The number of visible rows per code, at ``_revision`` and up to ``_counted``.
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._counted = 0

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + 100 * len(self._words)

    def counts(self, changes: Log | None) -> dict[str, int]:
        """The number of rows per value."""
        with self._lock:
            self._bring_up(changes)
            words = list(self._words)
            return {words[code]: int(count) for code, count in enumerate(self._counts) if count}

    def snapshot(self, changes: Log | None) -> ColumnSnapshot:
        """All visible rows."""
        with self._lock:
            self._bring_up(changes)
            seqs = self._standing()[0]
            return ColumnSnapshot(seqs, self._codes[seqs], list(self._words))

    def _bring_up(self, changes: Log | None) -> None:
        # Read the changes log first: an edit and its change are written together, so rows read afterwards are at least
        # as new.
        edited = self._edited(changes)
        is_same = self._log.revision == self._revision
        self._extend()
        if is_same and not edited:
            self._add_up(np.arange(self._counted + 1, self._through + 1))
            return
        if edited:
            self._codes[[seq for seq in edited if seq <= self._through]] = UNREAD
        seqs, revision = self._standing()
        if len(seqs) > self._log.state().count:
            # Some of these seqs have no row. A row that was removed and then left out of a segment may be among them.
            self._codes[:] = UNREAD
        unread = seqs[self._codes[seqs] == UNREAD]
        if len(unread):
            self._read_again(unread)
            seqs = seqs[self._codes[seqs] != UNREAD]
        self._counts, self._revision = np.zeros(0, np.int64), revision
        self._add_up(seqs)

    def _edited(self, changes: Log | None) -> set[int]:
        """The rows that may have been edited since the last time."""
        if changes is None or self._field == USER:
            return set()
        edited, all_restored = self._edited_after(self._told, changes)
        # The edits of removed rows are hidden until the rows are restored.
        return self._edited_after(0, changes)[0] if all_restored else edited

    def _edited_after(self, after: int, changes: Log) -> tuple[set[int], bool]:
        edited: set[int] = set()
        all_restored = caught_up = False
        while not caught_up:
            page = changes.read(after, READ_ROWS)
            for data in page.data:
                change = change_of(data)
                if change.op in ("update", "restore") and change.seq is not None:
                    edited.add(change.seq)
                all_restored |= change.op == "restoreAll"
            after, caught_up = page.next_after, page.caught_up
        self._told = after
        return edited, all_restored

    def _extend(self) -> None:
        caught_up = False
        while not caught_up:
            page = self._log.read(self._through, READ_ROWS)
            self._take(page)
            self._through, caught_up = page.next_after, page.caught_up
            self._make_room(self._through)

    def _read_again(self, unread: Seqs) -> None:
        for first, last in _stretches(unread):
            after = first - 1
            while after < last:
                page = self._log.read(after, min(last - after, READ_ROWS))
                self._take(page)
                if page.caught_up:
                    break
                after = page.next_after

    def _take(self, page: Page) -> None:
        if not page.seqs:
            return
        self._make_room(page.seqs[-1])
        words = self._words
        self._codes[page.seqs] = [words.setdefault(value, len(words)) for value in self._values(page)]
        if len(words) > MAX_VALUES:
            raise invalid(f"cannot count by {self._field!r}: it has more than {MAX_VALUES} distinct values", "by")

    def _make_room(self, seq: int) -> None:
        if seq >= len(self._codes):
            more = np.full(max(seq + 1 - len(self._codes), len(self._codes)), UNREAD, np.int32)
            self._codes = np.concatenate((self._codes, more))

    def _standing(self) -> tuple[Seqs, int]:
        """The seqs of the visible rows that were read, and the revision of the log. May include seqs that never held a
        row."""
        standing = live_ranges_of(self._log)
        seen = np.zeros(self._through + 1, np.bool_)
        for first, last in standing.ranges:
            seen[first : last + 1] = True
        return np.flatnonzero(seen), standing.revision

    def _add_up(self, seqs: Seqs) -> None:
        codes = self._codes[seqs]
        counts = np.bincount(codes[codes != UNREAD], minlength=len(self._words))
        counts[: len(self._counts)] += self._counts
        self._counts, self._counted = counts, self._through


class RowColumns:
    """The columns of many logs, within about ``budget`` bytes. The least recently used columns are evicted."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._columns: OrderedDict[tuple[int, str], RowColumn] = OrderedDict()

    def column(self, log: Log, field: str) -> RowColumn:
        key = log.epoch, field
        with self._lock:
            column = self._columns.pop(key, None) or RowColumn(log, field)
            self._columns[key] = column
            size = sum(each.nbytes for each in self._columns.values())
            while size > self._budget and len(self._columns) > 1:
                size -= self._columns.popitem(last=False)[1].nbytes
        return column

    def forget(self, log: Log, field: str) -> None:
        with self._lock:
            self._columns.pop((log.epoch, field), None)


def text_of(value: Any) -> str:
    """The name of the group for a value."""
    if type(value) is str:
        return value
    if type(value) is float and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()


def _values_of(field: str) -> Values:
    struct: Any = msgspec.defstruct("Field", [("value", Any, msgspec.field(name=field, default=None))])
    decode = msgspec.json.Decoder(struct).decode
    return lambda page: [text_of(decode(data).value) for data in page.data]


def _authors(page: Page) -> list[str]:
    """The author of each row; empty for rows written by the program itself, because no user id is empty."""
    return [author_in(meta) or "" for meta in page.metas]


def _stretches(seqs: Seqs) -> Iterator[tuple[int, int]]:
    cuts = [0, *(np.flatnonzero(np.diff(seqs) != 1) + 1).tolist(), len(seqs)]
    for start, end in pairwise(cuts):
        yield int(seqs[start]), int(seqs[end - 1])


#: The maximum number of rows in all groups together.
MAX_GROUPED = 10_000
#: The maximum number of rows of a parent that can be sorted by a field: each page sorts all of them.
MAX_SORTED = 100_000
#: Where rows without the field come, in either order.
_LAST = np.iinfo(np.int64).max
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def count_rows(table: Table, view: View, by: str) -> Counts:
    """See :meth:`Table.counts`."""
    field = _field(table, by)
    if view.log is None:
        return Counts({}, 0)
    if view.sees_all:
        counts = _column_counts(table, view.log, view.parent, field)
    else:
        _, codes, values = _seen(table, view, view.log, field)
        found = np.bincount(codes, minlength=len(values)).tolist()
        counts = {value: count for value, count in zip(values, found, strict=True) if count}
    return Counts(counts, sum(counts.values()))


def group_rows(table: Table, view: View, by: str, limit: int) -> dict[str, list[Row]]:
    """See :meth:`Table.indexed`."""
    field = _field(table, by)
    if view.log is None:
        return {}
    seqs, codes, values = _seen(table, view, view.log, field)
    chosen: list[int] = []
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order], prepend=-1, append=len(values)))
    total = int(np.minimum(np.diff(cuts), limit).sum())
    if total > MAX_GROUPED:
        raise invalid(
            f"grouping by {by!r} returns {total} rows, more than the maximum of {MAX_GROUPED}: lower limit", "limit"
        )
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        chosen += seqs[order[max(start, end - limit) : end]].tolist()
    groups: dict[str, list[Row]] = {}
    # Read in ascending order, so that each block is fetched from disk once, and then reverse to newest first.
    rows = [row for seq in sorted(chosen) if (row := read_row(view.log, RowId(view.parent, seq))) is not None]
    for row in reversed(view.dress(rows)):
        if view.shows(row.user):
            value = row.user or "" if field == USER else text_of(row.payload.get(field))
            groups.setdefault(value, []).append(row)
    return groups


def sorted_seqs(table: Table, view: View, by: str, descending: bool) -> list[int]:
    """The rows that the reader can see, by the value of a field: numbers before text, and rows without a value last.
    Raises VALIDATION_FAILED if the parent has more than 100,000 rows."""
    field = _field(table, by)
    if view.log is None:
        return []
    count = view.log.state().count
    if count > MAX_SORTED:
        raise invalid(f"{view.parent} has {count} rows; at most {MAX_SORTED} can be sorted by a field", "sort")
    seqs, codes, values = _seen(table, view, view.log, field)
    ranks = np.zeros(len(values), np.int64)
    ranks[sorted(range(len(values)), key=lambda code: _place(values[code]))] = np.arange(1, len(values) + 1)
    if descending:
        ranks = -ranks
    ranks[[code for code, value in enumerate(values) if value == "null"]] = _LAST
    return [int(seq) for seq in seqs[np.argsort(ranks[codes], kind="stable")]]


def _place(value: str) -> tuple[bool, float, str, str]:
    if _NUMBER.fullmatch(value):
        return False, float(value), "", value
    return True, 0.0, value.casefold(), value


def _field(table: Table, by: object) -> str:
    if by == "userId":
        return USER
    fields = table.declaration.schema.fields
    if type(by) is not str or not by or (fields is not None and by not in fields):
        near = did_you_mean(by, fields) if type(by) is str and fields is not None else ""
        raise invalid(f"table {table.name} has no field {by!r}{near}", "by")
    return by


def _column_counts(table: Table, log: Log, parent: str, field: str) -> dict[str, int]:
    columns = table.tables.columns
    try:
        return columns.column(log, field).counts(table.changes_log(parent))
    except TableError:
        columns.forget(log, field)
        raise


def _seen(table: Table, view: View, log: Log, field: str) -> ColumnSnapshot:
    """The rows of a column that the reader can see."""
    columns, changes = table.tables.columns, table.changes_log(view.parent)
    try:
        snapshot = columns.column(log, field).snapshot(changes)
    except TableError:
        columns.forget(log, field)
        raise
    seqs, codes, values = snapshot
    read = codes >= 0
    seqs, codes = seqs[read], codes[read]
    if not view.sees_all:
        authors = columns.column(log, USER).snapshot(changes)
        mine = authors.values.index(view.user) if view.user in authors.values else len(authors.values)
        own = np.isin(seqs, authors.seqs[authors.codes == mine], assume_unique=True)
        seqs, codes = seqs[own], codes[own]
    return ColumnSnapshot(seqs, codes, values)
