"""Occurrences: the values of a text column that contain a word, and how often."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strandline.query.selection import Mask, Numbers

NOWHERE = np.empty(0, np.int32)


class Occurrences:
    """The ascending ``values`` among the ``total`` values of a column in which something occurs, and its ``counts``."""

    __slots__ = ("_counts", "_everywhere", "_values", "total")

    def __init__(self, total: int, values: Numbers, counts: Numbers, everywhere: Numbers | None = None) -> None:
        self.total = total
        self._values = values
        self._counts = counts
        #: The counts of all values of the column, if they are known.
        self._everywhere = everywhere

    @classmethod
    def nowhere(cls, total: int) -> Occurrences:
        return cls(total, NOWHERE, NOWHERE)

    @classmethod
    def dense(cls, counts: Numbers) -> Occurrences:
        """``counts`` has a number for every value of the column."""
        values = np.flatnonzero(counts)
        return cls(len(counts), values, counts[values], counts)

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self._values)

    def repeated(self, least: int) -> tuple[Numbers, Numbers]:
        """Return the values with at least ``least`` occurrences, which is at least 2, and their counts."""
        kept = self._counts >= least
        return self._values[kept], self._counts[kept]

    def listed(self) -> tuple[Numbers, Numbers]:
        """Return all values and their counts."""
        return self._values, self._counts

    def counts_at(self, values: Numbers) -> Numbers:
        """Return the number of occurrences in each of these ascending values."""
        if self._everywhere is not None:
            return np.asarray(self._everywhere[values])
        return counts_among(values, self._values, self._counts)

    def having(self, values: int, gone: Mask | None) -> int:
        """Return how many of the first ``values`` values of the column have occurrences. Those in ``gone`` do not
        count."""
        if gone is None and values >= self.total:
            return self.size
        found = self.listed()[0]
        found = found[: int(np.searchsorted(found, values))]
        return len(found) if gone is None else len(found) - int(np.count_nonzero(gone[found]))


def counts_among(values: Numbers, known: Numbers, counts: Numbers) -> Numbers:
    """Return the counts of ``values``, which are those of the ``known`` values and otherwise 0. Both ascend."""
    found = np.zeros(len(values), counts.dtype)
    if len(known):
        # Numbers of one type, so that the longer array is not converted.
        places = np.searchsorted(known, values.astype(known.dtype, copy=False))
        places[places == len(known)] = 0
        hit = np.flatnonzero(known[places] == values)
        found[hit] = counts[places[hit]]
    return found


class FoundTexts(NamedTuple):
    """The ascending values that match a clause, and how often each of its terms occurs in them (or the phrase)."""

    values: Numbers
    counts: list[Numbers]


def with_all(found: list[Occurrences], within: Numbers | None = None) -> FoundTexts:
    """Return the values that contain all of these. Values that are not in ``within``, which ascends, are left out."""
    counts: dict[int, Numbers] = {}
    order = sorted(range(len(found)), key=lambda at: found[at].size)
    values = within
    for at in order:
        if values is None:
            values, counts[at] = found[at].listed()
            continue
        times = found[at].counts_at(values)
        kept = np.flatnonzero(times)
        if len(kept) < len(values):
            values, times = values[kept], times[kept]
            counts = {known: each[kept] for known, each in counts.items()}
        counts[at] = times
    assert values is not None, "a clause has at least one term"
    return FoundTexts(values, [counts[at] for at in range(len(found))])
