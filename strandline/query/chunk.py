"""A chunk: consecutive records of a log as columns. Chunks are immutable; larger chunks are made from smaller ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from strandline.engine.state.ranges import inside
from strandline.query.columns import AnyColumn, Mask, Numbers, join_columns
from strandline.query.sums import Sums

#: Maps a rollup id and an interval in milliseconds to the sums over all records of a chunk, if they are known.
FindSums = Callable[[str, int], "Sums | None"]


class Seqs:
    """Ascending seqs, as ranges without gaps: range ``i`` starts with the seq ``firsts[i]`` at the row ``places[i]``.
    Most chunks have one range, which takes no memory for each record."""

    __slots__ = ("count", "firsts", "places")

    def __init__(self, firsts: Numbers, places: Numbers, count: int) -> None:
        self.firsts = firsts
        self.places = places
        self.count = count

    @classmethod
    def of(cls, seqs: npt.NDArray[np.int64]) -> Seqs:
        """Return these seqs as ranges."""
        places = np.flatnonzero(np.diff(seqs, prepend=seqs[0] - 2) != 1) if len(seqs) else np.empty(0, np.int64)
        return cls(seqs[places], places, len(seqs))

    @property
    def nbytes(self) -> int:
        return int(self.firsts.nbytes + self.places.nbytes)

    @property
    def first(self) -> int:
        return int(self.firsts[0])

    @property
    def last(self) -> int:
        return int(self.firsts[-1]) + self.count - 1 - int(self.places[-1])

    def at(self, rows: Numbers) -> npt.NDArray[np.int64]:
        """Return the seqs of these rows."""
        if len(self.firsts) == 1:
            return np.asarray(rows.astype(np.int64) + self.firsts[0])
        ranges = np.searchsorted(self.places, rows, "right") - 1
        return np.asarray(self.firsts[ranges] - self.places[ranges] + rows)

    def up_to(self, seq: int) -> int:
        """Return the number of seqs up to this one."""
        at = int(np.searchsorted(self.firsts, seq, "right")) - 1
        if at < 0:
            return 0
        end = int(self.places[at + 1]) if at + 1 < len(self.places) else self.count
        return min(int(self.places[at]) + seq - int(self.firsts[at]) + 1, end)

    def all(self) -> npt.NDArray[np.int64]:
        """Return all seqs."""
        lengths = np.diff(np.append(self.places, self.count))
        return np.repeat(self.firsts - self.places, lengths) + np.arange(self.count)


class Chunk:
    """Row ``i`` of every column is the record with the ``i``-th seq. ``gone`` are rows that are no longer visible, or
    None. ``find_sums`` is set if the chunk is in a file instead of memory."""

    __slots__ = ("columns", "find_sums", "gone", "ranges")

    def __init__(
        self,
        seqs: npt.NDArray[np.int64] | Seqs,
        columns: Mapping[str, AnyColumn],
        gone: Mask | None = None,
        find_sums: FindSums | None = None,
    ) -> None:
        #: The seqs, as ranges.
        self.ranges = seqs if isinstance(seqs, Seqs) else Seqs.of(seqs)
        self.columns = columns
        self.gone = gone
        self.find_sums = find_sums

    def __len__(self) -> int:
        return self.ranges.count

    @property
    def seqs(self) -> npt.NDArray[np.int64]:
        """All seqs, ascending. Holds 8 bytes a record while it is used."""
        return self.ranges.all()

    @property
    def nbytes(self) -> int:
        """The memory of the chunk."""
        return self.ranges.nbytes + sum(column.nbytes for column in self.columns.values())

    @property
    def first(self) -> int:
        return self.ranges.first

    @property
    def last(self) -> int:
        return self.ranges.last

    def without(self, gone: Mask | None) -> Chunk:
        """Return the same records with these rows marked as gone."""
        return Chunk(self.ranges, self.columns, gone if gone is not None and gone.any() else None, self.find_sums)

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
