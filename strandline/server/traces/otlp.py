"""Spans as the messages of OTLP, the protocol of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

import strandline
from strandline.spans import Span, Value

SCOPE = "strandline"


class TraceMessages:
    """The messages between a server and its collector. ``attributes`` are those of the server."""

    def __init__(self, attributes: Mapping[str, Value]) -> None:
        self._attributes = [_attribute(name, value) for name, value in attributes.items()]

    def request(self, spans: Iterable[Span]) -> bytes:
        """The body of a request to the collector."""
        message = ExportTraceServiceRequest()
        resource = message.resource_spans.add()
        resource.resource.attributes.extend(self._attributes)
        scope = resource.scope_spans.add()
        scope.scope.name, scope.scope.version = SCOPE, strandline.__version__
        scope.spans.extend(map(_message, spans))
        body: bytes = message.SerializeToString()
        return body

    def rejected(self, answer: bytes) -> tuple[int, str]:
        """How many spans the collector did not take, and why. Raises ValueError if the answer is not of a collector."""
        try:
            partial = ExportTraceServiceResponse.FromString(answer).partial_success
        except DecodeError as error:
            raise ValueError(str(error)) from None
        return partial.rejected_spans, partial.error_message


def _message(span: Span) -> SpanMessage:
    message = SpanMessage(
        trace_id=span.trace_id.to_bytes(16, "big"),
        span_id=span.span_id.to_bytes(8, "big"),
        trace_state=span.state,
        name=span.name,
        kind=SpanMessage.SPAN_KIND_SERVER if span.is_request else SpanMessage.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.started,
        end_time_unix_nano=span.started + span.nanoseconds,
        attributes=[_attribute(name, value) for name, value in span.attributes.items()],
    )
    if span.parent_id:
        message.parent_span_id = span.parent_id.to_bytes(8, "big")
    if span.error is not None:
        message.status.code, message.status.message = Status.STATUS_CODE_ERROR, span.error
    return message


def _attribute(name: str, value: Value) -> KeyValue:
    return KeyValue(key=name, value=_any(value))


def _any(value: Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    # A path may have bytes that are not UTF-8, which arrive as lone surrogates or as Latin-1.
    return AnyValue(string_value=value.encode("utf-8", "replace").decode())
