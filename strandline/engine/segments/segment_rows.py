"""The records of whole segments as arrays: where everything lies, for merging."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.engine.machine_memory import memory_limit
from strandline.engine.segments.byte_ranges import Pieces, Rows
from strandline.engine.segments.footer import RunInfo
from strandline.engine.segments.segment import ROW_COLUMNS, Segment
from strandline.engine.segments.writer import Codes, Ints, Strings

#: Up to this much decompressed data is kept in memory. What a larger merge has beyond it is decompressed twice.
MEMORY_BYTES = 256 << 20
#: And at most this part of the memory that the process may use: a merge takes no more than sealing does.
MEMORY_SHARE = 8


def read_segments(
    segments: Sequence[Segment], rank_of: Callable[[RunInfo], int], without: Collection[tuple[int, int]] = ()
) -> Rows | None:
    """The records of the runs that ``rank_of`` gives a rank (-1: none); None when there are none.

    Blocks in ``without``, given as (id of the segment, number), are passed over.
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
    """Puts the dictionaries of several segments behind each other; duplicates are the writer's business."""

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
    """The metas and data of blocks, kept in memory as far as they fit and loaded again if not."""

    def __init__(self, segments: int) -> None:
        self._places: list[tuple[Segment, int]] = []
        self._kept: dict[int, _Content] = {}
        self._kept_bytes = 0
        self._kept_limit = min(MEMORY_BYTES, memory_limit() // MEMORY_SHARE)
        self._recent: OrderedDict[int, _Content] = OrderedDict()
        # The output walks through every segment from front to back: one block of each is wanted at a time,
        # two where the output's block reaches over an edge.
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
