"""The sealed records of a log, described so that another process can read them from the segment files.

:func:`sealed_rows` captures where the visible records of a range are. :func:`read_rows` reads them. A segment may have
been merged since: then reading raises MissingFile, and the caller captures again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from strandline.engine.disk import Disk
from strandline.engine.log import Log
from strandline.engine.reads.status import is_cold, sealed_through
from strandline.engine.segments.segment import Segment
from strandline.engine.segments.store import segment_path
from strandline.engine.state.forks import layers
from strandline.engine.state.parts import Run
from strandline.engine.state.ranges import inside


class SealedRows(msgspec.Struct, array_like=True, frozen=True):
    """The visible records from ``first`` to ``last`` of the log ``epoch`` in one segment: those in the inclusive ranges
    ``visible``. ``amended`` has the seqs with other data than in the segment."""

    segment: int
    size: int
    edges: int
    epoch: int
    first: int
    last: int
    visible: list[tuple[int, int]]
    amended: list[tuple[int, bytes]] = []


class RowRange(NamedTuple):
    """A range of seqs with at most ``rows`` records, of about ``size`` payload bytes. ``is_cold``: a part of it is in
    the cold tier."""

    first: int
    last: int
    rows: int
    size: int
    is_cold: bool


def sealed_ranges(log: Log, after: int = 0) -> list[RowRange]:
    """Return the ranges of the log with sealed records after the seq ``after``, ascending. Everything before the end of
    the last range is sealed or removed, also in the logs that a fork shares records with. Reads memory only."""
    with log.engine.lock:
        log.book.check_there()
        runs = list(_runs(log, after + 1, sealed_through(log)))
    found = []
    for _, run, first, last in runs:
        span = last - first + 1
        rows = min(run.rows, span)
        size = run.live_size * rows // max(run.rows, 1)
        found.append(RowRange(first, last, rows, size, is_cold(log, run.segment)))
    return found


def sealed_rows(log: Log, first: int, last: int) -> list[SealedRows]:
    """Capture the sealed, visible records between two seqs. Reads memory only."""
    store = log.engine.store
    found = []
    with log.engine.lock:
        log.book.check_there()
        for epoch, run, low, high in _runs(log, first, last):
            visible, amended = [(low, high)], []
            if run.overlay is not None:
                visible = list(run.overlay.visible(low, high))
                amended = [(seq, data) for seq, data in run.overlay.amended.items() if low <= seq <= high]
            about = store.describe(run.segment)
            found.append(SealedRows(run.segment, about.size, about.edges, epoch, low, high, visible, amended))
    return found


def _runs(log: Log, first: int, last: int) -> Iterator[tuple[int, Run, int, int]]:
    """Yield the runs that a reader sees between two seqs, with the epoch of their log, and the first and last seq that
    count in each."""
    for book, start, end in layers(log.book):
        low, high = max(start, book.earliest, first), min(end, last)
        for run in book.runs:
            if run.first <= high and run.last >= low:
                yield book.epoch, run, max(run.first, low), min(run.last, high)


#: Opens the segment of some rows.
OpenSegment = Callable[[SealedRows], Segment]


def open_on(disk: Disk) -> OpenSegment:
    """Open segments that are files on this disk."""

    def open_segment(rows: SealedRows) -> Segment:
        path = segment_path(rows.segment)
        return Segment.open(disk.local_path(path), path, rows.segment, rows.size, rows.edges)

    return open_segment


def read_rows(rows: SealedRows, open_segment: OpenSegment) -> Iterator[tuple[NDArray[np.int64], list[bytes]]]:
    """Yield the seqs and the payloads of the records, block by block. Raises DamagedFile and MissingFile."""
    segment = open_segment(rows)
    amended = dict(rows.amended)
    run = next((run for run in segment.runs if run.epoch == rows.epoch), None)
    if run is None:
        return
    row = segment.row_of(run.row, run.rows, run.first, rows.first)
    end = segment.row_of(run.row, run.rows, run.first, rows.last + 1)
    while row < end:
        number = segment.block_of(row)
        block = segment.blocks[number]
        count = min(end, block.row + block.rows) - row
        seq, data = segment.batch(number, ("seq", "data")).slice(row - block.row, count).columns
        row += count
        seqs = seq.to_numpy()
        chosen = np.flatnonzero(inside(seqs, rows.visible))
        if len(chosen):
            payloads: list[bytes] = (data if len(chosen) == count else data.take(chosen)).to_pylist()
            seqs = seqs[chosen]
            if amended:
                payloads = [amended.get(at, payload) for at, payload in zip(seqs.tolist(), payloads, strict=True)]
            yield seqs, payloads
