"""The server's metrics of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.server_process import StartServer
from support.streams_client import StreamsClient
from support.streams_handlers import NOW, Stand, at_stand

from strandline.engine import Batch
from strandline.protocols.streams.own_metrics import IDLE_MS, KEPT_MS
from strandline.schema.registry import Registry
from strandline.service.catalog import METRICS_STREAM, SAMPLE_LOG

JSON_TYPE = {"content-type": "application/json"}
PATH = METRICS_STREAM


def intervals(stand: Stand) -> list[dict[str, Any]]:
    stand.engine.flush()
    return [json.loads(record.data) for record in stand.engine.log(METRICS_STREAM).read(limit=10_000)]


def series(stand: Stand, metric: str) -> list[dict[str, Any]]:
    return [each for each in intervals(stand) if each["metric"] == f"strandline.{metric}"]


def test_it_is_there_from_the_start_with_a_schema_and_nothing_to_search(streams: StreamsClient) -> None:
    response = streams.request("HEAD", PATH)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert streams.request("GET", f"{PATH}/_profile").json()["profile"] == {"kind": "metrics"}
    registry = streams.request("GET", f"{PATH}/_schema").json()
    assert registry["currentVersion"] == 1
    assert "routingKey" not in registry
    assert "search" not in registry
    assert registry["schemas"]["1"]["properties"]["apiVersion"] == {"const": "durable.streams/metrics/v1"}
    listed = streams.request("GET", "/v1/streams", params={"limit": 1000}).json()
    assert METRICS_STREAM not in [found["name"] for found in listed]


def test_nobody_but_the_server_writes_it(streams: StreamsClient) -> None:
    for method, path, body in (
        ("PUT", PATH, None),
        ("POST", PATH, [{}]),
        ("DELETE", PATH, None),
        ("POST", f"{PATH}/_schema", {"schema": {}}),
        ("POST", f"{PATH}/_profile", {"profile": {"kind": "generic"}}),
    ):
        streams.refused(403, method, path, body, headers=JSON_TYPE)
    assert streams.request("POST", f"/v0/topics/{METRICS_STREAM}", {"records": [{"data": 1}]}).status_code >= 400
    streams.request("DELETE", f"/v0/topics/{METRICS_STREAM}")
    assert streams.request("HEAD", PATH).status_code == 200


def test_a_server_that_is_told_not_to_measure_does_not(start_server: StartServer) -> None:
    streams = StreamsClient(start_server(metrics_flush_ms=0).url)
    streams.refused(404, "GET", PATH, code="not_found")
    streams.refused(403, "PUT", PATH, headers=JSON_TYPE)


def test_a_server_writes_intervals_by_itself(start_server: StartServer) -> None:
    streams = StreamsClient(start_server(metrics_flush_ms=1).url)
    streams.create("a", body=[1])
    response = streams.request("GET", PATH, params={"offset": "-1", "live": "long-poll", "timeout": "5s"})
    assert response.status_code == 200
    assert {each["kind"] for each in response.json()} == {"interval"}
    assert streams.request("GET", "/metrics").json()["series"] > 10


def test_an_interval_conforms_to_the_schema_and_has_no_keys(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.create("a", 1)
        stand.answered["/v1/stream/{name}", 200] = 3
        stand.clock.advance(10_000)
        stand.face.metrics.flush(stand.clock.now())
        log = stand.engine.log(METRICS_STREAM)
        found = intervals(stand)
        Registry.load(log.notes["registry"]).check(found)
        assert all(record.key is None for record in log.read(limit=1000))
        assert {(each["windowStart"], each["windowEnd"], each["intervalMs"]) for each in found} == {
            (NOW, NOW + 10_000, 10_000)
        }
        assert len({each["seriesKey"] for each in found}) == len(found) == stand.face.metrics.series
        assert {each["instance"] for each in found} == {stand.engine.maintenance.manifest.id}
        assert {each["stream"] for each in found} == {None}

    at_stand(tmp_path, test)


def test_what_is_measured_is_summed_up_and_begins_anew_with_every_interval(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        meters = stand.context.meters
        for size in (0, 1, 2, 3, 1000):
            meters.append_bytes.add(size)
        meters.fold()
        meters.append_bytes.add(7)
        stand.clock.advance(1)
        stand.face.metrics.flush(stand.clock.now())
        [found] = series(stand, "append.bytes")
        assert (found["count"], found["sum"], found["min"], found["max"]) == (6, 1013, 0, 1000)
        assert found["buckets"] == {"1": 2, "2": 2, "4": 1, "512": 1}
        assert (found["unit"], found["metricKind"], found["temporality"]) == ("bytes", "summary", "delta")
        assert (found["p50"], found["p99"]) == (2, 512)
        stand.clock.advance(1)
        stand.face.metrics.flush(stand.clock.now())
        assert len(series(stand, "append.bytes")) == 1

    at_stand(tmp_path, test)


def test_requests_are_counted_by_route_and_status_as_they_grow(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.answered |= {("/v1/streams", 200): 5, ("", 404): 1}
        stand.face.metrics.flush(NOW + 1)
        stand.answered["/v1/streams", 200] = 7
        stand.face.metrics.flush(NOW + 2)
        assert [(each["attributes"], each["sum"]) for each in series(stand, "requests")] == [
            ({"route": "/v1/streams", "status": "200"}, 5),
            ({"route": "none", "status": "404"}, 1),
            ({"route": "/v1/streams", "status": "200"}, 2),
        ]

    at_stand(tmp_path, test)


def test_the_journal_is_told_by_how_much_it_grew_and_the_rest_as_it_is(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.face.metrics.flush(NOW + 1)
        stand.create("a", *range(100))
        stand.face.metrics.flush(NOW + 2)
        grown = series(stand, "journal.bytes")[-1]
        assert grown["metricKind"] == "counter"
        assert 100 < grown["sum"] < 100_000
        logs = [(each["sum"], each["metricKind"], each["temporality"]) for each in series(stand, "logs")]
        assert logs == [(1, "gauge", "instant"), (2, "gauge", "instant")]
        assert series(stand, "memory.rss")[-1]["sum"] > 0

    at_stand(tmp_path, test)


def test_intervals_are_written_when_they_are_due_and_not_before(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.face.sampling.step(NOW + 9_999)
        assert intervals(stand) == []
        stand.face.sampling.step(NOW + 10_000)
        written = len(intervals(stand))
        assert written > 0
        stand.face.sampling.step(NOW + 19_999)
        assert len(intervals(stand)) == written

    at_stand(tmp_path, test)


def test_an_interval_has_only_what_changed(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.face.metrics.flush(NOW + 10_000)
        gauges = {each["metric"] for each in intervals(stand) if each["metricKind"] == "gauge"}
        stand.create("a", 1)
        stand.face.metrics.flush(NOW + 20_000)
        changed = {each["metric"] for each in intervals(stand) if each["windowEnd"] == NOW + 20_000}
        assert {"strandline.logs", "strandline.records", "strandline.journal.frames"} <= changed
        assert not gauges <= changed
        # The journal has frames besides those of records, for example for a flush.
        stand.engine.log(METRICS_STREAM).note({"a": 1}).wait()
        stand.face.metrics.flush(NOW + 30_000)
        stand.answered["/v1/streams", 200] = 1
        stand.face.metrics.flush(NOW + 40_000)
        ends = {each["windowEnd"] for each in intervals(stand)}
        assert ends == {NOW + 10_000, NOW + 20_000, NOW + 40_000}
        last = [each for each in intervals(stand) if each["windowEnd"] == NOW + 40_000]
        assert {each["windowStart"] for each in last} == {NOW + 20_000}
        assert {each["metric"] for each in last} & (gauges - {"strandline.journal.unsealed"}) == set()
        assert "strandline.requests" in {each["metric"] for each in last}

    at_stand(tmp_path, test)


def test_an_idle_server_writes_once_an_hour(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        day = 24 * IDLE_MS
        stand.face.metrics.flush(NOW)
        before = stand.engine.stats().bytes_written
        for now in range(NOW, NOW + day, 100_000):
            stand.clock.advance(100_000)
            stand.face.sampling.step(now + 100_000)
            stand.engine.flush()
        written = intervals(stand)
        ends = sorted({each["windowEnd"] for each in written})
        assert ends == [NOW + hour * IDLE_MS for hour in range(25)]
        assert {each["windowStart"] for each in written} == {NOW, *ends[:-1]}
        assert stand.engine.stats().bytes_written - before < 1_000_000

    at_stand(tmp_path, test)


def test_the_history_of_the_console_is_not_a_reason_to_write(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.face.metrics.flush(NOW)
        history = stand.engine.create(SAMPLE_LOG).wait()
        # A new log is one.
        stand.face.metrics.flush(NOW + 1_000)
        before = len(intervals(stand))
        for minute in range(1, 60):
            history.append(Batch.of(b"{}")).wait()
            stand.face.metrics.flush(NOW + minute * 60_000)
        assert len(intervals(stand)) == before

    at_stand(tmp_path, test)


def test_a_clock_that_is_set_back_gives_an_empty_interval(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.face.metrics.flush(NOW - 5_000)
        assert {each["intervalMs"] for each in intervals(stand)} == {0}

    at_stand(tmp_path, test)


def test_back_pressure_does_not_hold_it_up(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.context.admission.pressure.level = 1.0
        stand.context.admission.pressure.shedding = True
        stand.face.metrics.flush(NOW + 1)
        assert intervals(stand)

    at_stand(tmp_path, test)


def test_after_a_restart_it_goes_on_with_the_schema_of_this_version(tmp_path: Path) -> None:
    async def before(stand: Stand) -> None:
        stand.face.metrics.flush(NOW + 1)
        stand.engine.log(METRICS_STREAM).note({"registry": Registry.empty("old").stored()}).wait()

    async def after(stand: Stand) -> None:
        log = stand.engine.log(METRICS_STREAM)
        assert Registry.load(log.notes["registry"]).current_version == 1
        written = log.head
        assert written > 0
        stand.face.metrics.flush(NOW + 2)
        stand.engine.flush()
        assert log.head > written

    at_stand(tmp_path, before)
    at_stand(tmp_path, after)


def test_it_is_not_kept_forever(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stand.face.metrics.flush(NOW)
        assert intervals(stand)
        stand.clock.advance(KEPT_MS + 1)
        assert intervals(stand) == []

    at_stand(tmp_path, test)


def test_a_full_disk_costs_the_interval_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(stand: Stand) -> None:
        stand.engine.log(METRICS_STREAM).drop().wait()
        stand.face.metrics.flush(NOW + 1)
        stand.engine.close()
        stand.face.metrics.flush(NOW + 2)

    at_stand(tmp_path, test)
    assert "cannot write an interval" in caplog.text


def test_appends_and_reads_over_http_are_measured(start_server: StartServer) -> None:
    streams = StreamsClient(start_server(metrics_flush_ms=1).url)
    streams.create("a")
    streams.append("a", [1, 2, 3])
    streams.read("a")
    wanted = {"strandline.append.records", "strandline.append.wait", "strandline.read.records"}
    seen: dict[str, int] = {}
    offset = "-1"
    while not wanted <= set(seen):
        response = streams.request("GET", PATH, params={"offset": offset, "live": "long-poll", "timeout": "5s"})
        offset = response.headers["stream-next-offset"]
        for each in response.json() if response.status_code == 200 else []:
            seen[each["metric"]] = seen.get(each["metric"], 0) + each["sum"]
    assert seen["strandline.append.records"] == 3
    assert seen["strandline.read.records"] >= 3
