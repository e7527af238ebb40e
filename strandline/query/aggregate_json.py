"""The JSON of aggregated groups, made column by column.

There may be tens of thousands of groups, so there is no object per group: the parts of all groups are columns of texts,
which are joined once. Equal texts are made once and copied. Integers are written without a fraction, as JavaScript
writes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import msgspec
import numpy as np

from strandline.arrow import pa, pc
from strandline.query.columns import Numbers
from strandline.query.config import Measure
from strandline.query.groups import Groups, numbered
from strandline.query.sums import WIDE_PARTS, Histograms, MeasureSums, Sums
from strandline.query.values import LATEST_DATE, MILLISECONDS_PER_DAY, PLAIN_BELOW

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
#: Up to here floats represent integers exactly.
_EXACT = 1 << 53
#: Arrow writes whole floats below this like integers.
_WRITTEN_PLAINLY = 1e10
#: Weights below this are numbered by themselves; others must be sorted first.
_SMALL_WEIGHT = 1 << 16

#: JSON in pieces. It may have many megabytes, so it is joined only once, as part of the answer.
Rendered = tuple[bytes | memoryview, ...]
#: An Arrow array of strings, one per group.
Texts = Any
#: Parts of a text: a string is the same for all groups.
Parts = Sequence["str | Texts"]


def render(sums: Sums, measures: Sequence[Measure], interval_ms: int) -> Rendered:
    """Render an array of intervals: ``{"start", "end", "groups": [{"key", "measures"}]}``. Groups are sorted by the
    JSON text of their keys."""
    if not len(sums):
        return (b"[]",)
    keys, key_of = _keys(sums)
    order = _order(sums.starts, key_of)
    starts, rendered = sums.starts, [sums.measures[measure.name] for measure in measures]
    if order is not None:
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        starts, key_of = starts[order], key_of[order]
        rendered = [each.ordered(order, places) for each in rendered]
    key = keys[0].as_py() if len(keys) == 1 else _taken(keys, key_of)
    parts: list[str | Texts] = [_leads(starts, interval_ms), '{"key":', key, ',"measures":{']
    for at, (measure, each) in enumerate(zip(measures, rendered, strict=True)):
        parts += [f"{',' if at else ''}{_quoted(measure.name)}:", *measure_parts(each, measure)]
    text = joined([*parts, "}}"]).buffers()[2]
    # The first group starts an interval as well, but does not end one.
    return b"[", memoryview(text)[len(_END) :], b"]}]"


_END = "]},"
_OPEN = '","groups":['


def _leads(starts: Numbers, interval_ms: int) -> Texts:
    """Return the text before each group: the end of an interval and the start of the next one, or a comma."""
    begins = np.ones(len(starts), np.bool_)
    begins[1:] = starts[1:] != starts[:-1]
    starts = starts[begins]
    ends = np.minimum(starts + interval_ms, LATEST_DATE)
    begun = heads(starts, ends)
    if len(begun) == len(begins):
        return begun
    return _taken(pa.concat_arrays([begun, pa.array([","])]), np.where(begins, np.cumsum(begins) - 1, len(begun)))


def _keys(sums: Sums) -> tuple[Texts, Numbers]:
    """Return the JSON of the distinct keys in ascending order, and the position of each group's key among them."""
    if not sums.dimensions:
        return pa.array(["{}"]), np.zeros(len(sums), np.int64)
    distinct = Groups([sums.codes])
    parts: list[str | Texts] = ["{"]
    for at, (name, words, codes) in enumerate(zip(sums.dimensions, sums.words, distinct.keys, strict=True)):
        parts += [f"{',' if at else ''}{_quoted(name)}:", json_strings(words.take(pa.array(codes)))]
    texts = joined([*parts, "}"])
    order = pc.array_sort_indices(texts)
    ranks = np.empty(len(texts), np.int64)
    ranks[order.to_numpy()] = np.arange(len(texts))
    return texts.take(order), ranks[distinct.pieces[0].of_row]


def _order(starts: Numbers, ranks: Numbers) -> Numbers | None:
    """Return the groups sorted by start and rank; None if they are sorted already."""
    later, same = starts[1:] > starts[:-1], starts[1:] == starts[:-1]
    if bool(np.all(later | (same & (ranks[1:] > ranks[:-1])))):
        return None
    return np.lexsort((ranks, starts))


# --- measures ----------------------------------------------------------------------------------------------------


def measure_parts(sums: MeasureSums, measure: Measure) -> Parts:
    """Return the parts of the JSON of a measure."""
    counts = numbers_shown(sums.count)
    if measure.kind == "count":
        return ['{"count":', counts, "}"]
    totals, least, greatest = (_part(sums, part) for part in WIDE_PARTS)
    parts = ['{"count":', counts, ',"sum":', totals, ',"min":', least, ',"max":', greatest, ',"avg":', _averages(sums)]
    if sums.histograms is None:
        return [*parts, *(f',"{name}":null' for name in PERCENTILES), "}"]
    return [*parts, *_histogram_parts(sums.histograms, len(sums.count)), "}"]


