"""A filter that knows when: for every key, the last generation in which it may have been touched.

A Bloom filter whose cells hold generations instead of bits. A key sets ``k`` cells to the generation it is touched in,
and was touched after a generation only if all of its cells say a later one. So it may say yes too often, and never no.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

#: From so many keys on it is quicker to ask for all of them at once.
_MANY = 24
#: Spreads the 32 bits of a key over 64, of which the halves are the start and the step of its cells.
_SPREAD = 0x9E3779B97F4A7C15
_MASK64 = (1 << 64) - 1
_MASK32 = (1 << 32) - 1


class Filter:
    """``size`` cells of 4 bytes. Memory is taken only where cells are set."""

    __slots__ = ("_array", "_cells", "_mask", "k", "size")

    def __init__(self, pow2: int, k: int) -> None:
        self.size = 1 << pow2
        self.k = k
        self._mask = self.size - 1
        self._array = np.zeros(self.size, dtype=np.uint32)
        #: The same memory; single cells are read faster this way.
        self._cells = self._array.data

    @property
    def nbytes(self) -> int:
        return int(self._array.nbytes)

    def set(self, ids: Collection[int], generation: int) -> None:
        """The keys are touched in this generation, which is later than all before."""
        if ids:
            self._array[self._positions(ids)] = generation

    def touched_after(self, ids: Collection[int], generation: int) -> bool:
        """Whether any of the keys may have been touched in a later generation."""
        if len(ids) >= _MANY:
            return bool((self._array[self._positions(ids)] > generation).all(axis=0).any())
        cells, mask, k = self._cells, self._mask, self.k
        for key in ids:
            spread = key * _SPREAD & _MASK64
            at, step = spread >> 32, spread & _MASK32 | 1
            for _ in range(k):
                if cells[at & mask] <= generation:
                    break
                at += step
            else:
                return True
        return False

    def _positions(self, ids: Collection[int]) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
        """The cells of the keys: one row for each of the k."""
        spread = np.fromiter(ids, dtype=np.uint64, count=len(ids)) * np.uint64(_SPREAD)
        start, step = spread >> np.uint64(32), spread & np.uint64(_MASK32) | np.uint64(1)
        times = np.arange(self.k, dtype=np.uint64)[:, None]
        return (start[None, :] + times * step[None, :]) & np.uint64(self._mask)
