"""Rows grouped by integers: sums, minimums and maximums of each group, computed on whole arrays.

The rows come in pieces, one per chunk or index file, which are not concatenated: a piece fits into the processor's
cache, all rows together often do not. Integers are exact at any size. Floats are added up in the order of the rows,
with compensation (Kahan), so that the error does not grow with the number of rows. In a group with thousands of rows,
this happens block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from strandline.query.columns import Numbers

#: Integers are numbered with a table if their range is at most this, or at most ``_SPARSE`` times their count.
#: Otherwise they are sorted.
_SMALL_RANGE = 1 << 16
_SPARSE = 8
#: Combined keys must stay below this.
_LARGEST_KEY = 1 << 62
#: numpy adds up the n-th rows of all groups of a piece in one step. Python adds up as many rows in the time of a step.
STEP_ROWS = 64
#: With more steps than this, groups are added up in blocks of ``BLOCK_ROWS``: the n-th rows of all blocks in one step.
MAX_STEPS = 2048
BLOCK_ROWS = 512
#: Up to here, a thousand steps take as long as Python.
FEW_ROWS = 16_384


class IntegerTotals(NamedTuple):
    """Sums of 64-bit integers. ``wide`` has those that do not fit into 64 bits, by group; ``numbers`` has 0 instead."""

    numbers: Numbers
    wide: dict[int, int]


def numbered(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the distinct integers in ascending order, and the position of each value among them."""
    if not len(values):
        return values, np.empty(0, np.int64)
    if bool(np.all(values[1:] >= values[:-1])):
        firsts = np.concatenate(([0], np.flatnonzero(values[1:] != values[:-1]) + 1))
        return values[firsts], np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(values)))
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > max(_SMALL_RANGE, _SPARSE * len(values)):
        distinct, places = np.unique(values, return_inverse=True)
        return distinct, places
    places = values - low
    used = np.zeros(span, np.bool_)
    used[places] = True
    distinct = np.flatnonzero(used)
    if len(distinct) < span:
        places = (np.cumsum(used) - 1)[places]
    return distinct + low, places


class Piece:
    """Some of the rows. ``own`` has the position of each row's group in ``groups``, the ascending numbers of the groups
    with rows in the piece."""

    def __init__(self, own: Numbers, groups: Numbers) -> None:
        self.own = own
        self.groups = groups
        self._last: tuple[Numbers, Numbers] | None = None

    @cached_property
    def sizes(self) -> Numbers:
        """The number of rows of each group."""
        return np.bincount(self.own, minlength=len(self.groups))

    @cached_property
    def of_row(self) -> Numbers:
        """The group of each row."""
        return self.groups[self.own]

    @cached_property
    def _order(self) -> Numbers | None:
        """The rows sorted by group; None if they are sorted already."""
        own = self.own
        if bool(np.all(own[1:] >= own[:-1])):
            return None
        # numpy sorts 16-bit integers several times as fast as others.
        return np.argsort(own.astype(np.uint16) if len(self.groups) <= 1 << 16 else own, kind="stable")

    @cached_property
    def firsts(self) -> Numbers:
        """The first row of each group, in the sorted order."""
        return np.cumsum(self.sizes) - self.sizes

    def sorted(self, values: Numbers) -> Numbers:
        """Return the values of the rows, sorted by group. Remembers the last ones: a sum, a minimum and a maximum are
        often of the same values."""
        if self._order is None:
            return values
        if self._last is None or self._last[0] is not values:
            self._last = values, values[self._order]
        return self._last[1]

    @cached_property
    def deepest(self) -> int:
        """The number of rows of the largest group."""
        return int(self.sizes.max(initial=0))

    @cached_property
    def by_size(self) -> Numbers:
        """The groups of the piece, the largest first."""
        return np.argsort(self.deepest - self.sizes, kind="stable")

    @cached_property
    def lasting(self) -> list[int]:
        """The number of groups with more than 0, 1, 2 ... rows."""
        counts: list[int] = (len(self.groups) - np.cumsum(np.bincount(self.sizes))).tolist()
        return counts


