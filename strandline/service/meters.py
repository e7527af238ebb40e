"""Meters: for every series, the number, the sum and the distribution of its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from strandline.query.values import power_name

#: The number of buckets: one per bit of the largest value.
_BITS = 64


class Measured(NamedTuple):
    """The values of an interval. ``buckets`` counts them by the power of two at or below each value; 0 counts as
    1."""

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
    """The values since they were last taken: integers of at least 0. Only used on the event loop's thread.

    Adding a value happens with every request, so it is only a list's ``append``. Call ``fold`` from time to time to sum
    up the values.
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
        #: Get it from the meter every time: each folding replaces it.
        self.add: Callable[[int], None] = self._values.append

    def fold(self) -> None:
        """Sum up the collected values."""
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
        """Return the measured values, and reset the meter."""
        self.fold()
        counts = [int(count) for count in self._buckets]
        buckets = {power_name(bits): count for bits, count in enumerate(counts) if count}
        measured = Measured(sum(counts), self._total, self._least, self._greatest, buckets)
        self._clear()
        return measured
