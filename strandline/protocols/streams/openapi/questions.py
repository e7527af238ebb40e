"""Questions to a stream: search, aggregation, and its routing keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.answers import Milliseconds, Number, Offset, Time
from strandline.protocols.streams.openapi.parameters import NAME, ONE, Operations
from strandline.protocols.streams.routing_keys import DEFAULT_LIMIT, MAX_LIMIT
from strandline.query.requests import DEFAULT_SIZE, MAX_SIZE, MAX_SORT_KEYS, MAX_TIMEOUT_MS
from strandline.service.openapi import JSON, TEXT, Answer, Header, Operation, Schema

_Whole = Annotated[int, Meta(ge=0)]
_Family = Literal["exact", "col", "fts", "agg", "mblk"]


class StreamCoverage(msgspec.Struct, kw_only=True):
    """What an answer was made of, and what it may lack."""

    mode: Literal["complete", "published"]
    complete: bool
    stream_head_offset: Offset
    visible_through_offset: Offset
    visible_through_primary_timestamp_max: Time | None
    oldest_omitted_append_at: Time | None
    possible_missing_events_upper_bound: Number
    possible_missing_uploaded_segments: Number
    possible_missing_sealed_rows: Number
    possible_missing_wal_rows: Number


class IndexCoverage(StreamCoverage, kw_only=True):
    indexed_segments: Number
    scanned_segments: Number
    scanned_tail_docs: Number
    index_families_used: list[_Family]


# --- search --------------------------------------------------------------------------------------------------------


class SearchBody(msgspec.Struct):
    q: str
    size: Annotated[int, Meta(ge=1, le=MAX_SIZE)] | None = DEFAULT_SIZE
    sort: Annotated[list[str], Meta(max_length=MAX_SORT_KEYS)] | None = None
    search_after: list[Any] | None = None
    timeout_ms: Annotated[float, Meta(ge=0)] | None = MAX_TIMEOUT_MS


class SearchCoverage(IndexCoverage, kw_only=True):
    indexed_segment_time_ms: Number
    fts_section_get_ms: Number
    fts_decode_ms: Number
    fts_clause_estimate_ms: Number
    scanned_segment_time_ms: Number
    scanned_tail_time_ms: Number
    exact_candidate_time_ms: Number
    candidate_doc_ids: Number
    decoded_records: Number
    json_parse_time_ms: Number
    segment_payload_bytes_fetched: Number
    sort_time_ms: Number
    peak_hits_held: Number


class SearchTotal(msgspec.Struct):
    value: Number
    relation: Literal["eq", "gte"]


class SearchHit(msgspec.Struct):
    offset: Offset
    score: float
    sort: list[Any]
    fields: dict[str, Any]
    source: Any


class SearchAnswer(msgspec.Struct):
    stream: str
    snapshot_end_offset: Offset
    took_ms: Number
    timed_out: bool
    timeout_ms: Number
    coverage: SearchCoverage
    total: SearchTotal
    hits: list[SearchHit]
    next_search_after: list[Any] | None


# --- aggregation ---------------------------------------------------------------------------------------------------


class AggregateBody(msgspec.Struct, kw_only=True):
    rollup: str
    first: str | _Whole = field(name="from")
    end: str | _Whole = field(name="to")
    interval: str
    group_by: list[str] | None = None
    measures: Annotated[list[str], Meta(min_length=1)] | None = None
    q: str | None = None


class AggregateCoverage(IndexCoverage, kw_only=True):
    used_rollups: bool


class AggregateMeasure(msgspec.Struct):
    """Of a count there is only ``count``."""

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


class AggregateAnswer(msgspec.Struct):
    stream: str
    rollup: str
    first: Time = field(name="from")
    end: Time = field(name="to")
    interval: str
    coverage: AggregateCoverage
    buckets: list[AggregateBucket]


# --- routing keys --------------------------------------------------------------------------------------------------


class KeySource(msgspec.Struct):
    kind: Literal["routing_key"]
    name: str


class KeyCoverage(msgspec.Struct):
    complete: bool
    indexed_segments: Number
    scanned_uploaded_segments: Number
    scanned_local_segments: Number
    scanned_wal_rows: Number
    possible_missing_uploaded_segments: Number
    possible_missing_local_segments: Number


class KeyTiming(msgspec.Struct):
    lexicon_run_get_ms: Milliseconds
    lexicon_decode_ms: Milliseconds
    lexicon_enumerate_ms: Milliseconds
    lexicon_merge_ms: Milliseconds
    fallback_scan_ms: Milliseconds
    fallback_segment_get_ms: Milliseconds
    fallback_wal_scan_ms: Milliseconds
    lexicon_runs_loaded: Number


class RoutingKeysAnswer(msgspec.Struct):
    stream: str
    source: KeySource
    took_ms: Milliseconds
    coverage: KeyCoverage
    timing: KeyTiming
    keys: list[str]
    next_after: str | None


_COVERED = {
    "mode": "`complete`: nothing can be missing.",
    "visible_through_offset": "The last record that was taken into account.",
    "possible_missing_events_upper_bound": "How many records, at most, were not.",
}
DESCRIPTIONS: dict[str, dict[str, str]] = {
    "SearchCoverage": _COVERED,
    "AggregateCoverage": _COVERED,
    "SearchBody": {
        "q": 'Such as `level:error service:"api" duration:>100`.',
        "sort": "Such as `duration:desc`; also `_score` and `offset`, which is always the last key.",
        "search_after": "`next_search_after` of the page before.",
        "timeout_ms": "How long to look, at the most.",
    },
    "SearchTotal": {"value": "How many hits there are on this page.", "relation": "`gte`: there may be more."},
    "SearchHit": {"sort": "What it was sorted by.", "source": "The record, as one of the current version."},
    "SearchAnswer": {"next_search_after": "Where to go on; null: nowhere."},
    "AggregateBody": {
        "from": "A date, or milliseconds since 1970; digits in a string are nanoseconds.",
        "to": "The end, which does not belong to it.",
        "interval": "One of those that the rollup declares.",
        "group_by": "Dimensions of the rollup.",
        "measures": "Those of the rollup to show; by default all.",
        "q": "Only records that match this query.",
    },
    "AggregateGroup": {"key": "The value per dimension; null where records have none."},
    "AggregateMeasure": {"histogram": "How many are in each bucket, by its lower bound."},
}

# --- operations ----------------------------------------------------------------------------------------------------

_GROUP = "questions"
_FLAG: Schema = {"type": "string", "enum": ["true", "false"]}
_COUNTERS = (
    "Timeout-Ms", "Took-Ms", "Indexed-Segments", "Indexed-Segment-Time-Ms", "Fts-Section-Get-Ms", "Fts-Decode-Ms",
    "Fts-Clause-Estimate-Ms", "Scanned-Segments", "Scanned-Segment-Time-Ms", "Scanned-Tail-Docs",
    "Scanned-Tail-Time-Ms", "Exact-Candidate-Time-Ms", "Candidate-Doc-Ids", "Decoded-Records", "Json-Parse-Time-Ms",
    "Segment-Payload-Bytes-Fetched", "Sort-Time-Ms", "Peak-Hits-Held",
)  # fmt: skip
_SAME = "As in the body."
_HEADERS = (
    p.NO_STORE,
    Header("Search-Timed-Out", _SAME, _FLAG, required=True),
    Header("Search-Coverage-Complete", _SAME, _FLAG, required=True),
    Header("Search-Total-Relation", _SAME, {"type": "string", "enum": ["eq", "gte"]}, required=True),
    Header("Search-Index-Families-Used", _SAME, TEXT, required=True),
    *(Header(f"Search-{name}", _SAME, {"type": "integer", "minimum": 0}, required=True) for name in _COUNTERS),
)
_FOUND = (
    Answer(200, "The hits.", {JSON: SearchAnswer}, _HEADERS),
    Answer(408, "The time was up: these are hits of what was looked at until then.", {JSON: SearchAnswer}, _HEADERS),
)
_ERRORS = ("bad_request", "not_found", "request_timeout", "gone")
_QUERY = "Fields that can be asked for are in the stream's `search` configuration; see `_schema`."

QUESTIONS: Operations = {
    ("GET", ONE + "/_search"): Operation(
        group=_GROUP,
        summary="Search",
        description=_QUERY,
        answers=_FOUND,
        parameters=(
            NAME,
            p.in_query("q", 'Such as `level:error service:"api" duration:>100`.', required=True),
            p.in_query("size", "How many hits at the most.", p.whole(1, MAX_SIZE, DEFAULT_SIZE)),
            p.in_query("sort", "Such as `duration:desc,offset:asc`. May be there several times."),
            p.in_query("search_after", "`next_search_after` of the page before, as JSON."),
            p.in_query("timeout_ms", "How long to look, at the most.", {"type": "number", "minimum": 0}),
        ),
        errors=_ERRORS,
    ),
    ("POST", ONE + "/_search"): Operation(
        group=_GROUP,
        summary="Search",
        description=_QUERY,
        body={JSON: SearchBody},
        answers=_FOUND,
        parameters=(NAME,),
        errors=_ERRORS,
    ),
    ("POST", ONE + "/_aggregate"): Operation(
        group=_GROUP,
        summary="Add up",
        description="What a rollup of the stream's `search` configuration declares, per interval and group.",
        body={JSON: AggregateBody},
        answers=(Answer(200, "The sums.", {JSON: AggregateAnswer}, (p.NO_STORE,)),),
        parameters=(NAME,),
        errors=_ERRORS,
    ),
    ("GET", ONE + "/_routing_keys"): Operation(
        group=_GROUP,
        summary="List the routing keys of a stream",
        description="Each once, in order. Only where the schema says where records have their key.",
        answers=(Answer(200, "A page of keys.", {JSON: RoutingKeysAnswer}, (p.NO_STORE,)),),
        parameters=(
            NAME,
            p.in_query("limit", "How many at the most.", p.whole(1, MAX_LIMIT, DEFAULT_LIMIT)),
            p.in_query("after", "`next_after` of the page before."),
        ),
        errors=("bad_request", "not_found", "gone"),
    ),
}
