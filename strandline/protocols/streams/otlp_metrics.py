"""Data points of OpenTelemetry as records of the metrics profile: one summary per point.

Buckets of histograms are named by their lower bound, those of exponential histograms by a power of two, as in the
histograms of rollups.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from strandline.schema.errors import SchemaError
from strandline.schema.profiles.otel_span import RESOURCE_FIELDS, first_text
from strandline.schema.profiles.values import scalar_text

#: The flag of a point that says that there was nothing to measure.
_NO_VALUE = 1
#: Attributes of the resource that identify a series, in addition to those of the point.
_OF_RESOURCE = {
    "service.name": RESOURCE_FIELDS["service"],
    "service.namespace": RESOURCE_FIELDS["serviceNamespace"],
    "deployment.environment.name": RESOURCE_FIELDS["environment"],
}
_SCOPE = "otel.scope.name"
#: The scales that exist, with some room: finer buckets would be smaller than the precision of numbers.
_SCALES = range(-16, 33)
#: The exponents of the smallest and the largest number.
_EXPONENTS = (-1074, 1023)
_PERCENTILES = {0.5: "p50", 0.95: "p95", 0.99: "p99"}

_Number = int | float


def metric_record(point: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record for the profile; None for a point without a value. Raises SchemaError."""
    if point["flags"] & _NO_VALUE:
        return None
    end, start = point["timeUnixNano"] // 1_000_000, point["startTimeUnixNano"] // 1_000_000
    if end <= 0:
        raise SchemaError("data point.timeUnixNano must be a time")
    resource = point["resource"]["attributes"]
    return {
        "metric": point["metric"],
        # A number without a unit.
        "unit": point["unit"] or "1",
        "metricKind": _kind(point),
        "temporality": point["temporality"],
        # A total since the start of a process belongs to the time at which it was read.
        "windowStart": start if start and point["temporality"] == "delta" else end,
        "windowEnd": end,
        "intervalMs": max(end - start, 0) if start else 0,
        "instance": first_text(resource, RESOURCE_FIELDS["serviceInstanceId"]),
        "attributes": _attributes(point, resource),
        **_MEASURES[point["kind"]](point),
    }


def _kind(point: dict[str, Any]) -> str:
    kind: str = point["kind"]
    if kind == "sum":
        return "counter" if point["monotonic"] else "up_down_counter"
    return "histogram" if kind == "exponentialHistogram" else kind


def _attributes(point: dict[str, Any], resource: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {name: first_text(resource, names) for name, names in _OF_RESOURCE.items()}
    attributes[_SCOPE] = point["instrumentationScope"]["name"] or None
    attributes |= point["attributes"]
    return attributes


def _number(point: dict[str, Any], name: str) -> _Number:
    value = point[name]
    if type(value) is not int and type(value) is not float:
        raise SchemaError(f"data point of a {point['kind']} needs a number as {name}")
    return value


def _single(point: dict[str, Any]) -> dict[str, Any]:
    value = _number(point, "value")
    return {"count": 1, "sum": value, **dict.fromkeys(("min", "max", *_PERCENTILES.values()), value)}


def _histogram(point: dict[str, Any]) -> dict[str, Any]:
    bounds, counts = point["bounds"], point["counts"]
    if any(type(bound) is str for bound in bounds) or sorted(bounds) != bounds:
        raise SchemaError("data point.explicitBounds must be ascending numbers")
    if counts and len(counts) != len(bounds) + 1:
        raise SchemaError("data point.bucketCounts must have one element more than explicitBounds")
    lowest = point["min"]
    if type(lowest) is not int and type(lowest) is not float:
        lowest = min(0, *bounds) if bounds else 0
    return _distribution(point, Counter(), zip([lowest, *bounds], counts, strict=False))


def _exponential(point: dict[str, Any]) -> dict[str, Any]:
    scale = point["scale"]
    if scale not in _SCALES:
        raise SchemaError(f"data point.scale must be from {_SCALES[0]} to {_SCALES[-1]}, not {scale}")
    buckets: Counter[_Number] = Counter({0: point["zeroCount"]})
    low, high = _EXPONENTS
    pairs = []
    for offset, counts in (point["positive"], point["negative"]):
        for index, count in enumerate(counts, offset):
            exponent = index >> scale if scale >= 0 else index << -scale
            pairs.append((2.0 ** min(max(exponent, low), high), count))
    return _distribution(point, buckets, pairs)


def _distribution(point: dict[str, Any], buckets: Counter[_Number], pairs: Any) -> dict[str, Any]:
    """The figures of a histogram. Without its minimum or maximum, that of its buckets counts."""
    for bound, count in pairs:
        buckets[bound] += count
    if any(count < 0 for count in buckets.values()):
        raise SchemaError("data point.bucketCounts must not be negative")
    filled = [bound for bound, count in buckets.items() if count]
    known = {name: point[name] for name in ("min", "max") if type(point[name]) in (int, float)}
    return {
        "count": point["count"],
        "sum": _number(point, "sum") if point["count"] else 0,
        "min": min(filled, default=0),
        "max": max(filled, default=0),
        "buckets": {scalar_text(bound): count for bound, count in buckets.items() if count},
        **known,
    }


def _summary(point: dict[str, Any]) -> dict[str, Any]:
    known = [
        (at, value) for at, value in point["quantiles"] if type(at) in (int, float) and type(value) in (int, float)
    ]
    values = [value for _, value in known]
    return {
        "count": point["count"],
        "sum": _number(point, "sum"),
        "min": min(values, default=0),
        "max": max(values, default=0),
        **{_PERCENTILES[at]: value for at, value in known if at in _PERCENTILES},
    }


_MEASURES = {
    "gauge": _single,
    "sum": _single,
    "histogram": _histogram,
    "exponentialHistogram": _exponential,
    "summary": _summary,
}
