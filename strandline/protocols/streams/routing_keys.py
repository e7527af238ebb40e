"""GET _routing_keys: the distinct routing keys of a stream in order, a page at a time."""

from __future__ import annotations

from strandline.engine.reads.keys import KeyPage, keys_of
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.grammar import number
from strandline.protocols.streams.replies import json_reply
from strandline.protocols.streams.wire.inspection import KeyCoverage, KeySource, KeyTiming, RoutingKeysAnswer
from strandline.service.http import Call, Reply

DEFAULT_LIMIT = 100
MAX_LIMIT = 500


class RoutingKeys:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    async def get(self, call: Call) -> Reply:
        """GET /v1/stream/{name}/_routing_keys"""
        stream = self._context.stream(call)
        if stream.registry.routing_key is None:
            raise bad_request("routing key not configured")
        limit = number("limit", call.query.get("limit", str(DEFAULT_LIMIT)))
        if not 1 <= limit <= MAX_LIMIT:
            raise bad_request(f"invalid limit: expected a number from 1 to {MAX_LIMIT}")
        # The key indexes of sealed records are on the disk.
        page = await self._context.workers.normal.run(keys_of, stream.log, call.query.get("after"), limit)
        return json_reply(_answer(stream.name, page, call.elapsed_ms()))


def _answer(name: str, page: KeyPage, took_ms: float) -> RoutingKeysAnswer:
    return RoutingKeysAnswer(
        stream=name,
        source=KeySource(),
        took_ms=round(took_ms, 3),
        coverage=KeyCoverage(indexed_segments=page.segments, scanned_wal_rows=page.tail_records),
        timing=KeyTiming(
            lexicon_run_get_ms=_ms(page.opening),
            lexicon_enumerate_ms=_ms(page.enumerating),
            lexicon_merge_ms=_ms(page.merging),
            fallback_scan_ms=_ms(page.scanning),
            fallback_wal_scan_ms=_ms(page.scanning),
            lexicon_runs_loaded=page.loaded,
        ),
        keys=page.keys,
        next_after=page.keys[-1] if page.has_more else None,
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
