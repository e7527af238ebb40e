"""A set of seqs stored as sorted, disjoint, inclusive ranges: small if many members are adjacent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


class SeqRanges:
    """Takes about 16 bytes per *range*, not per seq. Every lookup is a binary search."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    @property
    def last(self) -> int:
        """The highest member; 0 if there is none."""
        return self._lasts[-1] if self._lasts else 0

    def __len__(self) -> int:
        """Return the number of ranges (not of seqs)."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SeqRanges):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    def __repr__(self) -> str:
        return f"SeqRanges({list(self)})"

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._firsts, seq) - 1
        return at >= 0 and seq <= self._lasts[at]

    def copy(self) -> SeqRanges:
        twin = SeqRanges()
        twin._firsts = self._firsts.copy()
        twin._lasts = self._lasts.copy()
        return twin

    def add(self, first: int, last: int) -> None:
        """Add ``first`` to ``last``, both included, and join adjacent ranges."""
        lasts = self._lasts
        if not lasts or first > lasts[-1] + 1:
            self._firsts.append(first)
            lasts.append(last)
            return
        low = bisect_left(lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, lasts[high - 1])
        self._firsts[low:high] = [first]
        lasts[low:high] = [last]

    def remove(self, first: int, last: int) -> None:
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last)
        if low >= high:
            return
        firsts, lasts = [], []
        if self._firsts[low] < first:
            firsts.append(self._firsts[low])
            lasts.append(first - 1)
        if self._lasts[high - 1] > last:
            firsts.append(last + 1)
            lasts.append(self._lasts[high - 1])
        self._firsts[low:high] = firsts
        self._lasts[low:high] = lasts

    def overlap(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the members within ``first`` to ``last``, as ranges."""
        at = bisect_left(self._lasts, first)
        while at < len(self._firsts) and self._firsts[at] <= last:
            yield max(first, self._firsts[at]), min(last, self._lasts[at])
            at += 1

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the seqs within ``first`` to ``last`` that are *not* members, as ranges."""
        for start, end in self.overlap(first, last):
            if start > first:
                yield first, start - 1
            first = end + 1
        if first <= last:
            yield first, last


def inside(seqs: NDArray[np.int64], ranges: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return which of the seqs are in one of the inclusive ranges. Neither needs to be in order."""
    if not ranges:
        return np.zeros(len(seqs), np.bool_)
    bounds = np.array(sorted(ranges), np.int64)
    # A seq is in one of the ranges that start before it if the farthest end of these ranges is not before it.
    ends = np.maximum.accumulate(bounds[:, 1])
    at = np.searchsorted(bounds[:, 0], seqs, "right") - 1
    return np.asarray((at >= 0) & (seqs <= ends[at]), np.bool_)
