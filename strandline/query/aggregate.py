"""Aggregation: what a rollup declares, added up per interval and group, over everything that a log holds.

A record contributes only as a whole: it must match the rollup's query, have exactly one timestamp, at most one value
per dimension and exactly one number for everything that is summed up. Which records do is worked out with whole arrays,
and DuckDB adds up what they have, integers exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from strandline.engine import Log
from strandline.query.chunk import Chunk
from strandline.query.columns import Mask, NumberColumn
from strandline.query.config import Measure, SearchConfig
from strandline.query.coverage import Coverage, families_of
from strandline.query.evaluating import evaluate
from strandline.query.groups import Bucket, buckets_of
from strandline.query.index import Cover, Versions, part_name
from strandline.query.providing import Provider
from strandline.query.requests import AggregateRequest
from strandline.query.search import first_omitted, latest
from strandline.query.summing import Contributions, add_up

Rows = npt.NDArray[np.int64]


class AggregateResult(Struct, frozen=True):
    buckets: list[Bucket]
    coverage: Coverage


def aggregate(
    provider: Provider, log: Log, config: SearchConfig, request: AggregateRequest, versions: Versions, deadline: float
) -> AggregateResult:
    """What the log holds up to now, as far as it could be indexed until ``deadline``."""
    head = log.head
    cover, progress = provider.cover(log, config, versions, head, deadline)
    head = max(head, cover.through)
    contributions = Contributions(request)
    used = 0
    for chunk in cover.chunks:
        rows = contributing(chunk, request)
        if rows is not None:
            used += 1
            contributions.add(chunk, rows)
    coverage = Coverage(
        head=head,
        after=cover.after,
        through=cover.through,
        primary_timestamp=latest(cover.chunks, config.primary_timestamp),
        omitted_ts=first_omitted(log, cover, head),
        timed_out=cover.through < head,
        chunks=used,
        caught_up=progress.records,
        families=_families(request, cover) if used else (),
    )
    return AggregateResult(buckets_of(add_up(contributions), request), coverage)


def contributing(chunk: Chunk, request: AggregateRequest) -> Rows | None:
    """The rows of a chunk that contribute; None if a look at its times tells that there are none."""
    timestamps = chunk.columns[request.rollup.timestamp_field]
    assert isinstance(timestamps, NumberColumn)
    if timestamps.bounds is None or timestamps.bounds[1] < request.first or timestamps.bounds[0] >= request.end:
        return None
    total = len(chunk)
    inside = (timestamps.values >= request.first) & (timestamps.values < request.end)
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
    """The columns of which a contributing record has exactly one number."""
    if measure.field is not None:
        return (measure.field,)
    return [part_name(pointer) for pointer in (measure.pointers or ())[:4]]


def _families(request: AggregateRequest, cover: Cover) -> tuple[str, ...]:
    families = {"col"}
    for bound in (request.include, request.query, *request.counted.values()):
        if bound is not None:
            families.update(families_of(bound))
    return tuple(sorted(families))
