"""POST /v1/observe/request: the events and the trace of one request."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_process import StartServer
from support.streams_client import StreamsClient

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ROOT, CHILD = "00f067aa0ba902b7", "b9c7c989f97918e1"
SECOND = 1_774_432_800
NANO = 1_000_000_000


def span(span_id: str, parent: str | None, start: int = 0, end: int = 1, **more: Any) -> dict[str, Any]:
    times = {"startUnixNano": (SECOND + start) * NANO, "endUnixNano": (SECOND + end) * NANO}
    return {"traceId": TRACE, "spanId": span_id, "parentSpanId": parent, "name": "work", **times, **more}


SPANS = [
    span(ROOT, None, 0, 10, service="web", requestId="r1", http={"method": "GET", "path": "/cart", "statusCode": 500}),
    span(CHILD, ROOT, 2, 8, service="db", status={"code": "error", "message": "no"}),
]
EVENTS = [
    {"timestamp": "2026-03-25T10:00:09Z", "requestId": "r1", "traceId": TRACE, "service": "web", "status": 500},
    {"timestamp": "2026-03-25T10:00:03Z", "traceId": TRACE, "spanId": CHILD, "service": "db", "message": "slow"},
    {"timestamp": "2026-03-25T10:00:04Z", "requestId": "r2", "message": "somebody else"},
]


@pytest.fixture
def request_streams(streams: StreamsClient, name: str) -> dict[str, str]:
    """A stream of events and one of traces, with one request in both."""
    both = {"events": f"{name}/events", "traces": f"{name}/traces"}
    make(streams, both["events"], {"kind": "evlog"}, EVENTS)
    make(streams, both["traces"], {"kind": "otel-traces"}, SPANS)
    return both


def make(streams: StreamsClient, name: str, profile: dict[str, Any], records: list[Any]) -> None:
    streams.create(name)
    assert streams.request("POST", f"{name}/_profile", {"profile": profile}).status_code == 200
    if records:
        streams.append(name, records)


def observe(client: StreamsClient, /, **body: Any) -> dict[str, Any]:
    response = client.request("POST", "/v1/observe/request", body)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    document: dict[str, Any] = response.json()
    assert list(document) == ["lookup", "summary", "evlog", "trace", "timeline", "coverage"]
    return document


@pytest.mark.parametrize(
    "lookup", [{"requestId": "r1"}, {"traceId": TRACE}, {"traceId": TRACE.upper()}, {"spanId": CHILD}]
)
def test_a_request_is_found_by_any_of_its_ids(
    streams: StreamsClient, request_streams: dict[str, str], lookup: dict[str, str]
) -> None:
    found = observe(streams, streams=request_streams, lookup=lookup)
    assert found["lookup"] == lookup
    assert [event["service"] for event in found["evlog"]["events"]] == ["db", "web"]
    trace = found["trace"]
    assert (trace["traceId"], trace["rootSpanId"]) == (TRACE, ROOT)
    assert [each["spanId"] for each in trace["spans"]] == [ROOT, CHILD]
    assert trace["tree"] == [
        {"spanId": ROOT, "depth": 0, "children": [CHILD]},
        {"spanId": CHILD, "depth": 1, "children": []},
    ]
    assert trace["serviceMap"]["edges"] == [{"from": "web", "to": "db", "calls": 1, "errors": 1}]
    assert [step["spanId"] for step in trace["criticalPath"]] == [ROOT, CHILD]
    assert [error["spanId"] for error in trace["errors"]] == [ROOT, CHILD]
    assert (trace["partial"], trace["missingParents"], trace["duplicateSpans"]) == (False, [], [])
    assert [entry["type"] for entry in found["timeline"]] == ["span", "span", "event", "event"]
    assert found["summary"] == {
        "requestId": "r1", "traceId": TRACE, "traceIds": [TRACE], "services": ["web", "db"], "method": None,
        "path": None, "status": 500, "startedAt": "2026-03-25T10:00:00.000Z", "endedAt": "2026-03-25T10:00:10.000Z",
        "durationMs": 10_000.0, "events": 2, "spans": 2, "errors": 3,
    }  # fmt: skip
    coverage = found["coverage"]
    assert coverage["warnings"] == []
    assert coverage["events"]["complete"]
    assert coverage["traces"]["complete"]
    assert "raw" not in trace["spans"][0]


def test_an_event_is_found_also_when_it_was_given_another_key(
    streams: StreamsClient, request_streams: dict[str, str]
) -> None:
    streams.append(request_streams["events"], {"requestId": "r1", "message": "keyed"}, stream_key="elsewhere")
    found = observe(streams, streams=request_streams, lookup={"requestId": "r1"})
    assert [event["message"] for event in found["evlog"]["events"]] == ["slow", None, "keyed"]


def test_the_other_stream_may_be_known_to_the_profile(streams: StreamsClient, name: str) -> None:
    events, traces = f"{name}/events", f"{name}/traces"
    make(streams, events, {"kind": "evlog", "observability": {"request": {"tracesStream": traces}}}, EVENTS)
    profile = {"kind": "otel-traces", "observability": {"request": {"eventsStream": events}}}
    make(streams, traces, profile, SPANS)
    for given in ({"events": events}, {"traces": traces}):
        found = observe(streams, streams=given, lookup={"requestId": "r1"})
        assert (found["summary"]["events"], found["summary"]["spans"]) == (2, 2)


def test_one_stream_is_enough(streams: StreamsClient, request_streams: dict[str, str]) -> None:
    found = observe(streams, streams={"events": request_streams["events"]}, lookup={"requestId": "r1"})
    assert found["trace"] is None
    assert found["coverage"]["traces"] is None
    found = observe(streams, streams={"traces": request_streams["traces"]}, lookup={"requestId": "r1"})
    assert found["evlog"] is None
    assert found["summary"]["path"] == "/cart"


def test_what_is_not_found_is_no_error(streams: StreamsClient, request_streams: dict[str, str]) -> None:
    found = observe(streams, streams=request_streams, lookup={"spanId": "1" * 16})
    assert found["evlog"] == {"events": []}
    assert (found["trace"]["spans"], found["trace"]["rootSpanId"], found["timeline"]) == ([], None, [])
    assert found["summary"]["startedAt"] is None


def test_parts_can_be_left_out_or_shown_whole(streams: StreamsClient, request_streams: dict[str, str]) -> None:
    lookup = {"requestId": "r1"}
    include = {"events": False, "trace": False, "timeline": False}
    found = observe(streams, streams=request_streams, lookup=lookup, include=include)
    assert (found["evlog"], found["trace"], found["timeline"]) == (None, None, None)
    found = observe(streams, streams=request_streams, lookup=lookup, include={"raw": True})
    assert found["evlog"]["events"][0]["raw"]["context"] == {}
    assert found["trace"]["spans"][0]["raw"]["signal"] == "trace.span"


def test_limits_are_kept_and_said(streams: StreamsClient, request_streams: dict[str, str]) -> None:
    found = observe(streams, streams=request_streams, lookup={"traceId": TRACE}, limits={"events": 1, "spans": 1})
    assert len(found["evlog"]["events"]) == 1
    assert len(found["trace"]["spans"]) == 1
    assert found["trace"]["partial"]
    assert found["coverage"]["warnings"] == [
        "there are more than 1 events; the first are shown",
        "there are more than 1 spans; the first are shown",
    ]
    assert not found["coverage"]["events"]["complete"]


def test_only_what_happened_in_time_is_shown(streams: StreamsClient, request_streams: dict[str, str]) -> None:
    window = {"from": "2026-03-25T10:00:09.500Z", "to": (SECOND + 20) * 1000}
    found = observe(streams, streams=request_streams, lookup={"traceId": TRACE}, time=window)
    assert (found["summary"]["events"], found["summary"]["spans"]) == (0, 1)
    found = observe(streams, streams=request_streams, lookup={"traceId": TRACE}, time=window | {"paddingMs": 2000})
    assert (found["summary"]["events"], found["summary"]["spans"]) == (1, 2)


def test_spans_that_came_twice_and_callers_that_did_not_come_are_said(
    streams: StreamsClient, request_streams: dict[str, str]
) -> None:
    streams.append(request_streams["traces"], [SPANS[1], span("c" * 16, "d" * 16, 3, 4)])
    trace = observe(streams, streams=request_streams, lookup={"traceId": TRACE})["trace"]
    assert trace["duplicateSpans"] == [{"spanId": CHILD, "count": 2}]
    assert trace["missingParents"] == ["d" * 16]
    assert trace["partial"]


def test_several_traces_of_one_request_are_said(streams: StreamsClient, request_streams: dict[str, str]) -> None:
    streams.append(request_streams["events"], {"requestId": "r1", "traceId": "e" * 32})
    found = observe(streams, streams=request_streams, lookup={"requestId": "r1"})
    assert found["summary"]["traceIds"] == [TRACE, "e" * 32]
    assert found["coverage"]["warnings"] == ["the request has 2 traces; the first is shown"]


def test_without_search_only_what_has_the_key_is_found(streams: StreamsClient, request_streams: dict[str, str]) -> None:
    events = request_streams["events"]
    streams.append(events, {"requestId": "r1", "service": "hidden"}, stream_key="elsewhere")
    assert streams.request("POST", f"{events}/_schema", {"search": None}).status_code == 200
    found = observe(streams, streams=request_streams, lookup={"requestId": "r1"})
    assert [event["service"] for event in found["evlog"]["events"]] == ["db", "web"]
    assert "cannot be searched by requestId" in found["coverage"]["warnings"][0]
    assert not found["coverage"]["events"]["complete"]


LOOKUP = {"lookup": {"requestId": "r"}, "streams": {"events": "e"}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "observe request must be valid JSON"),
        ("[" * 5000, "observe request must be valid JSON"),
        ("[]", "observe request must be a JSON object"),
        ({"x": 1}, "request.x is not supported"),
        ({"lookup": {"requestId": "r"}}, "request.streams must have events, traces, or both"),
        ({"streams": [], "lookup": {}}, "request.streams must be an object"),
        ({"streams": {"events": ""}}, "request.streams.events must be a non-empty string"),
        ({"streams": {"logs": "x"}}, "request.streams.logs is not supported"),
        (LOOKUP | {"lookup": {}}, "request.lookup must have exactly one of requestId, traceId, spanId"),
        (
            LOOKUP | {"lookup": {"requestId": "r", "spanId": "s"}},
            "request.lookup must have exactly one of requestId, traceId, spanId",
        ),
        (LOOKUP | {"lookup": {"requestId": 5}}, "request.lookup.requestId must be a non-empty string"),
        (LOOKUP | {"lookup": {"userId": "5"}}, "request.lookup.userId is not supported"),
        (LOOKUP | {"time": 5}, "request.time must be an object"),
        (LOOKUP | {"time": {"from": "noon"}}, "request.time.from must be a timestamp string or unix milliseconds"),
        (LOOKUP | {"time": {"to": True}}, "request.time.to must be a timestamp string or unix milliseconds"),
        (LOOKUP | {"time": {"from": 5, "to": 4}}, "request.time.to must be >= request.time.from"),
        (
            LOOKUP | {"time": {"paddingMs": 86_400_001}},
            "request.time.paddingMs must be an integer between 0 and 86400000",
        ),
        (LOOKUP | {"include": {"raw": 1}}, "request.include.raw must be boolean"),
        (LOOKUP | {"limits": {"events": 501}}, "request.limits.events must be an integer between 1 and 500"),
        (LOOKUP | {"limits": {"spans": 0}}, "request.limits.spans must be an integer between 1 and 10000"),
    ],
)
def test_what_is_wrong_with_a_question_is_said(streams: StreamsClient, body: object, message: str) -> None:
    assert streams.refused(400, "POST", "/v1/observe/request", body, code="bad_request") == message


def test_the_streams_must_be_there_and_of_the_right_kind(
    streams: StreamsClient, name: str, request_streams: dict[str, str]
) -> None:
    lookup = {"requestId": "r"}
    path = "/v1/observe/request"
    streams.refused(404, "POST", path, {"streams": {"events": f"{name}-none"}, "lookup": lookup}, code="not_found")
    body = {"streams": {"events": request_streams["traces"]}, "lookup": lookup}
    message = streams.refused(400, "POST", path, body, code="bad_request")
    assert message == "request.streams.events must be a stream with the profile evlog"


def test_a_key_sees_only_what_it_may(start_server: StartServer) -> None:
    server = start_server(keys="for-everything:rw,for-some-only:r:a/")
    streams, limited = StreamsClient(server.url, "for-everything"), StreamsClient(server.url, "for-some-only")
    make(streams, "a/events", {"kind": "evlog"}, EVENTS)
    make(streams, "b/events", {"kind": "evlog"}, EVENTS)
    path, lookup = "/v1/observe/request", {"requestId": "r1"}
    allowed = limited.request("POST", path, {"streams": {"events": "a/events"}, "lookup": lookup})
    assert allowed.status_code == 200
    limited.refused(403, "POST", path, {"streams": {"events": "b/events"}, "lookup": lookup}, code="forbidden")
    streams.close()
    limited.close()
