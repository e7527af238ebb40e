"""Which records are still there, of those that an index has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strandline.query.chunk import Chunk
from strandline.query.columns import Mask

#: Seqs from the first to the last of each; ascending.
Ranges = Sequence[tuple[int, int]]


def is_inside(seqs: npt.NDArray[np.int64], ranges: Ranges) -> Mask:
    """Which of the seqs are in one of the ranges."""
    if not ranges:
        return np.zeros(len(seqs), np.bool_)
    bounds = np.array(ranges, np.int64)
    # The range that each could be in is the last that begins before it.
    at = np.searchsorted(bounds[:, 0], seqs, "right") - 1
    return np.asarray((at >= 0) & (bounds[at, 1] >= seqs), np.bool_)


def what_stands(chunk: Chunk, ranges: Ranges) -> Chunk | None:
    """The chunk without the records outside of the ranges; None if that leaves nothing."""
    if len(chunk) and any(first <= chunk.first and chunk.last <= last for first, last in ranges):
        return chunk.without(None)
    gone = ~is_inside(chunk.seqs, ranges)
    return None if gone.all() else chunk.without(gone)
