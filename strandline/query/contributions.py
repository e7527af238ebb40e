"""Find the records that contribute to a rollup, and sum up their contributions by interval and group.

A record contributes as a whole or not at all, so that all measures of a rollup cover the same records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.query.chunk import Chunk
from strandline.query.columns import AnyColumn, HistogramColumn, KeywordColumn, Mask, NumberColumn
from strandline.query.config import Measure
from strandline.query.evaluator import evaluate
from strandline.query.index import part_name
from strandline.query.requests import AggregateRequest
from strandline.query.sums import Grouped, Histograms, MeasureSums, Numbering, Sums
from strandline.query.values import plain, power_name

Rows = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

_START = "start"
#: Integers from here on do not fit into 64 bits.
_LARGE = 1 << 63


class Contributions:
    """The values of the contributing records as tables for DuckDB: one of records, and one per histogram of its
    buckets.

    Dimensions and buckets are numbered in the order of their appearance. Integers that are too large for a column are
    stored separately and summed up by Python.
    """

    def __init__(self, request: AggregateRequest) -> None:
        self.request = request
        self.measures = [request.rollup.measures[name] for name in request.measures]
        self.names: dict[str, Numbering] = {name: Numbering() for name in request.group_by}
        self.tables: dict[str, list[dict[str, Array]]] = {}
        #: Measure, keys of the rows, and their values.
        self.large: list[tuple[Measure, dict[str, Array], list[int]]] = []

    def add(self, chunk: Chunk, rows: Rows) -> None:
        keys = self._groups(chunk, rows)
        records = dict(keys)
        for at, measure in enumerate(self.measures):
            if measure.kind == "count":
                records[f"m{at}"] = self._counted(measure, chunk, rows)
            elif measure.field is not None:
                values, fits = self._fitting(measure, lone_numbers(chunk.columns[measure.field], rows), keys)
                records[f"x{at}"] = fits
                if measure.histogram:
                    fitting = {name: column[fits] for name, column in keys.items()}
                    weights = np.ones(np.count_nonzero(fits))
                    self._table(f"h{at}", {**fitting, "bucket": exponents(values[fits]), "weight": weights})
                records[f"m{at}"] = values
            else:
                self._add_parts(at, measure, chunk, rows, keys, records)
        self._table("records", records)

    @property
    def keys(self) -> list[str]:
        """The columns that identify the group."""
        return [_START, *(f"d{at}" for at in range(len(self.request.group_by)))]

    def _table(self, name: str, columns: dict[str, Array]) -> None:
        self.tables.setdefault(name, []).append(columns)

    def _groups(self, chunk: Chunk, rows: Rows) -> dict[str, Array]:
        times = lone_numbers(chunk.columns[self.request.rollup.timestamp_field], rows).astype(np.int64)
        interval = self.request.interval_ms
        keys: dict[str, Array] = {_START: times // interval * interval}
        for at, name in enumerate(self.request.group_by):
            keys[f"d{at}"] = numbers_of(chunk.columns[name], rows, self.names[name])
        return keys

    def _fitting(self, measure: Measure, values: Array, keys: dict[str, Array]) -> tuple[Array, Mask]:
        """Return the values as 64-bit numbers, and which of them fit. The others are stored separately."""
        if values.dtype != np.object_:
            return values, np.ones(len(values), np.bool_)
        fits = np.array([-_LARGE <= value < _LARGE for value in values.tolist()], np.bool_)
        large = {name: column[~fits] for name, column in keys.items()}
        self.large.append((measure, large, values[~fits].tolist()))
        return np.where(fits, values, 0).astype(np.int64), fits

    def _counted(self, measure: Measure, chunk: Chunk, rows: Rows) -> Array:
        bound = self.request.counted.get(measure.name)
        return np.ones(len(rows), np.bool_) if bound is None else evaluate(bound, chunk).mask[rows]

    def _add_parts(
        self, at: int, measure: Measure, chunk: Chunk, rows: Rows, keys: dict[str, Array], records: dict[str, Array]
    ) -> None:
        assert measure.pointers is not None
        for part, pointer in zip("nslg", measure.pointers[:4], strict=True):
            records[f"m{at}{part}"] = lone_numbers(chunk.columns[part_name(pointer)], rows)
        if len(measure.pointers) > 4:
            column = chunk.columns[measure.pointers[4]]
            assert isinstance(column, HistogramColumn)
            owners = np.arange(len(chunk)) if column.rows is None else column.rows
            places = np.searchsorted(rows, owners)
            places[places == len(rows)] = 0
            inside = rows[places] == owners if len(rows) else np.zeros(len(owners), np.bool_)
            numbering = self.names.setdefault(f"h{at}", Numbering())
            codes = word_numbers(column, np.flatnonzero(inside), numbering)
            columns = {name: values[places[inside]] for name, values in keys.items()}
            self._table(f"h{at}", {**columns, "bucket": codes, "weight": column.weights[inside]})


def numbers_of(column: AnyColumn, rows: Rows, numbering: Numbering) -> Array:
    """Return the numbers of the single values of these records."""
    places, missing = column.places(rows)
    if not column.count:
        return np.zeros(len(rows), np.int64)
    if isinstance(column, KeywordColumn):
        numbers = word_numbers(column, places, numbering)
    else:
        assert isinstance(column, NumberColumn)
        values, inverse = np.unique(column.values[places], return_inverse=True)
        numbers = numbering.table([text_of(value) for value in values.tolist()])[inverse]
    if missing is not None:
        numbers[missing] = 0
    return numbers


def word_numbers(column: KeywordColumn, places: Array, numbering: Numbering) -> Array:
    """Return the numbers of the words at these positions."""
    codes = column.codes[places]
    used = np.zeros(len(column.words), np.bool_)
    used[codes] = True
    table = np.zeros(len(column.words), np.int64)
    table[used] = numbering.table(column.words.filter(pa.array(used)).to_pylist())
    return table[codes]


def text_of(value: Any) -> str:
    """Return the value of a dimension as shown in results."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(plain(value))


