from __future__ import annotations

import tracemalloc

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
        for headers in (traced, traced.title(), traced + b"tracestate: a=%d\r\n" % number):
            assert heads.get(head(headers)) is plain, "a server without traces leaves the headers out"
    assert len(heads.known) == 1


def test_a_server_with_traces_gets_the_trace_of_each_head() -> None:
    gate = gate_with(None)
    gate.keeps_traceparent = True
    heads = Heads(gate)
    plain = heads.get(head(b""))
    assert plain is not None
    first = heads.get(head(b"Traceparent:  one\r\ntracestate: a=1\r\n"))
    second = heads.get(head(b"traceparent: two\r\n"))
    assert first is not None
    assert second is not None
    assert (first.headers[b"traceparent"].strip(), first.headers[b"tracestate"].strip()) == (b"one", b"a=1")
    assert second.headers[b"traceparent"].strip() == b"two"
    assert b"traceparent" not in plain.headers
    assert (first.route, first.path, first.length, first.access) == (plain.route, plain.path, 0, plain.access)
    assert len(heads.known) == 1


@pytest.mark.parametrize(
    "headers",
    [b"traceparent: a\r\ntraceparent: b\r\n", b"x-traceparent: a\r\n", b"x: traceparent: a\r\n", b"TRACEPARENT: a\r\n"],
)
def test_a_head_with_unusual_headers_about_traces_is_taken_as_it_is(headers: bytes) -> None:
    heads = Heads(gate_with(None))
    found = heads.get(head(headers))
    assert list(heads.known) == [head(headers)]
    assert (found is None) == (headers.count(b"traceparent:") == 2 and headers.startswith(b"trace"))


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
