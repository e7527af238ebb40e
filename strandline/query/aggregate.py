"""Aggregation: sum up the measures of a rollup per interval and group over a whole log."""

from __future__ import annotations

from msgspec import Struct

from strandline.engine import Log
from strandline.query.aggregate_json import Rendered, render
from strandline.query.chunk import Chunk
from strandline.query.config import SearchConfig
from strandline.query.contributions import Contributions, add_up, contributing
from strandline.query.errors import BadQuery
from strandline.query.index import Versions
from strandline.query.index_files.builder import rollup_id
from strandline.query.providers import Provider
from strandline.query.requests import AggregateRequest
from strandline.query.search import Coverage, Family, families_of, first_omitted, latest
from strandline.query.sums import Sums, combine

#: A larger result is of no use to a person, and would block the server for seconds.
MAX_GROUPS = 50_000


class AggregateResult(Struct, frozen=True):
    """``buckets`` are the intervals and their groups as JSON."""

    buckets: Rendered
    coverage: Coverage


def aggregate(
    provider: Provider, log: Log, config: SearchConfig, request: AggregateRequest, versions: Versions, deadline: float
) -> AggregateResult:
    """Aggregate the log up to its head, as far as it could be indexed until ``deadline``. Raises BadQuery if there are
    too many groups."""
    head = log.head
    cover, progress = provider.cover(log, config, versions, head, deadline)
    head = max(head, cover.through)
    adding = _Adding(request, config)
    for chunk in cover.chunks:
        adding.add(chunk)
    sums = combine(
        [*adding.sums, add_up(adding.contributions)], request.group_by, request.measures, request.interval_ms
    )
    if len(sums) > MAX_GROUPS:
        raise BadQuery(
            f"the result has {len(sums)} groups; the limit is {MAX_GROUPS}: "
            "use a longer interval, a shorter range or fewer dimensions"
        )
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
    measures = [request.rollup.measures[name] for name in request.measures]
    return AggregateResult(render(sums, measures, request.interval_ms), coverage)


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
