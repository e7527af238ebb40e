"""Answers of ``_search`` and ``_aggregate``. The bodies of both are declared in :mod:`strandline.query.requests`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from strandline.protocols.streams.wire.values import Number, Offset, Time
from strandline.query.search import Family


class StreamCoverage(msgspec.Struct, kw_only=True):
    """Which records an answer covers, and how many it may lack. Companions cannot lag behind uploaded segments here, so
    missing records are counted as rows: sealed ones, and those of the tail."""

    mode: Literal["complete", "published"]
    complete: bool
    stream_head_offset: Offset
    visible_through_offset: Offset
    visible_through_primary_timestamp_max: Time | None
    oldest_omitted_append_at: Time | None
    possible_missing_events_upper_bound: Number
    possible_missing_uploaded_segments: Number = 0
    possible_missing_sealed_rows: Number
    possible_missing_wal_rows: Number


class SearchCoverage(StreamCoverage, kw_only=True):
    indexed_segments: Number
    indexed_segment_time_ms: Number
    fts_section_get_ms: Number = 0
    fts_decode_ms: Number = 0
    fts_clause_estimate_ms: Number
    scanned_segments: Number = 0
    scanned_segment_time_ms: Number = 0
    scanned_tail_docs: Number
    scanned_tail_time_ms: Number
    exact_candidate_time_ms: Number = 0
    candidate_doc_ids: Number
    decoded_records: Number
    json_parse_time_ms: Number
    segment_payload_bytes_fetched: Number
    sort_time_ms: Number
    peak_hits_held: Number
    index_families_used: tuple[Family, ...]


#: The members of a coverage that a search also answers as headers, with dashes.
SEARCH_COUNTERS = tuple(
    name
    for name in SearchCoverage.__struct_fields__
    if name not in (*StreamCoverage.__struct_fields__, "index_families_used")
)


class SearchTotal(msgspec.Struct):
    value: Number
    relation: Literal["eq", "gte"]


class SearchHit(msgspec.Struct):
    offset: Offset
    score: float
    sort: list[Any]
    fields: dict[str, Any]
    source: Any


class SearchAnswer(msgspec.Struct, kw_only=True):
    stream: str
    snapshot_end_offset: Offset
    took_ms: Number
    timed_out: bool
    timeout_ms: Number
    coverage: SearchCoverage
    total: SearchTotal
    hits: list[SearchHit]
    next_search_after: list[Any] | None


# --- aggregation -----------------------------------------------------------------------------------------------------


class AggregateCoverage(StreamCoverage, kw_only=True):
    used_rollups: bool
    indexed_segments: Number
    scanned_segments: Number = 0
    scanned_tail_docs: Number
    index_families_used: tuple[Family, ...]


class AggregateMeasure(msgspec.Struct):
    """A count has only ``count``."""

    count: float
    sum: float | UnsetType = UNSET
    min: float | UnsetType | None = UNSET
    max: float | UnsetType | None = UNSET
    avg: float | UnsetType | None = UNSET
    p50: float | UnsetType | None = UNSET
    p95: float | UnsetType | None = UNSET
    p99: float | UnsetType | None = UNSET
    histogram: dict[str, float] | UnsetType = UNSET


class AggregateGroup(msgspec.Struct):
    key: dict[str, str | None]
    measures: dict[str, AggregateMeasure]


class AggregateBucket(msgspec.Struct):
    start: Time
    end: Time
    groups: list[AggregateGroup]


class AggregateAnswer(msgspec.Struct, kw_only=True):
    """``query/aggregate_json.py`` writes the buckets as JSON. They must stay the last member."""

    stream: str
    rollup: str
    first: Time = field(name="from")
    end: Time = field(name="to")
    interval: str
    coverage: AggregateCoverage
    buckets: list[AggregateBucket]
