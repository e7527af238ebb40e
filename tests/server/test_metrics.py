from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from strandline.delivery.queues import QueueCounters, QueueFigures, QueueRates
from strandline.engine import Batch, Config, Engine
from strandline.engine.replica.replica import ReplicaStats
from strandline.engine.stats import FLUSH_BOUNDS, Histogram
from strandline.server.answers import ReplicaFigures
from strandline.server.metrics import (
    MAX_ROWS,
    ConsumerSample,
    Indexing,
    LogSample,
    RequestSample,
    RouterSample,
    Sealing,
    Snapshot,
    Wal,
    WorkerRow,
    render_json,
)
from strandline.server.metrics_text import ALIASES, process_text, render_text
from strandline.service.request_meter import BOUNDS, RequestMeter

QUEUE = QueueFigures(
    QueueCounters(842, 288, 4, 9, 2),
    QueueRates(50, 30, {"nack": 5, "expired": 4, "disconnected": 3}, 0.5, 0.3),
    61_500,
)
SECONDS = Histogram(BOUNDS, (0, *(9,) * (len(BOUNDS) - 2), 10), 2.5, 10)
SNAPSHOT = Snapshot(
    ready=True,
    replay_progress=1.0,
    uptime_ms=84012,
    topics={"ephemeral": 1, "memory": 2, "disk": 3, "fsync": 4},
    routers=5,
    records=12_000_000,
    size=2_310_912,
    queues=6,
    leases_in_flight=7,
    streams=8,
    watch_sessions=9,
    damaged_files=10,
    sealing=Sealing(unsealed_bytes=70, budget_bytes=100, rounds=5, round_bytes=60, slowed=12, refused=13),
    indexing=Indexing(waiting_logs=14, records=15, file_bytes=16, damaged=17),
    wal=Wal(
        fsyncs=88_241,
        frames=100_000,
        bytes_written=1 << 40,
        rotations=3,
        queue_depth=2,
        queue_depth_peak=40,
        read_only=False,
        fsync_us=Histogram(
            FLUSH_BOUNDS, (0, 1, 2, 84_120, 85_000, 88_000, 88_100, 88_200, 88_240, 88_241), 1234.6, 88_241
        ),
    ),
    pressure=0.25,
    throttled=11,
    workers=[WorkerRow("bulk", 4, 7, 2)],
    background={"flusher": 0, "housekeeping": 3},
    failing=frozenset(("housekeeping",)),
    requests=[
        RequestSample("", "", "", {404: 2}),
        RequestSample("topics", "GET", "/v0/topics/{topic}", {200: 2}),
        RequestSample("topics", "POST", "/v0/topics/{topic}", {200: 10, 429: 1}, SECONDS),
    ],
    log_rows=[
        LogSample("jobs", 480_231, 468_188, 1000, 12_043, 2048, 4096, QUEUE),
        LogSample("events", 99, 1, 0, 99, 8112),
    ],
    router_rows=[RouterSample("jobs->audit", 3, 400)],
    consumer_rows=[ConsumerSample("jobs", "billing", 17)],
)


def lines(snapshot: Snapshot) -> list[str]:
    return render_text(snapshot).decode().splitlines()


def series(snapshot: Snapshot) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in lines(snapshot) if not line.startswith("#"))


