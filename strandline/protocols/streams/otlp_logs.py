"""Log records of OpenTelemetry as events of the evlog profile."""

from __future__ import annotations

import re
from typing import Any

from strandline.schema.profiles.evlog import Evlog
from strandline.schema.profiles.otel_span import REQUEST_ID_ATTRIBUTES, RESOURCE_FIELDS, SPAN_FIELDS, first_text
from strandline.schema.profiles.values import iso

#: The level of each group of four severity numbers, from TRACE to FATAL.
_LEVELS = ("debug", "debug", "info", "warn", "error", "error")
#: Levels by severity text, for records without a number.
_LEVELS_BY_TEXT = {
    "trace": "debug", "debug": "debug", "info": "info", "information": "info", "notice": "info", "warn": "warn",
    "warning": "warn", "error": "error", "critical": "error", "fatal": "error", "alert": "error", "emergency": "error",
}  # fmt: skip
#: Fields of the event that are filled in from resource attributes.
_OF_RESOURCE = ("service", "environment", "version", "region")
_HTTP = SPAN_FIELDS["http"]
_TRACE_ID = re.compile("(?!0{32})[0-9a-f]{32}", re.ASCII)
_SPAN_ID = re.compile("(?!0{16})[0-9a-f]{16}", re.ASCII)
#: The latest time that can be written with a four-digit year, in nanoseconds.
_LATEST = 253_402_300_799_999_999_999


def log_event(profile: Evlog, log: dict[str, Any], now: int) -> dict[str, Any]:
    """Return the event as it is stored. Raises SchemaError.

    A field of the event that has a counterpart in the semantic conventions is filled in from it. Everything that the
    record has is in the context.
    """
    attributes, resource = log["attributes"], log["resource"]["attributes"]
    event: dict[str, Any] = {name: first_text(resource, RESOURCE_FIELDS[name]) for name in _OF_RESOURCE}
    event |= {
        "timestamp": _timestamp(log),
        "level": _level(log),
        "requestId": first_text(attributes, REQUEST_ID_ATTRIBUTES),
        "traceId": _id(log["traceId"], _TRACE_ID),
        "spanId": _id(log["spanId"], _SPAN_ID),
        "method": first_text(attributes, _HTTP["method"]),
        "path": first_text(attributes, _HTTP["path"] + _HTTP["route"]),
        "status": first_text(attributes, _HTTP["statusCode"]),
        "message": _message(log),
        "context": _context(log),
    }
    return profile.of_log(event, now)


def _timestamp(log: dict[str, Any]) -> str | None:
    """When it happened, or else when it was observed; None: neither is known."""
    nanoseconds = log["timeUnixNano"] or log["observedTimeUnixNano"]
    return iso(nanoseconds // 1_000_000) if 0 < nanoseconds <= _LATEST else None


def _level(log: dict[str, Any]) -> str | None:
    number = log["severityNumber"]
    if 1 <= number <= 24:
        return _LEVELS[(number - 1) // 4]
    return _LEVELS_BY_TEXT.get(log["severityText"].strip().lower())


def _id(text: str, form: re.Pattern[str]) -> str | None:
    """A record with an invalid id counts as one without."""
    text = text.lower()
    return text if form.fullmatch(text) else None


def _message(log: dict[str, Any]) -> str | None:
    body = log["body"]
    if type(body) is str and body.strip():
        return body
    return log["eventName"] or first_text(log["attributes"], ("exception.message",))


def _context(log: dict[str, Any]) -> dict[str, Any]:
    attributes, scope = log["attributes"], log["instrumentationScope"]
    context: dict[str, Any] = {"attributes": attributes, "resource": log["resource"], "instrumentationScope": scope}
    context["severity"] = {"number": log["severityNumber"], "text": log["severityText"]}
    for name in ("timeUnixNano", "observedTimeUnixNano"):
        # JSON readers lose digits of a number of this size.
        context[name] = str(log[name])
    for name in ("flags", "droppedAttributes", "eventName"):
        if log[name]:
            context[name] = log[name]
    if log["body"] is not None and type(log["body"]) is not str:
        context["body"] = log["body"]
    error = {
        member: text
        for member, name in (
            ("type", "exception.type"),
            ("message", "exception.message"),
            ("stack", "exception.stacktrace"),
        )
        if (text := first_text(attributes, (name,))) is not None
    }
    if error:
        context["error"] = error
    return context