class Groups:
    """Groups the rows with equal keys. A piece is a sequence of keys, arrays of integers with one entry per row.

    Groups are numbered in ascending order of their keys: group ``g`` has the keys ``keys[j][g]``. The methods take the
    values of all pieces.
    """

    def __init__(self, pieces: Sequence[Sequence[Numbers]]) -> None:
        combined: list[Numbers] = [np.zeros(len(keys[0]), np.int64) for keys in pieces]
        span = 1
        levels: list[_Level | Numbers] = []
        for columns in zip(*pieces, strict=True):
            level = _Level.of(columns)
            if span * level.size >= _LARGEST_KEY:
                table, found = _numbered_pieces(combined)
                combined = [piece.of_row for piece in found]
                levels.append(table)
                span = len(table)
                table, found = _numbered_pieces(columns)
                level = _Level(len(table), 0, table)
                columns = tuple(piece.of_row for piece in found)
            own = [(column - level.low).astype(np.int64, copy=False) for column in columns]
            combined = [high * level.size + rest for high, rest in zip(combined, own, strict=True)] if span > 1 else own
            levels.append(level)
            span *= level.size
        distinct, self.pieces = _numbered_pieces(combined)
        self._count = len(distinct)
        self.keys: list[Numbers] = []
        for each in reversed(levels):
            if isinstance(each, _Level):
                distinct, rest = np.divmod(distinct, each.size)
                self.keys.insert(0, rest + each.low if each.table is None else each.table[rest])
            else:
                distinct = each[distinct]

    def __len__(self) -> int:
        return self._count

    def least(self, values: Sequence[Numbers]) -> Numbers:
        return self._reduced(values, np.minimum)

    def greatest(self, values: Sequence[Numbers]) -> Numbers:
        return self._reduced(values, np.maximum)

    def _reduced(self, values: Sequence[Numbers], reduce: np.ufunc) -> Numbers:
        result = np.zeros(len(self), values[0].dtype)
        seen = np.zeros(len(self), np.bool_)
        for piece, each in self._filled(values):
            found = reduce.reduceat(piece.sorted(each), piece.firsts)
            result[piece.groups] = np.where(seen[piece.groups], reduce(result[piece.groups], found), found)
            seen[piece.groups] = True
        return result

    def _filled(self, values: Sequence[Numbers]) -> Iterator[tuple[Piece, Numbers]]:
        return ((piece, each) for piece, each in zip(self.pieces, values, strict=True) if len(each))

    def sizes(self) -> Numbers:
        """Return the number of rows of each group."""
        result = np.zeros(len(self), np.int64)
        for piece in self.pieces:
            result[piece.groups] += piece.sizes
        return result

    def counts(self, values: Sequence[Numbers]) -> Numbers:
        """Add up numbers that are expected to be counts: 64-bit integers, or floats without compensation."""
        result = np.zeros(len(self), values[0].dtype)
        for piece, each in self._filled(values):
            if each.dtype.kind == "f":
                np.add.at(result, piece.of_row, each)
            else:
                result[piece.groups] += np.add.reduceat(piece.sorted(each), piece.firsts)
        return result

    def integers(self, values: Sequence[Numbers]) -> IntegerTotals:
        """Add up integers, exactly."""
        largest = max((max(int(each.max()), -int(each.min())) for each in values if len(each)), default=0)
        if largest * sum(map(len, values)) < 1 << 63:
            return IntegerTotals(self.counts(values), {})
        high = self.counts([each >> 32 for each in values])
        low = self.counts([each & 0xFFFFFFFF for each in values])
        high += low >> 32
        low &= 0xFFFFFFFF
        fits = (high >= -(1 << 31)) & (high < 1 << 31)
        wide = {int(group): (int(high[group]) << 32) + int(low[group]) for group in np.flatnonzero(~fits)}
        return IntegerTotals(np.where(fits, (high << 32) | low, 0), wide)

    def floats(self, values: Sequence[Numbers]) -> Numbers:
        """Add up floats, with compensation."""
        rows, steps = sum(map(len, values)), sum(piece.deepest for piece in self.pieces)
        if rows <= min(FEW_ROWS, STEP_ROWS * steps):
            return self._floats_one_by_one(values)
        return self._floats_in_steps(values) if steps <= MAX_STEPS else self._floats_in_blocks(values)

    def _floats_in_steps(self, values: Sequence[Numbers]) -> Numbers:
        result, missing = np.zeros(len(self)), np.zeros(len(self))
        for piece, each in self._filled(values):
            groups = piece.groups[piece.by_size]
            totals, errors = result[groups], missing[groups]
            _add_in_steps(totals, errors, piece.sorted(each), piece.firsts[piece.by_size], piece.lasting)
            result[groups], missing[groups] = totals, errors
        return result

    def _floats_in_blocks(self, values: Sequence[Numbers]) -> Numbers:
        # Blocks depend on the rows of a group alone, not on the pieces that they come from.
        whole = Piece(np.concatenate([piece.of_row for piece in self.pieces]), np.arange(len(self)))
        counts = -(-whole.sizes // BLOCK_ROWS)
        group_of = np.repeat(whole.groups, counts)
        skipped = (np.arange(len(group_of)) - np.repeat(np.cumsum(counts) - counts, counts)) * BLOCK_ROWS
        blocks = Piece(
            np.repeat(np.arange(len(group_of)), np.minimum(whole.sizes[group_of] - skipped, BLOCK_ROWS)), group_of
        )
        totals, errors = np.zeros(len(group_of)), np.zeros(len(group_of))
        _add_in_steps(
            totals, errors, whole.sorted(np.concatenate(values)), blocks.firsts[blocks.by_size], blocks.lasting
        )
        totals[blocks.by_size], errors[blocks.by_size] = totals.copy(), errors.copy()
        result: Numbers = totals[np.cumsum(counts) - counts]
        large = counts > 1
        if large.any():
            # What the blocks lack is added as well.
            parts = Groups([[np.repeat(group_of[large[group_of]], 2)]])
            rest = np.column_stack((totals, -errors))[large[group_of]].ravel()
            result[large] = parts._floats_one_by_one([rest])
        return result

    def _floats_one_by_one(self, values: Sequence[Numbers]) -> Numbers:
        totals, errors = [0.0] * len(self), [0.0] * len(self)
        for piece, each in self._filled(values):
            for group, value in zip(piece.of_row.tolist(), each.tolist(), strict=True):
                total = totals[group]
                added = value - errors[group]
                reached = total + added
                errors[group] = (reached - total) - added
                totals[group] = reached
        return np.array(totals)


def _add_in_steps(totals: Numbers, errors: Numbers, numbers: Numbers, firsts: Numbers, lasting: Sequence[int]) -> None:
    """Add numbers to the totals and errors of groups, the largest group first. ``firsts`` has the first number of each,
    ``lasting`` how many of them have more than 0, 1, 2 ... numbers."""
    with np.errstate(all="ignore"):
        for step, active in enumerate(lasting[:-1]):
            added = numbers[firsts[:active] + step] - errors[:active]
            reached = totals[:active] + added
            errors[:active] = (reached - totals[:active]) - added
            totals[:active] = reached


class _Level(NamedTuple):
    """How to get a key from combined ones: it is the remainder by ``size``, plus ``low`` or looked up in ``table``."""

    size: int
    low: int
    table: Numbers | None = None

    @classmethod
    def of(cls, columns: Sequence[Numbers]) -> _Level:
        filled = [column for column in columns if len(column)]
        low = min((int(column.min()) for column in filled), default=0)
        return cls(max((int(column.max()) for column in filled), default=0) - low + 1, low)


def _numbered_pieces(pieces: Sequence[Numbers]) -> tuple[Numbers, list[Piece]]:
    """Return the distinct integers of all pieces in ascending order, and the pieces grouped by them."""
    found = [numbered(values) for values in pieces]
    distinct, places = numbered(np.concatenate([own for own, _ in found]))
    bounds = np.cumsum([len(own) for own, _ in found])[:-1]
    return distinct, [Piece(own, groups) for (_, own), groups in zip(found, np.split(places, bounds), strict=True)]
