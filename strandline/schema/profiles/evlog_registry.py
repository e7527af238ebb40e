"""What an evlog stream's records look like, and what can be asked of them."""

from __future__ import annotations

from typing import Any

from strandline.schema.profiles.installing import Installed, closed_object, field, text_field

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
