"""Aggregation: sum up the measures of a rollup per interval and group over a whole log, and render the result as JSON.

There may be tens of thousands of groups, so JSON texts are also assembled from whole arrays. Integers are written
without a fraction, as JavaScript writes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from strandline.engine import Log
from strandline.query.chunk import Chunk
from strandline.query.columns import Numbers
from strandline.query.config import Measure, SearchConfig
from strandline.query.contributions import Contributions, add_up, contributing
from strandline.query.errors import BadQuery
from strandline.query.index import Versions
from strandline.query.index_files.builder import rollup_id
from strandline.query.providers import Provider
from strandline.query.requests import AggregateRequest
from strandline.query.search import Coverage, Family, families_of, first_omitted, latest
from strandline.query.sums import WIDE_PARTS, Histograms, MeasureSums, Sums, combine
from strandline.query.values import LATEST_DATE, PLAIN_BELOW

#: A larger result is of no use to a person, and would block the server for seconds.
MAX_GROUPS = 50_000
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
#: Up to here floats represent integers exactly.
_EXACT = 1 << 53

#: An Arrow array of strings, one per group.
Texts = Any


def render(sums: Sums, request: AggregateRequest) -> bytes:
    """Render an array of intervals: ``{"start", "end", "groups": [{"key", "measures"}]}``. Groups are sorted by the
    JSON text of their keys. Raises BadQuery if there are too many groups."""
    if len(sums) > MAX_GROUPS:
        raise BadQuery(
            f"the result has {len(sums)} groups; the limit is {MAX_GROUPS}: "
            "use a longer interval, a shorter range or fewer dimensions"
        )
    if not len(sums):
        return b"[]"
    keys, ranks = _keys(sums)
    order = np.lexsort((ranks, sums.starts))
    measures = [measured(sums.measures[name], request.rollup.measures[name]) for name in request.measures]
    parts: list[Any] = ['{"key":', keys, ',"measures":{']
    for at, (name, texts) in enumerate(zip(request.measures, measures, strict=True)):
        parts += [f"{',' if at else ''}{_quoted(name)}:", texts]
    groups = _joined(*parts, "}}").take(pa.array(order))
    starts, firsts = np.unique(sums.starts[order], return_index=True)
    together = pc.binary_join(pa.ListArray.from_arrays(pa.array([*firsts, len(order)], pa.int32()), groups), ",")
    ends = np.minimum(starts + request.interval_ms, LATEST_DATE)
    buckets = _joined('{"start":"', _dates(starts), '","end":"', _dates(ends), '","groups":[', together, "]}")
    return f"[{','.join(buckets.to_pylist())}]".encode()


def _keys(sums: Sums) -> tuple[Texts, Numbers]:
    """Return the keys of the groups, and numbers that ascend in the order of their texts."""
    if not sums.dimensions:
        return pa.array(["{}"] * len(sums)), np.zeros(len(sums), np.int64)
    places: dict[tuple[int, ...], int] = {}
    codes = (each.tolist() for each in sums.codes)
    groups = [places.setdefault(group, len(places)) for group in zip(*codes, strict=True)]
    texts = [
        msgspec.json.encode(
            {name: words[code] for name, words, code in zip(sums.dimensions, sums.words, group, strict=True)}
        ).decode()
        for group in places
    ]
    ranks = np.empty(len(texts), np.int64)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return pa.array(texts).take(pa.array(groups)), ranks[groups]


def _dates(milliseconds: Numbers) -> Texts:
    return pa.array(np.datetime_as_string(milliseconds.astype("datetime64[ms]"), timezone="UTC").tolist())


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _joined(*parts: Any) -> Texts:
    """Concatenate texts and arrays of texts, group by group."""
    return pc.binary_join_element_wise(*parts, "")


# --- measures ----------------------------------------------------------------------------------------------------


def measured(sums: MeasureSums, measure: Measure) -> Texts:
    """Return the rendered measure of each group."""
    counts = numbers_shown(sums.count)
    if measure.kind == "count":
        return _joined('{"count":', counts, "}")
    totals, least, greatest = (_part(sums, part) for part in WIDE_PARTS)
    parts = ['{"count":', counts, ',"sum":', totals, ',"min":', least, ',"max":', greatest, ',"avg":', _averages(sums)]
    if sums.histograms is None:
        return _joined(*parts, *(f',"{name}":null' for name in PERCENTILES), "}")
    return _joined(*parts, *_histograms(sums.histograms, len(sums.count)), "}")


def _part(sums: MeasureSums, part: str) -> Texts:
    wide = {group: str(value) for group, value in sums.wide.get(part, {}).items()}
    return _replaced(numbers_shown(getattr(sums, part)), wide)


def _averages(sums: MeasureSums) -> Texts:
    assert sums.total is not None
    counts, totals = sums.count.astype(np.float64), sums.total
    averages = totals / np.where(counts == 0, 1, counts)
    exactly: dict[int, str] = {int(at): "null" for at in np.flatnonzero(counts == 0)}
    if totals.dtype.kind == "i":
        # Python divides integers that are too large to be converted to floats first.
        large = {*np.flatnonzero(np.abs(totals.astype(np.float64)) >= _EXACT).tolist(), *sums.wide.get("total", {})}
        for at in large - exactly.keys():
            exactly[at] = number_shown(sums.part("total", at) / int(sums.count[at]))
    return _replaced(numbers_shown(averages), exactly)


def _histograms(held: Histograms, groups: int) -> Sequence[Any]:
    """Return the percentiles, and the histogram: buckets in ascending order, without those whose names are not
    numbers."""
    bounds = np.array([_bound_of(name) for name in held.names], np.float64)
    order = np.lexsort((held.places, bounds[held.places], held.groups))
    order = order[np.isfinite(bounds[held.places[order]])]
    owners, places, weights = held.groups[order], held.places[order], held.weights[order]
    offsets = np.zeros(groups + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=groups), out=offsets[1:])
    names = pa.array([f"{_quoted(name)}:" for name in held.names], pa.string()).take(pa.array(places))
    entries = _joined(names, numbers_shown(weights)) if len(order) else pa.array([], pa.string())
    together = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), entries), ",")
    parts: list[Any] = []
    reached = _reached(weights, offsets)
    shown = pa.array([number_shown(bound) for bound in bounds] + ["null"], pa.string())
    for name, share in PERCENTILES.items():
        found = _first_reaching(reached, offsets, owners, share)
        at = np.where(found < 0, len(bounds), places[found] if len(places) else len(bounds))
        parts += [f',"{name}":', shown.take(pa.array(at))]
    return [*parts, ',"histogram":{', together, "}"]


def _reached(weights: Numbers, offsets: Numbers) -> Numbers:
    """Return the cumulative weight of each bucket and those below it in the same group."""
    total = np.cumsum(weights)
    if len(weights) and (total[-1] >= _EXACT or np.any(weights != np.floor(weights))):
        # Rounding must not depend on other groups.
        pieces = [np.cumsum(weights[low:high]) for low, high in pairwise(offsets.tolist())]
        return np.concatenate(pieces)
    before = np.concatenate(([0.0], total))[offsets[:-1]]
    return np.asarray(total - np.repeat(before, np.diff(offsets)))


def _first_reaching(reached: Numbers, offsets: Numbers, owners: Numbers, share: float) -> Numbers:
    """Return, for each group, the index of the lowest bucket at which at least this share of the total is reached; -1:
    none."""
    found = np.full(len(offsets) - 1, -1, np.int64)
    filled = offsets[1:] > offsets[:-1]
    totals = np.zeros(len(found))
    totals[filled] = reached[offsets[1:][filled] - 1]
    enough = np.flatnonzero(reached >= share * totals[owners])
    # From the last to the first, so that the first one is kept.
    found[owners[enough[::-1]]] = enough[::-1]
    return found


# --- numbers -----------------------------------------------------------------------------------------------------


def numbers_shown(numbers: Numbers) -> Texts:
    if numbers.dtype.kind != "f":
        return pa.array(numbers).cast(pa.string())
    whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < PLAIN_BELOW)
    small = whole & (np.abs(numbers) < 1 << 62)
    integers = pa.array(np.where(small, numbers, 0).astype(np.int64)).cast(pa.string())
    texts = pc.if_else(pa.array(small), integers, pa.array(numbers).cast(pa.string()))
    return _replaced(texts, {int(at): str(int(numbers[at])) for at in np.flatnonzero(whole & ~small)})


def number_shown(number: float) -> str:
    text: str = numbers_shown(np.array([number]))[0].as_py()
    return text


def _replaced(texts: Texts, others: dict[int, str]) -> Texts:
    """Return the texts with some of them replaced."""
    if not others:
        return texts
    listed = texts.to_pylist()
    for at, text in others.items():
        listed[at] = text
    return pa.array(listed, pa.string())


def _bound_of(name: str) -> float:
    """Return the number in a bucket's name; NaN if the name is not a number."""
    try:
        bound = float(name)
    except ValueError:
        return math.nan
    return bound if math.isfinite(bound) else math.nan


