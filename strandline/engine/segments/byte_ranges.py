"""The positions of the bytes of rows. Sealing sorts these positions and copies every payload only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from strandline.arrow import pa, pc
from strandline.engine.segments.writer import Codes, Ints, Strings

#: The source of replacement values, which are not in any file.
GIVEN = -1


class Pieces:
    """A column of byte strings, each a range of one of several numbered sources. A length of -1 means no value.

    ``load`` returns the bytes of a source. Every ``join`` calls it again, so that the sources need not all be in memory
    at once.
    """

    __slots__ = ("_given", "lengths", "load", "sources", "starts")

    def __init__(self, load: Callable[[int], bytes], sources: NDArray[np.int32], starts: Ints, lengths: Ints) -> None:
        self.load = load
        self.sources = sources
        self.starts = starts
        self.lengths = lengths
        self._given = b""

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def concatenate(cls, parts: Sequence[Pieces]) -> Pieces:
        """Concatenate columns over the same sources."""
        return cls(
            parts[0].load,
            np.concatenate([part.sources for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )

    def take(self, index: NDArray[Any]) -> Pieces:
        return Pieces(self.load, self.sources[index], self.starts[index], self.lengths[index])

    def replace(self, rows: Ints, values: Sequence[bytes]) -> None:
        """Replace the values of these rows. May be called once."""
        lengths = np.array([len(value) for value in values], np.int64)
        self.sources[rows] = GIVEN
        self.starts[rows] = np.cumsum(lengths) - lengths
        self.lengths[rows] = lengths
        self._given = b"".join(values)

    def join(self, start: int, end: int) -> bytes:
        """Return the values of the rows from ``start`` to before ``end``, concatenated."""
        sources, starts = self.sources[start:end], self.starts[start:end]
        if not len(starts):
            return b""
        ends = starts + np.maximum(self.lengths[start:end], 0)
        # Adjacent values in one source are copied as one, usually a whole frame at a time.
        breaks = np.flatnonzero((starts[1:] != ends[:-1]) | (sources[1:] != sources[:-1]))
        lows = starts[np.concatenate(([0], breaks + 1))]
        highs = ends[np.concatenate((breaks, [len(ends) - 1]))]
        stretches = sources[np.concatenate(([0], breaks + 1))]
        views = {
            source: self._given if source == GIVEN else self.load(source) for source in np.unique(stretches).tolist()
        }
        # Slice bytes, not a memoryview: for small slices this is four times as fast.
        pieces = zip(stretches.tolist(), lows.tolist(), highs.tolist(), strict=True)
        return b"".join([views[source][low:high] for source, low, high in pieces])

    def strings(self) -> Strings:
        """Return the values, which are text, as a sorted dictionary and codes."""
        present = np.flatnonzero(self.lengths >= 0)
        offsets = np.zeros(len(present) + 1, np.int32)
        np.cumsum(self.lengths[present], out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.join(0, len(self)))]
        codes = np.full(len(self), -1, np.int32)
        codes[present] = np.arange(len(present))
        return sorted_strings(codes, pa.Array.from_buffers(pa.utf8(), len(present), buffers))


def sorted_strings(codes: Codes, values: Any) -> Strings:
    """Convert codes into any values to codes into the sorted values, without duplicates and unused values.

    Unused values are removed because the key of a deleted record must not stay in a dictionary.
    """
    used = np.zeros(len(values), bool)
    used[codes[codes >= 0]] = True
    encoded = values.filter(pa.array(used)).dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    # One entry more than there are values, so that code -1 maps to -1.
    recoded = np.full(len(values) + 1, -1, np.int32)
    recoded[:-1][used] = rank[encoded.indices.to_numpy()]
    return Strings(recoded[codes], encoded.dictionary.take(pa.array(order)))


class Rows(NamedTuple):
    """Rows of several logs, in any order. ``ranks`` has the log of each row, as numbered by the caller."""

    ranks: Codes
    seqs: Ints
    ts: Ints
    keys: Pieces | Strings
    nodes: Pieces | Strings
    metas: Pieces
    data: Pieces


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Concatenate the rows of journal files."""
    columns = zip(*parts, strict=True)
    ranks, seqs, ts = (np.concatenate(next(columns)) for _ in range(3))
    keys, nodes, metas, data = (Pieces.concatenate(column) for column in columns)
    return Rows(ranks, seqs, ts, keys, nodes, metas, data)
