from __future__ import annotations

import tracemalloc

import httptools
import pytest

from strandline.server import fast_lane
from strandline.server.fast_lane import Heads
from strandline.server.gate import Gate, Status
from strandline.service.access import Keys
from strandline.service.http import Reply, Route
from strandline.service.limits import Limits
from strandline.service.workers import Workers

ROUTE = Route(method="POST", path="/v0/topics/{topic}", handler=lambda _: Reply(b""), fast=True, body="required")


@pytest.mark.parametrize("keys", [None, "secret:rw"])
@pytest.mark.parametrize("path", ["/v0/topics/t%d", "/v0/elsewhere/%d"])
def test_remembered_heads_stay_within_their_budget(
    monkeypatch: pytest.MonkeyPatch, keys: str | None, path: str
) -> None:
    """Heads with as many small headers as fit take far more memory than they have bytes."""
    budget = 2 << 20
    monkeypatch.setattr(fast_lane, "MAX_HEADS_BYTES", budget)
    heads = Heads(gate_with(keys))
    headers = b"content-type: application/json\r\n" + b"".join(b"h%d:%d\r\n" % (n, n) for n in range(330))
    tracemalloc.start()
    try:
        for number in range(300):
            raw = b"POST " + (path % number).encode() + b" HTTP/1.1\r\nhost: localhost\r\n" + headers + b"\r\n"
            assert len(raw) <= fast_lane.MAX_HEAD_BYTES
            heads.get(raw)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert heads.known
    assert size < 1.5 * budget
    assert heads.get(raw) is heads.get(raw), "the last one is remembered"


def test_heads_that_differ_only_in_their_trace_are_remembered_as_one() -> None:
    heads = Heads(gate_with(None))
    plain = heads.get(head(b""))
    assert plain is not None
    for number in range(1, 50):
        traced = b"traceparent: 00-%032x-%016x-01\r\n" % (number, number)
        for headers in (traced, b"T" + traced[1:], traced + b"tracestate: a=%d\r\n" % number):
            assert heads.get(head(headers)) is plain, "a server without traces leaves the headers out"
    assert len(heads.known) == 1


def test_a_server_with_traces_gets_the_trace_of_each_head() -> None:
    gate = gate_with(None)
    gate.keeps_traceparent = True
    heads = Heads(gate)
    plain = heads.get(head(b""))
    assert plain is not None
    first = heads.get(head(b"Traceparent:  00-a-1\r\ntracestate: a=1\r\n"))
    second = heads.get(head(b"traceparent: 00-b-1\r\n"))
    assert first is not None
    assert second is not None
    assert (first.headers[b"traceparent"].strip(), first.headers[b"tracestate"].strip()) == (b"00-a-1", b"a=1")
    assert second.headers[b"traceparent"].strip() == b"00-b-1"
    assert b"traceparent" not in plain.headers
    assert (first.route, first.path, first.length, first.access) == (plain.route, plain.path, 0, plain.access)
    assert len(heads.known) == 1


@pytest.mark.parametrize(
    "headers",
    [
        b"traceparent: a\r\ntraceparent: b\r\n",
        b"traceparent: a\r\ntracestate: a\r\ntracestate: b\r\n",
        b"x-traceparent: a\r\n",
        b"x: traceparent: a\r\n",
        b"TRACEPARENT: a\r\n",
        b"traceparent: a\ncontent-length: 5\r\n",
        b"traceparent: a\rcontent-length: 5\r\n",
        b"traceparent: a\r\n b\r\n",
        b"traceparent: a\r\n\tb\r\n",
        b"traceparent: a\r\ntracestate: a\n b\r\n",
        b"traceparent: a\x00\r\n",
        b"traceparent: \xff\r\n",
    ],
)
def test_the_parser_sees_a_head_with_unusual_headers_about_traces(headers: bytes) -> None:
    plain, traced = Heads(gate_with(None)), Heads(gate_with(None))
    traced._gate.keeps_traceparent = True
    for heads in (plain, traced):
        found = heads.get(head(headers))
        assert list(heads.known) == [head(headers)]
        assert found is None or found.headers == parsed(head(headers))


def parsed(raw: bytes) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}

    class Protocol:
        def on_header(self, name: bytes, value: bytes) -> None:
            headers[name.lower()] = value

    httptools.HttpRequestParser(Protocol()).feed_data(raw)
    return headers


def gate_with(keys: str | None) -> Gate:
    return Gate(
        [ROUTE],
        keys=None if keys is None else Keys.parse(keys),
        limits=Limits(),
        status=Status(ready=True),
        workers=Workers(),
        max_body_bytes=1 << 20,
    )


def head(further: bytes) -> bytes:
    fixed = b"host: localhost\r\ncontent-type: application/json\r\n"
    return b"POST /v0/topics/t HTTP/1.1\r\n" + fixed + further + b"content-length: 0\r\n\r\n"
