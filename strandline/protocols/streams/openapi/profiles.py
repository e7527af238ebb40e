"""The profiles that a stream can have, as documents. What is not set has its default, and is not shown."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.schema.profiles import evlog, otel_limits
from strandline.schema.profiles.profile import MAX_WHOLE

_Name = Annotated[str, Meta(min_length=1, pattern=r"\S")]
_Names = Annotated[list[_Name], Meta(max_length=evlog.MAX_NAMES)]
_Count = Annotated[int, Meta(ge=0, le=MAX_WHOLE)]
_Positive = Annotated[int, Meta(ge=1, le=MAX_WHOLE)]


class Options(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Nothing but what is named here can be set."""


class GenericProfile(Options, tag_field="kind", tag="generic"):
    """Records are whatever they are."""


class MetricsProfile(Options, tag_field="kind", tag="metrics"):
    """One record per series and interval."""


class Correlation(Options):
    request_id_fields: _Names | UnsetType = UNSET
    trace_context_fields: _Names | UnsetType = UNSET
    parse_traceparent: bool | UnsetType = UNSET


class EventsRequest(Options):
    traces_stream: _Name | UnsetType = UNSET


class EventsObservability(Options):
    request: EventsRequest | UnsetType = UNSET


class EvlogProfile(Options, tag_field="kind", tag="evlog"):
    """One wide event per request, without secrets."""

    redact_keys: _Names | UnsetType = UNSET
    correlation: Correlation | UnsetType = UNSET
    observability: EventsObservability | UnsetType = UNSET


class TouchMemoryOptions(Options):
    bucket_ms: _Positive | UnsetType = UNSET
    filter_pow2: Annotated[int, Meta(ge=10, le=30)] | UnsetType = UNSET
    k: Annotated[int, Meta(ge=1, le=8)] | UnsetType = UNSET
    pending_max_keys: _Positive | UnsetType = UNSET
    key_index_max_keys: Annotated[int, Meta(ge=1, le=1024)] | UnsetType = UNSET
    hot_key_ttl_ms: _Positive | UnsetType = UNSET
    hot_template_ttl_ms: _Positive | UnsetType = UNSET
    hot_max_keys: _Positive | UnsetType = UNSET
    hot_max_templates: _Positive | UnsetType = UNSET


class TouchTemplateOptions(Options):
    default_inactivity_ttl_ms: _Positive | UnsetType = UNSET
    last_seen_persist_interval_ms: _Positive | UnsetType = UNSET
    gc_interval_ms: _Positive | UnsetType = UNSET
    max_active_templates_per_entity: _Positive | UnsetType = UNSET
    max_active_templates_per_stream: _Positive | UnsetType = UNSET
    activation_rate_limit_per_minute: _Count | UnsetType = UNSET


class TouchOptions(Options):
    """How the watchers of a stream are told that something has changed."""

    enabled: bool | UnsetType = UNSET
    coarse_interval_ms: _Positive | UnsetType = UNSET
    touch_coalesce_window_ms: _Positive | UnsetType = UNSET
    on_missing_before: Literal["coarse", "skipBefore", "error"] | UnsetType = UNSET
    lag_degrade_fine_touches_at_source_offsets: _Count | UnsetType = UNSET
    lag_recover_fine_touches_at_source_offsets: _Count | UnsetType = UNSET
    fine_touch_budget_per_batch: _Count | UnsetType = UNSET
    fine_tokens_per_second: _Count | UnsetType = UNSET
    fine_burst_tokens: _Count | UnsetType = UNSET
    lag_reserved_fine_touch_budget_per_batch: _Count | UnsetType = UNSET
    memory: TouchMemoryOptions | UnsetType = UNSET
    templates: TouchTemplateOptions | UnsetType = UNSET


class StateProtocolProfile(Options, tag_field="kind", tag="state-protocol"):
    """Changes of rows, and marks between them."""

    touch: TouchOptions | UnsetType = UNSET


