"""The protobuf format of OTLP, decoded into the same items as its JSON format."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.otlp_limits import (
    METRIC_KINDS,
    PARTS,
    TEMPORALITIES,
    OtlpItems,
    SignalName,
    number_text,
)
from strandline.schema.profiles.otel_limits import OtlpLimits
from strandline.schema.profiles.otel_span import KINDS, STATUS_CODES

_REQUESTS: dict[SignalName, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
#: The answers, and the member that counts rejected items.
_ANSWERS: dict[SignalName, tuple[Any, str]] = {
    "traces": (ExportTraceServiceResponse, "rejected_spans"),
    "logs": (ExportLogsServiceResponse, "rejected_log_records"),
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points"),
}


def read_protobuf(signal: SignalName, body: bytes, limits: OtlpLimits) -> OtlpItems:
    """Decode the items. Refuses a body that is not valid or has too many parts."""
    form = _REQUESTS[signal]
    try:
        request = form.FromString(body)
    except DecodeError as error:
        raise bad_request(f"the body is not a valid {form.__name__}: {error}") from None
    items = OtlpItems(signal, limits)
    values = _Values(limits)
    resources = getattr(request, f"resource_{PARTS[signal]}")
    items.check_resources(len(resources))
    for of_resource in resources:
        resource = {
            "schemaUrl": of_resource.schema_url,
            "attributes": values.map(of_resource.resource.attributes),
        }
        scopes = getattr(of_resource, f"scope_{PARTS[signal]}")
        items.check_scopes(len(scopes))
        for of_scope in scopes:
            shared = {"resource": resource, "instrumentationScope": _scope(of_scope, values)}
            _READERS[signal](items, of_scope, values, shared)
    return items


def write_protobuf(signal: SignalName, rejected: int, message: str) -> bytes:
    form, count = _ANSWERS[signal]
    response = form()
    if rejected:
        setattr(response.partial_success, count, rejected)
        response.partial_success.error_message = message
    data: bytes = response.SerializeToString()
    return data


def _scope(of_scope: Any, values: _Values) -> dict[str, Any]:
    scope = of_scope.scope
    return {
        "name": scope.name,
        "version": scope.version,
        "schemaUrl": of_scope.schema_url,
        "attributes": values.map(scope.attributes),
    }


# --- spans ---------------------------------------------------------------------------------------------------------


def _read_spans(items: OtlpItems, of_scope: Any, values: _Values, shared: dict[str, Any]) -> None:
    for span in items.within(of_scope.spans):
        items.accepted.append(_span(span, values) | shared)


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


# --- log records ---------------------------------------------------------------------------------------------------


def _read_logs(items: OtlpItems, of_scope: Any, values: _Values, shared: dict[str, Any]) -> None:
    for log in items.within(of_scope.log_records):
        items.accepted.append(_log(log, values) | shared)


def _log(log: LogRecord, values: _Values) -> dict[str, Any]:
    return {
        "timeUnixNano": log.time_unix_nano,
        "observedTimeUnixNano": log.observed_time_unix_nano,
        "severityNumber": log.severity_number,
        "severityText": log.severity_text,
        "eventName": log.event_name,
        "body": values.of(log.body),
        "attributes": values.map(log.attributes),
        "droppedAttributes": log.dropped_attributes_count,
        "flags": log.flags,
        "traceId": log.trace_id.hex(),
        "spanId": log.span_id.hex(),
    }


# --- data points -----------------------------------------------------------------------------------------------------

_MEMBERS = dict(zip(("gauge", "sum", "histogram", "exponential_histogram", "summary"), METRIC_KINDS, strict=True))


def _read_metrics(items: OtlpItems, of_scope: Any, values: _Values, shared: dict[str, Any]) -> None:
    for metric in of_scope.metrics:
        member = metric.WhichOneof("data")
        if member is None:
            continue
        data, kind = getattr(metric, member), _MEMBERS[member]
        temporality = getattr(data, "aggregation_temporality", 0)
        of_metric = shared | {
            "metric": metric.name,
            "unit": metric.unit,
            "kind": kind,
            "monotonic": getattr(data, "is_monotonic", False),
            "temporality": TEMPORALITIES[temporality] if temporality < len(TEMPORALITIES) else TEMPORALITIES[0],
        }
        for point in items.within(data.data_points):
            items.accepted.append(_point(point, kind, values) | of_metric)


def _point(point: Any, kind: str, values: _Values) -> dict[str, Any]:
    found = {
        "startTimeUnixNano": point.start_time_unix_nano,
        "timeUnixNano": point.time_unix_nano,
        "attributes": values.map(point.attributes),
        "flags": point.flags,
    }
    if kind in ("gauge", "sum"):
        member = point.WhichOneof("value")
        value = None if member is None else getattr(point, member)
        return found | {"value": number_text(value) if type(value) is float else value}
    found["count"] = point.count
    if kind == "summary":
        quantiles = [(number_text(each.quantile), number_text(each.value)) for each in point.quantile_values]
        return found | {"sum": number_text(point.sum), "quantiles": quantiles}
    for name in ("sum", "min", "max"):
        found[name] = number_text(getattr(point, name)) if point.HasField(name) else None
    if kind == "histogram":
        bounds = [number_text(bound) for bound in point.explicit_bounds]
        return found | {"bounds": bounds, "counts": list(point.bucket_counts)}
    return found | {
        "scale": point.scale,
        "zeroCount": point.zero_count,
        "positive": (point.positive.offset, list(point.positive.bucket_counts)),
        "negative": (point.negative.offset, list(point.negative.bucket_counts)),
    }


_READERS = {"traces": _read_spans, "logs": _read_logs, "metrics": _read_metrics}


# --- values ----------------------------------------------------------------------------------------------------------


class _Values:
    """Values of any type, up to the limits of depth and length."""

    def __init__(self, limits: OtlpLimits) -> None:
        self._depth = limits.max_any_value_depth
        self._elements = limits.max_array_values_per_any_value
        self._pairs = limits.max_kv_list_values_per_any_value

    def map(self, attributes: Iterable[KeyValue]) -> dict[str, Any]:
        return {attribute.key: self._value(attribute.value, 1) for attribute in attributes}

    def of(self, value: AnyValue) -> Any:
        """A value that is not an attribute."""
        return self._value(value, 1)

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