@pytest.mark.parametrize(
    "line",
    [
        "topics_topics 10",
        'topics_topics_by_class{class="ephemeral"} 1',
        'topics_topics_by_class{class="memory"} 2',
        'topics_topics_by_class{class="disk"} 3',
        'topics_topics_by_class{class="fsync"} 4',
        "topics_routers 5",
        "topics_records_live 12000000",
        "topics_bytes_live 2310912",
        "topics_queue_topics 6",
        "topics_queue_leases_in_flight 7",
        "topics_sse_connections 8",
        "topics_watch_sessions 9",
        "topics_ready 1",
        "topics_recovery_progress 1",
        "topics_uptime_ms 84012",
        "# HELP topics_topic_head_seq The same as `strandline_log_head_seq`.",
        "# TYPE topics_topic_head_seq gauge",
        'topics_topic_head_seq{topic="jobs"} 480231',
        'topics_topic_earliest_seq{topic="jobs"} 468188',
        'strandline_log_evict_floor{log="jobs"} 1000',
        'strandline_log_head_seq{log="jobs"} 480231',
        'strandline_log_live_bytes{log="jobs"} 2048',
        'strandline_log_appended_records_total{log="jobs"} 480231',
        'strandline_log_appended_bytes_total{log="jobs"} 4096',
        'topics_topic_records_live{topic="jobs"} 12043',
        'topics_topic_bytes_live{topic="jobs"} 2048',
        'topics_topic_queue_ready{topic="jobs"} 842',
        'topics_topic_queue_in_flight{topic="jobs"} 288',
        'strandline_queue_delayed_jobs{log="jobs"} 9',
        'strandline_queue_oldest_ready_seconds{log="jobs"} 61.5',
        'strandline_queue_claimed_total{log="jobs"} 50',
        'strandline_queue_completed_total{log="jobs"} 30',
        'strandline_queue_dead_lettered_total{log="jobs"} 4',
        'strandline_queue_dropped_total{log="jobs"} 2',
        'strandline_queue_failed_total{log="jobs",cause="nack"} 5',
        'strandline_queue_failed_total{log="jobs",cause="expired"} 4',
        'strandline_queue_failed_total{log="jobs",cause="disconnected"} 3',
        "topics_topic_metrics_truncated 0",
        "topics_wal_frames_total 100000",
        "topics_wal_batches_total 88241",
        "topics_wal_fsyncs_total 88241",
        "topics_wal_bytes_written_total 1099511627776",
        "topics_wal_rotations_total 3",
        "topics_wal_queue_depth 2",
        "topics_wal_queue_depth_peak 40",
        "topics_wal_submit_full_total 0",
        "topics_wal_read_only 0",
        "strandline_unsealed_bytes 70",
        "strandline_unsealed_budget_bytes 100",
        "strandline_sealing_rounds_total 5",
        "strandline_sealing_round_bytes 60",
        "strandline_writes_slowed_total 12",
        "strandline_writes_refused_total 13",
        "strandline_index_waiting_logs 14",
        "strandline_index_records_total 15",
        "strandline_index_file_bytes 16",
        "strandline_index_damaged_files_total 17",
        "# TYPE topics_wal_fsync_latency_us histogram",
        'topics_wal_fsync_latency_us_bucket{le="50"} 0',
        'topics_wal_fsync_latency_us_bucket{le="500"} 84120',
        'topics_wal_fsync_latency_us_bucket{le="100000"} 88240',
        'topics_wal_fsync_latency_us_bucket{le="+Inf"} 88241',
        "topics_wal_fsync_latency_us_sum 1235",
        "topics_wal_fsync_latency_us_count 88241",
        'strandline_requests_total{protocol="topics",method="POST",route="/v0/topics/{topic}",status="200"} 10',
        'strandline_requests_total{protocol="topics",method="POST",route="/v0/topics/{topic}",status="429"} 1',
        'strandline_requests_total{protocol="",method="",route="",status="404"} 2',
        "# TYPE strandline_request_seconds histogram",
        'strandline_request_seconds_bucket{protocol="topics",method="POST",route="/v0/topics/{topic}",le="0.0005"} 0',
        'strandline_request_seconds_bucket{protocol="topics",method="POST",route="/v0/topics/{topic}",le="10"} 9',
        'strandline_request_seconds_bucket{protocol="topics",method="POST",route="/v0/topics/{topic}",le="+Inf"} 10',
        'strandline_request_seconds_sum{protocol="topics",method="POST",route="/v0/topics/{topic}"} 2.5',
        'strandline_request_seconds_count{protocol="topics",method="POST",route="/v0/topics/{topic}"} 10',
        "strandline_logs 10",
        'strandline_logs_by_durability{durability="fsync"} 4',
        "strandline_uptime_seconds 84.012",
        "# TYPE strandline_journal_flush_seconds histogram",
        'strandline_journal_flush_seconds_bucket{le="0.0005"} 84120',
        'strandline_journal_flush_seconds_bucket{le="+Inf"} 88241',
        "strandline_journal_flush_seconds_sum 0.0012346",
        "strandline_damaged_files 10",
        "strandline_throttled_total 11",
        "strandline_pressure_ratio 0.25",
        'strandline_workers_active{class="bulk"} 4',
        'strandline_workers_waiting{class="bulk"} 7',
        'strandline_workers_refused_total{class="bulk"} 2',
        'strandline_router_lag_records{router="jobs->audit"} 3',
        'strandline_router_forwarded_total{router="jobs->audit"} 400',
        'strandline_consumer_lag_records{log="jobs",consumer="billing"} 17',
    ],
)
def test_the_text_has_this_line(line: str) -> None:
    assert lines(SNAPSHOT).count(line) == 1


def test_only_queues_have_series_of_queues() -> None:
    assert 'topics_topic_head_seq{topic="events"}' in series(SNAPSHOT)
    assert 'topics_topic_queue_ready{topic="events"}' not in series(SNAPSHOT)


