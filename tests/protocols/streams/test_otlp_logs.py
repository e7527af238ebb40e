"""Logs by OTLP over HTTP, in protobuf and in JSON, as events of the evlog profile."""

from __future__ import annotations

import zlib
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from support.server_process import StartServer
from support.streams_client import JSON, StreamsClient

PROTOBUF = "application/x-protobuf"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
AT = 1_774_432_800_123_456_789


def text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def json_request(**changes: Any) -> dict[str, Any]:
    log = {
        "timeUnixNano": str(AT), "observedTimeUnixNano": str(AT + 5), "severityNumber": 17, "severityText": "ERROR",
        "body": {"stringValue": "card declined"}, "traceId": TRACE, "spanId": SPAN, "flags": 1,
        "droppedAttributesCount": 2,
        "attributes": [
            text("http.request.method", "POST"), text("url.path", "/pay"), text("request.id", "r-1"),
            {"key": "http.response.status_code", "value": {"intValue": "402"}},
            text("http.request.header.authorization", "Bearer x"), text("exception.message", "no funds"),
        ],
    } | changes  # fmt: skip
    resource = {"attributes": [text("service.name", "shop"), text("deployment.environment", "prod")]}
    scope = {"scope": {"name": "lib", "version": "1"}, "logRecords": [log]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}


def pair(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def protobuf_request() -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add()
    of_resource.resource.attributes.extend([pair("service.name", "shop"), pair("deployment.environment", "prod")])
    of_scope = of_resource.scope_logs.add()
    of_scope.scope.name, of_scope.scope.version = "lib", "1"
    log = of_scope.log_records.add(
        time_unix_nano=AT, observed_time_unix_nano=AT + 5, severity_number=17, severity_text="ERROR",
        trace_id=bytes.fromhex(TRACE), span_id=bytes.fromhex(SPAN), flags=1, dropped_attributes_count=2,
    )  # fmt: skip
    log.body.string_value = "card declined"
    log.attributes.extend([
        pair("http.request.method", "POST"), pair("url.path", "/pay"), pair("request.id", "r-1"),
        KeyValue(key="http.response.status_code", value=AnyValue(int_value=402)),
        pair("http.request.header.authorization", "Bearer x"), pair("exception.message", "no funds"),
    ])  # fmt: skip
    return request


@pytest.fixture
def logs(streams: StreamsClient, name: str) -> str:
    streams.create(name)
    assert streams.request("POST", f"{name}/_profile", {"profile": {"kind": "evlog"}}).status_code == 200
    return name


def send(streams: StreamsClient, name: str, body: object, form: str = JSON, **headers: str) -> httpx.Response:
    path = name if name.startswith("/") else f"{name}/_otlp/v1/logs"
    return streams.request("POST", path, body, headers={"content-type": form} | headers)


def sent(streams: StreamsClient, name: str, body: object) -> Any:
    response = send(streams, name, body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.both_lanes
def test_logs_in_json_and_in_protobuf_become_the_same_events(streams: StreamsClient, logs: str) -> None:
    assert sent(streams, logs, json_request()) == {}
    response = send(streams, logs, protobuf_request().SerializeToString(), PROTOBUF)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == PROTOBUF
    first, second = streams.values(logs)
    assert first == second
    context = first.pop("context")
    assert first == {
        "timestamp": "2026-03-25T10:00:00.123Z", "level": "error", "service": "shop", "environment": "prod",
        "version": None, "region": None, "requestId": "r-1", "traceId": TRACE, "spanId": SPAN, "method": "POST",
        "path": "/pay", "status": 402, "duration": None, "message": "card declined", "why": None, "fix": None,
        "link": None, "sampling": None, "redaction": {"keys": ["attributes.http.request.header.authorization"]},
    }  # fmt: skip
    assert context["attributes"]["http.request.header.authorization"] == "[REDACTED]"
    assert context["attributes"]["http.response.status_code"] == 402
    assert context["resource"]["attributes"] == {"service.name": "shop", "deployment.environment": "prod"}
    assert context["instrumentationScope"]["name"] == "lib"
    assert context["severity"] == {"number": 17, "text": "ERROR"}
    assert (context["timeUnixNano"], context["flags"], context["droppedAttributes"]) == (str(AT), 1, 2)
    assert context["error"] == {"message": "no funds"}
    assert len(streams.values(logs, key="r-1")) == 2, "the routing key is the request"


def test_logs_can_be_searched_like_other_events(streams: StreamsClient, logs: str) -> None:
    sent(streams, logs, json_request())
    sent(streams, logs, json_request(severityNumber=9, body={"stringValue": "paid"}))
    for query in ("declined", "level:error", f"trace:{TRACE} declined", 'error.message:"no funds" level:error'):
        answer = streams.request("GET", f"{logs}/_search", params={"q": query}).json()
        assert [hit["source"]["message"] for hit in answer["hits"]] == ["card declined"], query


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"severityNumber": 1}, "debug"),
        ({"severityNumber": 8}, "debug"),
        ({"severityNumber": 9}, "info"),
        ({"severityNumber": 16}, "warn"),
        ({"severityNumber": 24}, "error"),
        ({"severityNumber": "SEVERITY_NUMBER_WARN2"}, "warn"),
        ({"severityNumber": 0, "severityText": "Warning"}, "warn"),
        ({"severityNumber": 99, "severityText": ""}, "warn"),
    ],
)
def test_a_severity_becomes_a_level(streams: StreamsClient, logs: str, changes: dict[str, Any], level: str) -> None:
    """Without any severity, the level follows from the status, which is 402 here."""
    sent(streams, logs, json_request(**changes))
    assert streams.values(logs)[0]["level"] == level


