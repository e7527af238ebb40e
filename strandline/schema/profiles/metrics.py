"""The metrics profile: one record per series and interval, with the aggregated measurements."""

from __future__ import annotations

from typing import Any

from strandline.schema.errors import SchemaError
from strandline.schema.options import DeclaredOptions, read_options
from strandline.schema.profiles.profile import Installed, Profile, closed_object, field, in_batch
from strandline.schema.profiles.values import number_of, scalar_text, text_of
from strandline.schema.registry import Registry

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


Number = int | float

#: Numbers beyond this cannot be part of a sum.
_LIMIT = 1 << 1000
_INFINITY = float("inf")


class MetricsProfile(DeclaredOptions, frozen=True, tag_field="kind", tag="metrics"):
    """One record per series and interval."""


class Metrics(Profile):
    kind = "metrics"
    normalises = True

    def document(self) -> dict[str, Any]:
        return {"kind": "metrics"}

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Metrics:
        read_options(MetricsProfile, document, "profile")
        return METRICS

    def registry(self, stream_name: str) -> Registry:
        return INSTALLED.registry(stream_name)

    def normalise(self, documents: list[Any], now: int) -> list[Any]:
        normalised = []
        for index, document in enumerate(documents):
            try:
                normalised.append(_interval(document))
            except SchemaError as error:
                raise in_batch(error, index, len(documents)) from None
        return normalised

    def keys_of(self, documents: list[Any]) -> list[str | None]:
        return [document["seriesKey"] for document in documents]


METRICS = Metrics()


def _interval(record: Any) -> dict[str, Any]:
    if type(record) is not dict:
        raise SchemaError("metrics records must be JSON objects")
    get = record.get
    if get("kind", "interval") != "interval":
        raise SchemaError("metrics record.kind must be interval")
    metric, unit = text_of(get("metric")), text_of(get("unit"))
    if metric is None:
        raise SchemaError("metrics record.metric must be a non-empty string")
    if unit is None:
        raise SchemaError("metrics record.unit must be a non-empty string")
    start, end, length = _window(record)
    metric_kind, temporality = text_of(get("metricKind")) or "summary", text_of(get("temporality")) or "delta"
    stream, instance = text_of(get("stream")), text_of(get("instance"))
    attributes = _attributes(record)
    pairs = sorted([f"{name}={value}" for name, value in attributes.items()])
    dimension_key = "\0".join(pairs) if pairs else None
    series = (metric_kind, temporality, metric, unit, stream or "", instance or "", dimension_key or "")
    return {
        "apiVersion": API_VERSION,
        "kind": "interval",
        "metric": metric,
        "unit": unit,
        "metricKind": metric_kind,
        "temporality": temporality,
        "windowStart": start,
        "windowEnd": end,
        "intervalMs": length,
        "stream": stream,
        "instance": instance,
        "attributes": attributes,
        "tags": attributes,
        "dimensionPairs": pairs,
        "dimensionKey": dimension_key,
        "seriesKey": "|".join(series),
        **_measured(record),
    }


def _window(record: dict[str, Any]) -> tuple[int, int, int]:
    """Return start, end and length in whole milliseconds."""
    start, end = number_of(record.get("windowStart")), number_of(record.get("windowEnd"))
    if start is None or end is None:
        raise SchemaError("metrics record.windowStart and windowEnd must be integers")
    start, end = int(start), int(end)
    if end < start:
        raise SchemaError("metrics record.windowEnd must be >= windowStart")
    given = record.get("intervalMs")
    if given is None:
        return start, end, end - start
    length = number_of(given)
    if length is None or length < 0:
        raise SchemaError("metrics record.intervalMs must be an integer >= 0")
    return start, end, int(length)


def _attributes(record: dict[str, Any]) -> dict[str, str]:
    """Return the attributes sorted by name. Values other than text, numbers and booleans are omitted."""
    given = record.get("attributes")
    if type(given) is not dict:
        given = record.get("tags")
        if type(given) is not dict:
            return {}
    return {name: text for name in sorted(given) if (text := scalar_text(given[name])) is not None}


def _measured(record: dict[str, Any]) -> dict[str, Any]:
    given = record.get("summary")
    summary: dict[str, Any] = given if type(given) is dict else {}
    count = _given(record, summary, "count")
    if count is None or count < 0:
        raise SchemaError("metrics interval requires count")
    total = _given(record, summary, "sum")
    if total is None:
        raise SchemaError("metrics interval requires sum")
    low: Number | None = None
    high: Number | None = None
    if count:
        low, high = _given(record, summary, "min") or 0, _given(record, summary, "max") or 0
    buckets = _buckets(record.get("buckets"), summary.get("histogram"))
    average = _number(record.get("avg"))
    p50, p95, p99 = _percentiles(record, buckets)
    return {
        "count": count,
        "sum": total,
        "min": low,
        "max": high,
        "avg": _average(total, count) if average is None else average,
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "buckets": buckets,
        "summary": {"count": count, "sum": total, "min": low, "max": high, "histogram": buckets},
    }


def _number(value: Any) -> Number | None:
    """Return a finite number; one without a fraction becomes an integer."""
    if value is None:
        return None
    if type(value) is not int:
        value = number_of(value)
        if type(value) is float and value.is_integer():
            value = int(value)
    return value if value is None or -_LIMIT < value < _LIMIT else None


def _given(record: dict[str, Any], summary: dict[str, Any], name: str) -> Number | None:
    """Return a number of the record, or else of its summary."""
    value = _number(record.get(name))
    return _number(summary.get(name)) if value is None else value


def _buckets(*given: Any) -> dict[str, Number]:
    for buckets in given:
        if type(buckets) is dict:
            counts = [(name, _number(count)) for name, count in buckets.items()]
            return {name: count for name, count in counts if count is not None and count > 0}
    return {}


def _average(total: Number, count: Number) -> Number:
    if not count:
        return 0
    average = total / count
    return average if -_INFINITY < average < _INFINITY else 0


def _percentiles(record: dict[str, Any], buckets: dict[str, Number]) -> tuple[Number, Number, Number]:
    """Return the given percentiles, or else compute them: the lowest bucket up to which that share of the total is
    counted."""
    p50, p95, p99 = _number(record.get("p50")), _number(record.get("p95")), _number(record.get("p99"))
    if p50 is not None and p95 is not None and p99 is not None:
        return p50, p95, p99
    bounds = [(number, count) for bound, count in buckets.items() if (number := _number(bound)) is not None]
    if not bounds:
        return p50 or 0, p95 or 0, p99 or 0
    bounds.sort()
    total = float(sum(count for _, count in bounds))
    return (
        _reached(bounds, total * 0.5) if p50 is None else p50,
        _reached(bounds, total * 0.95) if p95 is None else p95,
        _reached(bounds, total * 0.99) if p99 is None else p99,
    )


def _reached(bounds: list[tuple[Number, Number]], wanted: float) -> Number:
    seen: Number = 0
    for bound, count in bounds:
        seen += count
        if seen >= wanted:
            return bound
    return bounds[-1][0]
