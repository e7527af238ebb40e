"""Traces by OTLP, and what is known about one request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from strandline.protocols.streams.observe_request import MAX_EVENTS, MAX_PADDING_MS, MAX_SPANS
from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.answers import Number, Offset, Time
from strandline.protocols.streams.openapi.parameters import BYTES, NAME, ONE, Operations
from strandline.protocols.streams.otlp import PROTOBUF
from strandline.service.openapi import JSON, Answer, Operation

_Name = Annotated[str, Meta(min_length=1, pattern=r"\S")]
_Id = str | None


class ExportTraces(msgspec.Struct, rename="camel"):
    """ExportTraceServiceRequest of OTLP, as protobuf's JSON."""

    resource_spans: list[dict[str, Any]] | UnsetType = UNSET


class PartialSuccess(msgspec.Struct, rename="camel"):
    rejected_spans: Annotated[str, Meta(pattern="^[0-9]+$")] | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


class ExportedTraces(msgspec.Struct, rename="camel"):
    partial_success: PartialSuccess | UnsetType = UNSET


# --- what is asked about a request ---------------------------------------------------------------------------------


class ObserveStreams(msgspec.Struct, forbid_unknown_fields=True):
    events: _Name | UnsetType = UNSET
    traces: _Name | UnsetType = UNSET


