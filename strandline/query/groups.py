"""Sums as they are shown: intervals in order, and in each of them its groups with their measures."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from strandline.query.config import Measure
from strandline.query.errors import BadQuery
from strandline.query.requests import AggregateRequest
from strandline.query.summary import PERCENTILES, Summary, plain
from strandline.query.sums import WIDE_PARTS, MeasureSums, Sums

#: More groups than this are no answer to a person, and would keep the server from other work for seconds.
MAX_GROUPS = 50_000


class AggregatedGroup(Struct, frozen=True):
    """``key`` has a value per dimension that was grouped by, None where records have none."""

    key: dict[str, str | None]
    measures: dict[str, dict[str, Any]]


class Bucket(Struct, frozen=True):
    """An interval, in milliseconds, and its groups by the JSON text of their keys."""

    start: int
    end: int
    groups: list[AggregatedGroup]


def buckets_of(sums: Sums, request: AggregateRequest) -> list[Bucket]:
    """Raises BadQuery if there are too many groups."""
    if len(sums) > MAX_GROUPS:
        raise BadQuery(
            f"there are {len(sums)} groups and the limit is {MAX_GROUPS}: "
            "ask for a longer interval, a shorter range or fewer dimensions"
        )
    if not len(sums):
        return []
    columns = [measured(sums.measures[name], request.rollup.measures[name]) for name in request.measures]
    measures = [dict(zip(request.measures, row, strict=True)) for row in zip(*columns, strict=True)]
    keys, ranks = _keys(sums)
    order = np.lexsort((ranks, sums.starts))
    buckets: list[Bucket] = []
    previous = None
    for start, place in zip(sums.starts[order].tolist(), order.tolist(), strict=True):
        group = AggregatedGroup(keys[place], measures[place])
        if start == previous:
            buckets[-1].groups.append(group)
        else:
            buckets.append(Bucket(start, start + request.interval_ms, [group]))
            previous = start
    return buckets


def _keys(sums: Sums) -> tuple[list[dict[str, str | None]], Any]:
    """The key of each group, and numbers that ascend in the order of the JSON texts of the keys."""
    if not sums.dimensions:
        return [{}] * len(sums), np.zeros(len(sums), np.int64)
    texts = [[words[code] for code in codes.tolist()] for words, codes in zip(sums.words, sums.codes, strict=True)]
    places: dict[tuple[str | None, ...], int] = {}
    groups = [places.setdefault(group, len(places)) for group in zip(*texts, strict=True)]
    keys = [dict(zip(sums.dimensions, group, strict=True)) for group in places]
    encoded = [msgspec.json.encode(key).decode() for key in keys]
    ranks = np.empty(len(keys), np.int64)
    ranks[sorted(range(len(keys)), key=encoded.__getitem__)] = np.arange(len(keys))
    return [keys[place] for place in groups], ranks[groups]


def measured(sums: MeasureSums, measure: Measure) -> list[dict[str, Any]]:
    """What is shown of a measure, group by group."""
    counts = _plain(sums.count)
    if measure.kind == "count":
        return [{"count": count} for count in counts]
    totals, least, greatest = (_part(sums, part) for part in WIDE_PARTS)
    if sums.histograms is None:
        nothing = dict.fromkeys(PERCENTILES)
        return [
            {"count": count, "sum": total, "min": low, "max": high,
             "avg": plain(total / count) if count else None, **nothing}
            for count, total, low, high in zip(counts, totals, least, greatest, strict=True)
        ]  # fmt: skip
    held = sums.histograms
    histograms: list[dict[str, Any]] = [{} for _ in counts]
    for group, place, weight in zip(held.groups.tolist(), held.places.tolist(), held.weights.tolist(), strict=True):
        histograms[group][held.names[place]] = plain(weight)
    return [Summary(*each).measured(measure) for each in zip(counts, totals, least, greatest, histograms, strict=True)]


def _part(sums: MeasureSums, part: str) -> list[Any]:
    numbers = _plain(getattr(sums, part))
    for group, value in sums.wide.get(part, {}).items():
        numbers[group] = value
    return numbers


def _plain(numbers: Any) -> list[Any]:
    """As JavaScript shows them."""
    listed: list[Any] = numbers.tolist()
    return listed if numbers.dtype.kind != "f" else list(map(plain, listed))
