"""The exporter: a queue with a bound, a collector that is away, and one that does not take spans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.topics_client import eventually
from support.trace_collector import TraceCollector

from strandline.server.traces import exporter as exporter_module
from strandline.server.traces.exporter import MAX_BATCH, MAX_WAITING, Exporter
from strandline.server.traces.otlp import TraceMessages
from strandline.spans import Span

SHORT_SECONDS = 0.005


@pytest.fixture
def collector() -> Iterator[TraceCollector]:
    collector = TraceCollector()
    yield collector
    collector.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter_module, "FIRST_PAUSE_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(exporter_module, "MAX_PAUSE_SECONDS", SHORT_SECONDS)


def exporter_to(url: str, delay: float = SHORT_SECONDS) -> Exporter:
    return Exporter(f"{url}/v1/traces", {"x-key": "secret"}, TraceMessages({"service.name": "s"}), delay)


@contextmanager
def started(exporter: Exporter) -> Iterator[Exporter]:
    exporter.start()
    try:
        yield exporter
    finally:
        exporter.close()


def record(exporter: Exporter, number: int = 1) -> None:
    for _ in range(number):
        span = Span("work", 1, 0, exporter.collect)
        span.attributes |= {"text": "ä\udc80", "number": 1, "share": 0.5, "flag": True}
        span.end("broken")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == exporter_module.__name__]


def test_spans_arrive_as_they_were_recorded(collector: TraceCollector) -> None:
    with started(exporter_to(collector.url)) as exporter:
        record(exporter)
        (span,) = collector.wait(lambda spans: spans)
        assert (span.name, span.status, span.parent) == ("work", 2, "")
        assert span.attributes == {"text": "ä?", "number": 1, "share": 0.5, "flag": True}
        assert collector.resource == {"service.name": "s"}
        assert collector.headers[0]["x-key"] == "secret"
        # A server that is its own collector does not trace these requests.
        assert collector.headers[0]["traceparent"].endswith("-00")
        assert eventually(lambda: exporter.stats.sent == 1)
        assert exporter.stats == (1, 0, 0)


def test_a_full_batch_does_not_wait_and_the_rest_is_sent_at_the_end(collector: TraceCollector) -> None:
    exporter = exporter_to(collector.url, delay=600)
    with started(exporter):
        record(exporter, MAX_BATCH)
        collector.wait(lambda spans: len(spans) == MAX_BATCH)
        record(exporter)
    assert len(collector.spans) == MAX_BATCH + 1
    assert exporter.stats == (MAX_BATCH + 1, 0, 0)


def test_a_collector_that_is_away_costs_spans_and_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    collector = TraceCollector()
    port = collector.port
    collector.close()
    exporter = exporter_to(collector.url)
    record(exporter, MAX_WAITING + 5)
    assert exporter.stats == (0, 5, MAX_WAITING)
    with started(exporter):
        eventually(lambda: messages(caplog))
        record(exporter, MAX_BATCH + 1)
        collector = TraceCollector(port)
        collector.wait(lambda spans: len(spans) >= MAX_WAITING)
        eventually(lambda: exporter.stats.waiting == 0)
        sent, dropped, _ = exporter.stats
    assert sent + dropped == MAX_WAITING + 5 + MAX_BATCH + 1
    away, back = messages(caplog)
    assert "does not answer" in away
    assert "takes spans again" in back
    collector.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_batch_is_sent_again_to_a_collector_that_is_busy(
    collector: TraceCollector, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    collector.statuses = [status] * 3
    with started(exporter_to(collector.url)) as exporter:
        record(exporter)
        assert len(collector.wait(lambda spans: spans)) == 1
    assert len([each for each in messages(caplog) if str(status) in each]) == 1
    assert exporter.stats == (1, 0, 0)


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_a_batch_that_is_refused_is_dropped(
    collector: TraceCollector, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    collector.statuses = [status] * 2
    with started(exporter_to(collector.url)) as exporter:
        for number in (1, 2):
            record(exporter)
            collector.wait_for_requests(number)
            eventually(lambda number=number: exporter.stats.dropped == number)
        record(exporter)
        collector.wait(lambda spans: spans)
    assert len([each for each in messages(caplog) if str(status) in each]) == 1
    assert exporter.stats == (1, 2, 0)


def test_spans_that_a_collector_rejects_are_counted(
    collector: TraceCollector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.rejects = 1
    with started(exporter_to(collector.url)) as exporter:
        record(exporter, 3)
        collector.wait(lambda spans: len(spans) == 3)
    assert exporter.stats == (2, 1, 0)
    assert ["rejected 1 spans: too many attributes" in each for each in messages(caplog)] == [True]


def test_closing_does_not_wait_for_a_collector_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    collector = TraceCollector()
    collector.close()
    exporter = exporter_to(collector.url, delay=600)
    exporter.start()
    record(exporter, 2)
    exporter.close()
    assert exporter.stats.waiting == 2
    assert any("the last 2 spans" in each for each in messages(caplog))


def test_an_exporter_that_was_not_started_can_be_closed() -> None:
    exporter_to("http://127.0.0.1:1").close()


def test_nothing_that_an_answer_contains_ends_the_thread(
    collector: TraceCollector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    take: Callable[[str, dict[str, str], bytes], tuple[int, bytes]] = collector._take
    monkeypatch.setattr(collector, "_take", lambda *arguments: (take(*arguments)[0], b"<html>"))
    with started(exporter_to(collector.url)) as exporter:
        record(exporter)
        eventually(lambda: exporter.stats.dropped == 1)
        monkeypatch.undo()
        record(exporter)
        eventually(lambda: exporter.stats.sent == 1)
    assert ["not OTLP: check the URL" in each for each in messages(caplog)] == [True, False][:1] or messages(caplog)