class AggregateResult(Struct, frozen=True):
    """``buckets`` are the intervals and their groups as JSON, as :func:`render` returns them."""

    buckets: bytes
    coverage: Coverage


def aggregate(
    provider: Provider, log: Log, config: SearchConfig, request: AggregateRequest, versions: Versions, deadline: float
) -> AggregateResult:
    """Aggregate the log up to its head, as far as it could be indexed until ``deadline``."""
    head = log.head
    cover, progress = provider.cover(log, config, versions, head, deadline)
    head = max(head, cover.through)
    adding = _Adding(request, config)
    for chunk in cover.chunks:
        adding.add(chunk)
    sums = combine([*adding.sums, add_up(adding.contributions)], request.group_by, request.measures)
    coverage = Coverage(
        head=head,
        after=cover.after,
        through=cover.through,
        gaps=cover.gaps,
        primary_timestamp=latest(cover.chunks, config.primary_timestamp),
        omitted_ts=first_omitted(log, cover, head),
        timed_out=cover.through < head or bool(cover.gaps),
        index_files=adding.index_files,
        chunks=adding.chunks,
        used_rollups=bool(adding.sums),
        caught_up=progress.records,
        families=adding.families(),
    )
    return AggregateResult(render(sums, request), coverage)


class _Adding:
    """Collects the values to sum up and their sources."""

    def __init__(self, request: AggregateRequest, config: SearchConfig) -> None:
        self._request = request
        self._rollup = rollup_id(request.rollup, config)
        interval = request.interval_ms
        #: The requested whole intervals, and the partial ones before and after them.
        self._inner = -(-request.first // interval) * interval, request.end // interval * interval
        self.contributions = Contributions(request)
        self.sums: list[Sums] = []
        self.index_files = 0
        self.chunks = 0
        self._uses_columns = False

    def add(self, chunk: Chunk) -> None:
        request, (first, end) = self._request, self._inner
        windows = [(request.first, request.end)]
        used = False
        known = chunk.sums(self._rollup, request.interval_ms) if request.query is None and first < end else None
        if known is not None:
            inner = known.within(first, end)
            if len(inner):
                self.sums.append(inner)
                used = True
            windows = [(request.first, first), (end, request.end)]
        rows = contributing(chunk, request, windows)
        if rows is not None:
            self.contributions.add(chunk, rows)
            self._uses_columns = used = True
        if used and chunk.is_from_file:
            self.index_files += 1
        elif used:
            self.chunks += 1

    def families(self) -> tuple[Family, ...]:
        """Which parts of the index were used."""
        families: set[Family] = {"agg"} if self.sums else set()
        if self._uses_columns:
            families.add("col")
            for bound in (self._request.include, self._request.query, *self._request.counted.values()):
                if bound is not None:
                    families.update(families_of(bound))
        return tuple(sorted(families))
