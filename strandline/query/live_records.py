"""Which records are still there, of those that an index has."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter

from strandline.engine.state.ranges import inside
from strandline.query.chunk import Chunk

#: Seqs from the first to the last of each; ascending.
Ranges = Sequence[tuple[int, int]]

_first, _last = itemgetter(0), itemgetter(1)


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
    standing = inside(chunk.seqs, near)
    return chunk.without(~standing) if standing.any() else None
