"""Counting rows by a field, and grouping them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from strandline.engine import Log
from strandline.tables.columns import USER, Snapshot, text_of
from strandline.tables.errors import TableError, invalid
from strandline.tables.names import RowId
from strandline.tables.results import Counts
from strandline.tables.rows import Row
from strandline.tables.step import read_row

if TYPE_CHECKING:
    from strandline.tables.table import Table
    from strandline.tables.view import View

#: Groups have no more rows than this, together.
MAX_GROUPED = 10_000


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
            f"the groups of {by} have {total} rows together, the limit is {MAX_GROUPED}: ask for fewer", "limit"
        )
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        chosen += seqs[order[max(start, end - limit) : end]].tolist()
    groups: dict[str, list[Row]] = {}
    # Ascending, so that nothing is fetched from the disk twice; then the newest first.
    rows = [row for seq in sorted(chosen) if (row := read_row(view.log, RowId(view.parent, seq))) is not None]
    for row in reversed(view.dress(rows)):
        if view.shows(row):
            value = row.user or "" if field == USER else text_of(row.payload.get(field))
            groups.setdefault(value, []).append(row)
    return groups


def _field(table: Table, by: object) -> str:
    if by == "userId":
        return USER
    fields = table.declaration.schema.fields
    if type(by) is not str or not by or (fields is not None and by not in fields):
        raise invalid(f"{table.name} has no field {by!r} to go by", "by")
    return by


def _column_counts(table: Table, log: Log, parent: str, field: str) -> dict[str, int]:
    columns = table.tables.columns
    try:
        return columns.column(log, field).counts(table.changes_log(parent))
    except TableError:
        columns.forget(log, field)
        raise


def _seen(table: Table, view: View, log: Log, field: str) -> Snapshot:
    """What the reader sees of a column."""
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
    return Snapshot(seqs, codes, values)