def test_every_series_is_introduced_once_and_before_its_values() -> None:
    introduced: list[str] = []
    for line in lines(SNAPSHOT):
        if line.startswith("# TYPE "):
            introduced.append(line.split()[2])
        elif not line.startswith("#"):
            assert line.startswith(introduced[-1])
    assert len(introduced) == len(set(introduced))


def test_prometheus_reads_the_text_with_that_of_the_process() -> None:
    text = (render_text(SNAPSHOT) + process_text()).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["topics_wal_frames"].type == "counter"
    assert families["topics_wal_fsync_latency_us"].type == "histogram"
    assert len(families["topics_wal_fsync_latency_us"].samples) == len(FLUSH_BOUNDS) + 2
    assert "process_cpu_seconds" in families


def test_names_have_one_prefix_and_base_units() -> None:
    names = [line.split()[2] for line in lines(SNAPSHOT) if line.startswith("# TYPE ")]
    documented = {f"topics_{alias}" for aliases in ALIASES.values() for alias in aliases}
    documented |= {f"topics_{name}" for name in ("topics_by_class", "uptime_ms")}
    documented |= {f"topics_wal_{name}" for name in ("submit_full_total", "fsync_latency_us")}
    assert {name for name in names if not name.startswith("strandline_")} == documented
    assert not [name for name in names if name.startswith("strandline_") and name.endswith(("_ms", "_us"))]


def test_aliases_have_the_values_of_their_metrics() -> None:
    found = series(SNAPSHOT)
    for name, aliases in ALIASES.items():
        values = [value for label, value in found.items() if label.partition("{")[0] == f"strandline_{name}"]
        for alias in aliases:
            assert values
            assert [value for label, value in found.items() if label.partition("{")[0] == f"topics_{alias}"] == values


def test_a_meter_counts_answers_and_their_durations() -> None:
    meter = RequestMeter("topics", "GET", "/v0/topics")
    meter.count(403)
    for seconds in (0.0001, 0.0005, 0.3, 60.0):
        meter.add(200, seconds)
    sample = RequestSample.of(meter)
    assert sample.statuses == {403: 1, 200: 4}
    counts = dict(zip(sample.seconds.bounds, sample.seconds.counts, strict=True))
    assert (counts[0.0005], counts[0.25], counts[0.5], counts[BOUNDS[-1]]) == (2, 2, 3, 4)
    assert sample.seconds.count == 4


def test_before_the_engine_is_open_there_is_a_text_too() -> None:
    found = series(Snapshot(ready=False, replay_progress=0.5, uptime_ms=10))
    assert found["topics_ready"] == "0"
    assert found["topics_recovery_progress"] == "0.5"
    assert found["topics_topics"] == "0"
    assert found['topics_wal_fsync_latency_us_bucket{le="50"}'] == "0"
    assert found['topics_wal_fsync_latency_us_bucket{le="+Inf"}'] == "0"