def _part(sums: MeasureSums, part: str) -> Texts:
    wide = sums.wide.get(part, {})
    others = pa.array([str(value) for value in wide.values()], pa.string())
    return _replaced(numbers_shown(getattr(sums, part)), np.array(list(wide), np.int64), others)


def _averages(sums: MeasureSums) -> Texts:
    assert sums.total is not None
    counts, totals = sums.count.astype(np.float64), sums.total
    averages = totals / np.where(counts == 0, 1, counts)
    texts = numbers_shown(averages)
    if totals.dtype.kind == "i":
        # Python divides integers that are too large to be converted to floats first.
        large = np.abs(totals.astype(np.float64)) >= _EXACT
        large[list(sums.wide.get("total", {}))] = True
        places = np.flatnonzero(large & (counts != 0))
        exact = np.array([sums.part("total", at) / int(sums.count[at]) for at in places.tolist()], np.float64)
        texts = _replaced(texts, places, numbers_shown(exact))
    nothing = np.flatnonzero(counts == 0)
    return _replaced(texts, nothing, pa.array(["null"] * len(nothing), pa.string()))


def _histogram_parts(held: Histograms, groups: int) -> Parts:
    """Return the percentiles, and the histogram: buckets in ascending order, without those whose names are not
    numbers."""
    bounds = np.array([_bound_of(name) for name in held.names], np.float64)
    ascending = np.argsort(bounds, kind="stable")
    ranks = np.empty(len(bounds), np.int64)
    ranks[ascending] = np.arange(len(bounds))
    owners, buckets, weights = held.groups, ranks[held.places], held.weights
    finite = int(np.count_nonzero(np.isfinite(bounds)))
    if finite < len(bounds):
        kept = buckets < finite
        owners, buckets, weights = owners[kept], buckets[kept], weights[kept]
    order = _order(owners, buckets)
    if order is not None:
        owners, buckets, weights = owners[order], buckets[order], weights[order]
    bounds, names = bounds[ascending], [held.names[at] for at in ascending.tolist()]
    offsets = np.zeros(groups + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=groups), out=offsets[1:])
    return [*_percentiles(bounds, buckets, weights, offsets), _entries(names, buckets, weights, offsets), "}"]


def _percentiles(bounds: Numbers, buckets: Numbers, weights: Numbers, offsets: Numbers) -> Parts:
    """Return the part up to the histogram. A percentile is the lowest bucket that reaches its share of the total. Many
    groups have the same percentiles, and thus the same text."""
    reached = _reached(weights, offsets)
    none = len(bounds)
    filled = np.flatnonzero(offsets[1:] > offsets[:-1])
    totals = np.repeat(reached[offsets[filled + 1] - 1], np.diff(offsets)[filled])
    found = [np.full(len(offsets) - 1, none) for _ in PERCENTILES]
    for at, share in zip(found, PERCENTILES.values(), strict=True):
        if len(filled):
            below = np.add.reduceat(reached < share * totals, offsets[filled], dtype=np.int64)
            at[filled] = buckets[offsets[filled] + below]
    same = Groups([found])
    shown = pa.array([number_shown(bound) for bound in bounds] + ["null"], pa.string())
    parts: list[str | Texts] = []
    for name, at in zip(PERCENTILES, same.keys, strict=True):
        parts += [f',"{name}":', shown.take(pa.array(at))]
    return [_taken(joined([*parts, ',"histogram":{']), same.pieces[0].of_row)]


def _entries(names: list[str], buckets: Numbers, weights: Numbers, offsets: Numbers) -> Texts:
    """Return the members of the histogram of each group. Most weights are small, so the same member is in many."""
    if not len(buckets):
        return pa.array([""] * (len(offsets) - 1), pa.string())
    if weights.max() < _SMALL_WEIGHT and bool(np.all(weights == np.floor(weights))):
        sizes, places = np.arange(int(weights.max()) + 1), weights.astype(np.int64)
    else:
        sizes, places = np.unique(weights, return_inverse=True)
    same = Groups([[buckets, places]])
    name_of, size_of = same.keys
    quoted = pa.array([f"{_quoted(name)}:" for name in names], pa.string())
    members = joined([quoted.take(pa.array(name_of)), numbers_shown(sizes[size_of])])
    follows = np.ones(len(buckets), np.int64)
    follows[offsets[:-1][offsets[:-1] < offsets[1:]]] = 0
    # All members with a comma before them come after all members without one.
    members = pa.concat_arrays([members, joined([",", members])])
    texts = _taken(members, same.pieces[0].of_row + follows * len(same))
    ends = np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]
    bounds = pa.py_buffer(np.ascontiguousarray(ends[offsets]))
    return pa.StringArray.from_buffers(len(offsets) - 1, bounds, texts.buffers()[2])


def _reached(weights: Numbers, offsets: Numbers) -> Numbers:
    """Return the cumulative weight of each bucket and those below it in the same group."""
    total = np.cumsum(weights)
    if len(weights) and (total[-1] >= _EXACT or np.any(weights != np.floor(weights))):
        # Rounding must not depend on other groups.
        pieces = [np.cumsum(weights[low:high]) for low, high in pairwise(offsets.tolist())]
        return np.concatenate(pieces)
    before = np.concatenate(([0.0], total))[offsets[:-1]]
    return np.asarray(total - np.repeat(before, np.diff(offsets)))


