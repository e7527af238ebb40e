"""The JSON format of OTLP: names in camel case, ids in hexadecimal, large integers as text.

Unknown fields are ignored, as OTLP requires.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.otlp_limits import METRIC_KINDS, PARTS, TEMPORALITIES, OtlpItems, SignalName
from strandline.protocols.streams.wire.observe import (
    ExportedLogs,
    ExportedMetrics,
    ExportedTraces,
    PartialLogs,
    PartialMetrics,
    PartialSuccess,
)
from strandline.schema.profiles.otel_limits import OtlpLimits
from strandline.schema.profiles.otel_span import KINDS, STATUS_CODES
from strandline.schema.profiles.values import number_of, whole_of
from strandline.service.problems import Refusal

_KINDS = {f"SPAN_KIND_{kind.upper()}": kind for kind in KINDS}
_STATUS_CODES = {f"STATUS_CODE_{code.upper()}": code for code in STATUS_CODES}
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


def read_json(signal: SignalName, body: bytes, limits: OtlpLimits) -> OtlpItems:
    """Decode the items. Refuses a body that is not valid or has too many parts."""
    try:
        request = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None
    items = OtlpItems(signal, limits)
    values = _Values(limits)
    part = PARTS[signal].capitalize()
    resources = _objects(_object(request, "the body"), f"resource{part}")
    items.check_resources(len(resources))
    for of_resource in resources:
        resource = {
            "schemaUrl": _text(of_resource, "schemaUrl"),
            "attributes": values.map(_object(of_resource.get("resource"), "resource")),
        }
        scopes = _objects(of_resource, f"scope{part}")
        items.check_scopes(len(scopes))
        for of_scope in scopes:
            shared = {"resource": resource, "instrumentationScope": _scope(of_scope, values)}
            _READERS[signal](items, of_scope, values, shared)
    return items


def write_json(signal: SignalName, rejected: int, message: str) -> bytes:
    exported, partial = _ANSWERS[signal]
    return msgspec.json.encode(exported(partial(str(rejected), message) if rejected else UNSET))


def _scope(of_scope: dict[str, Any], values: _Values) -> dict[str, Any]:
    scope = _object(of_scope.get("scope"), "scope")
    return {
        "name": _text(scope, "name"),
        "version": _text(scope, "version"),
        "schemaUrl": _text(of_scope, "schemaUrl"),
        "attributes": values.map(scope),
    }


# --- spans ---------------------------------------------------------------------------------------------------------


def _read_spans(items: OtlpItems, of_scope: dict[str, Any], values: _Values, shared: dict[str, Any]) -> None:
    for span in items.within(_objects(of_scope, "spans")):
        items.accepted.append(_span(span, values) | shared)


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


# --- log records ---------------------------------------------------------------------------------------------------


def _read_logs(items: OtlpItems, of_scope: dict[str, Any], values: _Values, shared: dict[str, Any]) -> None:
    for log in items.within(_objects(of_scope, "logRecords")):
        items.accepted.append(_log(log, values) | shared)


_SEVERITIES = {
    f"SEVERITY_NUMBER_{name}{step if step > 1 else ''}": 4 * group + step
    for group, name in enumerate(("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"))
    for step in (1, 2, 3, 4)
}


def _log(log: dict[str, Any], values: _Values) -> dict[str, Any]:
    severity = log.get("severityNumber")
    named = _SEVERITIES.get(severity) if type(severity) is str else None
    return {
        "timeUnixNano": _number(log, "timeUnixNano"),
        "observedTimeUnixNano": _number(log, "observedTimeUnixNano"),
        "severityNumber": _number(log, "severityNumber") if named is None else named,
        "severityText": _text(log, "severityText"),
        "eventName": _text(log, "eventName"),
        "body": values.of(log.get("body")),
        "attributes": values.map(log),
        "droppedAttributes": _number(log, "droppedAttributesCount"),
        "flags": _number(log, "flags"),
        "traceId": _text(log, "traceId"),
        "spanId": _text(log, "spanId"),
    }


# --- data points -----------------------------------------------------------------------------------------------------

_TEMPORALITIES = {f"AGGREGATION_TEMPORALITY_{name.upper()}": name for name in TEMPORALITIES}


def _read_metrics(items: OtlpItems, of_scope: dict[str, Any], values: _Values, shared: dict[str, Any]) -> None:
    for metric in _objects(of_scope, "metrics"):
        for kind in METRIC_KINDS:
            if metric.get(kind) is None:
                continue
            data = _object(metric[kind], kind)
            of_metric = shared | {
                "metric": _text(metric, "name"),
                "unit": _text(metric, "unit"),
                "kind": kind,
                "monotonic": data.get("isMonotonic") is True,
                "temporality": _enumerated(data, "aggregationTemporality", TEMPORALITIES, _TEMPORALITIES),
            }
            for point in items.within(_objects(data, "dataPoints")):
                items.accepted.append(_point(point, kind, values) | of_metric)


def _point(point: dict[str, Any], kind: str, values: _Values) -> dict[str, Any]:
    found = {
        "startTimeUnixNano": _number(point, "startTimeUnixNano"),
        "timeUnixNano": _number(point, "timeUnixNano"),
        "attributes": values.map(point),
        "flags": _number(point, "flags"),
    }
    if kind in ("gauge", "sum"):
        found["value"] = _number(point, "asInt") if point.get("asInt") is not None else _measure(point, "asDouble")
        return found
    found["count"] = _number(point, "count")
    if kind == "summary":
        # Members of these messages that are 0 may be omitted.
        quantiles = [(_measure(each, "quantile") or 0, _measure(each, "value") or 0)
                     for each in _objects(point, "quantileValues")]  # fmt: skip
        return found | {"sum": _measure(point, "sum") or 0, "quantiles": quantiles}
    found |= {"sum": _measure(point, "sum"), "min": _measure(point, "min"), "max": _measure(point, "max")}
    if kind == "histogram":
        found["bounds"] = [_double_value(bound) for bound in _array(point, "explicitBounds")]
        found["counts"] = _counts(point, "bucketCounts")
        return found
    return found | {
        "scale": _number(point, "scale"),
        "zeroCount": _number(point, "zeroCount"),
        "positive": _exponential(point, "positive"),
        "negative": _exponential(point, "negative"),
    }


def _exponential(point: dict[str, Any], name: str) -> tuple[int, list[int]]:
    buckets = _object(point.get(name), name)
    return _number(buckets, "offset"), _counts(buckets, "bucketCounts")


def _counts(parent: dict[str, Any], name: str) -> list[int]:
    return [_number({name: count}, name) for count in _array(parent, name)]


def _measure(parent: dict[str, Any], name: str) -> int | float | str | None:
    value = parent.get(name)
    return None if value is None else _double_value(value)


_READERS = {"traces": _read_spans, "logs": _read_logs, "metrics": _read_metrics}
_ANSWERS: dict[SignalName, tuple[Any, Any]] = {
    "traces": (ExportedTraces, PartialSuccess),
    "logs": (ExportedLogs, PartialLogs),
    "metrics": (ExportedMetrics, PartialMetrics),
}


# --- values ----------------------------------------------------------------------------------------------------------


def _malformed(what: str, must: str) -> Refusal:
    return bad_request(f"malformed request: {what} must be {must}")


def _array(parent: dict[str, Any], name: str) -> list[Any]:
    value = parent.get(name)
    if value is None:
        return []
    if type(value) is not list:
        raise _malformed(name, "an array")
    return value


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
        """The attributes of an item, an event, a link, a resource or a scope."""
        return {_text(pair, "key"): self._value(pair.get("value"), 1) for pair in _objects(parent, "attributes")}

    def of(self, given: Any) -> Any:
        """A value that is not an attribute."""
        return self._value(given, 1)

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