def test_what_a_record_lacks_is_taken_from_elsewhere(streams: StreamsClient, logs: str) -> None:
    body = {"kvlistValue": {"values": [text("a", "b"), text("password", "x")]}}
    sent(streams, logs, json_request(timeUnixNano=0, body=body, eventName="payment", traceId="00", spanId="0" * 16))
    [event] = streams.values(logs)
    assert (event["timestamp"], event["message"]) == ("2026-03-25T10:00:00.123Z", "payment")
    assert (event["traceId"], event["spanId"]) == (None, None)
    assert event["context"]["body"] == {"a": "b", "password": "[REDACTED]"}
    sent(streams, logs, json_request(timeUnixNano=0, observedTimeUnixNano=0, body=None, eventName=""))
    event = streams.values(logs)[1]
    assert event["timestamp"] > "2026"
    assert event["message"] == "no funds"


@pytest.mark.both_lanes
@pytest.mark.parametrize("window", [15, -15])
def test_a_body_may_be_deflated(streams: StreamsClient, logs: str, window: int) -> None:
    body = zlib.compress(protobuf_request().SerializeToString(), wbits=window)
    assert send(streams, logs, body, PROTOBUF, **{"content-encoding": "deflate"}).status_code == 200
    assert len(streams.values(logs)) == 1
    large = zlib.compress(protobuf_request().SerializeToString() * 500, wbits=window)
    assert send(streams, logs, large, PROTOBUF, **{"content-encoding": "deflate"}).status_code == 200
    assert len(streams.values(logs)) == 501
    streams.refused(
        400, "POST", f"{logs}/_otlp/v1/logs", b"x", headers={"content-type": PROTOBUF, "content-encoding": "deflate"}
    )
    assert send(streams, logs, body, PROTOBUF, **{"content-encoding": "br"}).status_code == 415


def test_records_that_the_stream_does_not_accept_are_counted(streams: StreamsClient, logs: str) -> None:
    schema = streams.request("GET", f"{logs}/_schema").json()["schemas"]["1"]
    schema["properties"]["service"] = {"enum": ["shop"]}
    lens = {
        "apiVersion": "durable.lens/v1", "schema": logs, "from": 1, "to": 2,
        "ops": [{"op": "add", "path": "/service", "schema": {}, "default": "shop"}],
    }  # fmt: skip
    updated = streams.request("POST", f"{logs}/_schema", {"schema": schema, "lens": lens})
    assert updated.status_code == 200, updated.text
    request = json_request()
    other = json_request()["resourceLogs"][0]
    other["resource"]["attributes"][0] = text("service.name", "else")
    request["resourceLogs"].append(other)
    partial = sent(streams, logs, request)["partialSuccess"]
    assert partial["rejectedLogRecords"] == "1"
    assert "service" in partial["errorMessage"]
    protobuf = protobuf_request()
    protobuf.resource_logs[0].resource.attributes[0].value.string_value = "else"
    answer = send(streams, logs, protobuf.SerializeToString(), PROTOBUF)
    assert ExportLogsServiceResponse.FromString(answer.content).partial_success.rejected_log_records == 1
    assert [event["service"] for event in streams.values(logs)] == ["shop"]


def test_more_records_than_a_request_may_have_are_rejected(streams: StreamsClient, logs: str) -> None:
    request = ExportLogsServiceRequest()
    of_scope = request.resource_logs.add().scope_logs.add()
    of_scope.log_records.add()
    one = of_scope.SerializeToString()
    of_scope.MergeFromString(one * 50_001)
    answer = ExportLogsServiceResponse.FromString(send(streams, logs, request.SerializeToString(), PROTOBUF).content)
    assert answer.partial_success.rejected_log_records == 2
    assert answer.partial_success.error_message == "there are more than 50000 log records in one request"


def test_values_nested_too_deeply_are_cut(streams: StreamsClient, logs: str) -> None:
    request = protobuf_request()
    value = AnyValue(string_value="deep")
    for _ in range(20):
        value = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="in", value=value)]))
    request.resource_logs[0].scope_logs[0].log_records[0].body.CopyFrom(value)
    assert send(streams, logs, request.SerializeToString(), PROTOBUF).status_code == 200
    assert "deep" not in str(streams.values(logs))


@pytest.mark.both_lanes
def test_bad_requests_are_refused(streams: StreamsClient, logs: str, name: str) -> None:
    assert send(streams, logs, "x", "text/plain").status_code == 415
    for body, form in (("{", JSON), ("[]", JSON), ('{"resourceLogs":1}', JSON), (b"\xff", PROTOBUF)):
        assert send(streams, logs, body, form).status_code == 400, body
    plain = f"{name}-plain"
    streams.create(plain)
    message = send(streams, plain, json_request()).json()["error"]["message"]
    assert message == "the stream has the profile generic; logs require evlog"
    assert send(streams, f"{name}-missing", json_request()).status_code == 404
    message = send(streams, "/v1/logs", json_request()).json()["error"]["message"]
    assert message.startswith("the server has no stream for logs: set otlp_logs_stream")


@pytest.mark.both_lanes
def test_logs_without_a_stream_go_to_the_stream_of_the_settings(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, otlp_logs_stream="logs", otlp_auto_create=True, keys="all:rw,some:rw:other-")
    streams = StreamsClient(server.url, "all")
    assert sent(streams, "/v1/logs", json_request()) == {}
    assert send(streams, "/v1/logs", protobuf_request().SerializeToString(), PROTOBUF).status_code == 200
    assert [event["message"] for event in streams.values("logs")] == ["card declined"] * 2
    assert streams.request("GET", "logs/_profile").json()["profile"] == {"kind": "evlog"}
    assert send(StreamsClient(server.url, "some"), "/v1/logs", json_request()).status_code == 403
