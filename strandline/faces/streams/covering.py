"""What an answer covers, in the words of the protocol.

What is not covered is not told apart by where it is kept: all of it counts as rows of the tail, since that is where
the index goes on. There are no companions to be published, so a segment is never missing as such.
"""

from __future__ import annotations

from typing import Any

from strandline.faces.streams import offsets
from strandline.query.coverage import Coverage
from strandline.query.values import format_date


def covered(coverage: Coverage) -> dict[str, Any]:
    """The fields that _search and _aggregate have in common."""
    return {
        "mode": coverage.mode,
        "complete": coverage.complete,
        "stream_head_offset": offsets.encode(coverage.head),
        "visible_through_offset": offsets.encode(coverage.through),
        "visible_through_primary_timestamp_max": _date(coverage.primary_timestamp),
        "oldest_omitted_append_at": _date(coverage.omitted_ts),
        "possible_missing_events_upper_bound": coverage.missing,
        "possible_missing_uploaded_segments": 0,
        "possible_missing_sealed_rows": 0,
        "possible_missing_wal_rows": coverage.missing,
    }


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _date(value: int | None) -> str | None:
    return None if value is None else format_date(value)
