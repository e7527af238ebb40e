"""What an answer covers, in the words of the protocol. There are no companions that could lag behind uploaded segments,
so what is missing is told in rows: sealed ones, and those of the tail."""

from __future__ import annotations

from typing import Any

from strandline.engine import Log
from strandline.engine.reads.status import sealed_through
from strandline.protocols.streams import offsets
from strandline.query.search import Coverage
from strandline.query.values import format_date


def covered(coverage: Coverage, log: Log) -> dict[str, Any]:
    """The fields that _search and _aggregate have in common."""
    sealed = coverage.missing_up_to(sealed_through(log)) if coverage.missing else 0
    return {
        "mode": coverage.mode,
        "complete": coverage.complete,
        "stream_head_offset": offsets.encode(coverage.head),
        "visible_through_offset": offsets.encode(coverage.through),
        "visible_through_primary_timestamp_max": _date(coverage.primary_timestamp),
        "oldest_omitted_append_at": _date(coverage.omitted_ts),
        "possible_missing_events_upper_bound": coverage.missing,
        "possible_missing_uploaded_segments": 0,
        "possible_missing_sealed_rows": sealed,
        "possible_missing_wal_rows": coverage.missing - sealed,
    }


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _date(value: int | None) -> str | None:
    return None if value is None else format_date(value)