# --- texts -------------------------------------------------------------------------------------------------------


def joined(parts: Parts) -> Texts:
    """Concatenate strings and arrays of texts, group by group."""
    return pc.binary_join_element_wise(*_merged(parts), "")


def _merged(parts: Parts) -> Iterator[str | Texts]:
    """Merge neighbouring strings: every part has a cost per group."""
    for is_constant, run in groupby(parts, key=lambda part: isinstance(part, str)):
        if is_constant:
            yield "".join(run)
        else:
            yield from run


def _taken(texts: Texts, places: Numbers) -> Texts:
    return texts.take(pa.array(places))


def _replaced(texts: Texts, places: Numbers, others: Texts) -> Texts:
    """Return the texts with those at some places replaced."""
    if not len(others):
        return texts
    chosen = np.arange(len(texts))
    chosen[places] = np.arange(len(others)) + len(texts)
    return _taken(pa.concat_arrays([texts, others]), chosen)


def json_strings(texts: Texts) -> Texts:
    """Return an Arrow array of strings as JSON; null for null."""
    if pc.any(pc.match_substring_regex(texts, r'["\\\x00-\x1f]')).as_py():
        return pa.array([msgspec.json.encode(text).decode() for text in texts.to_pylist()], pa.string())
    return pc.fill_null(joined(['"', texts, '"']), "null")


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def numbers_shown(numbers: Numbers) -> Texts:
    if numbers.dtype.kind != "f":
        return pa.array(numbers).cast(pa.string())
    # Without negative zeros.
    texts = pa.array(numbers + 0.0).cast(pa.string())
    sizes = np.abs(numbers)
    large = np.flatnonzero((sizes >= _WRITTEN_PLAINLY) & (sizes < PLAIN_BELOW))
    whole = large[numbers[large] == np.floor(numbers[large])]
    if not len(whole):
        return texts
    fits = sizes[whole] < 1 << 62
    texts = _replaced(texts, whole[fits], pa.array(numbers[whole[fits]].astype(np.int64)).cast(pa.string()))
    others = [str(int(number)) for number in numbers[whole[~fits]]]
    return _replaced(texts, whole[~fits], pa.array(others, pa.string()))


def number_shown(number: float) -> str:
    text: str = numbers_shown(np.array([number]))[0].as_py()
    return text


def _bound_of(name: str) -> float:
    """Return the number in a bucket's name; NaN if the name is not a number."""
    try:
        bound = float(name)
    except ValueError:
        return math.nan
    return bound if math.isfinite(bound) else math.nan


#: The first moment of the year 0. The years of later dates have four digits.
_YEAR_0 = -62_167_219_200_000
_DATE = np.dtype([("day", "S11"), ("hour", "S3"), ("minute", "S3"), ("second", "S3"), ("millisecond", "S4")])
_HOURS = np.array([b"%02d:" % number for number in range(60)])
_SECONDS = np.array([b"%02d." % number for number in range(60)])
_MILLISECONDS = np.array([b"%03dZ" % number for number in range(1000)])


_HEAD = np.dtype([("a", "S13"), ("start", _DATE), ("b", "S9"), ("end", _DATE), ("c", "S12")])


def heads(starts: Numbers, ends: Numbers) -> Texts:
    """Return the end of an interval and the start of the next, for each pair of dates."""
    if int(starts.min()) < _YEAR_0:
        first, last = (np.datetime_as_string(each.astype("datetime64[ms]"), timezone="UTC") for each in (starts, ends))
        return joined([f'{_END}{{"start":"', pa.array(first.tolist()), '","end":"', pa.array(last.tolist()), _OPEN])
    signs = np.empty(len(starts), _HEAD)
    signs["a"], signs["b"], signs["c"] = f'{_END}{{"start":"'.encode(), b'","end":"', _OPEN.encode()
    for name, milliseconds in (("start", starts), ("end", ends)):
        _write_dates(signs[name], milliseconds)
    offsets = np.arange(len(signs) + 1, dtype=np.int32) * np.int32(_HEAD.itemsize)
    return pa.StringArray.from_buffers(len(signs), pa.py_buffer(offsets), pa.py_buffer(signs.view(np.uint8)))


def _write_dates(signs: Any, milliseconds: Numbers) -> None:
    """Write dates as RFC 3339 in UTC with milliseconds into an array of ``_DATE``."""
    days = milliseconds // MILLISECONDS_PER_DAY
    rest = milliseconds - days * MILLISECONDS_PER_DAY
    seconds = rest // 1000
    minutes = seconds // 60
    hours = minutes // 60
    distinct, places = numbered(days)
    signs["day"] = np.array([f"{day}T".encode() for day in distinct.astype("datetime64[D]").astype(str)])[places]
    signs["hour"] = _HOURS[hours]
    signs["minute"] = _HOURS[minutes - hours * 60]
    signs["second"] = _SECONDS[seconds - minutes * 60]
    signs["millisecond"] = _MILLISECONDS[rest - seconds * 1000]
