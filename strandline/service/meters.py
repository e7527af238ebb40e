"""What is measured while the server works: for every series how often, how much, and how the values are spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from strandline.query.values import power_name

#: Values of so many bits there can be; a bucket for each.
_BITS = 64


class Measured(NamedTuple):
    """The values of an interval. ``buckets``: how many there were, by the power of two at or below them; 0 counts as
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
    """Values since they were last taken: whole numbers, 0 or more. Only on the loop's thread.

    Adding one is a list's ``append`` and nothing else, because that happens with every request. Somebody must ``fold``
    what has gathered now and then.
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
        #: Ask the meter for it every time: it is another one after each folding.
        self.add: Callable[[int], None] = self._values.append

    def fold(self) -> None:
        """Sum up what has gathered."""
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
        """Everything that was measured, of which nothing is left here."""
        self.fold()
        counts = [int(count) for count in self._buckets]
        buckets = {power_name(bits): count for bits, count in enumerate(counts) if count}
        measured = Measured(sum(counts), self._total, self._least, self._greatest, buckets)
        self._clear()
        return measured
