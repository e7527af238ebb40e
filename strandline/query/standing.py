"""Which records are still there, of those that an index has."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from strandline.query.chunk import Chunk
from strandline.query.columns import Mask

#: So many ranges are gone through one by one.
_FEW = 64

#: Seqs from the first to the last of each; ascending.
Ranges = Sequence[tuple[int, int]]

_first, _last = itemgetter(0), itemgetter(1)


def is_inside(seqs: npt.NDArray[np.int64], ranges: Ranges) -> Mask:
    """Which of the seqs, which ascend, are in one of the ranges."""
    if not ranges:
        return np.zeros(len(seqs), np.bool_)
    bounds = np.array(ranges, np.int64)
    lows = np.searchsorted(seqs, bounds[:, 0])
    highs = np.searchsorted(seqs, bounds[:, 1], "right")
    inside = np.zeros(len(seqs), np.bool_)
    if len(ranges) < _FEW:
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            inside[low:high] = True
        return inside
    # One more is inside from each low on, and one less from each high on.
    turns = np.bincount(lows, minlength=len(seqs) + 1) - np.bincount(highs, minlength=len(seqs) + 1)
    return np.asarray(np.cumsum(turns[:-1]) > 0, np.bool_)


def within(ranges: Ranges, first: int, last: int) -> Ranges:
    """What of the ranges is between two seqs."""
    start = bisect_left(ranges, first, key=_last)
    end = bisect_right(ranges, last, key=_first)
    return [(max(low, first), min(high, last)) for low, high in ranges[start:end]]


def what_stands(chunk: Chunk, ranges: Ranges) -> Chunk | None:
    """The chunk without the records outside of the ranges; None if that leaves nothing."""
    near = within(ranges, chunk.first, chunk.last)
    if near == [(chunk.first, chunk.last)]:
        return chunk.without(None)
    inside = is_inside(chunk.seqs, near)
    return chunk.without(~inside) if inside.any() else None
