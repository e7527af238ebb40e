"""Metrics by OTLP over HTTP, in protobuf and in JSON, as records of the metrics profile."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from support.server_process import StartServer
from support.streams_client import JSON, StreamsClient

PROTOBUF = "application/x-protobuf"
START_MS, END_MS = 1_774_432_800_000, 1_774_432_810_000
TIMES = {"startTimeUnixNano": str(START_MS * 10**6), "timeUnixNano": str(END_MS * 10**6)}
ROUTE = {"key": "route", "value": {"stringValue": "/pay"}}


def point(**members: Any) -> dict[str, Any]:
    return {**TIMES, "attributes": [ROUTE], **members}


def request(*metrics: dict[str, Any]) -> dict[str, Any]:
    resource = {
        "attributes": [
            {"key": "service.name", "value": {"stringValue": "shop"}},
            {"key": "service.instance.id", "value": {"stringValue": "i-1"}},
            {"key": "host.name", "value": {"stringValue": "left out"}},
        ]
    }
    scopes = [{"scope": {"name": "meter"}, "metrics": list(metrics)}]
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]}


def metric(kind: str, *points: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"name": "m", "unit": "ms", kind: {"dataPoints": list(points), **members}}


def protobuf_request() -> ExportMetricsServiceRequest:
    built = ExportMetricsServiceRequest()
    of_resource = built.resource_metrics.add()
    for key, value in (("service.name", "shop"), ("service.instance.id", "i-1"), ("host.name", "left out")):
        of_resource.resource.attributes.append(KeyValue(key=key, value=AnyValue(string_value=value)))
    of_scope = of_resource.scope_metrics.add()
    of_scope.scope.name = "meter"
    common = {
        "start_time_unix_nano": START_MS * 10**6,
        "time_unix_nano": END_MS * 10**6,
        "attributes": [KeyValue(key="route", value=AnyValue(string_value="/pay"))],
    }
    of_scope.metrics.add(name="m", unit="ms").gauge.data_points.add(as_double=2.5, **common)
    total = of_scope.metrics.add(name="m", unit="ms").sum
    total.is_monotonic, total.aggregation_temporality = True, 1
    total.data_points.add(as_int=7, **common)
    histogram = of_scope.metrics.add(name="m", unit="ms").histogram
    histogram.aggregation_temporality = 1
    histogram.data_points.add(
        count=6, sum=40, min=1, max=30, explicit_bounds=[5, 10], bucket_counts=[3, 2, 1], **common
    )
    exponential = of_scope.metrics.add(name="m", unit="ms").exponential_histogram
    exponential.aggregation_temporality = 2
    buckets = exponential.data_points.add(count=7, sum=20, scale=1, zero_count=1, **common)
    buckets.positive.offset, buckets.negative.offset = 2, -2
    buckets.positive.bucket_counts.extend([1, 2, 0, 1])
    buckets.negative.bucket_counts.extend([2])
    summary = of_scope.metrics.add(name="m", unit="ms").summary.data_points.add(count=4, sum=10, **common)
    for quantile, value in ((0, 1), (0.5, 2), (0.99, 4)):
        summary.quantile_values.add(quantile=quantile, value=value)
    return built


JSON_REQUEST = request(
    metric("gauge", point(asDouble=2.5)),
    metric("sum", point(asInt="7"), isMonotonic=True, aggregationTemporality=1),
    metric(
        "histogram",
        point(count="6", sum=40, min=1, max=30, explicitBounds=[5, 10], bucketCounts=["3", "2", "1"]),
        aggregationTemporality="AGGREGATION_TEMPORALITY_DELTA",
    ),
    metric(
        "exponentialHistogram",
        point(
            count="7",
            sum=20,
            scale=1,
            zeroCount="1",
            positive={"offset": 2, "bucketCounts": ["1", "2", "0", "1"]},
            negative={"offset": -2, "bucketCounts": ["2"]},
        ),
        aggregationTemporality=2,
    ),
    metric(
        "summary",
        point(
            count="4",
            sum=10,
            quantileValues=[{"value": 1}, {"quantile": 0.5, "value": 2}, {"quantile": 0.99, "value": 4}],
        ),
    ),
)


@pytest.fixture
def metrics(streams: StreamsClient, name: str) -> str:
    streams.create(name)
    assert streams.request("POST", f"{name}/_profile", {"profile": {"kind": "metrics"}}).status_code == 200
    return name


def send(streams: StreamsClient, name: str, body: object, form: str = JSON) -> httpx.Response:
    path = name if name.startswith("/") else f"{name}/_otlp/v1/metrics"
    return streams.request("POST", path, body, headers={"content-type": form})


def sent(streams: StreamsClient, name: str, body: object) -> Any:
    response = send(streams, name, body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.both_lanes
def test_points_in_json_and_in_protobuf_become_the_same_records(streams: StreamsClient, metrics: str) -> None:
    assert sent(streams, metrics, JSON_REQUEST) == {}
    response = send(streams, metrics, protobuf_request().SerializeToString(), PROTOBUF)
    assert (response.status_code, response.content) == (200, b"")
    records = streams.values(metrics)
    assert records[:5] == records[5:]
    for record in records[:5]:
        assert (record["metric"], record["unit"], record["instance"]) == ("m", "ms", "i-1")
        assert record["attributes"] == {"otel.scope.name": "meter", "route": "/pay", "service.name": "shop"}
        assert (record["windowEnd"], record["intervalMs"]) == (END_MS, END_MS - START_MS)
    gauge, counter, histogram, exponential, summary = records[:5]
    kinds = [(record["metricKind"], record["temporality"]) for record in records[:5]]
    assert kinds == [
        ("gauge", "unspecified"), ("counter", "delta"), ("histogram", "delta"), ("histogram", "cumulative"),
        ("summary", "unspecified"),
    ]  # fmt: skip
    starts = [record["windowStart"] for record in records[:5]]
    assert starts == [END_MS, START_MS, START_MS, END_MS, END_MS], "only a delta covers an interval"
    assert gauge["summary"] == {"count": 1, "sum": 2.5, "min": 2.5, "max": 2.5, "histogram": {}}
    assert (counter["p50"], counter["p99"]) == (7, 7)
    assert counter["summary"] == {"count": 1, "sum": 7, "min": 7, "max": 7, "histogram": {}}
    buckets = {"1": 3, "5": 2, "10": 1}
    assert histogram["summary"] == {"count": 6, "sum": 40, "min": 1, "max": 30, "histogram": buckets}
    assert (histogram["p50"], histogram["p95"]) == (1, 10)
    # At scale 1 two buckets are one power of two: 2 to 4, and 4 to 8; -2 is from 1/2 on.
    buckets = {"0": 1, "0.5": 2, "2": 3, "4": 1}
    assert exponential["summary"] == {"count": 7, "sum": 20, "min": 0, "max": 4, "histogram": buckets}
    assert summary["summary"] == {"count": 4, "sum": 10, "min": 1, "max": 4, "histogram": {}}
    assert (summary["p50"], summary["p99"]) == (2, 4)


def test_points_can_be_aggregated(streams: StreamsClient, metrics: str) -> None:
    sent(streams, metrics, JSON_REQUEST)
    body = {"rollup": "metrics", "from": START_MS, "to": END_MS + 10_000, "interval": "10s", "q": "metricKind:counter"}
    answer = streams.request("POST", f"{metrics}/_aggregate", body, headers={"content-type": JSON})
    assert answer.status_code == 200, answer.text
    [bucket] = answer.json()["buckets"]
    assert bucket["groups"][0]["measures"]["value"]["sum"] == 7


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (metric("gauge", point(asDouble=1, timeUnixNano=0)), "data point.timeUnixNano must be a time"),
        (metric("gauge", point()), "data point of a gauge needs a number as value"),
        (metric("gauge", point(asDouble="NaN")), "data point of a gauge needs a number as value"),
        (metric("histogram", point(count=1)), "data point of a histogram needs a number as sum"),
        (
            metric("histogram", point(count=1, sum=1, explicitBounds=[1], bucketCounts=[1])),
            "data point.bucketCounts must have one element more than explicitBounds",
        ),
        (
            metric("histogram", point(count=1, sum=1, explicitBounds=[2, 1], bucketCounts=[1, 0, 0])),
            "data point.explicitBounds must be ascending numbers",
        ),
        (
            metric("histogram", point(count=1, sum=1, bucketCounts=[-1])),
            "data point.bucketCounts must not be negative",
        ),
        (
            metric("exponentialHistogram", point(count=1, sum=1, scale=-(1 << 31), positive={"bucketCounts": [1]})),
            "data point.scale must be from -16 to 32, not -2147483648",
        ),
        ({"name": "", "gauge": {"dataPoints": [point(asInt=1)]}}, "metrics record.metric must be a non-empty string"),
        (
            metric("sum", point(asInt=1, startTimeUnixNano=str(END_MS * 10**6 * 2)), aggregationTemporality=1),
            "metrics record.windowEnd must be >= windowStart",
        ),
    ],
)
def test_points_that_make_no_sense_are_rejected_and_the_others_taken(
    streams: StreamsClient, metrics: str, metric: dict[str, Any], message: str
) -> None:
    good = {"name": "good", "gauge": {"dataPoints": [point(asInt=1)]}}
    partial = sent(streams, metrics, request(metric, good))["partialSuccess"]
    assert partial == {"rejectedDataPoints": "1", "errorMessage": message}
    assert [(record["metric"], record["unit"]) for record in streams.values(metrics)] == [("good", "1")]


def test_a_point_without_a_value_is_left_out(streams: StreamsClient, metrics: str) -> None:
    assert sent(streams, metrics, request(metric("gauge", point(flags=1)), {"name": "no data"})) == {}
    assert sent(streams, metrics, {}) == {}
    assert streams.values(metrics) == []


def test_points_count_and_not_metrics(streams: StreamsClient, metrics: str) -> None:
    built = ExportMetricsServiceRequest()
    gauge = built.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge
    gauge.data_points.add(as_int=1, time_unix_nano=END_MS * 10**6)
    gauge.MergeFromString(gauge.SerializeToString() * 50_000)
    answer = send(streams, metrics, built.SerializeToString(), PROTOBUF)
    partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_data_points == 1
    assert partial.error_message == "there are more than 50000 data points in one request"


@pytest.mark.both_lanes
def test_bad_requests_are_refused(streams: StreamsClient, metrics: str, name: str) -> None:
    assert send(streams, metrics, "x", "text/plain").status_code == 415
    bad = metric("histogram", point(explicitBounds=5))
    for body, form in (("{", JSON), (request(bad), JSON), (b"\xff", PROTOBUF)):
        assert send(streams, metrics, body, form).status_code == 400, body
    streams.create(f"{name}-plain")
    message = send(streams, f"{name}-plain", JSON_REQUEST).json()["error"]["message"]
    assert message == "the stream has the profile generic; metrics require metrics"
    assert send(streams, "/v1/metrics", JSON_REQUEST).status_code == 400
    assert send(streams, "__stream_metrics__", JSON_REQUEST).status_code == 403


@pytest.mark.both_lanes
def test_metrics_without_a_stream_go_to_the_stream_of_the_settings(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, otlp_metrics_stream="numbers", otlp_auto_create=True)
    streams = StreamsClient(server.url)
    assert sent(streams, "/v1/metrics", JSON_REQUEST) == {}
    assert len(streams.values("numbers")) == 5
    assert streams.request("GET", "numbers/_profile").json()["profile"] == {"kind": "metrics"}
