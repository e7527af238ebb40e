"""The evlog profile: one wide event per request. Every log entry becomes one searchable envelope."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, UnsetType

from strandline.schema.errors import SchemaError
from strandline.schema.options import DeclaredOptions, LowerNames, Name, Names, read_options
from strandline.schema.profiles.otel_limits import secret_names
from strandline.schema.profiles.profile import (
    Installed,
    Profile,
    closed_object,
    field,
    in_batch,
    text_field,
)
from strandline.schema.profiles.values import holds_secrets, iso, number_of, redact, text_of, whole_of
from strandline.schema.registry import Registry

_TEXT = {"type": ["string", "null"]}

_PROPERTIES: dict[str, Any] = {
    "timestamp": {"type": "string"},
    "level": {"type": "string", "enum": ["debug", "info", "warn", "error"]},
    "service": _TEXT,
    "environment": _TEXT,
    "version": _TEXT,
    "region": _TEXT,
    "requestId": _TEXT,
    "traceId": _TEXT,
    "spanId": _TEXT,
    "method": _TEXT,
    "path": _TEXT,
    "status": {"type": ["integer", "null"]},
    "duration": {"type": ["number", "null"]},
    "message": _TEXT,
    "why": _TEXT,
    "fix": _TEXT,
    "link": _TEXT,
    "sampling": {"type": ["object", "null"]},
    "context": {"type": "object"},
    "redaction": closed_object({"keys": {"type": "array", "items": {"type": "string"}}}),
}

SCHEMA = closed_object(_PROPERTIES)

_NUMBER = ("exact", "column", "exists", "sortable", "aggregatable")
_WORD = ("exact", "prefix", "exists", "sortable", "aggregatable")
_ID = ("exact", "prefix", "exists", "sortable")

SEARCH: dict[str, Any] = {
    "primaryTimestampField": "timestamp",
    "aliases": {
        "env": "environment",
        "msg": "message",
        "req": "requestId",
        "span": "spanId",
        "time": "timestamp",
        "trace": "traceId",
        "ts": "timestamp",
    },
    "defaultFields": [
        {"field": "message", "boost": 2},
        {"field": "why", "boost": 1.5},
        {"field": "fix", "boost": 1.25},
        {"field": "error.message", "boost": 2},
    ],
    "fields": {
        "timestamp": field("date", "/timestamp", *_NUMBER),
        "level": field("keyword", "/level", *_WORD, normalizer="lowercase_v1"),
        "service": field("keyword", "/service", *_WORD, normalizer="lowercase_v1"),
        "environment": field("keyword", "/environment", *_WORD, normalizer="lowercase_v1"),
        "requestId": field("keyword", "/requestId", *_ID),
        "traceId": field("keyword", "/traceId", *_ID),
        "spanId": field("keyword", "/spanId", *_ID),
        "method": field("keyword", "/method", *_WORD, normalizer="lowercase_v1"),
        "path": field("keyword", "/path", *_WORD),
        "status": field("integer", "/status", *_NUMBER),
        "duration": field("float", "/duration", *_NUMBER),
        "message": text_field("/message"),
        "why": text_field("/why"),
        "fix": text_field("/fix"),
        "error.message": text_field("/context/error/message"),
    },
}

INSTALLED = Installed(SCHEMA, SEARCH)


LEVELS = frozenset({"debug", "info", "warn", "error"})
#: Keys whose values are never stored, in lower case.
SECRETS = frozenset({"password", "token", "secret", "authorization", "cookie", "apikey"})

_RESERVED = frozenset({
    "timestamp", "level", "service", "environment", "version", "region", "method", "path", "message", "why", "fix",
    "link", "requestId", "traceId", "spanId", "status", "duration", "sampling", "redaction", "context",
})  # fmt: skip
#: Versions after 00 may have more parts.
_TRACEPARENT = re.compile(r"(?!ff|00-.{52}-)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?", re.ASCII)
_TRACEPARENT_AT = (
    ("traceparent",), ("traceContext", "traceparent"), ("context", "traceparent"), ("headers", "traceparent"),
)  # fmt: skip
_REQUEST_ID_AT = (("requestId",), ("context", "requestId"))

Path = tuple[str, ...]


class Correlation(DeclaredOptions, frozen=True):
    request_id_fields: Names = ()
    trace_context_fields: Names = ()
    parse_traceparent: bool = True


class EventsRequest(DeclaredOptions, frozen=True):
    traces_stream: Name | UnsetType = UNSET


class EventsObservability(DeclaredOptions, frozen=True):
    request: EventsRequest = EventsRequest()


class EvlogProfile(DeclaredOptions, frozen=True, tag_field="kind", tag="evlog"):
    """One wide event per request, without secrets."""

    redact_keys: LowerNames = ()
    correlation: Correlation = Correlation()
    observability: EventsObservability = EventsObservability()


class Evlog(Profile):
    """``traces_stream`` is the stream with the traces of its requests, if configured."""

    kind = "evlog"
    normalises = True

    def __init__(self, document: dict[str, Any], settings: EvlogProfile) -> None:
        correlation, traces_stream = settings.correlation, settings.observability.request.traces_stream
        self.traces_stream = None if traces_stream is UNSET else traces_stream
        self._document = document
        self._secrets = SECRETS.union(settings.redact_keys)
        self._is_secret_attribute = secret_names(settings.redact_keys)
        self._request_id_at = tuple(tuple(name.split(".")) for name in correlation.request_id_fields) or _REQUEST_ID_AT
        paths = [tuple(name.split(".")) for name in correlation.trace_context_fields]
        self._trace_id_at = tuple(path for path in paths if path[-1] == "traceId")
        self._span_id_at = tuple(path for path in paths if path[-1] == "spanId")
        self._parses_traceparent = correlation.parse_traceparent

    def document(self) -> dict[str, Any]:
        return self._document

    @property
    def named_streams(self) -> tuple[str, ...]:
        return () if self.traces_stream is None else (self.traces_stream,)

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Evlog:
        settings, given = read_options(EvlogProfile, document, "profile")
        return cls({"kind": cls.kind, **given}, settings)

    def check_install(self, *, is_json: bool, is_empty: bool, current: Profile) -> None:
        super().check_install(is_json=is_json, is_empty=is_empty, current=current)
        if not is_empty and current.kind != self.kind:
            raise SchemaError("evlog profile must be installed before appending data")

    def registry(self, stream_name: str) -> Registry:
        return INSTALLED.registry(stream_name)

    # --- records ---------------------------------------------------------------------------------------------------

    def normalise(self, documents: list[Any], now: int) -> list[Any]:
        time = iso(now)
        normalised = []
        for index, document in enumerate(documents):
            try:
                normalised.append(self._envelope(document, time, self._is_secret))
            except RecursionError:
                raise in_batch(SchemaError("evlog record is nested too deeply"), index, len(documents)) from None
            except SchemaError as error:
                raise in_batch(error, index, len(documents)) from None
        return normalised

    def of_log(self, record: dict[str, Any], now: int) -> dict[str, Any]:
        """Return the event of a log record of OpenTelemetry. Its attributes have dotted names, so those that end with
        a secret name are secret as well. Raises SchemaError."""
        try:
            return self._envelope(record, iso(now), self._is_secret_attribute)
        except RecursionError:
            raise SchemaError("evlog record is nested too deeply") from None

    def keys_of(self, documents: list[Any]) -> list[str | None]:
        return [document["requestId"] or document["traceId"] for document in documents]

    def _envelope(self, record: Any, time: str, is_secret: Callable[[str], bool]) -> dict[str, Any]:
        if type(record) is not dict:
            raise SchemaError("evlog records must be JSON objects")
        get = record.get
        why, fix, link = text_of(get("why")), text_of(get("fix")), text_of(get("link"))
        status = None if (given := get("status")) is None else whole_of(given)
        trace_id, span_id = self._trace(record)
        sampling = get("sampling")
        if sampling is not None and type(sampling) is not dict:
            raise SchemaError("evlog record.sampling must be an object or null")
        redacted: list[str] = []
        return {
            "timestamp": text_of(get("timestamp")) or time,
            "level": _level(get("level"), status, bool(why or fix or link)),
            "service": text_of(get("service")),
            "environment": text_of(get("environment")),
            "version": text_of(get("version")),
            "region": text_of(get("region")),
            "requestId": _first_text(record, self._request_id_at),
            "traceId": trace_id,
            "spanId": span_id,
            "method": text_of(get("method")),
            "path": text_of(get("path")),
            "status": status,
            "duration": None if (given := get("duration")) is None else number_of(given),
            "message": text_of(get("message")),
            "why": why,
            "fix": fix,
            "link": link,
            "sampling": sampling,
            "context": self._context(record, redacted, is_secret),
            "redaction": {"keys": redacted},
        }

    def _context(self, record: dict[str, Any], redacted: list[str], is_secret: Callable[[str], bool]) -> dict[str, Any]:
        """Return the members of the record outside of the envelope, without secrets."""
        given = record.get("context")
        context: dict[str, Any]
        if type(given) is dict:
            context = given.copy()
        else:
            context = {} if given is None else {"context": given}
        for name, value in record.items():
            if name not in _RESERVED:
                context[name] = value
        if context and holds_secrets(context, is_secret):
            return dict(redact(context, is_secret, "", redacted))
        return context

    def _is_secret(self, name: str) -> bool:
        return name.lower() in self._secrets

    def _trace(self, record: dict[str, Any]) -> tuple[str | None, str | None]:
        """Return the ids of trace and span, each from the first place that has it."""
        trace_id = _first_text(record, self._trace_id_at) or text_of(record.get("traceId"))
        span_id = _first_text(record, self._span_id_at) or text_of(record.get("spanId"))
        if trace_id is None or span_id is None:
            if type(inner := record.get("traceContext")) is dict:
                trace_id = trace_id or text_of(inner.get("traceId"))
                span_id = span_id or text_of(inner.get("spanId"))
            if (trace_id is None or span_id is None) and self._parses_traceparent:
                found = _traceparent(record)
                if found is not None:
                    trace_id, span_id = trace_id or found[0], span_id or found[1]
        return trace_id, span_id


def _level(given: Any, status: int | None, explained: bool) -> str:
    if type(given) is str:
        level = given.strip().lower()
        if level in LEVELS:
            return level
    if explained:
        return "error"
    if status is None or status < 400:
        return "info"
    return "error" if status >= 500 else "warn"


def _at(record: dict[str, Any], path: Path) -> Any:
    found: Any = record
    for name in path:
        if type(found) is not dict:
            return None
        found = found.get(name)
    return found


def _first_text(record: dict[str, Any], paths: tuple[Path, ...]) -> str | None:
    for path in paths:
        text = text_of(_at(record, path))
        if text is not None:
            return text
    return None


def _traceparent(record: dict[str, Any]) -> tuple[str, str] | None:
    """Return the ids of trace and span from the first traceparent that W3C Trace Context considers valid. One with an
    id of only zeros is invalid as a whole."""
    for path in _TRACEPARENT_AT:
        text = text_of(_at(record, path))
        match = None if text is None else _TRACEPARENT.fullmatch(text.lower())
        if match is not None:
            trace_id, span_id = match.groups()
            if trace_id.strip("0") and span_id.strip("0"):
                return trace_id, span_id
    return None
