"""_search: questions to the records of a stream, by GET and by POST."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any
from urllib.parse import parse_qs

import msgspec

from strandline.engine import Log
from strandline.protocols.streams import offsets
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.coverage import covered, milliseconds
from strandline.protocols.streams.errors import JSON
from strandline.protocols.streams.stream import Stream
from strandline.query.order import OFFSET, SortKey, SortValues
from strandline.query.requests import SearchRequest, parse_search_body, parse_search_query
from strandline.query.search import FoundRecord, SearchResult
from strandline.query.values import plain
from strandline.schema.registry import Registry
from strandline.service.http import NO_STORE, Call, Reply


class Searching:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    async def search_get(self, call: Call) -> Reply:
        """GET /v1/stream/{name}/_search"""
        stream = self._context.stream(call)
        parameters = parse_qs(call.head.query_string, keep_blank_values=True)
        return await self._search(call, stream, parse_search_query(parameters, stream.registry.search, offsets.decode))

    async def search_post(self, call: Call) -> Reply:
        """POST /v1/stream/{name}/_search"""
        stream = self._context.stream(call)
        return await self._search(call, stream, parse_search_body(call.body, stream.registry.search, offsets.decode))

    async def _search(self, call: Call, stream: Stream, request: SearchRequest) -> Reply:
        context, registry = self._context, stream.registry
        assert registry.search is not None, "what is asked was bound to it"
        config, versions = registry.search, registry.versions
        now = context.hub.now()
        stream.use(now)
        stream.consumed_at = now
        timeout_ms = min(request.timeout_ms, context.settings.search_timeout_ms)

        def search() -> Reply:
            result = context.searcher.search(
                stream.log, config, request, versions, promotion(registry), call.started + timeout_ms / 1000
            )
            if result.coverage.behind:
                context.indexing.go_on(stream.log, config, versions)
            return _reply(stream.log, request, result, timeout_ms, call.started)

        return await context.search(call, search)


def promotion(registry: Registry) -> Callable[[int, bytes], msgspec.Raw]:
    """How stored records are shown: as ones of the current version; those that are, byte for byte."""
    if not registry.promotes:
        return lambda seq, data: msgspec.Raw(data)
    return lambda seq, data: msgspec.Raw(registry.promote_rows([seq], [data])[0])


def _reply(log: Log, request: SearchRequest, result: SearchResult, timeout_ms: int, started: float) -> Reply:
    coverage, timing, keys = result.coverage, result.timing, request.sort
    counters = {
        "indexed_segments": coverage.index_files + coverage.chunks,
        "indexed_segment_time_ms": milliseconds(timing.matching),
        "fts_section_get_ms": 0,
        "fts_decode_ms": 0,
        "fts_clause_estimate_ms": milliseconds(timing.statistics),
        "scanned_segments": 0,
        "scanned_segment_time_ms": 0,
        "scanned_tail_docs": coverage.caught_up,
        "scanned_tail_time_ms": milliseconds(timing.catching_up),
        "exact_candidate_time_ms": 0,
        "candidate_doc_ids": timing.candidates,
        "decoded_records": len(result.hits),
        "json_parse_time_ms": milliseconds(timing.decoding),
        "segment_payload_bytes_fetched": timing.fetched,
        "sort_time_ms": milliseconds(timing.sorting),
        "peak_hits_held": timing.held,
    }
    took = milliseconds(perf_counter() - started)
    body = {
        "stream": log.name,
        "snapshot_end_offset": offsets.encode(coverage.head),
        "took_ms": took,
        "timed_out": coverage.timed_out,
        "timeout_ms": timeout_ms,
        "coverage": {**covered(coverage, log), **counters, "index_families_used": coverage.families},
        "total": {"value": len(result.hits), "relation": result.relation},
        "hits": [_hit(hit, keys) for hit in result.hits],
        "next_search_after": None if result.next_after is None else _sort_values(result.next_after, keys),
    }
    stated = {
        "timed-out": str(coverage.timed_out).lower(),
        "timeout-ms": timeout_ms,
        "took-ms": took,
        "total-relation": result.relation,
        "coverage-complete": str(coverage.complete).lower(),
        **{counter.replace("_", "-"): value for counter, value in counters.items()},
        "index-families-used": ",".join(coverage.families),
    }
    headers = tuple((f"search-{header}".encode(), str(value).encode()) for header, value in stated.items())
    return Reply(msgspec.json.encode(body), 408 if coverage.timed_out else 200, JSON, (NO_STORE, *headers))


def _hit(hit: FoundRecord, keys: tuple[SortKey, ...]) -> dict[str, Any]:
    return {
        "offset": offsets.encode(hit.seq),
        "score": plain(hit.score),
        "sort": _sort_values(hit.sort, keys),
        "fields": hit.fields,
        "source": hit.source,
    }


def _sort_values(values: SortValues, keys: tuple[SortKey, ...]) -> list[Any]:
    return [
        offsets.encode(value) if key.name == OFFSET else plain(value) for key, value in zip(keys, values, strict=True)
    ]
