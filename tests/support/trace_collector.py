"""An OpenTelemetry collector on the loopback: OTLP over HTTP. It keeps the spans, and answers what it is told to."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from support.topics_client import PATIENCE_SECONDS

INTERNAL, SERVER = 1, 2
ERROR = 2


class ReceivedSpan(NamedTuple):
    """A span as it arrived. Ids are in hexadecimal; times in nanoseconds."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    status: int
    state: str


class TraceCollector:
    """``statuses`` are those of the next answers; then all is well. ``rejects`` is how many spans the next answer says
    that it does not take."""

    def __init__(self, port: int = 0) -> None:
        self.statuses: list[int] = []
        self.rejects = 0
        self.headers: list[dict[str, str]] = []
        self.resource: dict[str, Any] = {}
        self._spans: list[ReceivedSpan] = []
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, answer = collector._take(self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        headers = {name.lower(): value for name, value in headers.items()}
        assert path == "/v1/traces", path
        assert headers["content-type"] == "application/x-protobuf"
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.headers.append(headers)
            status = self.statuses.pop(0) if self.statuses else 200
            rejects, self.rejects = self.rejects, 0
            if status == 200:
                for resource in request.resource_spans:
                    self.resource = _attributes(resource.resource.attributes)
                    self._spans += [_received(span) for scope in resource.scope_spans for span in scope.spans]
            self._changed.notify_all()
        answer = ExportTraceServiceResponse()
        if rejects:
            answer.partial_success.rejected_spans = rejects
            answer.partial_success.error_message = "too many attributes"
        return status, answer.SerializeToString()

    @property
    def spans(self) -> list[ReceivedSpan]:
        """All spans so far."""
        with self._changed:
            return list(self._spans)

    def trace(self, trace: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace == trace]

    def wait(self, is_complete: Callable[[list[ReceivedSpan]], object]) -> list[ReceivedSpan]:
        """All spans, once the condition holds for them."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: is_complete(self._spans), PATIENCE_SECONDS)
            assert arrived, f"not in time: {self._spans}"
            return list(self._spans)

    def request_of(self, trace: str) -> ReceivedSpan:
        """The span of the request with this trace, once it has arrived."""

        def found(spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
            return [span for span in spans if span.trace == trace and span.kind == SERVER]

        (span,) = found(self.wait(found))
        return span

    def wait_for_requests(self, number: int) -> None:
        """Wait until the server has sent this number of requests, whatever the answers were."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.headers) >= number, PATIENCE_SECONDS)


def _received(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        span.status.code,
        span.trace_state,
    )


def _attributes(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
