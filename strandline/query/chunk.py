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

#: From the id of a rollup and an interval in milliseconds to what all records of a chunk add up to, if that is known.
FindSums = Callable[[str, int], "Sums | None"]


class Chunk:
    """``seqs`` ascend; row ``i`` of every column is the record ``seqs[i]``. ``gone`` are rows that readers do not see
    any more, None: there are none. ``find_sums`` is there if it lies in a file and not in memory."""

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
        """The memory that it takes."""
        return int(self.seqs.nbytes) + sum(column.nbytes for column in self.columns.values())

    @property
    def first(self) -> int:
        return int(self.seqs[0])

    @property
    def last(self) -> int:
        return int(self.seqs[-1])

    def without(self, gone: Mask | None) -> Chunk:
        """The same records, of which these are gone."""
        return Chunk(self.seqs, self.columns, gone if gone is not None and gone.any() else None, self.find_sums)

    @property
    def is_from_file(self) -> bool:
        return self.find_sums is not None

    def sums(self, rollup: str, interval_ms: int) -> Sums | None:
        """What its records add up to, if that is known."""
        return self.find_sums(rollup, interval_ms) if self.find_sums is not None and self.gone is None else None

    def only(self, records: Mask) -> Chunk:
        """The marked records alone; nothing is left of the others."""
        columns = {name: column.only(records) for name, column in self.columns.items()}
        return Chunk(self.seqs[records], columns, None if self.gone is None else self.gone[records])


def join_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Consecutive chunks as one."""
    totals = [len(chunk) for chunk in chunks]
    columns = {name: join_columns([chunk.columns[name] for chunk in chunks], totals) for name in chunks[0].columns}
    gone = None
    if any(chunk.gone is not None for chunk in chunks):
        gone = np.concatenate(
            [np.zeros(len(chunk), np.bool_) if chunk.gone is None else chunk.gone for chunk in chunks]
        )
    return Chunk(np.concatenate([chunk.seqs for chunk in chunks]), columns, gone)


#: Seqs from the first to the last of each; ascending.
Ranges = Sequence[tuple[int, int]]

_first, _last = itemgetter(0), itemgetter(1)


def within(ranges: Ranges, first: int, last: int) -> Ranges:
    """What of the ranges is between two seqs."""
    start = bisect_left(ranges, first, key=_last)
    end = bisect_right(ranges, last, key=_first)
    return [(max(low, first), min(high, last)) for low, high in ranges[start:end]]


def live_part(chunk: Chunk, ranges: Ranges) -> Chunk | None:
    """The chunk without the records outside of the ranges; None if that leaves nothing."""
    near = within(ranges, chunk.first, chunk.last)
    if near == [(chunk.first, chunk.last)]:
        return chunk.without(None)
    live = inside(chunk.seqs, near)
    return chunk.without(~live) if live.any() else None
