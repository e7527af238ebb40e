"""What can be set about a stream of traces: how much of a span is kept, and how much of a request is looked at."""

from __future__ import annotations

import msgspec

from strandline.schema.profiles.options import Options

#: Redacted keys, and attributes that may hold the id of a request, that can be configured.
MAX_NAMES = 64
MAX_DEPTH = 64


class AttributeLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_attribute_value_bytes: int = 8192
    max_attributes_per_span: int = 256
    max_events_per_span: int = 128
    max_links_per_span: int = 128
    max_statement_bytes: int = 4096


class StoreRaw(msgspec.Struct, frozen=True, kw_only=True):
    """What of a span is stored beside the fields that are made of it."""

    resource_attributes: bool = True
    span_attributes: bool = True
    events: bool = True
    links: bool = True


class OtlpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large one request may be, and how large the values in it."""

    max_compressed_bytes: int = 4 << 20
    max_decoded_bytes: int = 16 << 20
    max_resource_spans_per_request: int = 1024
    max_scope_spans_per_request: int = 4096
    max_spans_per_request: int = 50_000
    max_any_value_depth: int = 16
    max_array_values_per_any_value: int = 256
    max_kv_list_values_per_any_value: int = 256


class OtelSettings(msgspec.Struct, frozen=True, kw_only=True):
    redact_keys: tuple[str, ...] = ()
    #: Where the id of a request is looked for; empty: in the usual places.
    request_id_attributes: tuple[str, ...] = ()
    attribute_limits: AttributeLimits = AttributeLimits()
    store: StoreRaw = StoreRaw()
    keeps_statements: bool = False
    keeps_queries: bool = False
    otlp_limits: OtlpLimits = OtlpLimits()


def parse_settings(options: Options) -> OtelSettings:
    """Raises SchemaError."""
    return OtelSettings(
        redact_keys=options.texts("redactKeys", MAX_NAMES, lower=True),
        request_id_attributes=options.texts("requestIdAttributes", MAX_NAMES),
        attribute_limits=_attribute_limits(options.section("attributeLimits")),
        store=_store(options.section("store")),
        keeps_statements=options.choice("dbStatementMode", ("drop", "raw"), "drop") == "raw",
        keeps_queries=options.choice("urlMode", ("drop_query", "raw"), "drop_query") == "raw",
        otlp_limits=_otlp_limits(options.section("otlpLimits")),
    )


def _attribute_limits(options: Options | None) -> AttributeLimits:
    if options is None:
        return AttributeLimits()
    options.allow(
        "maxAttributeValueBytes", "maxAttributesPerSpan", "maxEventsPerSpan", "maxLinksPerSpan", "maxStatementBytes"
    )
    return AttributeLimits(
        max_attribute_value_bytes=options.whole("maxAttributeValueBytes", 8192, 1),
        max_attributes_per_span=options.whole("maxAttributesPerSpan", 256, 0),
        max_events_per_span=options.whole("maxEventsPerSpan", 128, 0),
        max_links_per_span=options.whole("maxLinksPerSpan", 128, 0),
        max_statement_bytes=options.whole("maxStatementBytes", 4096, 1),
    )


def _store(options: Options | None) -> StoreRaw:
    if options is None:
        return StoreRaw()
    options.allow("rawResourceAttributes", "rawSpanAttributes", "rawEvents", "rawLinks")
    return StoreRaw(
        resource_attributes=options.flag("rawResourceAttributes", True),
        span_attributes=options.flag("rawSpanAttributes", True),
        events=options.flag("rawEvents", True),
        links=options.flag("rawLinks", True),
    )


def _otlp_limits(options: Options | None) -> OtlpLimits:
    if options is None:
        return OtlpLimits()
    options.allow(
        "maxCompressedBytes", "maxDecodedBytes", "maxResourceSpansPerRequest", "maxScopeSpansPerRequest",
        "maxSpansPerRequest", "maxAnyValueDepth", "maxArrayValuesPerAnyValue", "maxKvListValuesPerAnyValue",
    )  # fmt: skip
    return OtlpLimits(
        max_compressed_bytes=options.whole("maxCompressedBytes", 4 << 20, 1),
        max_decoded_bytes=options.whole("maxDecodedBytes", 16 << 20, 1),
        max_resource_spans_per_request=options.whole("maxResourceSpansPerRequest", 1024, 1),
        max_scope_spans_per_request=options.whole("maxScopeSpansPerRequest", 4096, 1),
        max_spans_per_request=options.whole("maxSpansPerRequest", 50_000, 1),
        max_any_value_depth=options.whole("maxAnyValueDepth", 16, 1, MAX_DEPTH),
        max_array_values_per_any_value=options.whole("maxArrayValuesPerAnyValue", 256, 0),
        max_kv_list_values_per_any_value=options.whole("maxKvListValuesPerAnyValue", 256, 0),
    )
