"""Traces by OTLP over HTTP, in protobuf and in JSON."""

from __future__ import annotations

import gzip
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.schema_builders import lens_document, op
from support.server_process import StartServer
from support.streams_client import JSON, StreamsClient

PROTOBUF = "application/x-protobuf"
TRACE, SPAN, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "b9c7c989f97918e1"
START, END = 1_774_432_800_123_456_789, 1_774_432_800_223_456_789


def json_request(**changes: Any) -> dict[str, Any]:
    span = {
        "traceId": TRACE.upper(), "spanId": SPAN, "parentSpanId": PARENT, "traceState": "a=b", "flags": 257,
        "name": "GET /cart", "kind": 2, "startTimeUnixNano": str(START), "endTimeUnixNano": END,
        "attributes": [
            {"key": "http.request.method", "value": {"stringValue": "GET"}},
            {"key": "http.response.status_code", "value": {"intValue": "503"}},
            {"key": "ratio", "value": {"doubleValue": 0.5}},
            {"key": "flag", "value": {"boolValue": True}},
            {"key": "raw", "value": {"bytesValue": "AAE="}},
            {"key": "list", "value": {"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "x"}, {}]}}},
            {"key": "map", "value": {"kvlistValue": {"values": [{"key": "password", "value": {"stringValue": "x"}}]}}},
            {"key": "lost", "value": {"doubleValue": "NaN"}},
        ],
        "droppedAttributesCount": 3,
        "events": [
            {
                "timeUnixNano": str(START),
                "name": "exception",
                "attributes": [{"key": "exception.type", "value": {"stringValue": "Boom"}}],
            }
        ],
        "links": [{"traceId": TRACE, "spanId": PARENT}],
        "status": {"code": 2, "message": "no"},
        "unknownField": 1,
    } | changes  # fmt: skip
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "cart"}}]},
                "schemaUrl": "https://schema",
                "scopeSpans": [{"scope": {"name": "lib", "version": "1"}, "spans": [span]}],
            }
        ]
    }


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def protobuf_request() -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add(schema_url="https://schema")
    resource_spans.resource.attributes.append(text("service.name", "cart"))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name, scope_spans.scope.version = "lib", "1"
    span = scope_spans.spans.add(
        trace_id=bytes.fromhex(TRACE), span_id=bytes.fromhex(SPAN), parent_span_id=bytes.fromhex(PARENT),
        trace_state="a=b", flags=257, name="GET /cart", kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=START, end_time_unix_nano=END, dropped_attributes_count=3,
    )  # fmt: skip
    elements = [AnyValue(int_value=1), AnyValue(string_value="x"), AnyValue()]
    span.attributes.extend([
        text("http.request.method", "GET"),
        KeyValue(key="http.response.status_code", value=AnyValue(int_value=503)),
        KeyValue(key="ratio", value=AnyValue(double_value=0.5)),
        KeyValue(key="flag", value=AnyValue(bool_value=True)),
        KeyValue(key="raw", value=AnyValue(bytes_value=b"\0\1")),
        KeyValue(key="list", value=AnyValue(array_value=ArrayValue(values=elements))),
        KeyValue(key="map", value=AnyValue(kvlist_value=KeyValueList(values=[text("password", "x")]))),
        KeyValue(key="lost", value=AnyValue(double_value=float("nan"))),
    ])  # fmt: skip
    span.events.add(time_unix_nano=START, name="exception").attributes.append(text("exception.type", "Boom"))
    span.links.add(trace_id=bytes.fromhex(TRACE), span_id=bytes.fromhex(PARENT))
    span.status.code, span.status.message = 2, "no"
    return request


@pytest.fixture
def traces(streams: StreamsClient, name: str) -> str:
    """A stream for traces."""
    streams.create(name)
    install(streams, name)
    return name


def install(streams: StreamsClient, name: str, **settings: Any) -> None:
    body = {"profile": {"kind": "otel-traces", **settings}}
    assert streams.request("POST", f"{name}/_profile", body).status_code == 200


