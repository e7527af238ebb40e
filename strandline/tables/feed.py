"""The feed of a table: the rows of all its parents in one order, as far as a reader may see them.

A log of its own has an entry for every row and every change, written in the same transaction. Entries only refer to
rows, so every read checks the access to the parent and shows the row as it is now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from strandline.engine import Config, Log
from strandline.engine.errors import QuotaExceeded, SealingBehind
from strandline.engine.ownership import TABLE
from strandline.engine.reads.status import hidden_ranges_of
from strandline.tables.access import check_public
from strandline.tables.errors import BadDeclaration, TableError
from strandline.tables.names import feed_log, rows_log
from strandline.tables.notes import notes_of
from strandline.tables.rows import FeedEntry, Row, TableFeedPage, author_in, feed_batch, feed_entry_of
from strandline.tables.users import User
from strandline.tables.view import PAGE_BYTES, READ_ROWS, SCAN_ROWS, View

if TYPE_CHECKING:
    from strandline.tables.table import Table

log = logging.getLogger(__name__)

#: The note of a feed that has all rows of its table.
COMPLETE = "complete"
#: Rows of all parents together that are in memory while a feed is filled.
FILL_ROWS = 100_000
#: Rows per read and per write while a feed is filled.
FILL_BATCH = 1_000


# --- reading --------------------------------------------------------------------------------------------------------


class FeedSight:
    """What one reader may see of a table's feed. Access to each parent is looked up once, so an object serves one page
    or one piece of a live feed."""

    def __init__(
        self, table: Table, user: User | None, public: bool, may_read: Callable[[str], bool] | None = None
    ) -> None:
        if public:
            check_public(table.declaration)
        self._table = table
        self._user = user
        self._public = public
        self._may_read = may_read
        self._views: dict[str, View | None] = {}

    def view(self, parent: str) -> View | None:
        """The rows of a parent; None if the reader may see none of them, or the parent does not exist."""
        if parent not in self._views:
            self._views[parent] = self._look(parent)
        return self._views[parent]

    def _look(self, parent: str) -> View | None:
        if self._may_read is not None and not self._may_read(parent):
            return None
        try:
            return self._table.view(parent, user=self._user, public=self._public)
        except TableError as error:
            if error.code != "NOT_FOUND":
                raise
            return None

    def shows(self, entry: FeedEntry) -> bool:
        """Whether the reader may know of the row that an entry is about."""
        view = self.view(entry.parent)
        return view is not None and view.shows(entry.author)

    def row(self, entry: FeedEntry) -> Row | None:
        """The row of an entry as it is now; None if it was removed, or if the reader may not see it."""
        view = self.view(entry.parent) if self.shows(entry) else None
        return None if view is None or entry.seq is None else view.row(entry.seq)

    def page(self, feed: Log, limit: int, before: int | None) -> TableFeedPage:
        """See :meth:`Table.feed`."""
        head = feed.head
        before = head + 1 if before is None else before
        rows: list[Row] = []
        scanned = size = 0
        is_done = False
        while len(rows) < limit and scanned < SCAN_ROWS and size < PAGE_BYTES and not is_done:
            page = feed.read_back(before, min(READ_ROWS, SCAN_ROWS))
            is_done = page.caught_up
            for seq, data in zip(reversed(page.seqs), reversed(page.data), strict=True):
                if len(rows) == limit or size > PAGE_BYTES:
                    is_done = False
                    break
                before, scanned = seq, scanned + 1
                entry = feed_entry_of(data)
                row = self.row(entry) if entry.op == "append" else None
                if row is not None:
                    rows.append(row)
                    size += len(data) + sum(len(value) for value in row.payload.values() if isinstance(value, str))
        return TableFeedPage(rows, is_done, None if is_done else str(before), str(head))


# --- opening --------------------------------------------------------------------------------------------------------


def open_feed(table: Table) -> None:
    """Create the feed of a table, with all existing rows in the order of their times, unless it exists.

    A feed that a crash left incomplete is made again. If the table is declared without feed, its feed is
    dropped: it would lack the rows that are appended from now on.
    """
    engine, name = table.tables.engine, feed_log(table.name)
    feed = engine.find(name)
    if feed is not None and TABLE not in feed.notes:
        raise BadDeclaration(f"the log {name!r} exists and does not belong to the table {table.name}; remove it")
    if feed is not None and table.declaration.feed and COMPLETE in feed.notes:
        return
    if feed is not None:
        feed.drop().wait()
    if not table.declaration.feed:
        return
    try:
        config = Config(durability=table.declaration.durability)
        feed = engine.create(name, config, notes=notes_of(table.declaration, name)).wait()
        count = _fill(table, feed)
        feed.note({COMPLETE: True}).wait()
    except QuotaExceeded as error:
        raise BadDeclaration(f"there is no room for the feed of {table.name}: {error}") from None
    if count:
        log.info("added %d rows to the feed of the table %r", count, table.name)


class _Existing(NamedTuple):
    """A row that was appended before there was a feed."""

    at: int
    parent: str
    seq: int
    author: str | None


def _fill(table: Table, feed: Log) -> int:
    parents = list(_parents(table))
    chunk = max(1, min(FILL_ROWS // max(len(parents), 1), FILL_BATCH))
    entries: list[FeedEntry] = []
    count = 0
    for row in merge(*(_existing(table, parent, chunk) for parent in parents)):
        entries.append(FeedEntry(op="append", parent=row.parent, seq=row.seq, author=row.author))
        if len(entries) == FILL_BATCH:
            count += _write(feed, entries)
            entries = []
    return count + (_write(feed, entries) if entries else 0)


def _write(feed: Log, entries: list[FeedEntry]) -> int:
    batch = feed_batch(entries)
    try:
        commit = feed.append(batch)
    except SealingBehind:
        feed.engine.seal()
        commit = feed.append(batch)
    commit.wait()
    return len(entries)


def _parents(table: Table) -> Iterator[str]:
    engine, prefix = table.tables.engine, rows_log(table.name, "")
    after = ""
    while names := engine.names(prefix, after, FILL_BATCH):
        for name in names:
            found = engine.find(name)
            if found is not None and TABLE in found.notes:
                yield name.removeprefix(prefix)
        after = names[-1]


def _existing(table: Table, parent: str, chunk: int) -> Iterator[_Existing]:
    """The rows of a parent in order, with those that can be restored. Times never go backwards in a log."""
    rows = table.tables.engine.log(rows_log(table.name, parent))
    hidden = hidden_ranges_of(rows)
    visible = _visible(rows, chunk)
    for seq, at, meta in merge(visible, _hidden(rows, hidden)) if hidden else visible:
        yield _Existing(at, parent, seq, author_in(meta))


def _visible(rows: Log, chunk: int) -> Iterator[tuple[int, int, bytes | None]]:
    after, caught_up = 0, False
    while not caught_up:
        page = rows.read(after, chunk, max_bytes=PAGE_BYTES)
        after, caught_up = page.next_after, page.caught_up
        found = list(zip(page.seqs, page.ts, page.metas, strict=True))
        del page  # its payloads are not needed
        yield from found


def _hidden(rows: Log, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int, bytes | None]]:
    for first, last in ranges:
        for seq in range(first, last + 1):
            record = rows.read_hidden(seq)
            if record is not None:
                yield record.seq, record.ts, record.meta
