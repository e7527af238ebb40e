"""Sealing and merging: finished journal files become a segment, several segments become one.

Both find out where the bytes of every row lie, choose and order the rows that survive, and let the segment
writer gather their bytes. All of it works on arrays, never record by record.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from strandline.engine.disk import Disk
from strandline.engine.segments.byte_ranges import Pieces, Rows, sorted_strings
from strandline.engine.segments.footer import RunInfo, SegmentInfo
from strandline.engine.segments.journal_rows import read_journals
from strandline.engine.segments.segment import Segment
from strandline.engine.segments.segment_rows import read_segments
from strandline.engine.segments.writer import Columns, Ints, Run, Strings, write_segment
from strandline.engine.state.ranges import inside


class Keep(msgspec.Struct, array_like=True, frozen=True):
    """What survives of a log: the seqs from ``first`` on that are in none of the inclusive ``dead`` ranges.

    ``amended`` has the seqs that get other data. A log (an epoch) without a Keep is dropped whole.
    """

    epoch: int
    name: str
    first: int
    dead: list[tuple[int, int]] = []
    amended: list[tuple[int, bytes]] = []


class SealJob(msgspec.Struct, array_like=True, frozen=True, tag="seal"):
    """Make segment ``id`` at ``path`` of these journal files."""

    id: int
    path: str
    journals: list[str]
    keep: list[Keep]


class MergeJob(msgspec.Struct, array_like=True, frozen=True, tag="merge"):
    """Make segment ``id`` at ``path`` of these segments, given as (path, id, size, edges).

    The runs of an earlier source have lower seqs than those of the same log in a later one. ``damaged`` has the
    blocks, as (id of the source, number), that cannot be read: the rows in them are left out.
    """

    id: int
    path: str
    sources: list[tuple[str, int, int, int]]
    keep: list[Keep]
    damaged: list[tuple[int, int]] = []


def run(disk: Disk, job: SealJob | MergeJob, target: Disk | None = None) -> SegmentInfo | None:
    """Do a job; the segment may be written to another disk than that of its sources.

    None, and no file, when no row survives. Raises DamagedFile and the like, and OSError.
    """
    keep = sorted(job.keep, key=lambda log: (log.name, log.epoch))
    # Nested, so that what was read is gone from memory before the writing starts.
    chosen = _choose(_read(disk, job, keep), keep)
    return None if chosen is None else write_segment(target or disk, job.path, job.id, *chosen)


def _read(disk: Disk, job: SealJob | MergeJob, keep: Sequence[Keep]) -> Rows | None:
    ranks = {log.epoch: rank for rank, log in enumerate(keep)}
    if isinstance(job, SealJob):
        return read_journals(disk, job.journals, ranks)
    return _read_sources(disk, job, keep, ranks)


def _choose(rows: Rows | None, keep: Sequence[Keep]) -> tuple[Columns, list[Run]] | None:
    """The rows that survive, as a segment has them; None when there are none."""
    if rows is None:
        return None
    chosen = _surviving(rows, keep)
    if not len(chosen):
        return None
    seqs, data = rows.seqs[chosen], rows.data.take(chosen)
    bounds = np.searchsorted(rows.ranks[chosen], np.arange(len(keep) + 1))
    _amend(data, seqs, bounds, keep)
    columns = Columns(
        seqs,
        rows.ts[chosen],
        _strings(rows.keys, chosen),
        _strings(rows.nodes, chosen),
        rows.metas.take(chosen),
        data,
    )
    runs = [
        Run(log.epoch, log.name, start, end - start)
        for log, start, end in zip(keep, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        if start < end
    ]
    return columns, runs


def _read_sources(disk: Disk, job: MergeJob, keep: Sequence[Keep], ranks: dict[int, int]) -> Rows | None:
    def rank_of(run: RunInfo) -> int:
        rank = ranks.get(run.epoch, -1)
        return rank if rank >= 0 and run.last >= keep[rank].first else -1

    segments = [Segment.open(disk.local_path(path), path, id, size, edges) for path, id, size, edges in job.sources]
    return read_segments(segments, rank_of, set(job.damaged))


def _strings(column: Pieces | Strings, chosen: NDArray[np.int64]) -> Strings:
    if isinstance(column, Pieces):
        return column.take(chosen).strings()
    return sorted_strings(column.codes[chosen], column.values)


def _surviving(rows: Rows, keep: Sequence[Keep]) -> NDArray[np.int64]:
    """The numbers of the rows that survive, in the order of (log, seq)."""
    order = np.argsort(rows.ranks, kind="stable")
    ranks, seqs = rows.ranks[order], rows.seqs[order]
    if ((ranks[1:] == ranks[:-1]) & (seqs[1:] <= seqs[:-1])).any():
        # Of two records with one seq, which should not exist, the one that was written first counts.
        order = np.lexsort((rows.data.starts, rows.data.sources, rows.seqs, rows.ranks))
        ranks, seqs = rows.ranks[order], rows.seqs[order]
        single = np.ones(len(order), bool)
        single[1:] = (ranks[1:] != ranks[:-1]) | (seqs[1:] != seqs[:-1])
        order, ranks, seqs = order[single], ranks[single], seqs[single]
    alive = seqs >= np.array([log.first for log in keep], np.int64)[ranks]
    bounds = np.searchsorted(ranks, np.arange(len(keep) + 1)).tolist()
    for rank, log in enumerate(keep):
        if log.dead:
            here = slice(bounds[rank], bounds[rank + 1])
            alive[here] &= ~inside(seqs[here], log.dead)
    return order[alive]


def _amend(data: Pieces, seqs: Ints, bounds: Ints, keep: Sequence[Keep]) -> None:
    rows: list[int] = []
    values: list[bytes] = []
    for rank, log in enumerate(keep):
        start, end = int(bounds[rank]), int(bounds[rank + 1])
        if not log.amended or start == end:
            continue
        wanted = np.array([seq for seq, _ in log.amended], np.int64)
        places = np.minimum(start + np.searchsorted(seqs[start:end], wanted), end - 1)
        found = seqs[places] == wanted
        rows.extend(places[found].tolist())
        values.extend(value for (_, value), there in zip(log.amended, found.tolist(), strict=True) if there)
    if rows:
        data.replace(np.array(rows, np.int64), values)
