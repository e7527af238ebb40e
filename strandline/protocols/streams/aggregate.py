"""_aggregate: what a rollup of a stream adds up."""

from __future__ import annotations

import msgspec

from strandline.engine import Log
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.coverage import covered
from strandline.protocols.streams.errors import JSON
from strandline.query.aggregate import AggregateResult
from strandline.query.requests import AggregateRequest, parse_aggregate_body
from strandline.query.values import format_date
from strandline.service.http import NO_STORE, Call, Reply


class Aggregating:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    async def aggregate(self, call: Call) -> Reply:
        """POST /v1/stream/{name}/_aggregate"""
        context = self._context
        stream = context.stream(call)
        registry = stream.registry
        request = parse_aggregate_body(call.body, registry.search)
        assert registry.search is not None, "what is asked was bound to it"
        config, versions = registry.search, registry.versions
        now = context.hub.now()
        stream.use(now)
        stream.consumed_at = now
        # Adding up takes a while as well: what is left of the time of a request is for that.
        deadline = call.started + context.settings.search_timeout_ms / 1000

        def aggregate() -> Reply:
            result = context.searcher.aggregate(stream.log, config, request, versions, deadline)
            if result.coverage.behind:
                context.indexing.go_on(stream.log, config, versions)
            return _reply(stream.log, request, result)

        return await context.search(call, aggregate)


def _reply(log: Log, request: AggregateRequest, result: AggregateResult) -> Reply:
    coverage = result.coverage
    body = {
        "stream": log.name,
        "rollup": request.rollup.name,
        "from": format_date(request.first),
        "to": format_date(request.end),
        "interval": request.interval,
        "coverage": {
            **covered(coverage, log),
            "used_rollups": coverage.used_rollups,
            "indexed_segments": coverage.index_files + coverage.chunks,
            "scanned_segments": 0,
            "scanned_tail_docs": coverage.caught_up,
            "index_families_used": coverage.families,
        },
        "buckets": msgspec.Raw(result.buckets),
    }
    return Reply(msgspec.json.encode(body), 200, JSON, (NO_STORE,))
