"""Numbers of an index file, stored as small distances from their minimum and compared as such."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple

import numpy as np

from strandline.query.columns import NumberColumn, Rows
from strandline.query.postings import narrow
from strandline.query.selection import Mask, Numbers
from strandline.query.values import Value

#: The maximum number of decimals of floats that are stored as integers.
_MOST_DECIMALS = 4
#: Integers below this are exact as floats.
_EXACT = 1 << 53


class Packing(NamedTuple):
    """Offset ``n`` stands for the number ``base + n`` or, if ``scale`` is not 0, for the float ``(base + n) / scale``.
    ``span`` is the greatest offset."""

    base: int
    scale: int
    span: int

    def number(self, offset: int) -> int | float:
        return (self.base + offset) / self.scale if self.scale else self.base + offset


class PackedNumberColumn(NumberColumn):
    """A column whose numbers are decoded when they are needed. Comparisons need only the offsets."""

    __slots__ = ("_packing",)

    def __init__(self, offsets: Numbers, packing: Packing, rows: Rows | None) -> None:
        super().__init__(offsets, rows, (packing.number(0), packing.number(packing.span)))
        self._packing = packing

    @property
    def values(self) -> Numbers:
        """All numbers, decoded. Holds 8 bytes a number while it is used."""
        return self._decoded(self._values)

    def take(self, places: Numbers) -> Numbers:
        return self._decoded(self._values[places])

    def _decoded(self, offsets: Numbers) -> Numbers:
        numbers = offsets.astype(np.int64)
        numbers += self._packing.base
        return numbers / self._packing.scale if self._packing.scale else numbers

    def equal(self, value: Value) -> Mask:
        low, high = self._place(value, before=True), self._place(value, before=False)
        return self._values == low if low < high else np.zeros(self.count, np.bool_)

    def compare(self, op: str, value: Value) -> Mask:
        place = self._place(value, before=op in (">=", "<"))
        if op in (">", ">="):
            return self._values >= place if place <= self._packing.span else np.zeros(self.count, np.bool_)
        return self._values < place if place <= self._packing.span else np.ones(self.count, np.bool_)

    def _place(self, value: Any, before: bool) -> int:
        """Return the first offset whose number is not less than the value or, without ``before``, is greater."""
        find = bisect_left if before else bisect_right
        return find(range(self._packing.span + 1), value, key=self._packing.number)


def pack_numbers(values: Numbers) -> tuple[Numbers, Packing] | None:
    """Return numbers as offsets from their minimum; None if this does not make them smaller."""
    if not len(values):
        return None
    scale = 0
    if values.dtype.kind == "f":
        scaled = _scaled(values)
        if scaled is None:
            return None
        values, scale = scaled
    base, greatest = int(values.min()), int(values.max())
    if greatest - base >= 1 << 32:
        return None
    return narrow(values - base, greatest - base + 1), Packing(base, scale, greatest - base)


def _scaled(values: Numbers) -> tuple[Numbers, int] | None:
    """Return floats with few decimals as integers, and by what they were multiplied. None if there are others."""
    if not np.abs(values).max() < _EXACT / 10**_MOST_DECIMALS or np.signbit(values[values == 0]).any():
        return None
    for decimals in range(_MOST_DECIMALS + 1):
        scale = 10**decimals
        whole = np.rint(values * scale)
        if bool((whole / scale == values).all()):
            return whole.astype(np.int64), scale
    return None