def send(streams: StreamsClient, name: str, body: object, form: str = JSON, **headers: str) -> httpx.Response:
    path = name if name.startswith("/") else f"{name}/_otlp/v1/traces"
    return streams.request("POST", path, body, headers={"content-type": form} | headers)


def sent(streams: StreamsClient, name: str, body: object) -> Any:
    response = send(streams, name, body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == JSON
    return response.json()


def test_spans_in_json_and_in_protobuf_become_the_same_records(streams: StreamsClient, traces: str) -> None:
    assert sent(streams, traces, json_request()) == {}
    response = send(streams, traces, protobuf_request().SerializeToString(), PROTOBUF)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == PROTOBUF
    first, second = streams.values(traces)
    assert first == second
    assert (first["traceId"], first["spanId"], first["parentSpanId"]) == (TRACE, SPAN, PARENT)
    assert (first["startUnixNano"], first["duration"]) == (str(START), 100.0)
    assert (first["name"], first["kind"], first["service"]) == ("GET /cart", "server", "cart")
    assert first["status"] == {"code": "error", "message": "no"}
    assert first["http"]["statusCode"] == 503
    assert first["attributes"] == {
        "http.request.method": "GET", "http.response.status_code": 503, "ratio": 0.5, "flag": True, "raw": "AAE=",
        "list": [1, "x", None], "map": {"password": "[REDACTED]"}, "lost": "NaN",
    }  # fmt: skip
    assert first["error"] == {"isError": True, "type": "Boom", "message": "no", "stacktrace": None}
    assert first["instrumentationScope"]["name"] == "lib"
    assert first["resource"] == {"schemaUrl": "https://schema", "attributes": {"service.name": "cart"}}
    assert first["dropped"] == {"attributes": 3, "events": 0, "links": 0}
    assert first["redaction"] == {"keys": ["attributes.map.password"]}
    assert streams.values(traces, key=TRACE) == [first, second]


def test_a_body_may_be_compressed(streams: StreamsClient, traces: str) -> None:
    body = gzip.compress(protobuf_request().SerializeToString())
    assert send(streams, traces, body, PROTOBUF, **{"content-encoding": "gzip"}).status_code == 200
    assert len(streams.values(traces)) == 1


def test_names_of_kinds_and_codes_are_understood(streams: StreamsClient, traces: str) -> None:
    sent(streams, traces, json_request(kind="SPAN_KIND_CONSUMER", status={"code": "STATUS_CODE_OK"}))
    sent(streams, traces, json_request(kind=99, status={"code": "NEW"}))
    first, second = streams.values(traces)
    assert (first["kind"], first["status"]["code"]) == ("consumer", "ok")
    assert (second["kind"], second["status"]["code"]) == ("unspecified", "unset")


def test_nothing_to_store_is_no_error(streams: StreamsClient, traces: str) -> None:
    assert sent(streams, traces, {}) == {}
    assert send(streams, traces, b"", PROTOBUF).status_code == 200
    assert streams.values(traces) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"traceId": "0" * 32}, "traceId must be 32 hexadecimal digits that are not all zero"),
        ({"spanId": "xyz"}, "spanId must be 16 hexadecimal digits that are not all zero"),
        ({"endTimeUnixNano": "5"}, "endUnixNano must be >= startUnixNano"),
    ],
)
def test_spans_that_make_no_sense_are_rejected_and_the_others_taken(
    streams: StreamsClient, traces: str, change: dict[str, Any], message: str
) -> None:
    request = json_request()
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.insert(0, spans[0] | change)
    answer = sent(streams, traces, request)
    assert answer == {"partialSuccess": {"rejectedSpans": "1", "errorMessage": f"otel-traces record.{message}"}}
    assert len(streams.values(traces)) == 1


