"""What a metrics stream's records look like, and what can be asked of them."""

from __future__ import annotations

from typing import Any

from strandline.schema.profiles.installing import Installed, closed_object, field

API_VERSION = "durable.streams/metrics/v1"

_NUMBER = {"type": "number"}
_NUMBER_OR_NOTHING = {"type": ["number", "null"]}
_WORD = {"type": "string", "minLength": 1}
_TEXT_OR_NOTHING = {"type": ["string", "null"]}
_COUNTS = {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}

SCHEMA: dict[str, Any] = closed_object({
    "apiVersion": {"const": API_VERSION},
    "kind": {"const": "interval"},
    "metric": _WORD,
    "unit": _WORD,
    "metricKind": _WORD,
    "temporality": _WORD,
    "windowStart": {"type": "integer"},
    "windowEnd": {"type": "integer"},
    "intervalMs": {"type": "integer", "minimum": 0},
    "stream": _TEXT_OR_NOTHING,
    "instance": _TEXT_OR_NOTHING,
    "attributes": _TEXTS,
    "tags": _TEXTS,
    "dimensionPairs": {"type": "array", "items": {"type": "string"}},
    "dimensionKey": _TEXT_OR_NOTHING,
    "seriesKey": _WORD,
    "count": {"type": "number", "minimum": 0},
    "sum": _NUMBER,
    "min": _NUMBER_OR_NOTHING,
    "max": _NUMBER_OR_NOTHING,
    "avg": _NUMBER,
    "p50": _NUMBER,
    "p95": _NUMBER,
    "p99": _NUMBER,
    "buckets": _COUNTS,
    "summary": closed_object({
        "count": {"type": "number", "minimum": 0},
        "sum": _NUMBER,
        "min": _NUMBER_OR_NOTHING,
        "max": _NUMBER_OR_NOTHING,
        "histogram": _COUNTS,
    }),
})  # fmt: skip

_COLUMN = ("exact", "column", "exists", "sortable", "aggregatable")
_WORDS = ("exact", "prefix", "exists", "sortable", "aggregatable")


def _lower(pointer: str) -> dict[str, Any]:
    return field("keyword", pointer, *_WORDS, normalizer="lowercase_v1")


SEARCH: dict[str, Any] = {
    "profile": "metrics",
    "primaryTimestampField": "windowStart",
    "aliases": {
        "ts": "windowStart",
        "time": "windowStart",
        "name": "metric",
        "dims": "dimensionKey",
        "series": "seriesKey",
    },
    "defaultFields": [
        {"field": "metric", "boost": 2},
        {"field": "stream", "boost": 1.25},
        {"field": "dimensionPairs", "boost": 1},
    ],
    "fields": {
        "metric": _lower("/metric"),
        "unit": _lower("/unit"),
        "metricKind": _lower("/metricKind"),
        "temporality": _lower("/temporality"),
        "stream": _lower("/stream"),
        "instance": field("keyword", "/instance", *_WORDS),
        "dimensionKey": field("keyword", "/dimensionKey", *_WORDS),
        "dimensionPairs": field("keyword", "/dimensionPairs", *_WORDS),
        "seriesKey": field("keyword", "/seriesKey", "exact", "exists", "sortable", "aggregatable"),
        "windowStart": field("date", "/windowStart", *_COLUMN),
        "windowEnd": field("date", "/windowEnd", *_COLUMN),
        "intervalMs": field("integer", "/intervalMs", *_COLUMN),
        "count": field("integer", "/count", *_COLUMN),
        "sum": field("float", "/sum", *_COLUMN),
        "min": field("float", "/min", *_COLUMN),
        "max": field("float", "/max", *_COLUMN),
        "avg": field("float", "/avg", *_COLUMN),
        "p95": field("float", "/p95", *_COLUMN),
        "p99": field("float", "/p99", *_COLUMN),
    },
    "rollups": {
        "metrics": {
            "timestampField": "windowStart",
            "dimensions": ["metric", "unit", "stream", "instance", "dimensionKey", "metricKind", "temporality"],
            "intervals": ["10s", "1m", "5m", "1h"],
            "measures": {
                "value": {
                    "kind": "summary_parts",
                    "countJsonPointer": "/count",
                    "sumJsonPointer": "/sum",
                    "minJsonPointer": "/min",
                    "maxJsonPointer": "/max",
                    "histogramJsonPointer": "/buckets",
                }
            },
        }
    },
}

INSTALLED = Installed(SCHEMA, SEARCH, routing_key="/seriesKey")
