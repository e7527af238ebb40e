"""Bodies and answers of traces, logs and metrics by OTLP, and of everything about one request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from strandline.protocols.streams.wire.values import Number, Offset, Time
from strandline.schema.options import DeclaredOptions, Name
from strandline.schema.profiles.otel_tree import DuplicateSpan, FailedSpan, PathStep, ServiceMap, TreeNode

MAX_PADDING_MS = 86_400_000
MAX_EVENTS, MAX_SPANS = 500, 10_000

_Id = str | None


class ExportTraces(msgspec.Struct, rename="camel"):
    """ExportTraceServiceRequest of OTLP, as protobuf's JSON."""

    resource_spans: list[dict[str, Any]] | UnsetType = UNSET


class PartialSuccess(msgspec.Struct, rename="camel"):
    rejected_spans: Annotated[str, Meta(pattern="^[0-9]+$")] | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


class ExportedTraces(msgspec.Struct, rename="camel"):
    partial_success: PartialSuccess | UnsetType = UNSET


class ExportLogs(msgspec.Struct, rename="camel"):
    """ExportLogsServiceRequest of OTLP, as protobuf's JSON."""

    resource_logs: list[dict[str, Any]] | UnsetType = UNSET


class PartialLogs(msgspec.Struct, rename="camel"):
    rejected_log_records: Annotated[str, Meta(pattern="^[0-9]+$")] | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


class ExportedLogs(msgspec.Struct, rename="camel"):
    partial_success: PartialLogs | UnsetType = UNSET


class ExportMetrics(msgspec.Struct, rename="camel"):
    """ExportMetricsServiceRequest of OTLP, as protobuf's JSON."""

    resource_metrics: list[dict[str, Any]] | UnsetType = UNSET


class PartialMetrics(msgspec.Struct, rename="camel"):
    rejected_data_points: Annotated[str, Meta(pattern="^[0-9]+$")] | UnsetType = UNSET
    error_message: str | UnsetType = UNSET


class ExportedMetrics(msgspec.Struct, rename="camel"):
    partial_success: PartialMetrics | UnsetType = UNSET


# --- requests ------------------------------------------------------------------------------------------------------


class ObserveStreams(DeclaredOptions, frozen=True):
    events: Name | UnsetType = UNSET
    traces: Name | UnsetType = UNSET


class ObserveLookup(DeclaredOptions, frozen=True):
    request_id: Name | UnsetType = UNSET
    trace_id: Name | UnsetType = UNSET
    span_id: Name | UnsetType = UNSET


class ObserveTime(DeclaredOptions, frozen=True):
    first: str | int | None = field(name="from", default=None)
    last: str | int | None = field(name="to", default=None)
    padding_ms: Annotated[int, Meta(ge=0, le=MAX_PADDING_MS)] = 0


class ObserveInclude(DeclaredOptions, frozen=True):
    events: bool = True
    trace: bool = True
    timeline: bool = True
    raw: bool = False


class ObserveLimits(DeclaredOptions, frozen=True):
    events: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = 100
    spans: Annotated[int, Meta(ge=1, le=MAX_SPANS)] = 5000


class ObserveBody(DeclaredOptions, frozen=True):
    streams: ObserveStreams = ObserveStreams()
    lookup: ObserveLookup = ObserveLookup()
    time: ObserveTime = ObserveTime()
    include: ObserveInclude = ObserveInclude()
    limits: ObserveLimits = ObserveLimits()


# --- answers -------------------------------------------------------------------------------------------------------


class ObserveSummary(msgspec.Struct, rename="camel", kw_only=True):
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


class ObservedEvent(msgspec.Struct, rename="camel"):
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


class ObservedSpan(msgspec.Struct, rename="camel"):
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


class ObservedTrace(msgspec.Struct, rename="camel", kw_only=True):
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


class TimelineEvent(msgspec.Struct, rename="camel", kw_only=True, tag_field="type", tag="event"):
    timestamp: str
    offset: Offset
    service: str | None
    level: str
    message: str | None
    span_id: _Id


class TimelineSpan(msgspec.Struct, rename="camel", kw_only=True, tag_field="type", tag="span"):
    timestamp: str
    offset: Offset
    service: str | None
    name: str
    duration: float
    is_error: bool
    span_id: str


class FoundCoverage(msgspec.Struct, kw_only=True):
    """Without a search, only ``complete`` is known: whether every record of the request was found by its key."""

    stream: str
    found: Number
    mode: Literal["complete", "published"] | UnsetType = UNSET
    complete: bool
    stream_head_offset: Offset | UnsetType = UNSET
    visible_through_offset: Offset | UnsetType = UNSET
    visible_through_primary_timestamp_max: Time | UnsetType | None = UNSET
    oldest_omitted_append_at: Time | UnsetType | None = UNSET
    possible_missing_events_upper_bound: Number | UnsetType = UNSET
    possible_missing_uploaded_segments: Number | UnsetType = UNSET
    possible_missing_sealed_rows: Number | UnsetType = UNSET
    possible_missing_wal_rows: Number | UnsetType = UNSET


class ObserveCoverage(msgspec.Struct, kw_only=True):
    events: FoundCoverage | None
    traces: FoundCoverage | None
    warnings: list[str]


class ObserveAnswer(msgspec.Struct, kw_only=True):
    lookup: dict[str, str]
    summary: ObserveSummary
    evlog: ObservedEvents | None
    trace: ObservedTrace | None
    timeline: list[TimelineEvent | TimelineSpan] | None
    coverage: ObserveCoverage
