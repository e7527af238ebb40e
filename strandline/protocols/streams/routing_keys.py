"""GET _routing_keys: the distinct routing keys of a stream in order, a page at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.engine.reads.keys import KeyPage, keys_of
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import JSON, bad_request
from strandline.protocols.streams.grammar import number
from strandline.service.http import NO_STORE, Call, Reply

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
            raise bad_request(f"invalid limit: it must be from 1 to {MAX_LIMIT}")
        # The indexes of keys of sealed records are on the disk.
        page = await self._context.workers.normal.run(keys_of, stream.log, call.query.get("after"), limit)
        document = _document(stream.name, page, call.elapsed_ms())
        return Reply(msgspec.json.encode(document), 200, JSON, (NO_STORE,))


def _document(name: str, page: KeyPage, took_ms: float) -> dict[str, Any]:
    """Every segment has an index of its keys, so that the answer is always complete; only the tail is looked through.
    The lexicon of the protocol is these indexes, one to a segment."""
    return {
        "stream": name,
        "source": {"kind": "routing_key", "name": ""},
        "took_ms": round(took_ms, 3),
        "coverage": {
            "complete": True,
            "indexed_segments": page.segments,
            "scanned_uploaded_segments": 0,
            "scanned_local_segments": 0,
            "scanned_wal_rows": page.tail_records,
            "possible_missing_uploaded_segments": 0,
            "possible_missing_local_segments": 0,
        },
        "timing": {
            "lexicon_run_get_ms": _ms(page.opening),
            # Blocks of an index are decoded as they are gone through.
            "lexicon_decode_ms": 0,
            "lexicon_enumerate_ms": _ms(page.enumerating),
            "lexicon_merge_ms": _ms(page.merging),
            "fallback_scan_ms": _ms(page.scanning),
            "fallback_segment_get_ms": 0,
            "fallback_wal_scan_ms": _ms(page.scanning),
            "lexicon_runs_loaded": page.loaded,
        },
        "keys": page.keys,
        "next_after": page.keys[-1] if page.has_more else None,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
