"""The sums of the records of an index file, by rollup, interval and all dimensions: computed, stored, and as a lake
table.

A rollup without a query is answered from these groups instead of from the records, which are far more numerous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from strandline.arrow import pa
from strandline.late_import import LateModule
from strandline.query.bound import bind_search
from strandline.query.chunk import Chunk
from strandline.query.config import Rollup, SearchConfig
from strandline.query.contributions import Contributions, add_up, contributing
from strandline.query.requests import AggregateRequest
from strandline.query.sums import WIDE_PARTS, Histograms, MeasureSums, Sums
from strandline.query.values import EARLIEST_DATE, LATEST_DATE

table_schemas: Any = LateModule("strandline.query.index_files.table_schemas")

#: The sums of one rollup by the length of the interval in milliseconds.
ByInterval = dict[int, Sums]


class StoredMeasure(Struct, frozen=True):
    """The arrays of a measure. ``wide`` are the integers that do not fit into 64 bits, as texts."""

    parts: tuple[str, ...]
    wide: dict[str, dict[int, str]]
    has_histograms: bool


class StoredRollup(Struct, frozen=True):
    """``id`` is the rollup's :func:`~strandline.query.index_files.builder.rollup_id`."""

    name: str
    id: str
    dimensions: tuple[str, ...]
    intervals: dict[int, dict[str, StoredMeasure]]


def sum_up(chunk: Chunk, rollup: Rollup, config: SearchConfig) -> ByInterval:
    """Return the sums over all contributing records of the chunk, once per interval."""
    found: ByInterval = {}
    rows = None
    for text, milliseconds in rollup.intervals.items():
        if milliseconds in found:
            continue
        request = _request_for_all(rollup, text, config)
        if rows is None:
            rows = contributing(chunk, request, [(request.first, request.end)])
        contributions = Contributions(request)
        if rows is not None and len(rows):
            contributions.add(chunk, rows)
        found[milliseconds] = add_up(contributions).ordered()
    return found


def _request_for_all(rollup: Rollup, interval: str, config: SearchConfig) -> AggregateRequest:
    return AggregateRequest(
        rollup=rollup,
        first=EARLIEST_DATE,
        end=LATEST_DATE + 1,
        interval=interval,
        group_by=rollup.dimensions,
        measures=tuple(sorted(rollup.measures)),
        query=None,
        include=None if rollup.include is None else bind_search(rollup.include, config),
        counted={
            measure.name: bind_search(measure.include, config)
            for measure in rollup.measures.values()
            if measure.include is not None
        },
    )


# --- as arrays of a file -----------------------------------------------------------------------------------------


def store_rollup(name: str, id: str, found: ByInterval) -> tuple[StoredRollup, dict[str, Any]]:
    """Return the description of a rollup, and its arrays by name."""
    arrays: dict[str, Any] = {}
    dimensions: tuple[str, ...] = ()
    intervals: dict[int, dict[str, StoredMeasure]] = {}
    for milliseconds, sums in found.items():
        dimensions = sums.dimensions
        prefix = f"rollup:{name}:{milliseconds}"
        arrays[f"{prefix}:starts"] = sums.starts
        for at, (codes, words) in enumerate(zip(sums.codes, sums.words, strict=True)):
            arrays[f"{prefix}:codes{at}"] = codes
            arrays[f"{prefix}:words{at}"] = words[1:]
        intervals[milliseconds] = {
            measure: _store_measure(each, f"{prefix}:{measure}", arrays) for measure, each in sums.measures.items()
        }
    return StoredRollup(name, id, dimensions, intervals), arrays


def _store_measure(sums: MeasureSums, prefix: str, arrays: dict[str, Any]) -> StoredMeasure:
    parts = tuple(part for part in ("count", *WIDE_PARTS) if getattr(sums, part) is not None)
    for part in parts:
        arrays[f"{prefix}:{part}"] = getattr(sums, part)
    if sums.histograms is not None:
        held = sums.histograms
        arrays[f"{prefix}:groups"] = held.groups.astype(np.int32)
        arrays[f"{prefix}:places"] = held.places.astype(np.int32)
        arrays[f"{prefix}:weights"] = held.weights
        arrays[f"{prefix}:names"] = pa.array(held.names, pa.string())
    wide = {part: {group: str(value) for group, value in found.items()} for part, found in sums.wide.items() if found}
    return StoredMeasure(parts, wide, sums.histograms is not None)