def test_the_journals_numbers_are_the_engines(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("orders", Config(durability="fsync")).wait()
        log.append(Batch.of(b"one")).wait()
        stats = engine.stats()
    found = series(msgspec.structs.replace(SNAPSHOT, wal=Wal.of(stats)))
    assert found["topics_wal_frames_total"] == str(stats.frames)
    assert found["topics_wal_fsyncs_total"] == found["topics_wal_fsync_latency_us_count"] == str(stats.flushes)
    assert found["topics_wal_bytes_written_total"] == str(stats.bytes_written)
    assert (found["topics_wal_queue_depth"], found["topics_wal_queue_depth_peak"]) == ("0", "1")
    assert stats.frames > 0
    assert stats.flushes > 0


def test_a_journal_that_failed_shows() -> None:
    assert series(msgspec.structs.replace(SNAPSHOT, wal=Wal(read_only=True)))["topics_wal_read_only"] == "1"


@pytest.mark.parametrize(("rows", "truncated"), [(MAX_ROWS, "0"), (MAX_ROWS + 1, "1")])
def test_no_more_than_so_many_have_series_of_their_own(rows: int, truncated: str) -> None:
    found = series(
        Snapshot(
            ready=True,
            replay_progress=1.0,
            uptime_ms=1,
            log_rows=[LogSample(f"t{row}", 1, 1, 0, 1, 1) for row in range(rows)],
            router_rows=[RouterSample(f"r{row}", 1, 1) for row in range(rows)],
            consumer_rows=[ConsumerSample("t", f"c{row}", 1) for row in range(rows)],
        )
    )
    for what, name in (("log", "log_head_seq"), ("router", "router_lag_records"), ("consumer", "consumer_lag_records")):
        assert sum(label.startswith(f"strandline_{name}{{") for label in found) == MAX_ROWS
        assert found[f"strandline_{what}_metrics_truncated"] == truncated


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_survives_as_a_label(name: str) -> None:
    snapshot = Snapshot(ready=True, replay_progress=1.0, uptime_ms=1, consumer_rows=[ConsumerSample(name, name, 5)])
    families = text_string_to_metric_families(render_text(snapshot).decode())
    (sample,) = next(family for family in families if family.name == "strandline_consumer_lag_records").samples
    assert sample.labels == {"log": name, "consumer": name}


def test_the_figures_of_a_replica_are_in_both_forms() -> None:
    stats = ReplicaStats(
        term=2,
        chunk=17,
        waiting_bytes=300,
        waiting_records=7,
        lag_ms=1500.0,
        waiting_commits=3,
        waiting_ms=250.0,
        chunks=5,
        chunk_bytes=6000,
        objects=7,
        object_bytes=8000,
        missing_segments=9,
        away=True,
        superseded=False,
    )
    snapshot = msgspec.structs.replace(SNAPSHOT, replica=stats)
    document = json.loads(render_json(snapshot))["replica"]
    msgspec.convert(document, ReplicaFigures, strict=True)
    assert (document["term"], document["chunk"], document["missing_segments"], document["away"]) == (2, 17, 9, True)
    found = series(snapshot)
    expected = {
        "term": "2",
        "chunk": "17",
        "waiting_bytes": "300",
        "waiting_records": "7",
        "lag_seconds": "1.5",
        "waiting_commits": "3",
        "waiting_seconds": "0.25",
        "chunks_total": "5",
        "chunk_bytes_total": "6000",
        "objects_total": "7",
        "object_bytes_total": "8000",
        "missing_segments": "9",
        "away": "1",
        "superseded": "0",
    }
    assert {name: found[f"strandline_replica_{name}"] for name in expected} == expected
    assert not [name for name in series(SNAPSHOT) if "replica_" in name]


def test_the_json_has_these_keys() -> None:
    document = json.loads(render_json(SNAPSHOT))
    assert document.pop("wal") == {
        "fsyncs": 88_241,
        "frames": 100_000,
        "batches": 88_241,
        "bytes_written": 1 << 40,
        "rotations": 3,
        "queue_depth": 2,
        "queue_depth_peak": 40,
        "submit_full_total": 0,
        "read_only": False,
        "fsync_count": 88_241,
        "fsync_micros_total": 1235,
    }
    assert document == {
        "topics": 10,
        "topics_ephemeral": 1,
        "topics_memory": 2,
        "topics_disk": 3,
        "topics_fsync": 4,
        "topics_replicated": 0,
        "routers": 5,
        "records_live": 12_000_000,
        "bytes_live": 2_310_912,
        "queue_topics": 6,
        "queue_leases_in_flight": 7,
        "sse_connections": 8,
        "watch_sessions": 9,
        "ready": True,
        "replay_progress": 1.0,
        "uptime_ms": 84012,
        "sealing": {
            "unsealed_bytes": 70,
            "budget_bytes": 100,
            "rounds_total": 5,
            "round_bytes": 60,
            "writes_slowed_total": 12,
            "writes_refused_total": 13,
        },
        "indexing": {"waiting_logs": 14, "records_total": 15, "file_bytes": 16, "damaged_files_total": 17},
        "damaged_files": 10,
        "pressure": 0.25,
        "throttled_total": 11,
        "requests": [
            {"route": "", "status": 404, "count": 2},
            {"route": "/v0/topics/{topic}", "status": 200, "count": 12},
            {"route": "/v0/topics/{topic}", "status": 429, "count": 1},
        ],
        "router_lag": [{"router": "jobs->audit", "lag": 3, "forwarded": 400}],
        "consumer_lag": [{"topic": "jobs", "consumer": "billing", "lag": 17}],
        "background": [
            {"task": "flusher", "failing": False, "failures_total": 0},
            {"task": "housekeeping", "failing": True, "failures_total": 3},
        ],
        "pipeline": {
            "state": "off",
            "lag_records": 0,
            "lag_erasures": 0,
            "starts": 0,
            "failures": 0,
            "retaining_logs": 0,
            "retained_lag_records": 0,
            "retained_lag_seconds": 0.0,
            "held_records": 0,
            "held_bytes": 0,
        },
    }
