"""What a stored span looks like, and what can be asked of spans."""

from __future__ import annotations

from typing import Any

from strandline.schema.profiles.installing import Installed, closed_object, field, text_field

_STRING = {"type": "string"}
_TEXT = {"type": ["string", "null"]}
_TIME = {"type": "string", "format": "date-time"}
_NANOSECONDS = {"type": "string", "pattern": "^[0-9]+$"}
_COUNT = {"type": "integer", "minimum": 0}
_TRACE_ID = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_SPAN_ID = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
_ATTRIBUTES = {"type": "object"}
_STRINGS = {"type": "array", "items": _STRING}


def _texts(*names: str) -> dict[str, Any]:
    return closed_object(dict.fromkeys(names, _TEXT))


SCHEMA = closed_object({
    "schemaVersion": {"const": 1},
    "signal": {"const": "trace.span"},
    "timestamp": _TIME,
    "endTimestamp": _TIME,
    "startUnixNano": _NANOSECONDS,
    "endUnixNano": _NANOSECONDS,
    "duration": {"type": "number", "minimum": 0},
    "traceId": _TRACE_ID,
    "spanId": _SPAN_ID,
    "parentSpanId": {"type": ["string", "null"], "pattern": "^[0-9a-f]{16}$"},
    "traceState": _TEXT,
    "traceFlags": closed_object({"sampled": {"type": "boolean"}, "raw": _COUNT}),
    "name": _STRING,
    "kind": {"enum": ["unspecified", "internal", "server", "client", "producer", "consumer"]},
    "status": closed_object({"code": {"enum": ["unset", "ok", "error"]}, "message": _TEXT}),
    "service": _TEXT,
    "serviceNamespace": _TEXT,
    "serviceInstanceId": _TEXT,
    "environment": _TEXT,
    "version": _TEXT,
    "region": _TEXT,
    "requestId": _TEXT,
    "http": closed_object({
        "method": _TEXT,
        "route": _TEXT,
        "path": _TEXT,
        "target": _TEXT,
        "url": _TEXT,
        "statusCode": {"type": ["integer", "null"]},
        "userAgent": _TEXT,
    }),
    "db": _texts("system", "name", "operation", "statement"),
    "rpc": _texts("system", "service", "method"),
    "messaging": _texts("system", "destination", "operation"),
    "error": closed_object({"isError": {"type": "boolean"}, "type": _TEXT, "message": _TEXT, "stacktrace": _TEXT}),
    "instrumentationScope": closed_object({
        "name": _TEXT,
        "version": _TEXT,
        "schemaUrl": _TEXT,
        "attributes": _ATTRIBUTES,
    }),
    "resource": closed_object({"schemaUrl": _TEXT, "attributes": _ATTRIBUTES}),
    "attributes": _ATTRIBUTES,
    "events": {
        "type": "array",
        "items": closed_object({
            "name": _STRING,
            "timestamp": _TIME,
            "timeUnixNano": _NANOSECONDS,
            "attributes": _ATTRIBUTES,
            "droppedAttributes": _COUNT,
        }),
    },
    "eventNames": _STRINGS,
    "links": {
        "type": "array",
        "items": closed_object({
            "traceId": _TRACE_ID,
            "spanId": _SPAN_ID,
            "traceState": _TEXT,
            "attributes": _ATTRIBUTES,
            "droppedAttributes": _COUNT,
        }),
    },
    "dropped": closed_object({"attributes": _COUNT, "events": _COUNT, "links": _COUNT}),
    "redaction": closed_object({"keys": _STRINGS}),
    "identity": closed_object({"spanKey": _STRING, "dedupeKey": _STRING}),
})  # fmt: skip

_COLUMN = ("exact", "column", "exists", "sortable", "aggregatable")
_WORD = ("exact", "prefix", "exists", "sortable", "aggregatable")
_ID = ("exact", "prefix", "exists", "sortable")


def _word(pointer: str) -> dict[str, Any]:
    return field("keyword", pointer, *_WORD)


def _lower(pointer: str) -> dict[str, Any]:
    return field("keyword", pointer, *_WORD, normalizer="lowercase_v1")


def _id(pointer: str) -> dict[str, Any]:
    return field("keyword", pointer, *_ID)


def _rollup(counted: str, dimensions: list[str], **more: Any) -> dict[str, Any]:
    return {
        "timestampField": "timestamp",
        **more,
        "dimensions": dimensions,
        "intervals": ["1m", "5m", "1h"],
        "measures": {
            counted: {"kind": "count"},
            "errors": {"kind": "count", "include": "error:true"},
            "latency": {"kind": "summary", "field": "duration", "histogram": "log2_v1"},
        },
    }


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "timestamp",
    "aliases": {
        "env": "environment",
        "parent": "parentSpanId",
        "req": "requestId",
        "span": "spanId",
        "status": "status.code",
        "time": "timestamp",
        "trace": "traceId",
        "ts": "timestamp",
    },
    "defaultFields": [
        {"field": "name", "boost": 2},
        {"field": "error.message", "boost": 2},
        {"field": "status.message", "boost": 1.5},
        {"field": "http.route", "boost": 1},
        {"field": "service", "boost": 1},
    ],
    "fields": {
        "timestamp": field("date", "/timestamp", *_COLUMN),
        "endTimestamp": field("date", "/endTimestamp", *_COLUMN),
        "duration": field("float", "/duration", *_COLUMN),
        "traceId": _id("/traceId"),
        "spanId": _id("/spanId"),
        "parentSpanId": _id("/parentSpanId"),
        "requestId": _id("/requestId"),
        "name": _word("/name"),
        "kind": _lower("/kind"),
        "status.code": _lower("/status/code"),
        "status.message": text_field("/status/message"),
        "service": _lower("/service"),
        "serviceNamespace": _lower("/serviceNamespace"),
        "environment": _lower("/environment"),
        "version": _word("/version"),
        "region": _lower("/region"),
        "http.method": _lower("/http/method"),
        "http.route": _word("/http/route"),
        "http.path": _word("/http/path"),
        "http.statusCode": field("integer", "/http/statusCode", *_COLUMN),
        "db.system": _lower("/db/system"),
        "db.name": _word("/db/name"),
        "db.operation": _lower("/db/operation"),
        "rpc.service": _word("/rpc/service"),
        "rpc.method": _word("/rpc/method"),
        "messaging.system": _lower("/messaging/system"),
        "messaging.destination": _word("/messaging/destination"),
        "scope": _word("/instrumentationScope/name"),
        "event": _word("/eventNames"),
        "error": field("bool", "/error/isError", *_COLUMN),
        "error.type": _word("/error/type"),
        "error.message": text_field("/error/message"),
    },
    "rollups": {
        "spans": _rollup("spans", ["service", "kind", "status.code"]),
        "http_server": _rollup(
            "requests", ["service", "http.method", "http.route", "http.statusCode"], include="kind:server"
        ),
    },
}

INSTALLED = Installed(SCHEMA, SEARCH, routing_key="/traceId")
