"""Which index file of a log to write next, and which ones are no longer needed.

Files cover consecutive ranges. A file is built for at most ``MAX_BUILD_ROWS`` records, so that a job is short. Four
neighbours become one file, up to ``MAX_FILE_ROWS`` records, so that a long log has few files. None of them may be much
larger than the others, so that each record is copied a few times at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.engine.reads.sealed_rows import RowRange
from strandline.query import providers
from strandline.query.chunk import Ranges, within
from strandline.query.index_files.answers import Usable
from strandline.query.index_files.table import IndexEntry

#: A job of this size takes about half a second. Payloads may be large, so their bytes are limited too.
MAX_BUILD_ROWS = 65_536
MAX_BUILD_BYTES = 64 << 20
#: Merging takes memory of about 13 times the resulting file.
MAX_FILE_ROWS = 1 << 18
MAX_FILE_BYTES = 32 << 20
#: This number of neighbouring files is merged into one; fewer if they are a full file.
MERGE_FILES = 4
#: The largest of them has at most this share of their records.
MAX_MERGED_SHARE = 2 / 3
#: A file with a smaller share of visible records than this is rewritten without the others.
MIN_LIVE = 0.5
#: A file with more rewritten records than this is built again.
REBUILD_REWRITTEN = 256


class Build(NamedTuple):
    """Index the records from ``first`` to ``last``. ``is_cold``: some of them are in the cold tier."""

    first: int
    last: int
    rows: int
    is_cold: bool


class Join(NamedTuple):
    """Make one file of these, without the old values of records that were rewritten since."""

    entries: tuple[IndexEntry, ...]
    rewritten: tuple[int, ...] = ()


def _join(files: Sequence[Usable]) -> Join:
    return Join(tuple(file.entry for file in files), tuple(seq for file in files for seq in file.rewritten))


class IndexPlanning(NamedTuple):
    """The next step for a log; None if its index files are complete. ``useless`` files can be removed."""

    step: Build | Join | None
    useless: tuple[IndexEntry, ...]


def plan_next(
    sealed: Sequence[RowRange],
    listed: Sequence[IndexEntry],
    usable: Sequence[Usable],
    lake: Sequence[tuple[int, int]],
    live: Ranges,
    rollups: str,
    unreadable: Sequence[tuple[int, int]] = (),
) -> IndexPlanning:
    """Plan the index files of a log. ``sealed`` are its sealed records, ``listed`` all of its index files, ``usable``
    the valid ones among them. ``lake`` are the ranges that index files of the lake cover, ``live`` the visible seqs,
    and ``unreadable`` the ranges that could not be indexed."""
    current, useless = _sort_out(listed, usable, sealed, lake, rollups)
    covered = [(file.first, file.last) for file in current]
    cold = [(part.first, part.last) for part in sealed if part.is_cold]
    # The cold tier is slow, and the lake is the place for its indexes.
    away = [inner for first, last in lake for inner in within(cold, first, last)]
    left_out = sorted([*covered, *away, *unreadable])
    missing = list(uncovered(sealed, left_out))
    # Requests index a few records themselves.
    if sum(part.rows for part in missing) >= providers.MIN_FILE_ROWS:
        return IndexPlanning(_build(missing, left_out), tuple(useless))
    return IndexPlanning(_renewal(current, rollups, live, cold) or _merge(current), tuple(useless))


def _sort_out(
    listed: Sequence[IndexEntry],
    usable: Sequence[Usable],
    sealed: Sequence[RowRange],
    lake: Sequence[tuple[int, int]],
    rollups: str,
) -> tuple[list[Usable], list[IndexEntry]]:
    """Return the files that count, in order and without overlaps, and those that do not."""
    earliest = sealed[0].first if sealed else None
    hot = min((part.first for part in sealed if not part.is_cold), default=None)
    current: list[Usable] = []

    def merit(file: Usable) -> tuple[int, int, bool, int, int]:
        """Sorts the best file first among those of the same range. The last one written has the fewest records."""
        info = file.entry.info
        return file.first, -file.last, info.rollups != rollups, len(file.rewritten), info.records

    for file in sorted(usable, key=merit):
        is_gone = earliest is None or file.last < earliest
        is_cold = hot is not None and file.last < hot and any(a <= file.first and file.last <= b for a, b in lake)
        is_inside = bool(current) and file.last <= current[-1].last
        if not (is_gone or is_cold or is_inside):
            current.append(file)
    kept = {file.entry.path for file in current}
    return current, [entry for entry in listed if entry.path not in kept]


def uncovered(sealed: Sequence[RowRange], covered: Sequence[tuple[int, int]]) -> Iterator[RowRange]:
    """Yield the parts of the sealed ranges outside of the covered ones."""
    for part in sealed:
        at = part.first
        for first, last in within(covered, part.first, part.last):
            if first > at:
                yield _cut(part, at, first - 1)
            at = max(at, last + 1)
        if at <= part.last:
            yield _cut(part, at, part.last)


def _cut(part: RowRange, first: int, last: int) -> RowRange:
    rows = min(part.rows, last - first + 1)
    return RowRange(first, last, rows, part.size * rows // max(part.rows, 1), part.is_cold)


def _build(missing: Sequence[RowRange], left_out: Sequence[tuple[int, int]]) -> Build:
    """Return the first range to index. It begins where the range before it ends, so that the files can be merged."""
    start = missing[0].first
    before = max((last for _, last in left_out if last < start), default=0)
    end = min((first for first, _ in left_out if first > start), default=None)
    rows = size = 0
    last, is_cold = start, False
    for part in missing:
        if end is not None and part.first >= end:
            break
        room = min(MAX_BUILD_ROWS - rows, (MAX_BUILD_BYTES - size) * max(part.rows, 1) // max(part.size, 1))
        if rows and room <= 0:
            break
        taken = min(part.rows, max(room, 1))
        is_cold = is_cold or part.is_cold
        rows, size = rows + taken, size + part.size * taken // max(part.rows, 1)
        if taken < part.rows:
            # There are at most as many records as seqs.
            last = part.first + taken - 1
            break
        last = part.last
    return Build(before + 1, last, rows, is_cold)


def _renewal(current: Sequence[Usable], rollups: str, live: Ranges, cold: Ranges) -> Build | Join | None:
    """Return a step for a file that must be written again: its rollups are not current, too many of its records were
    rewritten, or most of them are gone."""
    for file in current:
        info = file.entry.info
        if len(file.rewritten) > REBUILD_REWRITTEN:
            return Build(info.first, info.last, info.records, bool(within(cold, info.first, info.last)))
        if info.rollups != rollups:
            return _join([file])
        visible = sum(last - first + 1 for first, last in within(live, info.first, info.last))
        if visible < info.records * MIN_LIVE:
            return _join([file])
    return None


def _merge(current: Sequence[Usable]) -> Join | None:
    for at in range(len(current)):
        group, is_full = _neighbours(current[at : at + MERGE_FILES])
        records = [file.entry.info.records for file in group]
        is_enough = len(group) == MERGE_FILES or (is_full and len(group) > 1)
        if is_enough and max(records) <= sum(records) * MAX_MERGED_SHARE:
            return _join(group)
    return None


def _neighbours(files: Sequence[Usable]) -> tuple[Sequence[Usable], bool]:
    """Return the first of these files, as many as can be merged, and whether the next one has no room in the merged
    file."""
    rows = size = 0
    for at, file in enumerate(files):
        if at and files[at - 1].last + 1 != file.first:
            return files[:at], False
        rows, size = rows + file.entry.info.records, size + file.entry.size
        if rows > MAX_FILE_ROWS or size > MAX_FILE_BYTES:
            return files[:at], True
    return files, False