class ObserveLookup(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    request_id: _Name | UnsetType = UNSET
    trace_id: _Name | UnsetType = UNSET
    span_id: _Name | UnsetType = UNSET


class ObserveTime(msgspec.Struct, forbid_unknown_fields=True):
    first: str | int | UnsetType | None = field(name="from", default=UNSET)
    last: str | int | UnsetType | None = field(name="to", default=UNSET)
    padding_ms: Annotated[int, Meta(ge=0, le=MAX_PADDING_MS)] = field(name="paddingMs", default=0)


class ObserveInclude(msgspec.Struct, forbid_unknown_fields=True):
    events: bool = True
    trace: bool = True
    timeline: bool = True
    raw: bool = False


class ObserveLimits(msgspec.Struct, forbid_unknown_fields=True):
    events: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = 100
    spans: Annotated[int, Meta(ge=1, le=MAX_SPANS)] = 5000


class ObserveBody(msgspec.Struct, forbid_unknown_fields=True):
    streams: ObserveStreams
    lookup: ObserveLookup
    time: ObserveTime | UnsetType = UNSET
    include: ObserveInclude | UnsetType = UNSET
    limits: ObserveLimits | UnsetType = UNSET


# --- what is known about it ----------------------------------------------------------------------------------------


class ObserveSummary(msgspec.Struct, rename="camel"):
    request_id: _Id
    trace_id: _Id
    trace_ids: list[str]
    services: list[str]
    method: str | None
    path: str | None
    status: int | None
    started_at: Time | None
    ended_at: Time | None
    duration_ms: float | None
    events: Number
    spans: Number
    errors: Number


class ObservedEvent(msgspec.Struct, rename="camel", kw_only=True):
    offset: Offset
    timestamp: str
    level: str
    service: str | None
    environment: str | None
    request_id: _Id
    trace_id: _Id
    span_id: _Id
    method: str | None
    path: str | None
    status: int | None
    duration: float | None
    message: str | None
    why: str | None
    fix: str | None
    link: str | None
    raw: dict[str, Any] | UnsetType = UNSET


class ObservedEvents(msgspec.Struct):
    events: list[ObservedEvent]


class SpanStatus(msgspec.Struct):
    code: Literal["unset", "ok", "error"]
    message: str | None


class SpanError(msgspec.Struct, rename="camel"):
    is_error: bool
    type: str | None
    message: str | None
    stacktrace: str | None


class ObservedSpan(msgspec.Struct, rename="camel", kw_only=True):
    offset: Offset
    span_id: str
    parent_span_id: str | None
    name: str
    kind: Literal["unspecified", "internal", "server", "client", "producer", "consumer"]
    service: str | None
    timestamp: Time
    end_timestamp: Time
    start_unix_nano: Annotated[str, Meta(pattern="^[0-9]+$")]
    end_unix_nano: Annotated[str, Meta(pattern="^[0-9]+$")]
    duration: float
    status: SpanStatus
    request_id: _Id
    http: dict[str, str | int | None]
    db: dict[str, str | None]
    rpc: dict[str, str | None]
    messaging: dict[str, str | None]
    error: SpanError
    event_names: list[str]
    raw: dict[str, Any] | UnsetType = UNSET


class TreeNode(msgspec.Struct, rename="camel"):
    span_id: str
    depth: Number
    children: list[str]


class ServiceNode(msgspec.Struct):
    service: str
    spans: Number
    errors: Number


class ServiceEdge(msgspec.Struct):
    source: str = field(name="from")
    target: str = field(name="to")
    calls: Number
    errors: Number


class ServiceMap(msgspec.Struct):
    services: list[ServiceNode]
    edges: list[ServiceEdge]


class PathStep(msgspec.Struct, rename="camel"):
    span_id: str
    service: str | None
    name: str
    duration: float
    self_duration: float


class FailedSpan(msgspec.Struct, rename="camel"):
    span_id: str
    service: str | None
    name: str
    type: str | None
    message: str | None


class DuplicateSpan(msgspec.Struct, rename="camel"):
    span_id: str
    count: Number


class ObservedTrace(msgspec.Struct, rename="camel"):
    trace_id: _Id
    root_span_id: str | None
    spans: list[ObservedSpan]
    tree: list[TreeNode]
    service_map: ServiceMap
    critical_path: list[PathStep]
    errors: list[FailedSpan]
    partial: bool
    missing_parents: list[str]
    duplicate_spans: list[DuplicateSpan]


class TimelineEvent(msgspec.Struct, rename="camel", tag_field="type", tag="event"):
    timestamp: str
    offset: Offset
    service: str | None
    level: str
    message: str | None
    span_id: _Id


class TimelineSpan(msgspec.Struct, rename="camel", tag_field="type", tag="span"):
    timestamp: str
    offset: Offset
    service: str | None
    name: str
    duration: float
    is_error: bool
    span_id: str


class FoundCoverage(msgspec.Struct, kw_only=True):
    """Of a stream that was only looked through by key, it is only known whether that can be all."""

    stream: str
    found: Number
    complete: bool
    mode: Literal["complete", "published"] | UnsetType = UNSET
    stream_head_offset: Offset | UnsetType = UNSET
    visible_through_offset: Offset | UnsetType = UNSET
    visible_through_primary_timestamp_max: Time | UnsetType | None = UNSET
    oldest_omitted_append_at: Time | UnsetType | None = UNSET
    possible_missing_events_upper_bound: Number | UnsetType = UNSET
    possible_missing_uploaded_segments: Number | UnsetType = UNSET
    possible_missing_sealed_rows: Number | UnsetType = UNSET
    possible_missing_wal_rows: Number | UnsetType = UNSET


class ObserveCoverage(msgspec.Struct):
    events: FoundCoverage | None
    traces: FoundCoverage | None
    warnings: list[str]


class ObserveAnswer(msgspec.Struct):
    lookup: dict[str, str]
    summary: ObserveSummary
    evlog: ObservedEvents | None
    trace: ObservedTrace | None
    timeline: list[TimelineEvent | TimelineSpan] | None
    coverage: ObserveCoverage


DESCRIPTIONS: dict[str, dict[str, str]] = {
    "PartialSuccess": {"rejectedSpans": "How many spans were not taken. The others were."},
    "ObserveStreams": {
        "events": "A stream of the profile evlog. One of the two is needed; it may know of the other.",
        "traces": "A stream of the profile otel-traces.",
    },
    "ObserveLookup": {
        "requestId": "Exactly one of the three is given.",
    },
    "ObserveTime": {
        "from": "A date, or milliseconds since 1970.",
        "paddingMs": "So much earlier and later, too.",
    },
    "ObserveInclude": {"raw": "Events and spans also as they are stored."},
    "ObservedTrace": {
        "tree": "Depth first.",
        "criticalPath": "From the root on, always to the call that ended last.",
        "partial": "Whether something is missing.",
    },
}

_GROUP = "traces"
_OTLP = Answer(
    200, "What was taken, in the form of the request.", {PROTOBUF: BYTES, JSON: ExportedTraces}, (p.NO_STORE,)
)
_TRACES = {PROTOBUF: BYTES, JSON: ExportTraces}
_ERRORS = ("forbidden", "not_found", "append_timeout", "conflict", "gone", "read_only", "disk_full")

TRACES: Operations = {
    ("POST", ONE + "/_otlp/v1/traces"): Operation(
        group=_GROUP,
        summary="Append traces that come by OTLP",
        description="To a stream of the profile otel-traces. Spans that make no sense are left out and counted.",
        body=_TRACES,
        answers=(_OTLP,),
        parameters=(NAME,),
        errors=_ERRORS,
        error_headers={409: p.REFUSED[:2]},
    ),
    ("POST", "/v1/traces"): Operation(
        group=_GROUP,
        summary="Append traces to the stream for them",
        description="To the one that the server was told, which is made if it was told so.",
        body=_TRACES,
        answers=(_OTLP,),
        errors=_ERRORS,
        error_headers={409: p.REFUSED[:2]},
    ),
    ("POST", "/v1/observe/request"): Operation(
        group=_GROUP,
        summary="Show everything about one request",
        description="Its events and its trace, out of two streams.",
        body={JSON: ObserveBody},
        answers=(Answer(200, "What is known.", {JSON: ObserveAnswer}, (p.NO_STORE,)),),
        errors=("not_found", "request_timeout", "gone"),
    ),
}
