"""_search and _aggregate: queries over the records of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any
from urllib.parse import parse_qs

import msgspec

from strandline.engine import Log
from strandline.engine.reads.status import sealed_through
from strandline.protocols.streams import offsets
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.replies import json_reply
from strandline.protocols.streams.stream import Stream
from strandline.protocols.streams.wire.search import (
    SEARCH_COUNTERS,
    AggregateAnswer,
    AggregateCoverage,
    SearchAnswer,
    SearchCoverage,
    SearchHit,
    SearchTotal,
)
from strandline.query.aggregate import AggregateResult
from strandline.query.config import SearchConfig
from strandline.query.order import OFFSET, SortKey, SortValues
from strandline.query.requests import (
    AggregateRequest,
    SearchRequest,
    parse_aggregate_body,
    parse_search_body,
    parse_search_query,
)
from strandline.query.search import Coverage, FoundRecord, SearchResult
from strandline.query.values import format_date, plain
from strandline.schema.registry import Registry
from strandline.service.http import Call, Reply


class StreamSearch:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    async def search_get(self, call: Call) -> Reply:
        """GET /v1/stream/{name}/_search"""
        stream = self._context.stream(call)
        parameters = parse_qs(call.head.query_string, keep_blank_values=True)
        return await self._search(call, stream, parse_search_query(parameters, _config(stream), offsets.decode))

    async def search_post(self, call: Call) -> Reply:
        """POST /v1/stream/{name}/_search"""
        stream = self._context.stream(call)
        return await self._search(call, stream, parse_search_body(call.body, _config(stream), offsets.decode))

    async def _search(self, call: Call, stream: Stream, request: SearchRequest) -> Reply:
        context, registry, searched = self._context, stream.registry, stream.search
        assert searched is not None, "the request was bound to it"
        config, versions = searched
        now = context.hub.now()
        stream.use(now)
        stream.consumed_at = now
        timeout_ms = min(request.timeout_ms, context.settings.search_timeout_ms)

        def search() -> Reply:
            result = context.searcher.search(
                stream.log, config, request, versions, promotion(registry), call.started + timeout_ms / 1000
            )
            return _found(stream.log, request, result, timeout_ms, call.started)

        return await context.search(call, search)

    async def aggregate(self, call: Call) -> Reply:
        """POST /v1/stream/{name}/_aggregate"""
        context = self._context
        stream = context.stream(call)
        request = parse_aggregate_body(call.body, _config(stream))
        searched = stream.search
        assert searched is not None, "the request was bound to it"
        config, versions = searched
        now = context.hub.now()
        stream.use(now)
        stream.consumed_at = now
        # Aggregation takes a while as well: it gets the rest of the time limit of the request.
        deadline = call.started + context.settings.search_timeout_ms / 1000

        def aggregate() -> Reply:
            result = context.searcher.aggregate(stream.log, config, request, versions, deadline)
            return _added_up(stream.log, request, result)

        return await context.search(call, aggregate)


def _config(stream: Stream) -> SearchConfig | None:
    return None if stream.search is None else stream.search.config


def promotion(registry: Registry) -> Callable[[int, bytes], msgspec.Raw]:
    """Converts stored records to the current version; records of that version stay byte for byte."""
    if not registry.promotes:
        return lambda seq, data: msgspec.Raw(data)
    return lambda seq, data: msgspec.Raw(registry.promote_rows([seq], [data])[0])


def covered(coverage: Coverage, log: Log) -> dict[str, Any]:
    """The fields of a ``StreamCoverage``, for answers that add more fields."""
    sealed = coverage.missing_up_to(sealed_through(log)) if coverage.missing else 0
    return {
        "mode": coverage.mode,
        "complete": coverage.complete,
        "stream_head_offset": offsets.encode(coverage.head),
        "visible_through_offset": offsets.encode(coverage.through),
        "visible_through_primary_timestamp_max": _date(coverage.primary_timestamp),
        "oldest_omitted_append_at": _date(coverage.omitted_ts),
        "possible_missing_events_upper_bound": coverage.missing,
        "possible_missing_sealed_rows": sealed,
        "possible_missing_wal_rows": coverage.missing - sealed,
    }


def _date(value: int | None) -> str | None:
    return None if value is None else format_date(value)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


# --- answers -------------------------------------------------------------------------------------------------------


def _found(log: Log, request: SearchRequest, result: SearchResult, timeout_ms: int, started: float) -> Reply:
    coverage, timing, keys = result.coverage, result.timing, request.sort
    answer = SearchAnswer(
        stream=log.name,
        snapshot_end_offset=offsets.encode(coverage.head),
        took_ms=_milliseconds(perf_counter() - started),
        timed_out=coverage.timed_out,
        timeout_ms=timeout_ms,
        coverage=SearchCoverage(
            **covered(coverage, log),
            indexed_segments=coverage.index_files + coverage.chunks,
            indexed_segment_time_ms=_milliseconds(timing.matching),
            fts_clause_estimate_ms=_milliseconds(timing.statistics),
            scanned_tail_docs=coverage.caught_up,
            scanned_tail_time_ms=_milliseconds(timing.catching_up),
            candidate_doc_ids=timing.candidates,
            decoded_records=len(result.hits),
            json_parse_time_ms=_milliseconds(timing.decoding),
            segment_payload_bytes_fetched=timing.fetched,
            sort_time_ms=_milliseconds(timing.sorting),
            peak_hits_held=timing.held,
            index_families_used=coverage.families,
        ),
        total=SearchTotal(len(result.hits), result.relation),
        hits=[_hit(hit, keys) for hit in result.hits],
        next_search_after=None if result.next_after is None else _sort_values(result.next_after, keys),
    )
    return json_reply(answer, 408 if coverage.timed_out else 200, tuple(_headers(answer)))


def _headers(answer: SearchAnswer) -> Iterator[tuple[bytes, bytes]]:
    """The values of the body as headers, for clients that do not read the body."""
    coverage = answer.coverage
    stated = {
        "timed-out": str(answer.timed_out).lower(),
        "timeout-ms": answer.timeout_ms,
        "took-ms": answer.took_ms,
        "total-relation": answer.total.relation,
        "coverage-complete": str(coverage.complete).lower(),
        **{name.replace("_", "-"): getattr(coverage, name) for name in SEARCH_COUNTERS},
        "index-families-used": ",".join(coverage.index_families_used),
    }
    for header, value in stated.items():
        yield f"search-{header}".encode(), str(value).encode()


def _hit(hit: FoundRecord, keys: tuple[SortKey, ...]) -> SearchHit:
    return SearchHit(offsets.encode(hit.seq), plain(hit.score), _sort_values(hit.sort, keys), hit.fields, hit.source)


def _sort_values(values: SortValues, keys: tuple[SortKey, ...]) -> list[Any]:
    return [
        offsets.encode(value) if key.name == OFFSET else plain(value) for key, value in zip(keys, values, strict=True)
    ]


def _added_up(log: Log, request: AggregateRequest, result: AggregateResult) -> Reply:
    coverage = result.coverage
    answer = AggregateAnswer(
        stream=log.name,
        rollup=request.rollup.name,
        first=format_date(request.first),
        end=format_date(request.end),
        interval=request.interval,
        coverage=AggregateCoverage(
            **covered(coverage, log),
            used_rollups=coverage.used_rollups,
            indexed_segments=coverage.index_files + coverage.chunks,
            scanned_tail_docs=coverage.caught_up,
            index_families_used=coverage.families,
        ),
        buckets=[],
    )
    reply = json_reply(answer)
    # The buckets come last.
    reply.body = b"".join((reply.body.removesuffix(b"[]}"), *result.buckets, b"}"))
    return reply
