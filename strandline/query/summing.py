"""Adding up contributions by interval and group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.query.chunk import Chunk
from strandline.query.columns import AnyColumn, HistogramColumn, KeywordColumn, NumberColumn
from strandline.query.config import Measure
from strandline.query.errors import BadQuery
from strandline.query.evaluating import evaluate
from strandline.query.index import part_name
from strandline.query.payloads import database
from strandline.query.requests import AggregateRequest
from strandline.query.summary import Summary, plain, power_name

#: More groups than this are no answer to a person, and would keep the server from other work for seconds.
MAX_GROUPS = 50_000

#: The start of an interval, and a value per dimension that is grouped by.
Group = tuple[Any, ...]
Rows = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

_START = "start"


class Contributions:
    """What the contributing records have, as tables for DuckDB: one of records, and one per histogram of its buckets.

    Dimensions and buckets are numbered, in the order in which they turn up. Integers that are too large for a column
    are kept aside and added up by Python.
    """

    def __init__(self, request: AggregateRequest) -> None:
        self.request = request
        self.measures = [request.rollup.measures[name] for name in request.measures]
        self.names: dict[str, Numbering] = {name: Numbering() for name in request.group_by}
        self.tables: dict[str, list[dict[str, Array]]] = {}
        #: Measure, keys of the rows, and their values.
        self.large: list[tuple[Measure, dict[str, Array], list[int]]] = []

    def add(self, chunk: Chunk, rows: Rows) -> None:
        keys = self._keys(chunk, rows)
        records = dict(keys)
        for at, measure in enumerate(self.measures):
            if measure.kind == "count":
                records[f"m{at}"] = self._counted(measure, chunk, rows)
            elif measure.field is not None:
                values = lone_numbers(chunk.columns[measure.field], rows)
                if values.dtype == np.object_:
                    self.large.append((measure, keys, values.tolist()))
                    values = np.zeros(len(rows), np.int64)
                    records[f"x{at}"] = np.zeros(len(rows), np.bool_)
                else:
                    records[f"x{at}"] = np.ones(len(rows), np.bool_)
                    if measure.histogram:
                        self._table(f"h{at}", {**keys, "bucket": exponents(values), "weight": np.ones(len(rows))})
                records[f"m{at}"] = values
            else:
                self._add_parts(at, measure, chunk, rows, keys, records)
        self._table("records", records)

    def _table(self, name: str, columns: dict[str, Array]) -> None:
        self.tables.setdefault(name, []).append(columns)

    def _keys(self, chunk: Chunk, rows: Rows) -> dict[str, Array]:
        times = lone_numbers(chunk.columns[self.request.rollup.timestamp_field], rows).astype(np.int64)
        interval = self.request.interval_ms
        keys: dict[str, Array] = {_START: times // interval * interval}
        for at, name in enumerate(self.request.group_by):
            keys[f"d{at}"] = self.names[name].number(chunk.columns[name], rows)
        return keys

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
            codes = numbering.number_words(column, np.flatnonzero(inside))
            columns = {name: values[places[inside]] for name, values in keys.items()}
            self._table(f"h{at}", {**columns, "bucket": codes, "weight": column.weights[inside]})


class Numbering:
    """Numbers for texts; 0 is for nothing."""

    def __init__(self) -> None:
        self.texts: list[str | None] = [None]
        self._numbers: dict[str, int] = {}

    def number(self, column: AnyColumn, rows: Rows) -> Array:
        """The numbers of the only values of these records."""
        places, missing = column.places(rows)
        if not column.count:
            return np.zeros(len(rows), np.int64)
        if isinstance(column, KeywordColumn):
            numbers = self.number_words(column, places)
        else:
            assert isinstance(column, NumberColumn)
            values, inverse = np.unique(column.values[places], return_inverse=True)
            numbers = np.array([self._number(text_of(value)) for value in values.tolist()], np.int64)[inverse]
        if missing is not None:
            numbers[missing] = 0
        return numbers

    def number_words(self, column: KeywordColumn, places: Array) -> Array:
        """The numbers of the words at these places."""
        codes = column.codes[places]
        used = np.unique(codes)
        table = np.zeros(len(column.words), np.int64)
        table[used] = [self._number(word) for word in column.words.take(pa.array(used)).to_pylist()]
        return table[codes]

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number


def text_of(value: Any) -> str:
    """The value of a dimension as it is shown."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(plain(value))


