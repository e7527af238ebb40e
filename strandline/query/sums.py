"""Sums: aggregated records by interval and group, as arrays.

Sums can be combined further, to fewer dimensions or over more records: counts, sums, minimums, maximums and histograms
can all be added up again. Integers are exact at any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from strandline.query.columns import Numbers
from strandline.query.payloads import database

#: The parts of a measure that may exceed 64-bit integers.
WIDE_PARTS = ("total", "least", "greatest")
_PARTS = ("count", *WIDE_PARTS)
_FITS = "BETWEEN -9223372036854775808 AND 9223372036854775807"


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
    the dimensions. The word of code 0 is None, for records without a value."""

    dimensions: tuple[str, ...]
    starts: Numbers
    codes: list[Numbers]
    words: list[list[str | None]]
    measures: dict[str, MeasureSums]

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


class Numbering:
    """Numbers texts in the order of their appearance; 0 means no value."""

    def __init__(self) -> None:
        self.texts: list[str | None] = [None]
        self._numbers: dict[str, int] = {}

    def of(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number

    def table(self, words: Sequence[str | None]) -> Numbers:
        """Return the number of each word."""
        return np.array([0 if word is None else self.of(word) for word in words], np.int64)


# --- sums of sums ------------------------------------------------------------------------------------------------


def combine(many: Sequence[Sums], dimensions: tuple[str, ...], measures: Sequence[str]) -> Sums:
    """Add up many sums, by these dimensions, for these measures."""
    many = [sums for sums in many if len(sums)]
    if len(many) == 1 and many[0].dimensions == dimensions:
        only = many[0]
        return Sums(dimensions, only.starts, only.codes, only.words, {name: only.measures[name] for name in measures})
    names = [Numbering() for _ in dimensions]
    keyed = [_keys(sums, dimensions, names) for sums in many]
    keys = ["start", *(f"d{at}" for at in range(len(dimensions)))]
    tables, selected = [], []
    for sums, columns in zip(many, keyed, strict=True):
        tables.append(pa.table({**columns, **_columns(sums, measures)}))
    for at, name in enumerate(measures):
        selected += _of_sums(at, [sums.measures[name] for sums in many])
    grouped = Grouped(pa.concat_tables(tables) if tables else None, keys, selected)
    combined: dict[str, MeasureSums] = {}
    for at, name in enumerate(measures):
        parts = [sums.measures[name] for sums in many]
        combined[name] = grouped.measure(at)
        for part, columns in zip(parts, keyed, strict=True):
            for group in part.wide_groups:
                place = grouped.place([columns[key][group] for key in keys])
                numbers = [part.part(wide_part, group) for wide_part in WIDE_PARTS]
                combined[name].add_wide(place, int(part.count[group]), *numbers)
        if any(part.histograms is not None for part in parts):
            combined[name].histograms = _combined_histograms(grouped, parts, keyed)
    return Sums(dimensions, grouped.numbers("start"), [grouped.numbers(key).astype(np.int32) for key in keys[1:]],
                [each.texts for each in names], combined)  # fmt: skip


def _keys(sums: Sums, dimensions: tuple[str, ...], names: list[Numbering]) -> dict[str, Numbers]:
    columns: dict[str, Numbers] = {"start": sums.starts}
    for at, (dimension, numbering) in enumerate(zip(dimensions, names, strict=True)):
        place = sums.dimensions.index(dimension)
        columns[f"d{at}"] = numbering.table(sums.words[place])[sums.codes[place]]
    return columns


def _columns(sums: Sums, measures: Sequence[str]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for at, name in enumerate(measures):
        measure = sums.measures[name]
        # Groups with wide integers are summed up completely in Python.
        wide = measure.wide_groups
        parts = {"n": measure.count, "t": measure.total, "l": measure.least, "g": measure.greatest}
        for letter, numbers in parts.items():
            if numbers is None:
                continue
            mask = None
            if wide:
                mask = np.zeros(len(sums), np.bool_)
                mask[wide] = True
            columns[f"{letter}{at}"] = pa.array(numbers, mask=mask)
    return columns


def _of_sums(at: int, parts: Sequence[MeasureSums]) -> list[str]:
    count = f"coalesce(sum(n{at}), 0) AS n{at}"
    if not parts or parts[0].total is None:
        return [count]
    total = "sum" if parts[0].total.dtype.kind == "i" else "fsum"
    return [count, f"coalesce({total}(t{at}), 0) AS t{at}", f"min(l{at}) AS l{at}", f"max(g{at}) AS g{at}"]


def _combined_histograms(
    grouped: Grouped, parts: Sequence[MeasureSums], keyed: Sequence[dict[str, Numbers]]
) -> Histograms:
    buckets = Numbering()
    tables = []
    for part, columns in zip(parts, keyed, strict=True):
        held = part.histograms
        if held is not None and len(held.groups):
            own = {key: numbers[held.groups] for key, numbers in columns.items()}
            tables.append(
                pa.table({**own, "bucket": buckets.table(held.names)[held.places], "weight": pa.array(held.weights)})
            )
    return grouped.histograms(tables, [str(text) for text in buckets.texts])


# --- DuckDB --------------------------------------------------------------------------------------------------------


class Grouped:
    """A table grouped by some of its integer columns, ``keys``, with the ``selected`` expressions per group.

    The columns selected for measure ``i`` are called ``ni``, and ``ti``, ``li`` and ``gi`` unless it is only a count.
    The group numbers are those of the resulting sums.
    """

    def __init__(self, table: Any, keys: Sequence[str], selected: Sequence[str]) -> None:
        self._keys = list(keys)
        self._places: dict[tuple[int, ...], int] | None = None
        if table is None:
            self._table = pa.table({key: pa.array([], pa.int64()) for key in keys})
            return
        listed = ", ".join(keys)
        grouped = f"SELECT {', '.join([*keys, *selected])} FROM sums GROUP BY {listed}"
        with database().cursor() as cursor:
            cursor.register("sums", table)
            relation = cursor.sql(grouped)
            kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
            shown = ", ".join(part for name in relation.columns for part in _fitting(name, kinds[name]))
            self._table = cursor.sql(f"SELECT {shown} FROM ({grouped})").to_arrow_table().combine_chunks()
            cursor.unregister("sums")

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def numbers(self, name: str) -> Numbers:
        """Return a column as a writable array, with 0 for null."""
        if name not in self._table.column_names:
            return np.zeros(len(self), np.int64)
        column = self._table[name].combine_chunks() if self._table.num_rows else self._table[name]
        if isinstance(column, pa.ChunkedArray):
            return np.zeros(0, column.type.to_pandas_dtype())
        return np.array(column.fill_null(0).to_numpy(zero_copy_only=False))

    def measure(self, at: int) -> MeasureSums:
        sums = MeasureSums(self.numbers(f"n{at}"))
        if f"t{at}" in self._table.column_names:
            sums.total, sums.least, sums.greatest = (self.numbers(f"{letter}{at}") for letter in "tlg")
            if f"t{at}_text" in self._table.column_names:
                texts = self._table[f"t{at}_text"].to_pylist()
                wide = {group: int(text) for group, text in enumerate(texts) if text is not None}
                sums.wide = {"total": wide} if wide else {}
        return sums

    def place(self, keys: Sequence[int]) -> int:
        """Return the number of the group with these keys, which must exist."""
        if self._places is None:
            columns = [self.numbers(key).tolist() for key in self._keys]
            self._places = {group: place for place, group in enumerate(zip(*columns, strict=True))}
        return self._places[tuple(map(int, keys))]

    def histograms(self, tables: Sequence[Any], names: list[str]) -> Histograms:
        """Sum up tables with the keys, a "bucket" (the index of its name) and a "weight", by group."""
        nothing = np.empty(0, np.int64)
        if not tables:
            return Histograms(nothing, nothing, np.empty(0, np.float64), names)
        own = self._table.select(self._keys).append_column("place", pa.array(np.arange(len(self))))
        using = ", ".join(self._keys)
        with database().cursor() as cursor:
            cursor.register("weighed", pa.concat_tables(tables))
            cursor.register("own", own)
            found = cursor.sql(
                "SELECT place, bucket, sum(weight) AS weight FROM "
                f"(SELECT {using}, bucket, sum(weight) AS weight FROM weighed GROUP BY {using}, bucket) "
                f"JOIN own USING ({using}) GROUP BY place, bucket"
            ).to_arrow_table()
            cursor.unregister("weighed")
            cursor.unregister("own")
        places, buckets, weights = (found[name].to_numpy() for name in ("place", "bucket", "weight"))
        return Histograms(places, buckets, weights, names)


def _fitting(name: str, kind: str) -> Iterator[str]:
    """Yield the expressions for a column: 128-bit integers as 64-bit ones, or as text if they do not fit."""
    if kind != "HUGEINT":
        yield name
        return
    yield f"CASE WHEN {name} {_FITS} THEN {name} ELSE 0 END::BIGINT AS {name}"
    if name.startswith("t"):
        yield f"CASE WHEN {name} NOT {_FITS} THEN {name}::VARCHAR END AS {name}_text"
