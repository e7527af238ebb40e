"""A selection: some of the records of a chunk, or some of the values of a column."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[Any]

#: If more than one in this many is selected, masks are combined faster than lists.
_DENSE = 16


class Selection:
    """Some of ``total`` records, given as a mask, or as ascending indexes without duplicates. Few records are better
    given by their indexes. Each form is made from the other one when it is needed."""

    __slots__ = ("_mask", "_rows", "total")

    def __init__(self, total: int, *, rows: Numbers | None = None, mask: Mask | None = None) -> None:
        assert rows is not None or mask is not None, "a selection needs indexes or a mask"
        self.total = total
        self._rows = rows
        self._mask = mask

    @classmethod
    def nothing(cls, total: int) -> Selection:
        return cls(total, rows=np.empty(0, np.int32))

    @property
    def rows(self) -> Numbers:
        """The ascending indexes."""
        if self._rows is None:
            assert self._mask is not None
            self._rows = np.flatnonzero(self._mask)
        return self._rows

    @property
    def mask(self) -> Mask:
        if self._mask is None:
            assert self._rows is not None
            self._mask = np.zeros(self.total, np.bool_)
            self._mask[self._rows] = True
        return self._mask

    def __len__(self) -> int:
        return int(np.count_nonzero(self.mask)) if self._rows is None else len(self._rows)

    @property
    def is_listed(self) -> bool:
        """Whether the indexes are known."""
        return self._rows is not None

    @property
    def is_sparse(self) -> bool:
        """Whether the indexes are known and few."""
        return self._rows is not None and len(self._rows) * _DENSE < self.total

    def __and__(self, other: Selection) -> Selection:
        few, many = (self, other) if self.is_sparse else (other, self)
        if not few.is_sparse:
            return Selection(self.total, mask=self.mask & other.mask)
        if many._mask is None and many.is_sparse:
            few, many = sorted((few, many), key=len)
            return Selection(self.total, rows=few.rows[is_among(few.rows, many.rows)])
        return Selection(self.total, rows=few.rows[many.mask[few.rows]])

    def __or__(self, other: Selection) -> Selection:
        if self.is_sparse and other.is_sparse:
            return Selection(self.total, rows=united(self.rows, other.rows))
        return Selection(self.total, mask=self.mask | other.mask)

    def __invert__(self) -> Selection:
        return Selection(self.total, mask=~self.mask)


def united(values: Numbers, others: Numbers) -> Numbers:
    """Return the numbers in either of two arrays, which ascend without duplicates. ``np.union1d`` hashes them, which is
    far slower."""
    both = np.sort(np.concatenate((values, others)))
    return both[np.flatnonzero(np.concatenate(([True], both[1:] != both[:-1])))] if len(both) else both


def is_among(values: Numbers, others: Numbers) -> Mask:
    """Return which of the values are among the others. Both ascend without duplicates."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    places = np.searchsorted(others, values)
    places[places == len(others)] = 0
    return np.asarray(others[places] == values, np.bool_)