class AttributeLimitOptions(Options):
    max_attribute_value_bytes: _Positive | UnsetType = UNSET
    max_attributes_per_span: _Count | UnsetType = UNSET
    max_events_per_span: _Count | UnsetType = UNSET
    max_links_per_span: _Count | UnsetType = UNSET
    max_statement_bytes: _Positive | UnsetType = UNSET


class StoreOptions(Options):
    raw_resource_attributes: bool | UnsetType = UNSET
    raw_span_attributes: bool | UnsetType = UNSET
    raw_events: bool | UnsetType = UNSET
    raw_links: bool | UnsetType = UNSET


class OtlpLimitOptions(Options):
    max_compressed_bytes: _Positive | UnsetType = UNSET
    max_decoded_bytes: _Positive | UnsetType = UNSET
    max_resource_spans_per_request: _Positive | UnsetType = UNSET
    max_scope_spans_per_request: _Positive | UnsetType = UNSET
    max_spans_per_request: _Positive | UnsetType = UNSET
    max_any_value_depth: Annotated[int, Meta(ge=1, le=otel_limits.MAX_DEPTH)] | UnsetType = UNSET
    max_array_values_per_any_value: _Count | UnsetType = UNSET
    max_kv_list_values_per_any_value: _Count | UnsetType = UNSET


class SpansRequest(Options):
    events_stream: _Name | UnsetType = UNSET


class SpansObservability(Options):
    request: SpansRequest | UnsetType = UNSET


class OtelTracesProfile(Options, tag_field="kind", tag="otel-traces"):
    """Spans of OpenTelemetry."""

    redact_keys: _Names | UnsetType = UNSET
    request_id_attributes: _Names | UnsetType = UNSET
    attribute_limits: AttributeLimitOptions | UnsetType = UNSET
    store: StoreOptions | UnsetType = UNSET
    db_statement_mode: Literal["drop", "raw"] | UnsetType = UNSET
    url_mode: Literal["drop_query", "raw"] | UnsetType = UNSET
    otlp_limits: OtlpLimitOptions | UnsetType = UNSET
    observability: SpansObservability | UnsetType = UNSET


AnyProfile = GenericProfile | EvlogProfile | MetricsProfile | OtelTracesProfile | StateProtocolProfile
ApiVersion = Literal["durable.streams/profile/v1"]


class ProfileUpdate(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    api_version: ApiVersion | UnsetType = msgspec.field(name="apiVersion", default=UNSET)
    profile: AnyProfile


class ProfileAnswer(msgspec.Struct):
    api_version: ApiVersion = msgspec.field(name="apiVersion")
    profile: AnyProfile


DESCRIPTIONS: dict[str, dict[str, str]] = {
    "EvlogProfile": {"redactKeys": "Keys whose values are not stored, beside the usual ones."},
    "Correlation": {
        "requestIdFields": "Where the id of the request is looked for, as dotted paths.",
        "traceContextFields": "Where ids of trace and span are: dotted paths that end in `traceId` or `spanId`.",
        "parseTraceparent": "Whether to look into `traceparent`; by default, yes.",
    },
    "EventsRequest": {"tracesStream": "Where the traces of its requests are."},
    "SpansRequest": {"eventsStream": "Where the events of its requests are."},
    "OtelTracesProfile": {
        "redactKeys": "Attributes whose values are not stored, beside the usual ones.",
        "requestIdAttributes": "Where the id of the request is looked for.",
        "dbStatementMode": "Whether statements of databases are kept as they are; by default they are dropped.",
        "urlMode": "Whether queries of URLs are kept; by default they are dropped.",
    },
    "TouchOptions": {
        "enabled": "Without it nothing else has an effect, and nothing else is kept.",
        "onMissingBefore": "What becomes of an update that does not say what it changed.",
    },
    "TouchMemoryOptions": {"filterPow2": "The filter has 2 to this power positions of four bytes."},
}