def lone_numbers(column: AnyColumn, rows: Rows) -> Array:
    """Return the single values of these records."""
    assert isinstance(column, NumberColumn)
    return column.values[column.places(rows)[0]] if len(rows) else column.values[:0]


def exponents(values: Array) -> Array:
    """Return, for each number, the largest power of two that is not above it; 0 if the number is less than 1."""
    sizes = np.abs(values.astype(np.float64))
    powers = np.maximum(np.frexp(np.maximum(sizes, 1.0))[1] - 1, 0).astype(np.int64)
    if values.dtype.kind == "i":
        # Large integers may have been rounded up to a power of two that they do not reach.
        magnitudes = np.abs(values).astype(np.uint64)
        powers -= (np.uint64(1) << np.minimum(powers, 63).astype(np.uint64)) > np.maximum(magnitudes, np.uint64(1))
    found: Array = powers
    return found


# --- summing up --------------------------------------------------------------------------------------------------


def add_up(contributions: Contributions) -> Sums:
    """Sum up the contributions by interval and group."""
    keys, tables = contributions.keys, contributions.tables
    selected = [each for at, measure in enumerate(contributions.measures) for each in _selected(at, measure, tables)]
    grouped = Grouped(_table_of(tables.get("records", [])), keys, selected)
    measures: dict[str, MeasureSums] = {}
    for at, measure in enumerate(contributions.measures):
        measures[measure.name] = grouped.measure(at)
        if measure.histogram or len(measure.pointers or ()) > 4:
            measures[measure.name].histograms = _histograms(at, contributions, grouped)
    for measure, columns, values in contributions.large:
        for *group, value in zip(*(columns[key].tolist() for key in keys), values, strict=True):
            measures[measure.name].add_wide(grouped.place(group), 1, value, value, value)
    dimensions = contributions.request.group_by
    codes = [grouped.numbers(key).astype(np.int32) for key in keys[1:]]
    words = [contributions.names[name].texts for name in dimensions]
    return Sums(dimensions, grouped.numbers(_START), codes, words, measures)


