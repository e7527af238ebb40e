"""Find the records that contribute to a rollup, and sum up their contributions by interval and group.

A record contributes as a whole or not at all, so that all measures of a rollup cover the same records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.arrow import pa
from strandline.query.chunk import Chunk
from strandline.query.columns import AnyColumn, HistogramColumn, KeywordColumn, Mask, NumberColumn, used_words
from strandline.query.config import Measure
from strandline.query.evaluator import evaluate
from strandline.query.groups import Groups
from strandline.query.index import part_name
from strandline.query.requests import AggregateRequest
from strandline.query.sums import MeasureRows, Sums, Weights, add_measure, unified
from strandline.query.values import plain, power_name

Rows = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

#: Integers from here on do not fit into 64 bits.
_LARGE = 1 << 63


class Contributions:
    """The values of the contributing records, chunk by chunk.

    Integers that are too large for an array are stored separately.
    """

    def __init__(self, request: AggregateRequest) -> None:
        self.request = request
        self.measures = [request.rollup.measures[name] for name in request.measures]
        #: The number of the interval of each record.
        self.starts: list[Array] = []
        #: The codes and words of each dimension, as in :class:`~strandline.query.sums.Sums`.
        self.dimensions: dict[str, list[tuple[Array, Any]]] = {name: [] for name in request.group_by}
        self.rows: dict[str, list[MeasureRows]] = {measure.name: [] for measure in self.measures}
        #: The name of a measure, the chunk, the records, and their values.
        self.large: list[tuple[str, int, Array, list[int]]] = []

    def add(self, chunk: Chunk, rows: Rows) -> None:
        if not len(rows):
            return
        times = lone_numbers(chunk.columns[self.request.rollup.timestamp_field], rows).astype(np.int64)
        for name, pieces in self.dimensions.items():
            pieces.append(dimension_codes(chunk.columns[name], rows))
        for measure in self.measures:
            self.rows[measure.name].append(self._rows_of(measure, chunk, rows))
        self.starts.append(times // self.request.interval_ms)

    def _rows_of(self, measure: Measure, chunk: Chunk, rows: Rows) -> MeasureRows:
        if measure.kind == "count":
            bound = self.request.counted.get(measure.name)
            return MeasureRows(None if bound is None else evaluate(bound, chunk).mask[rows].astype(np.int64))
        if measure.field is not None:
            return self._values(measure, lone_numbers(chunk.columns[measure.field], rows))
        return _parts(measure, chunk, rows)

    def _values(self, measure: Measure, values: Array) -> MeasureRows:
        kept: Mask | None = None
        weights: list[Weights] = []
        if values.dtype == np.object_:
            kept = np.array([-_LARGE <= value < _LARGE for value in values.tolist()], np.bool_)
            large = values[~kept].tolist()
            self.large.append((measure.name, len(self.starts), np.flatnonzero(~kept), large))
            values = np.where(kept, values, 0).astype(np.int64)
            if measure.histogram:
                names = pa.array([power_name(max(abs(value), 1).bit_length() - 1) for value in large], pa.string())
                weights.append(Weights(np.flatnonzero(~kept), np.arange(len(large)), None, names))
        if measure.histogram and len(values):
            rows = None if kept is None else np.flatnonzero(kept)
            powers = exponents(values if rows is None else values[rows])
            names = pa.array([power_name(power) for power in range(int(powers.max(initial=0)) + 1)], pa.string())
            weights.append(Weights(rows, powers, None, names))
        return MeasureRows(None, values, values, values, kept, weights)


def _parts(measure: Measure, chunk: Chunk, rows: Rows) -> MeasureRows:
    assert measure.pointers is not None
    parts = (lone_numbers(chunk.columns[part_name(pointer)], rows) for pointer in measure.pointers[:4])
    count, total, least, greatest = parts
    found = MeasureRows(count, total, least, greatest)
    if len(measure.pointers) > 4:
        column = chunk.columns[measure.pointers[4]]
        assert isinstance(column, HistogramColumn)
        owners = np.arange(len(chunk)) if column.rows is None else column.rows
        places = np.searchsorted(rows, owners)
        places[places == len(rows)] = 0
        inside = rows[places] == owners
        codes, words = used_words(column.codes[inside], column.words)
        found.weights = (Weights(places[inside], codes, column.weights[inside], words),)
    return found


def dimension_codes(column: AnyColumn, rows: Rows) -> tuple[Array, Any]:
    """Return the single values of these records as codes, and their words. The word of code 0 is null, for records
    without a value."""
    places, missing = column.places(rows)
    if not column.count:
        return np.zeros(len(rows), np.int64), pa.nulls(1, pa.string())
    codes: Array
    if isinstance(column, KeywordColumn):
        codes, words = used_words(column.codes[places], column.words)
    else:
        assert isinstance(column, NumberColumn)
        values, codes = np.unique(column.values[places], return_inverse=True)
        words = pa.array([text_of(value) for value in values.tolist()], pa.string())
    codes = codes.astype(np.int64) + 1
    if missing is not None:
        codes[missing] = 0
    return codes, pa.concat_arrays([pa.nulls(1, pa.string()), words])


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
    # The exponent is in the bits of a float, next to the sign.
    powers = np.maximum((np.abs(values.astype(np.float64)).view(np.int64) >> 52) - 1023, 0)
    if values.dtype.kind == "i":
        # Large integers may have been rounded up to a power of two that they do not reach.
        magnitudes = np.abs(values).astype(np.uint64)
        powers -= (np.uint64(1) << np.minimum(powers, 63).astype(np.uint64)) > np.maximum(magnitudes, np.uint64(1))
    found: Array = powers
    return found


# --- summing up --------------------------------------------------------------------------------------------------


def add_up(contributions: Contributions) -> Sums:
    """Sum up the contributions by interval and group."""
    request = contributions.request
    if not contributions.starts:
        return Sums.empty(request.group_by, request.measures)
    keys: list[list[Array]] = [[starts] for starts in contributions.starts]
    words = []
    for pieces in contributions.dimensions.values():
        tables, distinct = unified([own for _, own in pieces])
        words.append(distinct)
        for key, table, (codes, _) in zip(keys, tables, pieces, strict=True):
            key.append(table[codes])
    groups = Groups(keys)
    starts, *codes_of = groups.keys
    measures = {
        measure.name: add_measure(groups, contributions.rows[measure.name], _has_histograms(measure))
        for measure in contributions.measures
    }
    for name, piece, records, values in contributions.large:
        for group, value in zip(groups.pieces[piece].of_row[records].tolist(), values, strict=True):
            measures[name].add_wide(group, 1, value, value, value)
    narrow = [each.astype(np.int32) for each in codes_of]
    return Sums(request.group_by, starts * request.interval_ms, narrow, words, measures)


def _has_histograms(measure: Measure) -> bool:
    return measure.histogram or len(measure.pointers or ()) > 4


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
