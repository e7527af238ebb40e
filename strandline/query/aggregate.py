"""Aggregation: what a rollup declares, added up per interval and group, over everything that a log holds.

Which records contribute is worked out with whole arrays, and DuckDB adds up what they have, integers exactly. Where a
companion has added up its records already, and no query says that only some of them count, its sums are taken for the
intervals that lie inside of the range that is asked for; only what is at the edges is looked at record by record.
"""

from __future__ import annotations

from msgspec import Struct

from strandline.engine import Log
from strandline.query.chunk import Chunk
from strandline.query.companions.identity import rollup_id
from strandline.query.config import SearchConfig
from strandline.query.contributing import contributing
from strandline.query.coverage import Coverage, families_of
from strandline.query.index import Versions
from strandline.query.providing import Provider
from strandline.query.rendering import render
from strandline.query.requests import AggregateRequest
from strandline.query.search import first_omitted, latest
from strandline.query.summing import Contributions, add_up
from strandline.query.sums import Sums, combine


class AggregateResult(Struct, frozen=True):
    """``buckets`` are the intervals and their groups as :mod:`strandline.query.rendering` shows them, in JSON."""

    buckets: bytes
    coverage: Coverage


def aggregate(
    provider: Provider, log: Log, config: SearchConfig, request: AggregateRequest, versions: Versions, deadline: float
) -> AggregateResult:
    """What the log holds up to now, as far as it could be indexed until ``deadline``."""
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
        companions=adding.companions,
        chunks=adding.chunks,
        used_rollups=bool(adding.sums),
        caught_up=progress.records,
        families=adding.families(),
    )
    return AggregateResult(render(sums, request), coverage)


class _Adding:
    """What is to be added up, and where it came from."""

    def __init__(self, request: AggregateRequest, config: SearchConfig) -> None:
        self._request = request
        self._rollup = rollup_id(request.rollup, config)
        interval = request.interval_ms
        #: The whole intervals that are asked for, and what is before and behind them.
        self._inner = -(-request.first // interval) * interval, request.end // interval * interval
        self.contributions = Contributions(request)
        self.sums: list[Sums] = []
        self.companions = 0
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
        if used and chunk.is_companion:
            self.companions += 1
        elif used:
            self.chunks += 1

    def families(self) -> tuple[str, ...]:
        """Which abilities of the index were used."""
        families = {"agg"} if self.sums else set()
        if self._uses_columns:
            families.add("col")
            for bound in (self._request.include, self._request.query, *self._request.counted.values()):
                if bound is not None:
                    families.update(families_of(bound))
        return tuple(sorted(families))
