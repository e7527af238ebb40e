"""Sums: aggregated records by interval and group, as arrays.

Sums can be combined further, to fewer dimensions or over more records: counts, sums, minimums, maximums and histograms
can all be added up again. Integers are exact at any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from strandline.arrow import pa
from strandline.query.columns import Mask, Numbers
from strandline.query.groups import Groups, Piece

#: The parts of a measure that may exceed 64-bit integers.
WIDE_PARTS = ("total", "least", "greatest")
_PARTS = ("count", *WIDE_PARTS)
_INT64 = np.iinfo(np.int64)
#: Histograms are added up in a table of all groups and buckets if it has at most this many entries, or at most as many
#: as there are weights.
_SMALL_ROOM = 1 << 20


class Histograms(Struct):
    """Group ``groups[i]`` has ``weights[i]`` in the bucket named ``names[places[i]]``."""

    groups: Numbers
    places: Numbers
    weights: Numbers
    names: list[str]


class MeasureSums(Struct):
    """Per group: the count, sum, minimum and maximum; a count measure has only the first.

    ``wide`` has the integers that do not fit into the arrays, by part and group; the arrays have 0 in their place.
    """

    count: Numbers
    total: Numbers | None = None
    least: Numbers | None = None
    greatest: Numbers | None = None
    wide: dict[str, dict[int, int]] = {}
    histograms: Histograms | None = None

    def add_wide(self, group: int, count: int, total: int, least: int, greatest: int) -> None:
        """Add integers of any size to a group."""
        had = int(self.count[group])
        self.count[group] += count
        total += self.part("total", group)
        if had:
            least = min(least, self.part("least", group))
            greatest = max(greatest, self.part("greatest", group))
        for name, value in zip(WIDE_PARTS, (total, least, greatest), strict=True):
            self._set(name, group, value)

    def part(self, name: str, group: int) -> int:
        """Return one of the integers of a group, of any size."""
        found = self.wide.get(name, {}).get(group)
        return int(getattr(self, name)[group]) if found is None else found

    @property
    def wide_groups(self) -> list[int]:
        """Return the groups with integers in ``wide``."""
        return sorted({group for found in self.wide.values() for group in found})

    def ordered(self, order: Numbers, places: Numbers) -> MeasureSums:
        """Return the groups in another order; ``places`` has the new position of each."""
        parts = self._parts(order)
        wide = {
            part: {int(places[group]): value for group, value in found.items()} for part, found in self.wide.items()
        }
        histograms = self.histograms
        if histograms is not None:
            groups = places[histograms.groups]
            turn = np.argsort(groups, kind="stable")
            weights = histograms.weights[turn]
            histograms = Histograms(groups[turn], histograms.places[turn], weights, histograms.names)
        return MeasureSums(**parts, wide=wide, histograms=histograms)

    def between(self, low: int, high: int) -> MeasureSums:
        """Return a range of groups."""
        parts = self._parts(slice(low, high))
        wide = {
            part: {group - low: value for group, value in found.items() if low <= group < high}
            for part, found in self.wide.items()
        }
        histograms = self.histograms
        if histograms is not None:
            start, end = (int(place) for place in np.searchsorted(histograms.groups, (low, high)))
            histograms = Histograms(
                histograms.groups[start:end] - low,
                histograms.places[start:end],
                histograms.weights[start:end],
                histograms.names,
            )
        return MeasureSums(**parts, wide=wide, histograms=histograms)

    def _parts(self, chosen: Any) -> dict[str, Any]:
        parts = {part: getattr(self, part) for part in _PARTS}
        return {part: None if numbers is None else numbers[chosen] for part, numbers in parts.items()}

    def _set(self, name: str, group: int, value: int) -> None:
        wide = {other: found for other, found in self.wide.get(name, {}).items() if other != group}
        fits = -(1 << 63) <= value < 1 << 63
        getattr(self, name)[group] = value if fits else 0
        self.wide = {**self.wide, name: wide if fits else {**wide, group: value}}


class Sums(Struct):
    """Group ``i`` covers the interval that starts at ``starts[i]`` (ms), with the texts ``words[j][codes[j][i]]`` for
    the dimensions. Words are Arrow arrays of strings; the word of code 0 is null, for records without a value."""

    dimensions: tuple[str, ...]
    starts: Numbers
    codes: list[Numbers]
    words: list[Any]
    measures: dict[str, MeasureSums]

    @classmethod
    def empty(cls, dimensions: tuple[str, ...], measures: Sequence[str]) -> Sums:
        nothing = np.empty(0, np.int64)
        words = [pa.nulls(1, pa.string()) for _ in dimensions]
        codes = [nothing.astype(np.int32) for _ in dimensions]
        return cls(dimensions, nothing, codes, words, {name: MeasureSums(nothing) for name in measures})

    def __len__(self) -> int:
        return len(self.starts)

    def ordered(self) -> Sums:
        """Return the same sums with the groups sorted by start."""
        order = np.argsort(self.starts, kind="stable")
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return Sums(
            self.dimensions,
            self.starts[order],
            [codes[order] for codes in self.codes],
            self.words,
            {name: measure.ordered(order, places) for name, measure in self.measures.items()},
        )

    def within(self, first: int, end: int) -> Sums:
        """Return the groups that start from ``first`` to before ``end``. They must be sorted by start."""
        low, high = (int(place) for place in np.searchsorted(self.starts, (first, end)))
        if low == 0 and high == len(self):
            return self
        return Sums(
            self.dimensions,
            self.starts[low:high],
            [codes[low:high] for codes in self.codes],
            self.words,
            {name: measure.between(low, high) for name, measure in self.measures.items()},
        )


# --- adding up ---------------------------------------------------------------------------------------------------


class Weights(Struct):
    """Weights to add up: that of row ``rows[i]`` in the bucket ``names[places[i]]``. ``names`` is an Arrow array. All
    rows in order if ``rows`` is None; weights of 1 if ``weights`` is None."""

    rows: Numbers | None
    places: Numbers
    weights: Numbers | None
    names: Any


def unified(many: Sequence[Any]) -> tuple[list[Numbers], Any]:
    """Return the distinct strings of several Arrow arrays in the order of their appearance, and the positions of the
    strings of each array among them."""
    encoded = pa.concat_arrays(many).dictionary_encode(null_encoding="encode")
    places = encoded.indices.to_numpy().astype(np.int64)
    bounds = np.cumsum([len(each) for each in many])[:-1]
    return np.split(places, bounds), encoded.dictionary


class MeasureRows(Struct):
    """The parts of a measure in some rows. Each row counts once if ``count`` is None. ``kept`` are the rows to add up,
    all if None; the others are left to the caller, because their integers do not fit into the arrays."""

    count: Numbers | None = None
    total: Numbers | None = None
    least: Numbers | None = None
    greatest: Numbers | None = None
    kept: Mask | None = None
    weights: Sequence[Weights] = ()


def add_measure(groups: Groups, pieces: Sequence[MeasureRows], has_histograms: bool) -> MeasureSums:
    """Add up a measure."""
    both = list(zip(pieces, groups.pieces, strict=True))
    if all(piece.count is None and piece.kept is None for piece in pieces):
        sums = MeasureSums(groups.sizes())
    else:
        sums = MeasureSums(groups.counts([_masked(each, _count(each, own), 0) for each, own in both]))
    totals = [piece.total for piece in pieces if piece.total is not None]
    if totals and totals[0].dtype.kind == "f":
        sums.total = groups.floats(totals)
    elif totals:
        sums.total, wide = groups.integers([_masked(piece, piece.total, 0) for piece in pieces])
        sums.wide = {"total": wide} if wide else {}
    if totals:
        sums.least = groups.least([_masked(piece, piece.least, _INT64.max) for piece in pieces])
        sums.greatest = groups.greatest([_masked(piece, piece.greatest, _INT64.min) for piece in pieces])
        if any(piece.kept is not None for piece in pieces):
            empty = groups.counts([_masked(each, np.ones(len(own.own), np.int64), 0) for each, own in both]) == 0
            sums.least[empty] = sums.greatest[empty] = 0
    if has_histograms:
        sums.histograms = _add_histograms(groups, [piece.weights for piece in pieces])
    return sums


def _count(piece: MeasureRows, rows: Piece) -> Numbers:
    return np.ones(len(rows.own), np.int64) if piece.count is None else piece.count


def _masked(piece: MeasureRows, numbers: Numbers | None, other: int) -> Numbers:
    assert numbers is not None, "a measure has all parts or only a count"
    return numbers if piece.kept is None else np.where(piece.kept, numbers, other)


def _add_histograms(groups: Groups, pieces: Sequence[Sequence[Weights]]) -> Histograms:
    """Add up weights, which are above 0, by group and bucket. The result is sorted by group, then by bucket."""
    many = [(piece, each) for piece, found in zip(groups.pieces, pieces, strict=True) for each in found
            if len(each.places)]  # fmt: skip
    if not many:
        nothing = np.empty(0, np.int64)
        return Histograms(nothing, nothing, np.empty(0, np.float64), [])
    tables, names = unified([each.names for _, each in many])

    def keys() -> Iterator[Numbers]:
        for (piece, each), table in zip(many, tables, strict=True):
            key = piece.of_row * len(names)
            # numpy converts 32-bit indexes slowly while it looks up.
            key = key if each.rows is None else key[each.rows.astype(np.intp)]
            is_same = bool(np.all(table == np.arange(len(table))))
            key += each.places if is_same else table[each.places.astype(np.intp)]
            yield key

    room = len(groups) * len(names)
    if room <= max(_SMALL_ROOM, sum(len(each.places) for _, each in many)):
        sums = np.zeros(room)
        for key, (_, each) in zip(keys(), many, strict=True):
            np.add.at(sums, key, 1.0 if each.weights is None else each.weights)
        found = np.flatnonzero(sums != 0)
        weights = sums[found]
    else:
        buckets = Groups([[key] for key in keys()])
        (found,) = buckets.keys
        weights = buckets.counts(
            [np.ones(len(each.places)) if each.weights is None else each.weights for _, each in many]
        )
    # This is faster than divmod.
    of_group = found // len(names)
    return Histograms(of_group, found - of_group * len(names), weights, names.to_pylist())


def combine(many: Sequence[Sums], dimensions: tuple[str, ...], measures: Sequence[str], interval_ms: int) -> Sums:
    """Add up many sums over intervals of this length, by these dimensions, for these measures."""
    many = [sums for sums in many if len(sums)]
    if not many:
        return Sums.empty(dimensions, measures)
    if len(many) == 1 and many[0].dimensions == dimensions:
        only = many[0]
        return Sums(dimensions, only.starts, only.codes, only.words, {name: only.measures[name] for name in measures})
    keys = [[sums.starts // interval_ms] for sums in many]
    words = []
    for dimension in dimensions:
        places = [sums.dimensions.index(dimension) for sums in many]
        tables, distinct = unified([sums.words[place] for sums, place in zip(many, places, strict=True)])
        words.append(distinct)
        for own, table, sums, place in zip(keys, tables, many, places, strict=True):
            own.append(table[sums.codes[place].astype(np.intp)])
    groups = Groups(keys)
    starts, *codes = groups.keys
    combined = {name: _combined(groups, [sums.measures[name] for sums in many]) for name in measures}
    return Sums(dimensions, starts * interval_ms, [each.astype(np.int32) for each in codes], words, combined)


def _combined(groups: Groups, parts: Sequence[MeasureSums]) -> MeasureSums:
    has_histograms = any(part.histograms is not None for part in parts)
    combined = add_measure(groups, [_rows_of(part) for part in parts], has_histograms)
    for piece, part in zip(groups.pieces, parts, strict=True):
        # Groups with wide integers are added up completely in Python.
        for group in part.wide_groups:
            numbers = (part.part(name, group) for name in WIDE_PARTS)
            combined.add_wide(int(piece.of_row[group]), int(part.count[group]), *numbers)
    return combined


def _rows_of(sums: MeasureSums) -> MeasureRows:
    rows = MeasureRows(sums.count, sums.total, sums.least, sums.greatest)
    wide, held = sums.wide_groups, sums.histograms
    if wide:
        rows.kept = np.ones(len(sums.count), np.bool_)
        rows.kept[wide] = False
    if held is not None:
        rows.weights = (Weights(held.groups, held.places, held.weights, pa.array(held.names, pa.string())),)
    return rows
