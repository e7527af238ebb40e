"""Traces in the JSON format of OTLP: names in camel case, ids in hexadecimal, large integers as text.

Unknown fields are ignored, as OTLP requires.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.otlp_limits import SpanCollector
from strandline.protocols.streams.wire.observe import ExportedTraces, PartialSuccess
from strandline.schema.profiles.otel_limits import OtlpLimits
from strandline.schema.profiles.otel_span import KINDS, STATUS_CODES
from strandline.schema.profiles.values import number_of, whole_of
from strandline.service.problems import Refusal

_KINDS = {f"SPAN_KIND_{kind.upper()}": kind for kind in KINDS}
_STATUS_CODES = {f"STATUS_CODE_{code.upper()}": code for code in STATUS_CODES}
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


def read_json(body: bytes, limits: OtlpLimits) -> SpanCollector:
    """Decode the spans. Refuses a body that is not valid or has too many parts."""
    try:
        request = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None
    collector = SpanCollector(limits)
    values = _Values(limits)
    all_resource_spans = _objects(_object(request, "the body"), "resourceSpans")
    collector.check_resources(len(all_resource_spans))
    for resource_spans in all_resource_spans:
        resource = {
            "schemaUrl": _text(resource_spans, "schemaUrl"),
            "attributes": values.map(_object(resource_spans.get("resource"), "resource")),
        }
        all_scope_spans = _objects(resource_spans, "scopeSpans")
        collector.check_scopes(len(all_scope_spans))
        for scope_spans in all_scope_spans:
            shared = {"resource": resource, "instrumentationScope": _scope(scope_spans, values)}
            for span in collector.within(_objects(scope_spans, "spans")):
                collector.spans.append(_span(span, values) | shared)
    return collector


def write_json(rejected: int, message: str) -> bytes:
    return msgspec.json.encode(ExportedTraces(PartialSuccess(str(rejected), message) if rejected else UNSET))


def _scope(scope_spans: dict[str, Any], values: _Values) -> dict[str, Any]:
    scope = _object(scope_spans.get("scope"), "scope")
    return {
        "name": _text(scope, "name"),
        "version": _text(scope, "version"),
        "schemaUrl": _text(scope_spans, "schemaUrl"),
        "attributes": values.map(scope),
    }


def _span(span: dict[str, Any], values: _Values) -> dict[str, Any]:
    status = _object(span.get("status"), "status")
    return {
        "traceId": _text(span, "traceId"),
        "spanId": _text(span, "spanId"),
        "parentSpanId": _text(span, "parentSpanId"),
        "traceState": _text(span, "traceState"),
        "traceFlags": {"raw": _number(span, "flags")},
        "name": _text(span, "name"),
        "kind": _enumerated(span, "kind", KINDS, _KINDS),
        "startUnixNano": _number(span, "startTimeUnixNano"),
        "endUnixNano": _number(span, "endTimeUnixNano"),
        "status": {
            "code": _enumerated(status, "code", STATUS_CODES, _STATUS_CODES),
            "message": _text(status, "message"),
        },
        "attributes": values.map(span),
        "events": [
            {
                "name": _text(event, "name"),
                "timeUnixNano": _number(event, "timeUnixNano"),
                "attributes": values.map(event),
                "droppedAttributes": _number(event, "droppedAttributesCount"),
            }
            for event in _objects(span, "events")
        ],
        "links": [
            {
                "traceId": _text(link, "traceId"),
                "spanId": _text(link, "spanId"),
                "traceState": _text(link, "traceState"),
                "attributes": values.map(link),
                "droppedAttributes": _number(link, "droppedAttributesCount"),
            }
            for link in _objects(span, "links")
        ],
        "dropped": {
            "attributes": _number(span, "droppedAttributesCount"),
            "events": _number(span, "droppedEventsCount"),
            "links": _number(span, "droppedLinksCount"),
        },
    }


def _malformed(what: str, must: str) -> Refusal:
    return bad_request(f"malformed traces: {what} must be {must}")


def _object(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if type(value) is not dict:
        raise _malformed(name, "an object")
    return value


def _objects(parent: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = parent.get(name)
    if value is None:
        return []
    if type(value) is not list or not all(type(element) is dict for element in value):
        raise _malformed(name, "an array of objects")
    return value


def _text(parent: dict[str, Any], name: str) -> str:
    value = parent.get(name)
    if value is None:
        return ""
    if type(value) is not str:
        raise _malformed(name, "a string")
    return value


def _number(parent: dict[str, Any], name: str) -> int:
    value = parent.get(name)
    number = 0 if value is None else whole_of(value)
    if number is None:
        raise _malformed(name, "an integer")
    return number


def _enumerated(parent: dict[str, Any], name: str, by_number: tuple[str, ...], by_name: dict[str, str]) -> str:
    """By number or by name; an unknown one counts as unspecified."""
    value = parent.get(name)
    if type(value) is str and value in by_name:
        return by_name[value]
    number = 0 if value is None else whole_of(value)
    if number is None and type(value) is not str:
        raise _malformed(name, "a number or a name")
    return by_number[number] if number is not None and 0 <= number < len(by_number) else by_number[0]


class _Values:
    """Values of any type, up to the limits of depth and length."""

    def __init__(self, limits: OtlpLimits) -> None:
        self._depth = limits.max_any_value_depth
        self._elements = limits.max_array_values_per_any_value
        self._pairs = limits.max_kv_list_values_per_any_value

    def map(self, parent: dict[str, Any]) -> dict[str, Any]:
        """The attributes of a span, an event, a link, a resource or a scope."""
        return {_text(pair, "key"): self._value(pair.get("value"), 1) for pair in _objects(parent, "attributes")}

    def _value(self, given: Any, depth: int) -> Any:
        for kind, value in _object(given, "value").items():
            if value is None:
                continue
            if kind in _SCALARS:
                return _SCALARS[kind](value)
            if kind in ("arrayValue", "kvlistValue"):
                return None if depth >= self._depth else self._several(kind, _object(value, kind), depth + 1)
        return None

    def _several(self, kind: str, value: dict[str, Any], depth: int) -> Any:
        if kind == "arrayValue":
            return [self._value(element, depth) for element in _objects(value, "values")[: self._elements]]
        pairs = _objects(value, "values")[: self._pairs]
        return {_text(pair, "key"): self._value(pair.get("value"), depth) for pair in pairs}


def _string_value(value: Any) -> str:
    return _text({"stringValue": value}, "stringValue")


def _bytes_value(value: Any) -> str:
    return _text({"bytesValue": value}, "bytesValue")


def _bool_value(value: Any) -> bool:
    if type(value) is not bool:
        raise _malformed("boolValue", "a boolean")
    return value


def _int_value(value: Any) -> int:
    return _number({"intValue": value}, "intValue")


def _double_value(value: Any) -> int | float | str:
    if type(value) is str and value in _NO_NUMBERS:
        return value
    number = number_of(value)
    if number is None:
        raise _malformed("doubleValue", "a number")
    return number


_SCALARS = {
    "stringValue": _string_value,
    "intValue": _int_value,
    "boolValue": _bool_value,
    "doubleValue": _double_value,
    "bytesValue": _bytes_value,
}
