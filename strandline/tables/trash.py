"""The trash of a parent: its removed rows that can be restored, with the time and the user of each removal."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from strandline.engine import Log
from strandline.engine.reads.status import hidden_ranges_of
from strandline.tables.rows import SWEEP, Change, Row, RowPage, author_in, change_of, removals_of, row_of
from strandline.tables.view import PAGE_BYTES, SCAN_ROWS

if TYPE_CHECKING:
    from strandline.tables.view import View

#: How many of the removals and restorations of all rows of a parent are considered: the latest ones.
MAX_SWEEPS = 10_000


def list_trash(view: View, changes: Log | None, limit: int, before: int | None) -> RowPage:
    """See :meth:`Table.trash`."""
    log = view.log
    if log is None:
        return RowPage([], True, None)
    rows: list[Row] = []
    scanned = size = 0
    last = before
    is_done = True
    for seq in _descending(hidden_ranges_of(log), before):
        if len(rows) == limit or scanned == SCAN_ROWS or size > PAGE_BYTES:
            is_done = False
            break
        last, scanned = seq, scanned + 1
        record = log.read_hidden(seq)
        if record is not None and view.shows(author_in(record.meta)):
            size += len(record.data)
            rows.append(row_of(view.parent, record))
    removals = Removals(changes)
    dressed = view.dress(removals.told(row) for row in rows)
    return RowPage(dressed, is_done, None if is_done else str(last))


def _descending(ranges: list[tuple[int, int]], before: int | None) -> Iterator[int]:
    for first, last in reversed(ranges):
        yield from range(last if before is None else min(last, before - 1), first - 1, -1)


class Removals:
    """Finds the removal of a hidden row among the changes of its parent. The sweeps, which are for all rows, are read
    once; a later purge reaches at least as many rows as an earlier one, so that a search finds the first one that
    reached a row."""

    def __init__(self, changes: Log | None) -> None:
        self._log = changes
        self._restored = 0
        self._purges: list[tuple[int, Change]] = []
        for at, change in deque(() if changes is None else _changes(changes, SWEEP), MAX_SWEEPS):
            if change.op == "restoreAll":
                self._restored = at
                self._purges.clear()
            else:
                self._purges.append((at, change))

    def told(self, row: Row) -> Row:
        """The row with its removal: the first one since the row was last restored. Removing it again has no effect."""
        if self._log is None:
            return row
        restored = self._restored
        removal: tuple[int, Change] | None = None
        for at, change in _changes(self._log, removals_of(row.seq)):
            if change.op == "restore":
                restored, removal = max(restored, at), None
            elif at > restored and removal is None:
                removal = at, change
        first = max(
            bisect_right(self._purges, restored, key=lambda purge: purge[0]),
            bisect_right(self._purges, row.seq, key=lambda purge: purge[1].before or 0),
        )
        if first < len(self._purges) and (removal is None or self._purges[first][0] < removal[0]):
            removal = self._purges[first]
        return row if removal is None else replace(row, deleted_at=removal[1].at, deleted_by=removal[1].user)


def _changes(log: Log, key: str) -> Iterator[tuple[int, Change]]:
    after, caught_up = 0, False
    while not caught_up:
        page = log.read(after, key=key)
        yield from zip(page.seqs, map(change_of, page.data), strict=True)
        after, caught_up = page.next_after, page.caught_up
