"""The stored form of a span, independent of the sender and the encoding.

Input uses the keys of the stored form; missing members are filled in from attributes where possible. A stored span that
is sent again therefore stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from strandline.query.values import parse_date
from strandline.schema.errors import SchemaError
from strandline.schema.profiles.otel_limits import Attributes, OtelTracesProfile
from strandline.schema.profiles.values import iso, scalar_text, whole_of

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUS_CODES = ("unset", "ok", "error")
MAX_NANOSECONDS = (1 << 64) - 1
#: The attributes with the id of a request, unless configured.
REQUEST_ID_ATTRIBUTES = (
    "request.id", "http.request_id", "http.request.header.x_request_id", "http.request.header.x-request-id",
    "http.request.header.x_correlation_id", "http.request.header.x-correlation-id", "correlation.id",
)  # fmt: skip

_TRACE_ID = re.compile("(?!0{32})[0-9a-f]{32}", re.ASCII)
_SPAN_ID = re.compile("(?!0{16})[0-9a-f]{16}", re.ASCII)

#: Fields that are filled in from resource attributes.
RESOURCE_FIELDS = {
    "service": ("service.name",),
    "serviceNamespace": ("service.namespace",),
    "serviceInstanceId": ("service.instance.id",),
    "environment": ("deployment.environment.name", "deployment.environment"),
    "version": ("service.version",),
    "region": ("cloud.region",),
}
#: Fields that are filled in from span attributes. Newer names of the conventions come first.
SPAN_FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "http": {
        "method": ("http.request.method", "http.method"),
        "route": ("http.route",),
        "path": ("url.path",),
        "target": ("http.target",),
        "url": ("url.full", "http.url"),
        "statusCode": ("http.response.status_code", "http.status_code"),
        "userAgent": ("user_agent.original", "http.user_agent"),
    },
    "db": {
        "system": ("db.system.name", "db.system"),
        "name": ("db.namespace", "db.name"),
        "operation": ("db.operation.name", "db.operation"),
        "statement": ("db.query.text", "db.statement"),
    },
    "rpc": {"system": ("rpc.system",), "service": ("rpc.service",), "method": ("rpc.method",)},
    "messaging": {
        "system": ("messaging.system",),
        "destination": ("messaging.destination.name", "messaging.destination"),
        "operation": ("messaging.operation.type", "messaging.operation.name", "messaging.operation"),
    },
}
#: All attributes of each kind of call. Most spans have none of them.
_TELLING = {
    group: frozenset(name for names in fields.values() for name in names) for group, fields in SPAN_FIELDS.items()
}
_ALLOWED = frozenset({
    "schemaVersion", "signal", "timestamp", "endTimestamp", "startUnixNano", "endUnixNano", "duration", "traceId",
    "spanId", "parentSpanId", "traceState", "traceFlags", "name", "kind", "status", *RESOURCE_FIELDS, "requestId",
    *SPAN_FIELDS, "error", "instrumentationScope", "resource", "attributes", "events", "eventNames", "links",
    "dropped", "redaction", "identity",
})  # fmt: skip


class Spans:
    """Builds the spans of one profile."""

    def __init__(self, settings: OtelTracesProfile) -> None:
        self._attributes = Attributes(settings)
        self._limits = settings.attribute_limits
        self._store = settings.store
        self._request_id_attributes = settings.request_id_attributes or REQUEST_ID_ATTRIBUTES

    def canonical(self, record: Any) -> dict[str, Any]:
        """Return the stored form of a record. Raises SchemaError. Does not change its argument."""
        if type(record) is not dict:
            raise SchemaError("otel-traces records must be JSON objects")
        if not record.keys() <= _ALLOWED:
            raise SchemaError(f"otel-traces record.{next(n for n in record if n not in _ALLOWED)} is not supported")
        trace_id, span_id = _id(record, "traceId", _TRACE_ID, 32), _id(record, "spanId", _SPAN_ID, 16)
        start, end = _times(record)
        name = _text(record, "name") or ""
        status = self._status(_object(record, "status", ("code", "message")))
        redacted = _texts(_object(record, "redaction", ("keys",)), "redaction.", "keys")
        attributes, dropped_attributes = self._attributes.clean(record.get("attributes"), "attributes", redacted)
        resource = _object(record, "resource", ("schemaUrl", "attributes"))
        resource_attributes, _ = self._attributes.clean(resource.get("attributes"), "resource.attributes", redacted)
        events, dropped_events = self._events(record.get("events"), redacted)
        links, dropped_links = self._links(record.get("links"), redacted)
        groups = self._groups(record, attributes)
        dropped = _object(record, "dropped", ("attributes", "events", "links"))
        store = self._store
        return {
            "schemaVersion": 1,
            "signal": "trace.span",
            "timestamp": iso(start // 1_000_000),
            "endTimestamp": iso(end // 1_000_000),
            "startUnixNano": str(start),
            "endUnixNano": str(end),
            "duration": (end - start) / 1_000_000,
            "traceId": trace_id,
            "spanId": span_id,
            "parentSpanId": _parent(record),
            "traceState": _text(record, "traceState") or None,
            "traceFlags": _trace_flags(_object(record, "traceFlags", ("sampled", "raw"))),
            "name": name,
            "kind": _choice(record.get("kind"), KINDS, "kind"),
            "status": status,
            **self._resource_fields(record, resource_attributes),
            "requestId": self._value(record.get("requestId"), attributes, self._request_id_attributes),
            **groups,
            "error": self._error(record, status, groups["http"]["statusCode"], attributes, events),
            "instrumentationScope": self._scope(record, redacted),
            "resource": {
                "schemaUrl": _text(resource, "schemaUrl") or None,
                "attributes": resource_attributes if store.resource_attributes else {},
            },
            "attributes": attributes if store.span_attributes else {},
            "events": events if store.events else [],
            "eventNames": [event["name"] for event in events] or _texts(record, "", "eventNames"),
            "links": links if store.links else [],
            "dropped": {
                "attributes": _count(dropped, "attributes") + dropped_attributes,
                "events": _count(dropped, "events") + dropped_events,
                "links": _count(dropped, "links") + dropped_links,
            },
            "redaction": {"keys": list(dict.fromkeys(redacted))},
            "identity": {
                "spanKey": f"{trace_id}:{span_id}",
                "dedupeKey": sha256(f"{trace_id}:{span_id}:{start}:{end}:{name}".encode()).hexdigest(),
            },
        }

    # --- parts of a span ---------------------------------------------------------------------------------------------

    def _status(self, given: dict[str, Any]) -> dict[str, Any]:
        message = _text(given, "message", "status.")
        code = _choice(given.get("code"), STATUS_CODES, "status.code")
        return {"code": code, "message": self._attributes.text(message) if message else None}

    def _value(self, given: Any, attributes: dict[str, Any], names: tuple[str, ...]) -> str | None:
        """Return the given value, or else the first of these attributes, as text."""
        if given is None:
            return first_text(attributes, names)
        text = scalar_text(given)
        return self._attributes.text(text) if text else None

    def _resource_fields(self, record: dict[str, Any], attributes: dict[str, Any]) -> dict[str, str | None]:
        value = self._value
        return {field: value(record.get(field), attributes, names) for field, names in RESOURCE_FIELDS.items()}

    def _groups(self, record: dict[str, Any], attributes: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the details of the span's call, by the kind of call."""
        value = self._value
        groups: dict[str, dict[str, Any]] = {}
        for group, fields in SPAN_FIELDS.items():
            given = _object(record, group, fields)
            if given or not _TELLING[group].isdisjoint(attributes):
                values = {field: value(given.get(field), attributes, names) for field, names in fields.items()}
            else:
                values = dict.fromkeys(fields)
            groups[group] = values
        http: dict[str, Any] = groups["http"]
        http["statusCode"] = whole_of(http["statusCode"])
        for field in ("url", "target"):
            if http[field] is not None:
                http[field] = self._attributes.url(http[field])
        if http["path"] is None and (url := http["target"] or http["url"]) is not None:
            http["path"] = _path(url)
        db = groups["db"]
        if db["statement"] is not None:
            db["statement"] = self._attributes.statement(db["statement"])
        return groups

    def _error(
        self,
        record: dict[str, Any],
        status: dict[str, Any],
        status_code: int | None,
        attributes: dict[str, Any],
        events: list[dict[str, Any]],
    ) -> dict[str, Any]:
        given = _object(record, "error", ("isError", "type", "message", "stacktrace"))
        exception = next((event["attributes"] for event in events if event["name"] == "exception"), attributes)
        kind = first_text(exception, ("exception.type",))
        failed = status["code"] == "error"
        value = self._value
        return {
            "isError": failed
            or (status_code is not None and status_code >= 500)
            or kind is not None
            or given.get("isError") is True,
            "type": value(given.get("type"), exception, ("exception.type",)) or first_text(attributes, ("error.type",)),
            "message": value(given.get("message"), exception, ("exception.message",))
            or (status["message"] if failed else None),
            "stacktrace": value(given.get("stacktrace"), exception, ("exception.stacktrace",)),
        }

    def _scope(self, record: dict[str, Any], redacted: list[str]) -> dict[str, Any]:
        given = _object(record, "instrumentationScope", ("name", "version", "schemaUrl", "attributes"))
        attributes, _ = self._attributes.clean(given.get("attributes"), "instrumentationScope.attributes", redacted)
        return {
            "name": _text(given, "name", "instrumentationScope.") or None,
            "version": _text(given, "version", "instrumentationScope.") or None,
            "schemaUrl": _text(given, "schemaUrl", "instrumentationScope.") or None,
            "attributes": attributes,
        }

    def _events(self, given: Any, redacted: list[str]) -> tuple[list[dict[str, Any]], int]:
        """Return the stored events, and the number of dropped ones."""
        elements, dropped = _elements(given, "events", self._limits.max_events_per_span)
        events = []
        for index, element in enumerate(elements):
            where = f"events.{index}"
            time = _nanoseconds(element.get("timeUnixNano"))
            if time is None:
                raise SchemaError(f"otel-traces record.{where}.timeUnixNano must be nanoseconds since 1970")
            attributes, too_many = self._attributes.clean(element.get("attributes"), f"{where}.attributes", redacted)
            event = {
                "name": _text(element, "name", f"{where}.") or "",
                "timestamp": iso(time // 1_000_000),
                "timeUnixNano": str(time),
                "attributes": attributes,
                "droppedAttributes": _count(element, "droppedAttributes", f"{where}.") + too_many,
            }
            events.append(event)
        return events, dropped

    def _links(self, given: Any, redacted: list[str]) -> tuple[list[dict[str, Any]], int]:
        elements, dropped = _elements(given, "links", self._limits.max_links_per_span)
        links = []
        for index, element in enumerate(elements):
            where = f"links.{index}"
            attributes, too_many = self._attributes.clean(element.get("attributes"), f"{where}.attributes", redacted)
            link = {
                "traceId": _id(element, "traceId", _TRACE_ID, 32, f"{where}."),
                "spanId": _id(element, "spanId", _SPAN_ID, 16, f"{where}."),
                "traceState": _text(element, "traceState", f"{where}.") or None,
                "attributes": attributes,
                "droppedAttributes": _count(element, "droppedAttributes", f"{where}.") + too_many,
            }
            links.append(link)
        return links, dropped


# --- members of a record ---------------------------------------------------------------------------------------------


def _object(record: dict[str, Any], name: str, allowed: Iterable[str]) -> dict[str, Any]:
    given = record.get(name)
    if given is None:
        return {}
    if type(given) is not dict:
        raise SchemaError(f"otel-traces record.{name} must be an object")
    for key in given:
        if key not in allowed:
            raise SchemaError(f"otel-traces record.{name}.{key} is not supported")
    return given


def _elements(given: Any, name: str, most: int) -> tuple[list[dict[str, Any]], int]:
    if given is None:
        return [], 0
    if type(given) is not list or not all(type(element) is dict for element in given):
        raise SchemaError(f"otel-traces record.{name} must be an array of objects")
    return given[:most], max(0, len(given) - most)


def _text(record: dict[str, Any], name: str, path: str = "") -> str | None:
    value = record.get(name)
    if value is not None and type(value) is not str:
        raise SchemaError(f"otel-traces record.{path}{name} must be a string")
    return value


def _texts(record: dict[str, Any], path: str, name: str) -> list[str]:
    values = record.get(name)
    if values is None:
        return []
    if type(values) is not list or not all(type(value) is str for value in values):
        raise SchemaError(f"otel-traces record.{path}{name} must be an array of strings")
    return values.copy()


def _count(record: dict[str, Any], name: str, path: str = "dropped.") -> int:
    value = record.get(name)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise SchemaError(f"otel-traces record.{path}{name} must be an integer >= 0")
    return value


def _choice(value: Any, choices: tuple[str, ...], name: str) -> str:
    if value is None:
        return choices[0]
    if type(value) is not str or value.lower() not in choices:
        raise SchemaError(f"otel-traces record.{name} must be {'|'.join(choices)}")
    return value.lower()


def _id(record: dict[str, Any], name: str, form: re.Pattern[str], digits: int, path: str = "") -> str:
    value = record.get(name)
    if type(value) is str and form.fullmatch(value := value.lower()) is not None:
        return value
    raise SchemaError(f"otel-traces record.{path}{name} must be {digits} hexadecimal digits that are not all zero")


def _parent(record: dict[str, Any]) -> str | None:
    value = record.get("parentSpanId")
    if value is None or value == "" or value == "0" * 16:
        return None
    return _id(record, "parentSpanId", _SPAN_ID, 16)


def _trace_flags(given: dict[str, Any]) -> dict[str, Any]:
    raw, sampled = given.get("raw"), given.get("sampled")
    if raw is None:
        raw = int(sampled is True)
    if type(raw) is not int or not 0 <= raw < 1 << 32:
        raise SchemaError("otel-traces record.traceFlags.raw must be an integer between 0 and 4294967295")
    return {"sampled": bool(raw & 1), "raw": raw}


def _nanoseconds(value: Any) -> int | None:
    number = whole_of(value)
    return number if number is not None and 0 <= number <= MAX_NANOSECONDS else None


def _times(record: dict[str, Any]) -> tuple[int, int]:
    start, end = _time(record, "startUnixNano", "timestamp"), _time(record, "endUnixNano", "endTimestamp")
    if start is None:
        raise SchemaError("otel-traces record.startUnixNano must be nanoseconds since 1970")
    if end is None:
        end = start
    if end < start:
        raise SchemaError("otel-traces record.endUnixNano must be >= startUnixNano")
    return start, end


def _time(record: dict[str, Any], exact: str, readable: str) -> int | None:
    """Return nanoseconds. A time that is only given in readable form has milliseconds."""
    given = record.get(exact)
    if given is not None:
        time = _nanoseconds(given)
        if time is None:
            raise SchemaError(f"otel-traces record.{exact} must be nanoseconds since 1970")
        return time
    text = _text(record, readable)
    milliseconds = None if text is None else parse_date(text)
    if text is not None and (milliseconds is None or not 0 <= milliseconds * 1_000_000 <= MAX_NANOSECONDS):
        raise SchemaError(f"otel-traces record.{readable} must be a timestamp")
    return None if milliseconds is None else milliseconds * 1_000_000


def first_text(attributes: dict[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of the attributes that has a value, as text. Of several values, as in headers, return the
    first."""
    for name in names:
        value = attributes.get(name)
        if value is not None:
            if type(value) is list:
                value = value[0] if value else None
            text = scalar_text(value)
            if text is not None and (text := text.strip()):
                return text
    return None


def _path(url: str) -> str | None:
    """Return the path of a URL or of the target of a request."""
    url = url.partition("#")[0].partition("?")[0]
    _, separator, rest = url.partition("://")
    if not separator:
        return url or None
    return "/" + rest.partition("/")[2]
