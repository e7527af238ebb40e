"""Requests carry the active OpenTelemetry span of the calling program, so that a trace spans client and server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span
from support.either_client import Run
from support.server_process import ServerProcess
from support.trace_collector import TraceCollector

from strandline.client import Client
from strandline.client.caller_trace import headers_of_trace


@pytest.fixture(scope="module")
def collector() -> Iterator[TraceCollector]:
    collector = TraceCollector()
    yield collector
    collector.close()


@pytest.fixture(scope="module")
def traced(collector: TraceCollector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {
        "traces_endpoint": collector.url,
        "traces_delay_ms": 10,
        "traces_sampler": "parentbased_always_off",
    }
    process = ServerProcess(tmp_path_factory.mktemp("traced") / "data", settings=settings)
    try:
        yield process.start()
    finally:
        process.end()


def test_a_trace_spans_the_program_and_the_server(
    run: Run, traced: ServerProcess, collector: TraceCollector, name: str
) -> None:
    tracer = TracerProvider().get_tracer("shop")

    async def scenario(client: Any) -> Any:
        with tracer.start_as_current_span("checkout") as span:
            await client.topic(name).write({"item": "book"})
            return span.get_span_context()

    context = run(scenario, traced.url)
    span = collector.request_of(f"{context.trace_id:032x}")
    assert span.parent == f"{context.span_id:016x}"
    assert span.attributes["strandline.log"] == name


def test_a_watch_belongs_to_the_trace_that_opens_it(traced: ServerProcess, collector: TraceCollector) -> None:
    tracer = TracerProvider().get_tracer("shop")
    with Client(traced.url) as client:
        client.topic("watched").write(1)
        with tracer.start_as_current_span("follow") as span, client.watch({"watched": 0}) as watch:
            assert next(iter(watch))
    trace = f"{span.get_span_context().trace_id:032x}"
    names = {each.name for each in collector.wait(lambda spans: len([s for s in spans if s.trace == trace]) >= 2)}
    assert "POST /v0/watch" in names


def test_headers_have_the_flags_and_the_state_of_the_trace() -> None:
    state = TraceState([("vendor", "1"), ("other", "2")])
    context = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED), trace_state=state)
    with use_span(NonRecordingSpan(context)):
        assert headers_of_trace() == [
            (b"traceparent", b"00-00000000000000000000000000000001-0000000000000002-01"),
            (b"tracestate", b"vendor=1,other=2"),
        ]
    context = SpanContext(1, 2, is_remote=False)
    with use_span(NonRecordingSpan(context)):
        assert headers_of_trace() == [(b"traceparent", b"00-00000000000000000000000000000001-0000000000000002-00")]
    assert headers_of_trace() == []


def test_a_header_of_the_client_itself_comes_first(traced: ServerProcess, collector: TraceCollector) -> None:
    own = "00-000000000000000000000000000000aa-00000000000000bb-01"
    context = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    with use_span(NonRecordingSpan(context)), Client(traced.url, headers={"Traceparent": own}) as client:
        list(client.topics())
    assert collector.request_of(f"{0xAA:032x}").parent == f"{0xBB:016x}"


def test_the_client_does_not_import_opentelemetry() -> None:
    program = (
        "import sys; from strandline.client.caller_trace import headers_of_trace; "
        "assert headers_of_trace() == []; assert 'opentelemetry.trace' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