def lone_numbers(column: AnyColumn, rows: Rows) -> Array:
    """The only values of these records."""
    assert isinstance(column, NumberColumn)
    return column.values[column.places(rows)[0]] if len(rows) else column.values[:0]


def exponents(values: Array) -> Array:
    """Of each number the greatest power of two that is not above it, 0 where it is less than 1."""
    sizes = np.abs(values.astype(np.float64))
    powers = np.maximum(np.frexp(np.maximum(sizes, 1.0))[1] - 1, 0).astype(np.int64)
    if values.dtype.kind == "i":
        # Large integers may have been rounded up to a power of two that they do not reach.
        magnitudes = np.abs(values).astype(np.uint64)
        powers -= (np.uint64(1) << np.minimum(powers, 63).astype(np.uint64)) > np.maximum(magnitudes, np.uint64(1))
    found: Array = powers
    return found


# --- adding up ---------------------------------------------------------------------------------------------------


def add_up(contributions: Contributions) -> dict[Group, dict[str, Summary]]:
    """A summary for each group and measure. Raises BadQuery if there are too many."""
    request = contributions.request
    keys = [_START, *(f"d{at}" for at in range(len(request.group_by)))]
    groups: dict[Group, dict[str, Summary]] = {}
    texts = [contributions.names[name].texts for name in request.group_by]

    def summaries(row: Sequence[Any]) -> dict[str, Summary]:
        group = row[0], *(texts[at][number] for at, number in enumerate(row[1:]))
        found = groups.get(group)
        if found is None:
            found = groups[group] = {name: Summary(histogram={}) for name in request.measures}
        return found

    chosen: list[str] = []
    for at, measure in enumerate(contributions.measures):
        chosen += _sums(at, measure, contributions)
    rows = _query(contributions.tables.get("records", []), keys, chosen)
    if len(rows) > MAX_GROUPS:
        raise BadQuery(
            f"there are {len(rows)} groups and the limit is {MAX_GROUPS}: "
            "ask for a longer interval, a shorter range or fewer dimensions"
        )
    for row in rows:
        found, results = summaries(row[: len(keys)]), iter(row[len(keys) :])
        for measure in contributions.measures:
            if measure.kind == "count":
                found[measure.name].count += next(results)
            else:
                found[measure.name].merge(next(results) or 0, next(results) or 0, next(results), next(results))
    for at, measure in enumerate(contributions.measures):
        names = contributions.names.get(f"h{at}")
        for *group, bucket, weight in _query(
            contributions.tables.get(f"h{at}", []), [*keys, "bucket"], ["sum(weight)"]
        ):
            name = power_name(bucket) if names is None else names.texts[bucket]
            assert name is not None
            summaries(group)[measure.name].fill(name, plain(weight))
    for measure, columns, values in contributions.large:
        for *group, value in zip(*(columns[key].tolist() for key in keys), values, strict=True):
            summary = summaries(group)[measure.name]
            summary.merge(1, value, value, value)
            if measure.histogram:
                summary.fill(power_name(max(abs(value), 1).bit_length() - 1), 1)
    return groups


def _sums(at: int, measure: Measure, contributions: Contributions) -> list[str]:
    """What is selected for a measure."""
    if measure.kind == "count":
        return [f"count(*) FILTER (m{at})"]
    if measure.field is None:
        return [f"sum(m{at}n)", f"fsum(m{at}s)", f"min(m{at}l)", f"max(m{at}g)"]
    tables = contributions.tables.get("records", [])
    # DuckDB adds integers up exactly, and floats with an error that does not grow.
    total = "fsum" if any(table[f"m{at}"].dtype.kind == "f" for table in tables) else "sum"
    own = f"FILTER (x{at})"
    return [f"count(*) {own}", f"{total}(m{at}) {own}", f"min(m{at}) {own}", f"max(m{at}) {own}"]


def _query(tables: list[dict[str, Array]], keys: Sequence[str], chosen: Sequence[str]) -> list[tuple[Any, ...]]:
    if not tables:
        return []
    contributions = pa.concat_tables([pa.table(columns) for columns in tables])
    listed = ", ".join(keys)
    query = f"SELECT {', '.join([*keys, *chosen])} FROM contributions GROUP BY {listed}"
    with database().cursor() as cursor:
        cursor.register("contributions", contributions)
        rows: list[tuple[Any, ...]] = cursor.execute(query).fetchall()
        cursor.unregister("contributions")
    return rows
