"""Profiles over HTTP: GET and POST /v1/stream/{name}/_profile, and what becomes of appends."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_process import StartServer
from support.streams_client import JSON, TEXT, StreamsClient

HEADERS = {"content-type": JSON}
INTERVAL = {"metric": "m", "unit": "ms", "windowStart": 0, "windowEnd": 10, "count": 1, "sum": 2}


def install(streams: StreamsClient, name: str, kind: str, **settings: Any) -> dict[str, Any]:
    response = streams.request("POST", f"{name}/_profile", {"profile": {"kind": kind, **settings}})
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    assert document == streams.request("GET", f"{name}/_profile").json()
    return document


def registry(streams: StreamsClient, name: str) -> dict[str, Any]:
    document: dict[str, Any] = streams.request("GET", f"{name}/_schema").json()
    return document


def refused(streams: StreamsClient, name: str, body: object, **headers: str) -> str:
    return streams.refused(400, "POST", name, body, code="bad_request", headers=HEADERS | headers)


def test_a_stream_without_a_profile_is_generic(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    response = streams.request("GET", f"{name}/_profile")
    assert response.json() == {"apiVersion": "durable.streams/profile/v1", "profile": {"kind": "generic"}}
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert install(streams, name, "generic") == response.json()


def test_a_stream_that_is_not_there_has_no_profile(streams: StreamsClient, name: str) -> None:
    streams.refused(404, "GET", f"{name}/_profile", code="not_found")
    streams.refused(404, "POST", f"{name}/_profile", {"profile": {"kind": "generic"}}, code="not_found")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "profile update must be valid JSON"),
        ("", "profile update must be valid JSON"),
        ("[]", "profile update must be a JSON object"),
        ('{"profile":{"kind":"x"}}', "profile.kind must be evlog|generic|metrics|otel-traces|state-protocol"),
    ],
)
def test_a_bad_update_changes_nothing(streams: StreamsClient, name: str, body: str, message: str) -> None:
    streams.create(name)
    assert streams.refused(400, "POST", f"{name}/_profile", body, code="bad_request") == message
    assert streams.request("GET", f"{name}/_profile").json()["profile"] == {"kind": "generic"}


def test_only_generic_is_for_streams_of_bytes(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    message = streams.refused(400, "POST", f"{name}/_profile", {"profile": {"kind": "evlog"}})
    assert message == "evlog profile requires application/json stream content-type"


def test_events_are_put_into_form_and_get_a_key(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    document = install(streams, name, "evlog", redactKeys=["SSN"])
    assert document["profile"] == {"kind": "evlog", "redactKeys": ["ssn"]}
    assert registry(streams, name)["currentVersion"] == 1
    streams.append(name, [{"requestId": "r1", "ssn": "1", "big": 2**60 + 1}, {"traceId": "t1", "status": 500}])
    streams.append(name, {"requestId": "r1", "message": "explicit"}, stream_key="mine")
    first, second, third = streams.values(name)
    assert first["context"] == {"ssn": "[REDACTED]", "big": 2**60 + 1}
    assert first["redaction"] == {"keys": ["ssn"]}
    assert (second["level"], third["message"]) == ("error", "explicit")
    assert streams.values(name, key="r1") == [first]
    assert streams.values(name, key="t1") == [second]
    assert streams.values(name, key="mine") == [third]


def test_one_bad_event_refuses_all(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "evlog")
    assert refused(streams, name, [{}, 5]) == "element 1: evlog records must be JSON objects"
    assert streams.values(name) == []


def test_evlog_comes_before_the_first_event(streams: StreamsClient, name: str) -> None:
    streams.create(name, body=[{"a": 1}])
    message = streams.refused(400, "POST", f"{name}/_profile", {"profile": {"kind": "evlog"}})
    assert message == "evlog profile must be installed before appending data"
    assert registry(streams, name)["currentVersion"] == 0


def test_installing_again_resets_the_registry_and_generic_keeps_it(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "evlog")
    fresh = registry(streams, name)
    streams.append(name, {"message": "one"})
    key = {"routingKey": {"jsonPointer": "/message", "required": False}}
    assert streams.request("POST", f"{name}/_schema", key).status_code == 200
    assert registry(streams, name) != fresh
    install(streams, name, "evlog")
    assert registry(streams, name) == fresh
    install(streams, name, "generic")
    assert registry(streams, name) == fresh
    assert '"timestamp" is a required property' in refused(streams, name, {"message": "two"})


def test_metrics_get_the_key_of_their_series(streams: StreamsClient, name: str) -> None:
    streams.create(name, body=[{"older": "record"}])
    install(streams, name, "metrics")
    streams.append(name, INTERVAL | {"attributes": {"host": "a", "zone": "b"}})
    stored = streams.values(name)[1]
    assert stored["seriesKey"] == "summary|delta|m|ms|||host=a\0zone=b"
    assert streams.values(name, key=stored["seriesKey"]) == [stored]
    assert "Stream-Key not allowed" in refused(streams, name, INTERVAL, **{"stream-key": "x"})
    assert refused(streams, name, {}) == "metrics record.metric must be a non-empty string"


def test_changes_of_state_are_checked_and_kept_as_they_came(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "state-protocol", touch={"enabled": False, "memory": {"k": 2}})
    assert streams.request("GET", f"{name}/_profile").json()["profile"]["touch"] == {"enabled": False}
    change = b'{"type":"t", "key":"1","value":{"n":1.50},"headers":{"operation":"insert"}}'
    streams.append(name, change)
    assert streams.read(name, format="raw").content == change
    assert refused(streams, name, {"type": "t"}) == "state-protocol record.headers must be an object"
    assert registry(streams, name)["currentVersion"] == 0


def test_events_can_be_searched(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "evlog")
    events = [
        {"message": "payment declined", "status": 502, "service": "API", "timestamp": "2026-03-25T10:00:00Z"},
        {"message": "fine", "status": 200, "requestId": "r1", "timestamp": "2026-03-25T10:00:01Z"},
        {"error": {"message": "card declined"}, "why": "no money", "timestamp": "2026-03-25T10:00:02Z"},
    ]
    streams.append(name, events)
    for query, found in (
        ("declined", {0, 2}),
        ("level:error", {0, 2}),
        ("service:api AND status:>=500", {0}),
        ("req:r1", {1}),
        ('ts:>="2026-03-25T10:00:01Z"', {1, 2}),
        ("has:duration", set()),
    ):
        response = streams.request("GET", f"{name}/_search", params={"q": query})
        assert response.status_code == 200, response.text
        times = {hit["source"]["timestamp"] for hit in response.json()["hits"]}
        assert times == {events[index]["timestamp"] for index in found}, query
    assert len(streams.values(name, filter="level:error")) == 2


def aggregated(streams: StreamsClient, name: str, **request: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    response = streams.request("POST", f"{name}/_aggregate", request)
    assert response.status_code == 200, response.text
    return [(group["key"], group["measures"]) for bucket in response.json()["buckets"] for group in bucket["groups"]]


def test_metrics_are_rolled_up(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "metrics")
    streams.append(name, [INTERVAL | {"windowStart": start, "windowEnd": 9000} for start in (1000, 2000)])
    request = {"rollup": "metrics", "from": 0, "to": 60_000, "interval": "1m", "group_by": ["metric"]}
    [(key, measures)] = aggregated(streams, name, **request)
    assert key == {"metric": "m"}
    assert (measures["value"]["count"], measures["value"]["sum"]) == (2, 4)


def test_spans_are_rolled_up(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "otel-traces")
    span = {"traceId": "a" * 32, "startUnixNano": 10**9, "endUnixNano": 10**9 + 10**8, "service": "web"}
    server = {"kind": "server", "http": {"method": "GET", "route": "/", "statusCode": 500}}
    streams.append(name, [span | server | {"spanId": "b" * 16}, span | {"spanId": "c" * 16, "kind": "client"}])
    request = {"from": 0, "to": 60_000, "interval": "1m"}
    [(_, measures)] = aggregated(streams, name, rollup="spans", **request)
    assert (measures["spans"]["count"], measures["errors"]["count"]) == (2, 1)
    assert (measures["latency"]["max"], measures["latency"]["p95"]) == (100, 64)
    [(key, measures)] = aggregated(streams, name, rollup="http_server", group_by=["http.statusCode"], **request)
    assert key == {"http.statusCode": "500"}
    assert measures["requests"]["count"] == 1


def test_an_id_that_is_too_long_for_a_key_is_refused(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "evlog")
    assert "1024" in refused(streams, name, {"requestId": "r" * 1025})
    assert streams.values(name) == []


def test_spans_can_be_appended_as_json(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "otel-traces")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    streams.append(name, {"traceId": trace, "spanId": "00f067aa0ba902b7", "startUnixNano": "5", "name": "s"})
    [stored] = streams.values(name)
    assert stored["signal"] == "trace.span"
    assert streams.values(name, key=trace) == [stored]
    streams.append(name, stored)
    assert streams.values(name) == [stored, stored]


def test_the_first_records_of_a_fork_and_of_a_stream_meet_the_profile(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "evlog")
    streams.append(name, {"requestId": "r"})
    streams.create(f"{name}-fork", stream_forked_from=f"/v1/stream/{name}")
    assert streams.request("GET", f"{name}-fork/_profile").json()["profile"] == {"kind": "evlog"}


def test_a_profile_survives_a_crash(start_server: StartServer, name: str) -> None:
    server = start_server()
    streams = StreamsClient(server.url)
    streams.create(name)
    shown = install(streams, name, "evlog", correlation={"requestIdFields": ["id"]})
    schema = registry(streams, name)
    streams.close()
    server.kill()
    server.start()
    streams = StreamsClient(server.url)
    assert streams.request("GET", f"{name}/_profile").json() == shown
    assert registry(streams, name) == schema
    streams.append(name, {"id": "r9"})
    assert streams.values(name, key="r9")[0]["requestId"] == "r9"
    streams.close()


def test_a_profile_needs_the_right_to_write(start_server: StartServer, name: str) -> None:
    server = start_server(keys="all-of-it:rw,only-read:r")
    writer, reader = StreamsClient(server.url, "all-of-it"), StreamsClient(server.url, "only-read")
    writer.create(name)
    assert reader.request("GET", f"{name}/_profile").status_code == 200
    reader.refused(403, "POST", f"{name}/_profile", {"profile": {"kind": "evlog"}}, code="forbidden")
    writer.close()
    reader.close()


@pytest.mark.both_lanes
def test_an_invalid_traceparent_gives_no_trace_and_no_key(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    install(streams, name, "evlog")
    streams.append(
        name, [{"traceparent": f"00-{'1' * 32}-{'0' * 16}-01"}, {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}]
    )
    assert [(event["traceId"], event["spanId"]) for event in streams.values(name)] == [
        (None, None),
        ("1" * 32, "2" * 16),
    ]
    assert len(streams.values(name, key="1" * 32)) == 1