def load_sums(stored: StoredRollup, milliseconds: int, array: Callable[[str], Any]) -> Sums:
    """Return the sums for one of the intervals."""
    prefix = f"rollup:{stored.name}:{milliseconds}"
    places = range(len(stored.dimensions))
    return Sums(
        stored.dimensions,
        array(f"{prefix}:starts"),
        [array(f"{prefix}:codes{at}") for at in places],
        [pa.concat_arrays([pa.nulls(1, pa.string()), array(f"{prefix}:words{at}")]) for at in places],
        {
            name: _load_measure(measure, f"{prefix}:{name}", array)
            for name, measure in stored.intervals[milliseconds].items()
        },
    )


def _load_measure(stored: StoredMeasure, prefix: str, array: Callable[[str], Any]) -> MeasureSums:
    sums = MeasureSums(**{part: array(f"{prefix}:{part}") for part in stored.parts})
    sums.wide = {part: {group: int(text) for group, text in found.items()} for part, found in stored.wide.items()}
    if stored.has_histograms:
        groups, places, weights, names = (
            array(f"{prefix}:{part}") for part in ("groups", "places", "weights", "names")
        )
        sums.histograms = Histograms(groups, places, weights, names.to_pylist())
    return sums


# --- for the lake ------------------------------------------------------------------------------------------------


def rows_of(sums: Sums, constants: Mapping[str, Any]) -> Any:
    """Return the rows of the table, in the schema ``ROLLUP_ROWS``. ``constants`` are the columns up to
    ``interval_ms``."""
    tables = []
    for name, measure in sums.measures.items():
        columns: dict[str, Any] = {key: pa.repeat(value, len(sums)) for key, value in constants.items()}
        columns |= {
            "start": pa.array(sums.starts * 1000).view(pa.timestamp("us", tz="UTC")),
            "dimensions": _dimension_maps(sums),
            "measure": pa.repeat(name, len(sums)),
            "count": pa.array(measure.count.astype(np.float64)),
            "sum": _floats(measure, "total", len(sums)),
            "min": _floats(measure, "least", len(sums)),
            "max": _floats(measure, "greatest", len(sums)),
            "histogram": _histogram_maps(measure, len(sums)),
        }
        tables.append(
            pa.table([columns[field.name] for field in table_schemas.ROLLUP_ROWS], schema=table_schemas.ROLLUP_ROWS)
        )
    return pa.concat_tables(tables)


def _dimension_maps(sums: Sums) -> Any:
    count = len(sums.dimensions)
    names = pa.array(list(sums.dimensions) * len(sums), pa.string())
    if not count:
        return pa.MapArray.from_arrays(np.zeros(len(sums) + 1, np.int32), names, names)
    texts = [words.take(pa.array(codes)) for words, codes in zip(sums.words, sums.codes, strict=True)]
    # Group by group instead of dimension by dimension.
    order = np.arange(count * len(sums)).reshape(count, len(sums)).T.ravel()
    values = pa.concat_arrays(texts).take(pa.array(order))
    return pa.MapArray.from_arrays(np.arange(len(sums) + 1, dtype=np.int32) * count, names, values)


def _floats(measure: MeasureSums, part: str, groups: int) -> Any:
    numbers = getattr(measure, part)
    if numbers is None:
        return pa.nulls(groups, pa.float64())
    floats = numbers.astype(np.float64)
    for group, value in measure.wide.get(part, {}).items():
        floats[group] = float(value)
    return pa.array(floats)


def _histogram_maps(measure: MeasureSums, groups: int) -> Any:
    held = measure.histograms
    if held is None:
        return pa.nulls(groups, table_schemas.ROLLUP_ROWS.field("histogram").type)
    order = np.lexsort((held.places, held.groups))
    offsets = np.zeros(groups + 1, np.int32)
    np.cumsum(np.bincount(held.groups, minlength=groups), out=offsets[1:])
    names = pa.array(held.names, pa.string()).take(pa.array(held.places[order]))
    return pa.MapArray.from_arrays(offsets, names, pa.array(held.weights[order]))
