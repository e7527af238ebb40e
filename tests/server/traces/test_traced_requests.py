"""Requests of every protocol, in both lanes: each has the same span, at a collector that gets it over HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from support.every_protocol import COLLECTIONS, Request
from support.server_process import ServerProcess, Share, StartServer
from support.tables_client import POLLS
from support.topics_client import Client, eventually
from support.trace_collector import INTERNAL, SERVER, ReceivedSpan, TraceCollector
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

pytestmark = pytest.mark.both_lanes

PARENT = "00f067aa0ba902b7"
SAMPLED, NOT_SAMPLED = "01", "00"
#: Longer than all buffers between a server and a client together.
LARGE_RECORDS, LARGE_RECORD = 24, "x" * 900_000
_numbers = count(1)


class Traced(NamedTuple):
    server: ServerProcess
    collector: TraceCollector
    http: httpx.Client

    def send(self, request: Request, **headers: str) -> tuple[httpx.Response, str]:
        """Send a request as a part of a new trace. Returns the answer and the id of the trace."""
        trace = new_trace()
        content = None
        if request.body is not None:
            content = request.body if isinstance(request.body, bytes) else json.dumps(request.body).encode()
            headers["content-type"] = request.content_type
        headers.setdefault("traceparent", parent_of(trace))
        return self.http.request(request.method, request.path, content=content, headers=headers), trace

    def span_of(self, request: Request) -> ReceivedSpan:
        _, trace = self.send(request)
        return self.collector.request_of(trace)

    def parts_of(self, request: Request, name: str) -> list[ReceivedSpan]:
        """The parts of the span of a request with this name."""
        span = self.span_of(request)
        found = [part for part in self.collector.trace(span.trace) if part.kind == INTERNAL and part.name == name]
        assert all(part.parent == span.id for part in found)
        assert all(span.start <= part.start <= part.end <= span.end for part in found)
        return found


def new_trace() -> str:
    return f"{(0x4BF9 << 112) + next(_numbers):032x}"


def parent_of(trace: str, flags: str = SAMPLED) -> str:
    return f"00-{trace}-{PARENT}-{flags}"


@pytest.fixture(scope="session")
def collector() -> Iterator[TraceCollector]:
    collector = TraceCollector()
    yield collector
    collector.close()


@pytest.fixture(scope="session")
def traced(lane: str, share: Share, memory: Path, collector: TraceCollector) -> Iterator[Traced]:
    """A server that traces what its callers trace."""
    config = memory / "traced-collections.json"
    config.write_text(json.dumps(COLLECTIONS))
    settings = {
        "traces_endpoint": collector.url,
        "traces_delay_ms": 10,
        "traces_sampler": "parentbased_always_off",
        "declare": POLLS,
        "config_file": config,
        "access_log": True,
        "log_format": "json",
        "max_sse_connections": 4,
    }
    server = share(ServerProcess(memory / f"traced-{lane}", fast_lane=lane == "fast", settings=settings))
    user = {"strandline-user": "ann"}
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False, headers=user) as http:
        traced = Traced(server, collector, http)
        for request in PREPARED:
            response, _ = traced.send(request, traceparent="")
            assert response.is_success, response.text
        yield traced


PREPARED = [
    Request("POST", "/v0/topics/seen", {"records": [{"data": 1}]}),
    Request("PUT", "/v1/stream/pages", [{"page": "/"}]),
    Request("POST", "/v0/topics/quiet", {"records": [{"data": 1}]}),
    Request("POST", "/push/open/seen", {"data": {"a": 1}}),
]
#: A request of each kind: its protocol, its route, its status, and the log.
REQUESTS: dict[str, tuple[Request, str, str, int, str | None]] = {
    "topics write": (
        Request("POST", "/v0/topics/new", {"records": [{"data": 1}]}), "topics", "/v0/topics/{topic}", 200, "new"
    ),
    "topics read": (
        Request("POST", "/v0/topics/seen/diff", {"from_seq": 0}), "topics", "/v0/topics/{topic}/diff", 200, "seen"
    ),
    "topics list": (Request("GET", "/v0/topics"), "topics", "/v0/topics", 200, None),
    "topics refusal": (
        Request("POST", "/v0/topics/absent/diff", {"from_seq": 0}), "topics", "/v0/topics/{topic}/diff", 404, "absent"
    ),
    "topics bad body": (Request("POST", "/v0/topics/seen", b"{"), "topics", "/v0/topics/{topic}", 400, "seen"),
    "streams append": (Request("POST", "/v1/stream/pages", [{"a": 1}]), "streams", "/v1/stream/{name}", 204, "pages"),
    "streams read": (Request("GET", "/v1/stream/pages?offset=-1"), "streams", "/v1/stream/{name}", 200, "pages"),
    "streams head": (Request("HEAD", "/v1/stream/pages"), "streams", "/v1/stream/{name}", 200, "pages"),
    "collections push": (
        Request("POST", "/push/open/seen", {"data": {"a": 1}}), "collections", "/push/{path}", 200, None
    ),
    "collections pull": (Request("GET", "/pull/open/seen?last=1"), "collections", "/pull/{path}", 200, None),
    "tables append": (
        Request("POST", "/tables/poll/append", {"parent": "site", "payload": {"title": "a"}}),
        "tables", "/tables/poll/append", 200, None,
    ),
    "tables read": (
        Request("GET", "/tables/poll/auth/listAfter?parent=site"),
        "tables", "/tables/poll/auth/listAfter", 200, None,
    ),
    "arrow read": (Request("GET", "/arrow/records/seen"), "arrow", "/arrow/records/{name}", 200, "seen"),
    "console": (Request("GET", "/console/api/log/seen"), "console", "/console/api/log/{name}", 200, "seen"),
    "metrics": (Request("GET", "/v0/metrics"), "server", "/v0/metrics", 200, None),
    "another media type": (
        Request("POST", "/v0/topics/seen", b"x", "text/plain"), "topics", "/v0/topics/{topic}", 415, "seen"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_has_a_span_in_the_trace_of_its_caller(traced: Traced, kind: str) -> None:
    request, protocol, route, status, log = REQUESTS[kind]
    response, trace = traced.send(request)
    span = traced.collector.request_of(trace)
    address = httpx.URL(traced.server.url)
    expected = {
        "http.request.method": request.method,
        "http.route": route,
        "http.response.status_code": response.status_code,
        "url.path": request.path.partition("?")[0],
        "url.scheme": "http",
        "server.address": address.host,
        "server.port": address.port,
        "network.peer.address": "127.0.0.1",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "strandline.protocol": protocol,
        **({} if log is None else {"strandline.log": log}),
    }
    assert span.attributes == expected
    assert response.status_code in (status, 201), response.text
    assert (span.name, span.kind, span.parent, span.status) == (f"{request.method} {route}", SERVER, PARENT, 0)
    assert span.start < span.end
    assert traced.collector.resource["service.name"] == "strandline"


@pytest.mark.parametrize(
    "traceparent",
    [
        parent_of(new_trace(), NOT_SAMPLED),
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{new_trace()}-{'0' * 16}-01",
        f"ff-{new_trace()}-{PARENT}-01",
        f"00-{new_trace().upper()}-{PARENT}-01",
        f"00-{new_trace()}-{PARENT}-01-more",
        "nonsense",
        "",
    ],
)
def test_a_request_whose_caller_does_not_trace_it_has_no_span(traced: Traced, traceparent: str) -> None:
    before = len(traced.collector.spans)
    request = Request("POST", "/v0/topics/untraced", {"records": [{"data": 1}]})
    response, _ = traced.send(request, traceparent=traceparent)
    assert response.is_success
    # Spans are sent in the order in which they end.
    traced.span_of(Request("GET", "/v0/topics"))
    later = traced.collector.spans[before:]
    assert "untraced" not in [span.attributes.get("strandline.log") for span in later]


def test_a_trace_may_come_from_a_later_version_and_has_a_state(traced: Traced) -> None:
    trace = new_trace()
    request = Request("POST", "/v0/topics/seen/diff", {"from_seq": 0})
    traced.send(request, traceparent=f"01-{trace}-{PARENT}-03-more", tracestate="vendor=1,other=2")
    span = traced.collector.request_of(trace)
    assert (span.parent, span.state) == (PARENT, "vendor=1,other=2")


def test_requests_with_the_same_head_have_spans_of_their_own(traced: Traced) -> None:
    request = Request("POST", "/v0/topics/seen/diff", {"from_seq": 0})
    spans = [traced.span_of(request) for _ in range(3)]
    assert len({span.trace for span in spans}) == len({span.id for span in spans}) == 3


def test_no_secret_of_a_request_is_in_its_span(traced: Traced) -> None:
    response, trace = traced.send(
        Request("GET", "/v1/stream/pages?offset=-1&token=geheim"), authorization="Bearer geheim", cookie="geheim"
    )
    assert response.is_success
    assert "geheim" not in repr(traced.collector.request_of(trace))


def test_a_path_without_a_route_and_an_unknown_method_do_not_become_names(traced: Traced) -> None:
    span = traced.span_of(Request("GET", "/nothing/here"))
    assert (span.name, span.attributes["http.response.status_code"]) == ("GET", 404)
    assert "http.route" not in span.attributes
    span = traced.span_of(Request("PROPFIND", "/v0/topics"))
    assert (span.name, span.attributes["http.request.method"]) == ("HTTP", "_OTHER")
    assert span.attributes["http.request.method_original"] == "PROPFIND"


# --- the parts of a request ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        Request("POST", "/v0/topics/safe", {"records": [{"data": 1}], "config": {"durability": "fsync"}}),
        Request("PUT", "/v1/stream/safe-pages", [{"a": 1}]),
        Request("POST", "/v1/stream/pages", [{"a": 1}]),
        Request("POST", "/tables/poll/append", {"parent": "site", "payload": {"title": "a"}}),
        Request("POST", "/push/open/safe", {"data": {"a": 1}}),
    ],
    ids=["topics", "stream", "append to a stream", "tables", "collections"],
)
def test_the_wait_for_a_flush_is_a_part_of_a_write(traced: Traced, request_: Request) -> None:
    # A client that is alone and writes twice in a row flushes on the event loop, without a wait.
    traced.span_of(Request("GET", "/v0/topics"))
    assert len(traced.parts_of(request_, "commit")) == 1


def test_the_wait_for_records_is_a_part_of_a_long_poll(traced: Traced) -> None:
    for request in (
        Request("POST", "/v0/topics/quiet/diff", {"from_seq": 1, "wait_ms": 20}),
        Request("GET", "/v1/stream/pages?offset=now&live=long-poll&timeout=20ms"),
    ):
        # A poll that wakes up without a record waits again.
        waits = traced.parts_of(request, "wait for records")
        assert sum(wait.end - wait.start for wait in waits) > 10_000_000


def test_a_search_and_other_work_on_threads_are_parts(traced: Traced) -> None:
    schema = {"type": "object"}
    field = {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/page"}]}
    traced.send(Request("PUT", "/v1/stream/visits", b""))
    config = {"schema": schema, "search": {"fields": {"page": field}}}
    response, _ = traced.send(Request("POST", "/v1/stream/visits/_schema", config))
    assert response.is_success, response.text
    traced.send(Request("POST", "/v1/stream/visits", [{"page": "/"}]))
    (search,) = traced.parts_of(Request("GET", "/v1/stream/visits/_search?q=page:/pay"), "search")
    assert search.attributes["strandline.work_class"] == "bulk"
    work = traced.parts_of(Request("GET", "/v0/metrics"), "work")
    assert {part.attributes["strandline.work_class"] for part in work} >= {"urgent"}
    assert all(part.attributes["strandline.waited_seconds"] >= 0 for part in work)


# --- answers that stay open ----------------------------------------------------------------------------------------


def test_the_span_of_a_live_response_ends_when_it_begins(traced: Traced) -> None:
    trace = new_trace()
    headers = {"traceparent": parent_of(trace)}
    with traced.http.stream("GET", "/v1/stream/pages?offset=now&live=sse", headers=headers) as response:
        assert response.status_code == 200
        span = traced.collector.request_of(trace)
    assert span.attributes["http.response.status_code"] == 200


def test_the_span_of_a_long_answer_ends_with_it(traced: Traced) -> None:
    traced.http.put("/v1/stream/long", headers={"content-type": "application/json"}).raise_for_status()
    for _ in range(LARGE_RECORDS):
        traced.http.post("/v1/stream/long", json=[LARGE_RECORD]).raise_for_status()
    trace = new_trace()
    head = f"GET /v1/stream/long?offset=-1 HTTP/1.1\r\nhost: localhost\r\ntraceparent: {parent_of(trace)}\r\n\r\n"
    address = httpx.URL(traced.server.url)
    with socket.create_connection((address.host, address.port)) as line:
        line.sendall(head.encode())
        assert line.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        traced.span_of(Request("GET", "/v0/topics"))
        assert [span for span in traced.collector.trace(trace) if span.kind == SERVER] == []
        tail = b""
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            tail = tail[-16:] + line.recv(1 << 20)
        span = traced.collector.request_of(trace)
    assert span.attributes["strandline.log"] == "long"


def test_a_websocket_has_a_span_for_its_opening(traced: Traced) -> None:
    trace = new_trace()
    url = traced.server.url.replace("http", "ws") + "/v0/ws"
    with connect(url, additional_headers={"traceparent": parent_of(trace)}):
        span = traced.collector.request_of(trace)
    assert (span.name, span.attributes["http.response.status_code"]) == ("GET /v0/ws", 101)
    trace = new_trace()
    refused = {"traceparent": parent_of(trace), "origin": "https://elsewhere.example"}
    with pytest.raises(InvalidStatus), connect(url, additional_headers=refused):
        pass
    assert traced.collector.request_of(trace).attributes["http.response.status_code"] == 403


# --- logs and metrics ----------------------------------------------------------------------------------------------


def test_the_access_log_has_the_ids_of_the_trace_and_the_span(traced: Traced) -> None:
    for request in (Request("POST", "/v0/topics/seen/diff", {"from_seq": 0}), Request("PUT", "/v1/stream/logged", [])):
        span = traced.span_of(request)
        lines = [json.loads(line) for line in traced.server.log().splitlines() if span.trace in line]
        assert [(line["trace_id"], line["span_id"]) for line in lines] == [(span.trace, span.id)]
        assert lines[0]["path"] == request.path
    response, _ = traced.send(Request("GET", "/v0/topics"), traceparent="")
    assert response.is_success
    last = json.loads([line for line in traced.server.log().splitlines() if '"/v0/topics"' in line][-1])
    assert "trace_id" not in last


def test_metrics_count_spans(traced: Traced) -> None:
    traced.span_of(Request("GET", "/v0/topics"))
    client = Client(traced.server.url)

    def counted() -> dict[str, int]:
        found: dict[str, int] = client.call("GET", "/v0/metrics", headers={"accept": "application/json"})["traces"]
        return found

    assert eventually(lambda: counted()["spans_sent_total"]) > 0
    assert counted()["spans_dropped_total"] == 0
    text = client.http.get("/v0/metrics", headers={"accept": "text/plain"}).text
    assert "strandline_traces_spans_dropped_total 0\n" in text
    client.close()


# --- API keys ------------------------------------------------------------------------------------------------------


def test_a_server_with_traces_checks_api_keys(lane: str, start_server: StartServer, collector: TraceCollector) -> None:
    server = start_server(keys="secret:rw", lane=lane, traces_endpoint=collector.url, traces_delay_ms=10)
    requests = [Request("POST", "/v0/topics/t", {"records": [{"data": 1}]}), Request("GET", "/v0/topics")]
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        traced = Traced(server, collector, http)
        for request in requests:
            for key, succeeds in (("wrong", False), ("secret", True), ("wrong", False), ("secret", True)):
                response, trace = traced.send(request, authorization=f"Bearer {key}")
                assert response.is_success == succeeds
                span = collector.request_of(trace)
                assert span.attributes["http.response.status_code"] == response.status_code
                assert key not in repr(span)


def test_probes_have_no_spans_of_their_own(lane: str, start_server: StartServer) -> None:
    collector = TraceCollector()
    server = start_server(lane=lane, traces_endpoint=collector.url, traces_delay_ms=10)
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        traced = Traced(server, collector, http)
        for path in ("/v0/health", "/v0/ready", "/v0/topics"):
            assert http.get(path).is_success
        probed = traced.span_of(Request("GET", "/v0/ready"))
    assert [span.name for span in collector.spans if span.kind == SERVER] == ["GET /v0/topics", "GET /v0/ready"]
    assert probed.parent == PARENT
    collector.close()


# --- sealed records, and another server as the collector -----------------------------------------------------------


def test_reads_of_sealed_records_are_parts(
    tmp_path: Path, lane: str, start_server: StartServer, collector: TraceCollector
) -> None:
    options = {
        "lane": lane,
        "data": tmp_path / "data",
        "traces_endpoint": collector.url,
        "traces_delay_ms": 10,
        "journal_bytes": 65_536,
        "cold_url": str(tmp_path / "cold"),
        "hot_segments": 0,
    }
    server = start_server(**options)
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as http:
        http.put("/v1/stream/s", headers={"content-type": "application/json"}).raise_for_status()
        before = len(collector.spans)
        for _ in range(12):
            http.post("/v0/topics/t", json={"records": [{"data": "x" * 10_000}]}).raise_for_status()
            http.post("/v1/stream/s", json=["x" * 10_000]).raise_for_status()
        collector.wait(lambda spans: any(span.name == "upload to the cold tier" for span in spans[before:]))
    for request in (
        Request("POST", "/v0/topics/t/diff", {"from_seq": 0, "limit": 1}),
        Request("GET", "/v1/stream/s?offset=-1"),
    ):
        # A server that has just started has no records in its caches.
        assert server.stop() == 0
        server.start()
        with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as http:
            span = Traced(server, collector, http).span_of(request)
        names = {part.name for part in collector.trace(span.trace) if part.kind == INTERNAL}
        assert {"read", "fetch from the cold tier"} <= names


def test_another_server_takes_the_spans(traced: Traced, lane: str, start_server: StartServer) -> None:
    traced.http.put("/v1/stream/traces", headers={"content-type": "application/json"}).raise_for_status()
    traced.http.post("/v1/stream/traces/_profile", json={"profile": {"kind": "otel-traces"}}).raise_for_status()
    endpoint = f"{traced.server.url}/v1/stream/traces/_otlp/v1/traces"
    server = start_server(lane=lane, traces_endpoint=endpoint, traces_delay_ms=10, traces_service="events")
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        other = Traced(server, traced.collector, http)
        _, trace = other.send(Request("POST", "/v0/topics/t", {"records": [{"data": 1}]}))
    found = eventually(lambda: traced.http.get(f"/v1/stream/traces/pk/{trace}").json())
    (span,) = [span for span in found if span["kind"] == "server"]
    assert (span["name"], span["service"], span["parentSpanId"]) == ("POST /v0/topics/{topic}", "events", PARENT)
