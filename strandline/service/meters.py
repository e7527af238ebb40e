"""Meters: the count, sum, minimum, maximum and distribution of measured values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from strandline.query.values import power_name

#: The number of bits of a value. There is a bucket for each power of two.
_BITS = 64


class Measured(NamedTuple):
    """The values of an interval. ``buckets`` counts values by the largest power of two that does not exceed them; 0
    counts as 1."""

    number: int
    total: int
    least: int | None
    greatest: int | None
    buckets: dict[str, int]

    @classmethod
    def once(cls, value: int) -> Measured:
        """A single value, 0 or more."""
        return cls(1, value, value, value, {power_name(max(value.bit_length() - 1, 0)): 1})


class Meter:
    """Collects values, which are whole numbers from 0, until ``take``. Use it only on the event loop's thread.

    ``add`` is the ``append`` of a list, because every request calls it. Call ``fold`` from time to time, so that the
    list stays short.
    """

    __slots__ = ("_buckets", "_greatest", "_least", "_total", "_values", "add")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._buckets = np.zeros(_BITS, np.int64)
        self._total = 0
        self._least: int | None = None
        self._greatest: int | None = None
        self._gather()

    def _gather(self) -> None:
        self._values: list[int] = []
        #: Do not keep a reference: ``fold`` replaces it.
        self.add: Callable[[int], None] = self._values.append

    def fold(self) -> None:
        """Add the collected values to the totals, and empty the list."""
        if not self._values:
            return
        values = np.array(self._values, np.int64)
        self._gather()
        self._total += int(values.sum())
        least, greatest = int(values.min()), int(values.max())
        self._least = least if self._least is None else min(least, self._least)
        self._greatest = greatest if self._greatest is None else max(greatest, self._greatest)
        bits = np.frexp(np.maximum(values, 1).astype(np.float64))[1] - 1
        self._buckets += np.bincount(bits, minlength=_BITS)

    def take(self) -> Measured:
        """Return everything that was measured, and reset the meter."""
        self.fold()
        counts = [int(count) for count in self._buckets]
        buckets = {power_name(bits): count for bits, count in enumerate(counts) if count}
        measured = Measured(sum(counts), self._total, self._least, self._greatest, buckets)
        self._clear()
        return measured