def _selected(at: int, measure: Measure, tables: dict[str, list[dict[str, Array]]]) -> list[str]:
    if measure.kind == "count":
        return [f"count(*) FILTER (m{at}) AS n{at}"]
    if measure.field is None:
        return [f"sum(m{at}n) AS n{at}", f"fsum(m{at}s) AS t{at}", f"min(m{at}l) AS l{at}", f"max(m{at}g) AS g{at}"]
    # DuckDB sums integers exactly, and floats with an error that does not grow.
    total = "fsum" if any(table[f"m{at}"].dtype.kind == "f" for table in tables.get("records", [])) else "sum"
    own = f"FILTER (x{at})"
    return [
        f"count(*) {own} AS n{at}",
        f"coalesce({total}(m{at}) {own}, 0) AS t{at}",
        f"min(m{at}) {own} AS l{at}",
        f"max(m{at}) {own} AS g{at}",
    ]


def _histograms(at: int, contributions: Contributions, grouped: Grouped) -> Histograms:
    measure, keys = contributions.measures[at], contributions.keys
    tables = list(contributions.tables.get(f"h{at}", []))
    for other, columns, values in contributions.large:
        if other is measure:
            powers = np.array([max(abs(value), 1).bit_length() - 1 for value in values], np.int64)
            tables.append({**{key: columns[key] for key in keys}, "bucket": powers, "weight": np.ones(len(values))})
    if measure.pointers is not None:
        numbering = contributions.names.get(f"h{at}")
        names = [] if numbering is None else [str(text) for text in numbering.texts]
    else:
        most = max((int(table["bucket"].max()) for table in tables if len(table["bucket"])), default=-1)
        names = [power_name(power) for power in range(most + 1)]
    return grouped.histograms([pa.table(table) for table in tables], names)


def _table_of(tables: list[dict[str, Array]]) -> Any:
    return pa.concat_tables([pa.table(columns) for columns in tables]) if tables else None


#: Ranges of times in milliseconds; the ends are exclusive.
Windows = Sequence[tuple[int, int]]


def contributing(chunk: Chunk, request: AggregateRequest, windows: Windows) -> Rows | None:
    """Return the rows of a chunk that contribute and whose time is in one of the windows; None if the time bounds of
    the chunk show that there are none."""
    timestamps = chunk.columns[request.rollup.timestamp_field]
    assert isinstance(timestamps, NumberColumn)
    if timestamps.bounds is None:
        return None
    least, greatest = timestamps.bounds
    windows = [(first, end) for first, end in windows if first <= greatest and least < end]
    if not windows:
        return None
    total = len(chunk)
    values = timestamps.values
    inside = np.zeros(len(values), np.bool_)
    for first, end in windows:
        inside |= (values >= first) & (values < end)
    mask: Mask = timestamps.rows_where(inside, total) & timestamps.lone(total)
    if chunk.gone is not None:
        mask = mask & ~chunk.gone
    for bound in (request.include, request.query):
        if bound is not None:
            mask = mask & evaluate(bound, chunk).mask
    for name in request.rollup.dimensions:
        mask = mask & chunk.columns[name].at_most_one(total)
    for measure in request.rollup.measures.values():
        for name in summed_columns(measure):
            mask = mask & chunk.columns[name].lone(total)
    return np.flatnonzero(mask)


def summed_columns(measure: Measure) -> Sequence[str]:
    """Return the columns in which a contributing record has exactly one number."""
    if measure.field is not None:
        return (measure.field,)
    return [part_name(pointer) for pointer in (measure.pointers or ())[:4]]
