"""Spans of background work: rounds of housekeeping, uploads to the cold tier and to a replica, and indexing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.server_process import StartServer
from support.topics_client import Client
from support.trace_collector import INTERNAL, ReceivedSpan, TraceCollector

#: Enough to seal several segments.
WRITES, RECORD = 12, "x" * 10_000


@pytest.fixture
def collector() -> Iterator[TraceCollector]:
    collector = TraceCollector()
    yield collector
    collector.close()


def named(spans: list[ReceivedSpan], name: str) -> list[ReceivedSpan]:
    return [span for span in spans if span.name == name]


def test_background_work_has_spans(tmp_path: Path, start_server: StartServer, collector: TraceCollector) -> None:
    server = start_server(
        traces_endpoint=collector.url,
        traces_delay_ms=10,
        journal_bytes=65_536,
        segment_bytes=65_536,
        hot_segments=0,
        cold_url=str(tmp_path / "cold"),
        replica=str(tmp_path / "replica"),
        replica_interval_ms=0,
    )
    client = Client(server.url)
    for _ in range(WRITES):
        client.write("log", [{"data": RECORD}])
    expected = {"housekeeping", "upload to the cold tier", "upload to the replica", "upload of files to the replica"}
    spans = collector.wait(lambda spans: expected <= {span.name for span in spans})
    round_ = named(spans, "housekeeping")[0]
    assert (round_.parent, round_.kind, round_.status) == ("", INTERNAL, 0)
    parts = [span for span in collector.trace(round_.trace) if span.parent == round_.id]
    assert {"seal", "checkpoint"} <= {span.name for span in parts}
    assert all(round_.start <= span.start <= span.end <= round_.end for span in parts)
    client.close()


def test_a_server_that_traces_no_new_traces_has_no_spans_of_background_work(
    start_server: StartServer, collector: TraceCollector
) -> None:
    server = start_server(
        traces_endpoint=collector.url, traces_delay_ms=10, journal_bytes=65_536, traces_sampler="parentbased_always_off"
    )
    client = Client(server.url)
    for _ in range(WRITES):
        client.write("log", [{"data": RECORD}])
    client.close()
    assert server.stop() == 0
    assert collector.spans == []