def test_a_partial_success_is_told_in_protobuf_too(streams: StreamsClient, traces: str) -> None:
    request = protobuf_request()
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = b"short"
    response = send(streams, traces, request.SerializeToString(), PROTOBUF)
    assert response.status_code == 200
    answer = ExportTraceServiceResponse.FromString(response.content)
    assert answer.partial_success.rejected_spans == 1
    assert "traceId must be" in answer.partial_success.error_message
    assert streams.values(traces) == []


def test_a_stricter_schema_rejects_spans_one_by_one(streams: StreamsClient, traces: str) -> None:
    current = streams.request("GET", f"{traces}/_schema").json()["schemas"]["1"]
    current["properties"]["name"] = {"type": "string", "maxLength": 5}
    current["properties"]["note"] = {"type": "string"}
    lens = lens_document(op("add", path="/note", schema={"type": "string"}, default=""), schema=traces)
    answer = streams.request("POST", f"{traces}/_schema", {"schema": current, "lens": lens})
    assert answer.status_code == 200, answer.text
    request = json_request(name="short")
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append(spans[0] | {"name": "much longer"})
    assert sent(streams, traces, request)["partialSuccess"]["rejectedSpans"] == "1"
    assert [span["name"] for span in streams.values(traces)] == ["short"]


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"{", JSON),
        (b"[]", JSON),
        (b"[" * 50_000, JSON),
        (b"\xff\xff\xff", PROTOBUF),
        ({"resourceSpans": {}}, JSON),
        ({"resourceSpans": [5]}, JSON),
        ({"resourceSpans": [{"resource": {"attributes": 5}}]}, JSON),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": 5}]}]}]}, JSON),
        (json_request(startTimeUnixNano="soon"), JSON),
        (json_request(kind=[]), JSON),
        (json_request(attributes=[{"key": "a", "value": {"intValue": "x"}}]), JSON),
        (json_request(attributes=[{"key": "a", "value": {"boolValue": 1}}]), JSON),
        (json_request(attributes=[{"key": "a", "value": {"doubleValue": []}}]), JSON),
        (json_request(attributes=[{"key": "a", "value": {"arrayValue": []}}]), JSON),
        (json_request(attributes=[{"key": 1}]), JSON),
    ],
)
def test_what_is_malformed_is_refused_as_a_whole(streams: StreamsClient, traces: str, body: object, form: str) -> None:
    path, headers = f"{traces}/_otlp/v1/traces", {"content-type": form}
    streams.refused(400, "POST", path, body, code="bad_request", headers=headers)
    assert streams.values(traces) == []


@pytest.mark.parametrize(
    "headers", [{"content-type": "text/plain"}, {}, {"content-type": JSON, "content-encoding": "br"}]
)
def test_other_forms_and_compressions_are_not_understood(
    streams: StreamsClient, traces: str, headers: dict[str, str]
) -> None:
    path = f"{traces}/_otlp/v1/traces"
    streams.refused(415, "POST", path, b"{}", code="unsupported_media_type", headers=headers)


