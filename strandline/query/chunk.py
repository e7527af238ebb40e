"""A chunk: consecutive records of a log as columns. Chunks are immutable; larger chunks are made from smaller ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from strandline.engine.state.ranges import inside
from strandline.query.columns import AnyColumn, Mask, join_columns
from strandline.query.sums import Sums

#: Maps a rollup id and an interval in milliseconds to the sums over all records of a chunk, if they are known.
FindSums = Callable[[str, int], "Sums | None"]


class Chunk:
    """``seqs`` ascend; row ``i`` of every column is the record ``seqs[i]``. ``gone`` are rows that are no longer
    visible, or None. ``find_sums`` is set if the chunk is in a file instead of memory."""

    __slots__ = ("columns", "find_sums", "gone", "seqs")

    def __init__(
        self,
        seqs: npt.NDArray[np.int64],
        columns: Mapping[str, AnyColumn],
        gone: Mask | None = None,
        find_sums: FindSums | None = None,
    ) -> None:
        self.seqs = seqs
        self.columns = columns
        self.gone = gone
        self.find_sums = find_sums

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def nbytes(self) -> int:
        """The memory of the chunk."""
        return int(self.seqs.nbytes) + sum(column.nbytes for column in self.columns.values())

    @property
    def first(self) -> int:
        return int(self.seqs[0])

    @property
    def last(self) -> int:
        return int(self.seqs[-1])

    def without(self, gone: Mask | None) -> Chunk:
        """Return the same records with these rows marked as gone."""
        return Chunk(self.seqs, self.columns, gone if gone is not None and gone.any() else None, self.find_sums)

    @property
    def is_from_file(self) -> bool:
        return self.find_sums is not None

    def sums(self, rollup: str, interval_ms: int) -> Sums | None:
        """Return the sums over its records, if they are known."""
        return self.find_sums(rollup, interval_ms) if self.find_sums is not None and self.gone is None else None

    def only(self, records: Mask) -> Chunk:
        """Return only the marked records, without any data of the others."""
        columns = {name: column.only(records) for name, column in self.columns.items()}
        return Chunk(self.seqs[records], columns, None if self.gone is None else self.gone[records])


def join_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Join consecutive chunks into one."""
    totals = [len(chunk) for chunk in chunks]
    columns = {name: join_columns([chunk.columns[name] for chunk in chunks], totals) for name in chunks[0].columns}
    gone = None
    if any(chunk.gone is not None for chunk in chunks):
        gone = np.concatenate(
            [np.zeros(len(chunk), np.bool_) if chunk.gone is None else chunk.gone for chunk in chunks]
        )
    return Chunk(np.concatenate([chunk.seqs for chunk in chunks]), columns, gone)


#: Ascending ranges of seqs, both ends included.
Ranges = Sequence[tuple[int, int]]

_first, _last = itemgetter(0), itemgetter(1)


def within(ranges: Ranges, first: int, last: int) -> Ranges:
    """Return the parts of the ranges between two seqs."""
    start = bisect_left(ranges, first, key=_last)
    end = bisect_right(ranges, last, key=_first)
    return [(max(low, first), min(high, last)) for low, high in ranges[start:end]]


def live_part(chunk: Chunk, ranges: Ranges) -> Chunk | None:
    """Return the chunk without the records outside of the ranges; None if no record is left."""
    near = within(ranges, chunk.first, chunk.last)
    if near == [(chunk.first, chunk.last)]:
        return chunk.without(None)
    live = inside(chunk.seqs, near)
    return chunk.without(~live) if live.any() else None
