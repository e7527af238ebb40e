"""Traces in the protobuf format of OTLP, decoded into spans for the otel-traces profile."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.otlp_limits import SpanCollector, number_text
from strandline.schema.profiles.otel_limits import OtlpLimits
from strandline.schema.profiles.otel_span import KINDS, STATUS_CODES


def read_protobuf(body: bytes, limits: OtlpLimits) -> SpanCollector:
    """Decode the spans. Refuses a body that is not valid or has too many parts."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise bad_request(f"the body is not a valid ExportTraceServiceRequest: {error}") from None
    collector = SpanCollector(limits)
    values = _Values(limits)
    collector.check_resources(len(request.resource_spans))
    for resource_spans in request.resource_spans:
        resource = {
            "schemaUrl": resource_spans.schema_url,
            "attributes": values.map(resource_spans.resource.attributes),
        }
        collector.check_scopes(len(resource_spans.scope_spans))
        for scope_spans in resource_spans.scope_spans:
            shared = {"resource": resource, "instrumentationScope": _scope(scope_spans, values)}
            for span in collector.within(scope_spans.spans):
                collector.spans.append(_span(span, values) | shared)
    return collector


def write_protobuf(rejected: int, message: str) -> bytes:
    response = ExportTraceServiceResponse()
    if rejected:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = message
    data: bytes = response.SerializeToString()
    return data


def _scope(scope_spans: ScopeSpans, values: _Values) -> dict[str, Any]:
    scope = scope_spans.scope
    return {
        "name": scope.name,
        "version": scope.version,
        "schemaUrl": scope_spans.schema_url,
        "attributes": values.map(scope.attributes),
    }


def _span(span: Span, values: _Values) -> dict[str, Any]:
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "traceState": span.trace_state,
        "traceFlags": {"raw": span.flags},
        "name": span.name,
        "kind": KINDS[span.kind] if 0 <= span.kind < len(KINDS) else KINDS[0],
        "startUnixNano": span.start_time_unix_nano,
        "endUnixNano": span.end_time_unix_nano,
        "status": {
            "code": STATUS_CODES[span.status.code] if 0 <= span.status.code < len(STATUS_CODES) else STATUS_CODES[0],
            "message": span.status.message,
        },
        "attributes": values.map(span.attributes),
        "events": [
            {
                "name": event.name,
                "timeUnixNano": event.time_unix_nano,
                "attributes": values.map(event.attributes),
                "droppedAttributes": event.dropped_attributes_count,
            }
            for event in span.events
        ],
        "links": [
            {
                "traceId": link.trace_id.hex(),
                "spanId": link.span_id.hex(),
                "traceState": link.trace_state,
                "attributes": values.map(link.attributes),
                "droppedAttributes": link.dropped_attributes_count,
            }
            for link in span.links
        ],
        "dropped": {
            "attributes": span.dropped_attributes_count,
            "events": span.dropped_events_count,
            "links": span.dropped_links_count,
        },
    }


class _Values:
    """Values of any type, up to the limits of depth and length."""

    def __init__(self, limits: OtlpLimits) -> None:
        self._depth = limits.max_any_value_depth
        self._elements = limits.max_array_values_per_any_value
        self._pairs = limits.max_kv_list_values_per_any_value

    def map(self, attributes: Iterable[KeyValue]) -> dict[str, Any]:
        return {attribute.key: self._value(attribute.value, 1) for attribute in attributes}

    def _value(self, value: AnyValue, depth: int) -> Any:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            return value.string_value
        if kind == "int_value":
            return value.int_value
        if kind == "bool_value":
            return value.bool_value
        if kind == "double_value":
            return number_text(value.double_value)
        if kind == "bytes_value":
            return b64encode(value.bytes_value).decode()
        if depth >= self._depth:
            return None
        if kind == "array_value":
            return [self._value(element, depth + 1) for element in value.array_value.values[: self._elements]]
        if kind == "kvlist_value":
            pairs = value.kvlist_value.values[: self._pairs]
            return {pair.key: self._value(pair.value, depth + 1) for pair in pairs}
        return None