def test_limits_of_a_request_are_kept(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    limits = {
        "maxCompressedBytes": 600, "maxDecodedBytes": 3000, "maxResourceSpansPerRequest": 2,
        "maxScopeSpansPerRequest": 2, "maxSpansPerRequest": 2,
    }  # fmt: skip
    install(streams, name, otlpLimits=limits)
    path, headers = f"{name}/_otlp/v1/traces", {"content-type": JSON}
    large = {"padding": "x" * 3000}
    streams.refused(413, "POST", path, large, code="payload_too_large", headers=headers)
    packed = headers | {"content-encoding": "gzip"}
    streams.refused(413, "POST", path, gzip.compress(b" " * 3001), code="payload_too_large", headers=packed)
    raw = gzip.compress(b'{"a":"' + bytes(range(48, 58)) * 100 + b'"}', 0)
    streams.refused(413, "POST", path, raw, code="payload_too_large", headers=packed)
    resources = {"resourceSpans": [{}] * 3}
    assert "resource spans" in streams.refused(400, "POST", path, resources, code="bad_request", headers=headers)
    scopes = {"resourceSpans": [{"scopeSpans": [{}]}, {"scopeSpans": [{}, {}]}]}
    assert "scope spans" in streams.refused(400, "POST", path, scopes, code="bad_request", headers=headers)
    request = json_request(attributes=[], events=[])
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans *= 4
    answer = sent(streams, name, request)["partialSuccess"]
    assert answer == {"rejectedSpans": "2", "errorMessage": "there are more than 2 spans in one request"}
    assert len(streams.values(name)) == 2


def test_values_are_cut_where_they_are_too_deep_or_too_long(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    limits = {"maxAnyValueDepth": 2, "maxArrayValuesPerAnyValue": 2, "maxKvListValuesPerAnyValue": 1}
    install(streams, name, otlpLimits=limits)
    inner = {"arrayValue": {"values": [{"intValue": "1"}]}}
    pair = {"key": "k", "value": {"stringValue": "v"}}
    attributes = [
        {"key": "deep", "value": {"arrayValue": {"values": [inner, {"intValue": 2}, {"intValue": 3}]}}},
        {"key": "map", "value": {"kvlistValue": {"values": [pair, pair | {"key": "l"}]}}},
    ]
    sent(streams, name, json_request(attributes=attributes))
    assert streams.values(name)[0]["attributes"] == {"deep": [None, 2], "map": {"k": "v"}}


def test_only_streams_of_traces_take_traces(streams: StreamsClient, name: str) -> None:
    path, headers = f"{name}/_otlp/v1/traces", {"content-type": JSON}
    streams.refused(404, "POST", path, json_request(), code="not_found", headers=headers)
    streams.create(name)
    assert "generic" in streams.refused(400, "POST", path, json_request(), code="bad_request", headers=headers)
    install(streams, name)
    streams.append(name, b"", stream_closed="true")
    response = send(streams, name, json_request())
    assert response.status_code == 409
    assert response.headers["stream-closed"] == "true"


def test_without_a_stream_for_them_traces_are_refused(streams: StreamsClient) -> None:
    streams.refused(400, "POST", "/v1/traces", json_request(), code="bad_request", headers={"content-type": JSON})


def test_a_server_can_have_a_stream_for_traces(start_server: StartServer) -> None:
    server = start_server(otlp_traces_stream="app/traces")
    streams = StreamsClient(server.url)
    streams.refused(404, "POST", "/v1/traces", json_request(), code="not_found", headers={"content-type": JSON})
    streams.create("app/traces")
    install(streams, "app/traces")
    assert sent(streams, "/v1/traces", json_request()) == {}
    assert len(streams.values("app/traces")) == 1
    streams.close()


def test_a_server_can_make_the_stream_for_traces(start_server: StartServer) -> None:
    keys = "everything-there-is:rw,elsewhere-only:rw:other/"
    server = start_server(otlp_traces_stream="app/traces", otlp_auto_create=True, keys=keys)
    streams = StreamsClient(server.url, "everything-there-is")
    elsewhere = StreamsClient(server.url, "elsewhere-only")
    headers = {"content-type": JSON}
    elsewhere.refused(403, "POST", "/v1/traces", json_request(), code="forbidden", headers=headers)
    streams.refused(400, "POST", "/v1/traces", b"{", code="bad_request", headers=headers)
    assert sent(streams, "/v1/traces", {}) == {}
    streams.refused(404, "GET", "app/traces", code="not_found")
    assert sent(streams, "/v1/traces", json_request()) == {}
    server.kill()
    server.start()
    streams.close()
    streams = StreamsClient(server.url, "everything-there-is")
    assert sent(streams, "/v1/traces", json_request()) == {}
    assert len(streams.values("app/traces", key=TRACE)) == 2
    assert streams.request("GET", "app/traces/_profile").json()["profile"] == {"kind": "otel-traces"}
    streams.close()
    elsewhere.close()
