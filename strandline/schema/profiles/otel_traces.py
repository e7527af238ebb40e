"""The otel-traces profile: the spans of OpenTelemetry in one form, searchable by trace."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from strandline.schema.errors import SchemaError
from strandline.schema.options import read_options
from strandline.schema.profiles.otel_limits import OtelTracesProfile
from strandline.schema.profiles.otel_span import Spans
from strandline.schema.profiles.profile import (
    Installed,
    Profile,
    closed_object,
    field,
    in_batch,
    text_field,
)
from strandline.schema.registry import Registry

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


class OtelTraces(Profile):
    """``events_stream`` is the stream with the events of its requests, if configured."""

    kind = "otel-traces"
    normalises = True

    def __init__(self, document: dict[str, Any], settings: OtelTracesProfile) -> None:
        events_stream = settings.observability.request.events_stream
        self.settings = settings
        self.events_stream = None if events_stream is UNSET else events_stream
        self._document = document
        self._spans = Spans(settings)

    def document(self) -> dict[str, Any]:
        return self._document

    @property
    def named_streams(self) -> tuple[str, ...]:
        return () if self.events_stream is None else (self.events_stream,)

    @classmethod
    def parse(cls, document: dict[str, Any]) -> OtelTraces:
        settings, given = read_options(OtelTracesProfile, document, "profile")
        return cls({"kind": cls.kind, **given}, settings)

    def check_install(self, *, is_json: bool, is_empty: bool, current: Profile) -> None:
        super().check_install(is_json=is_json, is_empty=is_empty, current=current)
        if not is_empty and current.kind != self.kind:
            raise SchemaError("otel-traces profile must be installed before appending data")

    def registry(self, stream_name: str) -> Registry:
        return INSTALLED.registry(stream_name)

    def span(self, record: Any) -> dict[str, Any]:
        """Return the span as it is stored. Raises SchemaError."""
        try:
            return self._spans.canonical(record)
        except RecursionError:
            raise SchemaError("otel-traces record is nested too deeply") from None

    def normalise(self, documents: list[Any], now: int) -> list[Any]:
        spans = []
        for index, document in enumerate(documents):
            try:
                spans.append(self.span(document))
            except SchemaError as error:
                raise in_batch(error, index, len(documents)) from None
        return spans

    def keys_of(self, documents: list[Any]) -> list[str | None]:
        return [document["traceId"] for document in documents]
