"""Sealing and merging: complete journal files become a segment, and several segments become one.

Both jobs locate the bytes of every row, select and order the surviving rows, and let the segment writer gather their
bytes. They work on arrays, never record by record.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from strandline.arrow import pa
from strandline.engine.disk import Disk
from strandline.engine.process import memory_limit
from strandline.engine.segments.byte_ranges import Pieces, Rows, sorted_strings
from strandline.engine.segments.footer import RunInfo, SegmentInfo
from strandline.engine.segments.journal_rows import read_journals
from strandline.engine.segments.segment import ROW_COLUMNS, Segment
from strandline.engine.segments.writer import Codes, Ints, SegmentColumns, SegmentRun, Strings, write_segment
from strandline.engine.state.ranges import inside

#: The maximum decompressed data held in memory. Data beyond it is decompressed twice in a larger merge.
MEMORY_BYTES = 256 << 20
#: The data in memory is also limited to the process's memory divided by this number, so that a merge takes no more than
#: sealing.
MEMORY_SHARE = 8


def read_segments(
    segments: Sequence[Segment], rank_of: Callable[[RunInfo], int], without: Collection[tuple[int, int]] = ()
) -> Rows | None:
    """Return the records of the runs that ``rank_of`` gives a rank (-1: none), or None if there are none.

    Blocks in ``without``, given as (segment id, block number), are skipped.
    """
    contents = _Contents(len(segments))
    keys, nodes = _Dictionaries(), _Dictionaries()
    parts: list[Rows] = []
    for segment in segments:
        ranks = np.repeat(
            np.array([rank_of(run) for run in segment.runs], np.int32), [run.rows for run in segment.runs]
        )
        for index, block in enumerate(segment.blocks):
            here = ranks[block.row : block.row + block.rows]
            if (here < 0).all() or (segment.id, index) in without:
                continue
            seq, ts, key, node, meta, data = segment.batch(index, ROW_COLUMNS).columns
            source = contents.add(segment, index, meta, data)
            chosen = np.flatnonzero(here >= 0)
            parts.append(
                Rows(
                    here[chosen],
                    seq.to_numpy()[chosen],
                    ts.view(pa.int64()).to_numpy()[chosen],
                    keys.add(segment, key, chosen),
                    nodes.add(segment, node, chosen),
                    _pieces(contents.metas, source, meta).take(chosen),
                    _pieces(contents.data, source, data).take(chosen),
                )
            )
    if not parts:
        return None
    ranks, seqs, times = (np.concatenate([part[column] for part in parts]) for column in range(3))
    return Rows(
        ranks,
        seqs,
        times,
        keys.join([part.keys for part in parts]),
        nodes.join([part.nodes for part in parts]),
        Pieces.concatenate([part.metas for part in parts]),
        Pieces.concatenate([part.data for part in parts]),
    )


class _Dictionaries:
    """Concatenates the dictionaries of several segments. The writer removes duplicates."""

    def __init__(self) -> None:
        self._dictionaries: list[Any] = []
        self._bases: dict[int, int] = {}
        self._size = 0

    def add(self, segment: Segment, column: Any, chosen: NDArray[np.int64]) -> Strings:
        base = self._bases.get(id(segment))
        if base is None:
            base = self._bases[id(segment)] = self._size
            self._dictionaries.append(column.dictionary)
            self._size += len(column.dictionary)
        codes: Codes = column.indices.fill_null(-1).to_numpy()[chosen]
        return Strings(np.where(codes < 0, -1, codes + base).astype(np.int32), None)

    def join(self, columns: Sequence[Pieces | Strings]) -> Strings:
        codes = [column.codes for column in columns if isinstance(column, Strings)]
        return Strings(np.concatenate(codes), pa.concat_arrays(self._dictionaries))


class _Content(NamedTuple):
    metas: bytes
    data: bytes


class _Contents:
    """The metas and data of blocks. They stay in memory as far as they fit and are loaded again otherwise."""

    def __init__(self, segments: int) -> None:
        self._places: list[tuple[Segment, int]] = []
        self._kept: dict[int, _Content] = {}
        self._kept_bytes = 0
        self._kept_limit = min(MEMORY_BYTES, memory_limit() // MEMORY_SHARE)
        self._recent: OrderedDict[int, _Content] = OrderedDict()
        # The output reads every segment from start to end, so it needs one block of each at a time, or two at the
        # boundary of an output block.
        self._recent_limit = 2 * segments

    def add(self, segment: Segment, index: int, meta: Any, data: Any) -> int:
        source = len(self._places)
        self._places.append((segment, index))
        content = _Content(_values(meta), _values(data))
        size = len(content.metas) + len(content.data)
        if self._kept_bytes + size <= self._kept_limit:
            self._kept[source] = content
            self._kept_bytes += size
        return source

    def metas(self, source: int) -> bytes:
        return self._content(source).metas

    def data(self, source: int) -> bytes:
        return self._content(source).data

    def _content(self, source: int) -> _Content:
        content = self._kept.get(source) or self._recent.get(source)
        if content is None:
            segment, index = self._places[source]
            batch = segment.batch(index, ("meta", "data"))
            content = self._recent[source] = _Content(*map(_values, batch.columns))
            if len(self._recent) > self._recent_limit:
                self._recent.popitem(last=False)
        return content


def _values(column: Any) -> bytes:
    buffer = column.buffers()[2]
    return b"" if buffer is None else bytes(buffer)


def _pieces(load: Callable[[int], bytes], source: int, column: Any) -> Pieces:
    offsets: Ints = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1).astype(np.int64)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[~column.is_valid().to_numpy(zero_copy_only=False)] = -1
    return Pieces(load, np.full(len(column), source, np.int32), offsets[:-1], lengths)


class Keep(msgspec.Struct, array_like=True, frozen=True):
    """The surviving rows of a log: the seqs from ``first`` on that are not in one of the inclusive ``dead`` ranges.

    ``amended`` has the seqs with new data. All rows of a log (an epoch) without a Keep are dropped.
    """

    epoch: int
    name: str
    first: int
    dead: list[tuple[int, int]] = []
    amended: list[tuple[int, bytes]] = []


class SealJob(msgspec.Struct, array_like=True, frozen=True, tag="seal"):
    """Make segment ``id`` at ``path`` from these journal files."""

    id: int
    path: str
    journals: list[str]
    keep: list[Keep]


class MergeJob(msgspec.Struct, array_like=True, frozen=True, tag="merge"):
    """Make segment ``id`` at ``path`` from these segments, given as (path, id, size, edges).

    The runs of an earlier source have lower seqs than those of the same log in a later one. ``damaged`` has the
    unreadable blocks, as (source id, block number), whose rows are omitted.
    """

    id: int
    path: str
    sources: list[tuple[str, int, int, int]]
    keep: list[Keep]
    damaged: list[tuple[int, int]] = []


def run(disk: Disk, job: SealJob | MergeJob, target: Disk | None = None) -> SegmentInfo | None:
    """Run a job. The segment may be written to another disk than that of its sources.

    Returns None, and writes no file, if no row survives. Raises DamagedFile and similar errors, and OSError.
    """
    keep = sorted(job.keep, key=lambda log: (log.name, log.epoch))
    # Nested, so that the input is released from memory before writing starts.
    chosen = _choose(_read(disk, job, keep), keep)
    return None if chosen is None else write_segment(target or disk, job.path, job.id, *chosen)


def _read(disk: Disk, job: SealJob | MergeJob, keep: Sequence[Keep]) -> Rows | None:
    ranks = {log.epoch: rank for rank, log in enumerate(keep)}
    if isinstance(job, SealJob):
        return read_journals(disk, job.journals, ranks)
    return _read_sources(disk, job, keep, ranks)


def _choose(rows: Rows | None, keep: Sequence[Keep]) -> tuple[SegmentColumns, list[SegmentRun]] | None:
    """Return the surviving rows in the layout of a segment, or None if there are none."""
    if rows is None:
        return None
    chosen = _surviving(rows, keep)
    if not len(chosen):
        return None
    seqs, data = rows.seqs[chosen], rows.data.take(chosen)
    bounds = np.searchsorted(rows.ranks[chosen], np.arange(len(keep) + 1))
    _amend(data, seqs, bounds, keep)
    columns = SegmentColumns(
        seqs,
        rows.ts[chosen],
        _strings(rows.keys, chosen),
        _strings(rows.nodes, chosen),
        rows.metas.take(chosen),
        data,
    )
    runs = [
        SegmentRun(log.epoch, log.name, start, end - start)
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
    """Return the numbers of the surviving rows, in the order of (log, seq)."""
    order = np.argsort(rows.ranks, kind="stable")
    ranks, seqs = rows.ranks[order], rows.seqs[order]
    if ((ranks[1:] == ranks[:-1]) & (seqs[1:] <= seqs[:-1])).any():
        # Two records with the same seq should not exist. If they do, the one written first counts.
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
