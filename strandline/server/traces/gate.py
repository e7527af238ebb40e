"""The gate of a server with traces: it begins the span of a request that is traced, and ends it with the answer.

A server without traces has the plain gate, so it does nothing for them.

The span of a request begins when its head is complete. It ends when the answer is ready to be sent; for an answer that
is sent in pieces and has an end of its own, when the last piece is sent; for a live response, which may stay open for
days, when it begins. So a live response does not distort the durations of requests, and its span arrives at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from time import perf_counter_ns
from typing import Any

from strandline.server.gate import Gate, Send
from strandline.server.traces.sampling import SampledTracer
from strandline.service.http import Answer, Call, Head, Later, Reply, Sink, StreamedAnswer
from strandline.service.problems import Headers
from strandline.spans import Inside, Span

#: The methods that OpenTelemetry knows. All others are the same to it, so that clients cannot make up span names.
METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
OTHER_METHOD = "_OTHER"
#: A longer path is cut.
MAX_PATH = 1024
MAX_PORT_DIGITS = 5


class TracedCall(Call):
    """A request that is traced."""

    __slots__ = ("handled", "span")

    def __init__(self, call: Call, span: Span) -> None:
        super().__init__(call.head, call.body, call.started, call.peer)
        self.held = call.held
        self.span = span
        #: When the handler returned without an answer; 0: it has not.
        self.handled = 0


class TracedGate(Gate):
    """``scheme`` is that of the URLs of the server."""

    keeps_traceparent = True

    def __init__(self, *arguments: Any, tracer: SampledTracer, scheme: str, **named: Any) -> None:
        self._tracer = tracer
        self._scheme = scheme
        super().__init__(*arguments, **named)

    def enter(self, head: Head, peer: str = "", connection: int = 0, *, awaits_body: bool = False) -> Call | Reply:
        span = self._tracer.request(head.headers)
        if span is None:
            return super().enter(head, peer, connection, awaits_body=awaits_body)
        with Inside(span):
            entered = super().enter(head, peer, connection, awaits_body=awaits_body)
        if not span.parent_id and head.route is not None and head.route.probe:
            # Probes come every few seconds. They are traced only if their caller records the trace.
            return entered
        if isinstance(entered, Call):
            return TracedCall(entered, span)
        self._end(span, head, peer, entered.status)
        return entered

    def answer(self, call: Call, body: bytes, send: Send) -> None:
        if not isinstance(call, TracedCall):
            super().answer(call, body, send)
            return
        with Inside(call.span):
            super().answer(call, body, partial(self._send, call, send))
        call.handled = perf_counter_ns()

    def _settled(self, call: Call, send: Send, later: Later) -> None:
        if not isinstance(call, TracedCall):
            super()._settled(call, send, later)
            return
        if later.part and call.handled:
            waited = call.span.part(later.part, call.handled)
            if waited is not None:
                waited.end()
        with Inside(call.span):
            super()._settled(call, send, later)

    def open_socket(self, head: Head, peer: str) -> Callable[[int], None]:
        span = self._tracer.request(head.headers)
        if span is None:
            return super().open_socket(head, peer)
        span.attributes["http.route"] = head.path
        return partial(self._end, span, head, peer)

    def _send(self, call: TracedCall, send: Send, _: Call, answer: Answer) -> None:
        end = partial(self._end, call.span, call.head, call.peer)
        if isinstance(answer, Reply):
            end(answer.status)
        elif answer.finite and call.head.method != "HEAD":
            answer = TracedAnswer(answer, partial(end, 200))
        else:
            end(200)
        send(call, answer)

    def _end(self, span: Span, head: Head, peer: str, status: int) -> None:
        """End the span of a request. The attributes are those of OpenTelemetry's conventions for HTTP servers. The
        query is left out, because it may contain an API key."""
        method = head.method if head.method in METHODS else OTHER_METHOD
        attributes = span.attributes
        attributes["http.request.method"] = method
        attributes["http.response.status_code"] = status
        attributes["url.path"] = head.path[:MAX_PATH]
        attributes["url.scheme"] = self._scheme
        attributes["network.protocol.name"] = "http"
        attributes["network.protocol.version"] = "1.1" if head.takes_chunks else "1.0"
        if peer:
            attributes["network.peer.address"] = peer
        host = head.headers.get(b"host")
        if host is not None:
            attributes["server.address"], port = _address(host)
            if port:
                attributes["server.port"] = port
        if method == OTHER_METHOD:
            attributes["http.request.method_original"] = head.method
        route, meter = head.route, head.meter
        if route is not None:
            attributes["http.route"] = route.path
            name = head.params.get("topic") or head.params.get("name")
            if name:
                attributes["strandline.log"] = name
        if meter is not None:
            attributes["strandline.protocol"] = meter.protocol
        shown = attributes.get("http.route", "")
        verb = "HTTP" if method == OTHER_METHOD else method
        span.name = f"{verb} {shown}" if shown else verb
        if status >= 500:
            attributes["error.type"] = str(status)
        span.end(f"HTTP {status}" if status >= 500 else None)


class TracedAnswer(StreamedAnswer):
    """An answer in pieces whose span ends with it."""

    __slots__ = ("_answer", "_end", "content_type", "headers")
    finite = True

    def __init__(self, answer: StreamedAnswer, end: Callable[[], None]) -> None:
        self._answer = answer
        self._end = end
        self.content_type = answer.content_type
        self.headers: Headers = answer.headers

    def opened(self, sink: Sink) -> None:
        self._answer.opened(sink)

    def resumed(self) -> None:
        self._answer.resumed()

    def closed(self) -> None:
        self._end()
        self._answer.closed()

    @property
    def waiting_bytes(self) -> int:
        return self._answer.waiting_bytes

    def too_slow(self, grace: float) -> None:
        self._answer.too_slow(grace)

    def disconnect(self) -> None:
        self._answer.disconnect()


@lru_cache(maxsize=256)
def _address(host: bytes) -> tuple[str, int]:
    """The name and the port in a `Host` header; port 0: none."""
    text = host.decode("latin-1")
    name, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and len(port) <= MAX_PORT_DIGITS and not name.endswith(":"):
        return name.strip("[]"), int(port)
    return text.strip("[]"), 0
