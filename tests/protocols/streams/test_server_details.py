"""GET /v1/server/_details and _mem, /health and /metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.server_process import StartServer
from support.streams_client import StreamsClient
from support.streams_handlers import NOW, Stand, at_stand, body_of

from strandline.delivery.hub import Waiter
from strandline.engine import Engine, Log, Options
from strandline.protocols.streams.memory import Memory, read_status
from strandline.query.searcher import Searcher
from strandline.service.access import Access

SUBSYSTEMS = [
    "heap_estimates", "mapped_files", "disk_caches", "configured_budgets", "pipeline_buffers", "sqlite_runtime",
]  # fmt: skip
TOTALS = [
    "heap_estimate_bytes", "mapped_file_bytes", "disk_cache_bytes", "configured_budget_bytes", "pipeline_buffer_bytes",
    "sqlite_runtime_bytes",
]  # fmt: skip
BREAKDOWN = {
    "source", "rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes", "js_managed_bytes",
    "js_external_non_array_buffers_bytes", "mapped_file_bytes", "sqlite_runtime_bytes", "unattributed_anon_bytes",
    "unattributed_rss_bytes",
}  # fmt: skip
TOP = ["local_storage_bytes", "pending_wal_bytes", "touch_journal_filter_bytes", "notifier_waiters"]


def get(streams: StreamsClient, path: str) -> Any:
    response = streams.request("GET", path)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    return response.json()


def test_the_server_says_how_it_is_set_up(streams: StreamsClient) -> None:
    found = get(streams, "/v1/server/_details")
    assert list(found) == ["auto_tune", "configured_limits", "runtime"]
    assert found["auto_tune"] == {
        "enabled": False, "requested_memory_mb": None, "preset_mb": None, "effective_memory_limit_mb": None,
    }  # fmt: skip
    limits = found["configured_limits"]
    assert list(limits) == ["caches", "concurrency", "ingest", "search", "segmenting", "timeouts", "memory"]
    assert {name: len(limits[name]) for name in limits} == {
        "caches": 9, "concurrency": 7, "ingest": 6, "search": 4, "segmenting": 3, "timeouts": 4, "memory": 1,
    }  # fmt: skip
    assert limits["timeouts"] == {
        "append_request_timeout_ms": 3000,
        "search_request_timeout_ms": 3000,
        "resolver_timeout_ms": 5000,
        "object_store_timeout_ms": 0,
    }


def test_the_server_says_how_it_is_doing(streams: StreamsClient) -> None:
    runtime = get(streams, "/v1/server/_details")["runtime"]
    assert set(runtime) == {
        "memory", "ingest_queue", "local_backpressure", "uploads", "concurrency", "top_streams",
    }  # fmt: skip
    memory = runtime["memory"]
    assert set(memory) == {
        "pressure_active", "pressure_limit_bytes", "last_rss_bytes", "max_rss_bytes", "process", "process_breakdown",
        "sqlite", "gc", "subsystems", "totals", "high_water",
    }  # fmt: skip
    assert 0 < memory["last_rss_bytes"] == memory["process"]["rss_bytes"] <= memory["max_rss_bytes"]
    assert list(memory["subsystems"]) == [*SUBSYSTEMS, "counts"]
    assert list(memory["totals"]) == TOTALS
    for subsystem, total in zip(SUBSYSTEMS, TOTALS, strict=True):
        assert sum(memory["subsystems"][subsystem].values()) == memory["totals"][total]
    assert runtime["ingest_queue"] == {"requests": 0, "bytes": 0, "full": False}
    assert runtime["uploads"] == {"pending_segments": 0}
    for gate in ("ingest", "read", "search", "async_index"):
        assert set(runtime["concurrency"][gate]) == {"configured_limit", "current_limit", "active", "queued"}
    assert list(runtime["top_streams"]) == TOP


def test_memory_by_itself(streams: StreamsClient) -> None:
    found = get(streams, "/v1/server/_mem")
    assert list(found) == [
        "ts", "process", "process_breakdown", "sqlite", "gc", "high_water", "counters", "runtime_counts",
        "runtime_bytes", "runtime_totals", "top_streams",
    ]  # fmt: skip
    assert set(found["process"]) == {
        "rss_bytes", "heap_total_bytes", "heap_used_bytes", "external_bytes", "array_buffers_bytes",
    }  # fmt: skip
    assert set(found["process_breakdown"]) == BREAKDOWN
    assert found["process_breakdown"]["source"] == "linux_proc_status"
    assert (
        0 < found["process"]["heap_used_bytes"] <= found["process"]["heap_total_bytes"] < found["process"]["rss_bytes"]
    )
    assert (found["sqlite"]["available"], found["sqlite"]["source"]) == (False, "unavailable")
    assert found["gc"]["forced_gc_count"] == 0
    assert list(found["high_water"]) == ["process", "process_breakdown", "sqlite", "runtime_bytes", "runtime_totals"]
    mark = found["high_water"]["process"]["rss_bytes"]
    assert mark["value"] >= found["process"]["rss_bytes"]
    assert mark["at"] <= found["ts"]
    assert list(found["runtime_bytes"]) == SUBSYSTEMS
    prefix = "tieredstore.mem.leak_candidate."
    assert {name.removeprefix(prefix): count for name, count in found["counters"].items()} == found["runtime_counts"]
    assert found["runtime_counts"]["logs"] >= 1


def test_health_and_the_number_of_series(streams: StreamsClient) -> None:
    health = streams.request("GET", "/health").json()
    assert health.keys() == {"ok", "ts"}
    assert health["ok"] is True
    found = streams.request("GET", "/metrics").json()
    assert set(found) == {"uptime_ms", "series"}
    assert found["uptime_ms"] > 0


def test_who_may_ask(start_server: StartServer) -> None:
    server = start_server(keys="reader:r,writer:w")
    for path in ("/v1/server/_details", "/v1/server/_mem", "/metrics"):
        assert StreamsClient(server.url, "reader").request("GET", path).status_code == 200
        assert StreamsClient(server.url, "writer").request("GET", path).status_code == 403
        assert StreamsClient(server.url, "").request("GET", path).status_code == 401
    assert StreamsClient(server.url, "").request("GET", "/health").status_code == 200


class Nobody(Waiter):
    def wake(self, log: Log) -> None:
        pass


def test_those_that_take_the_most_are_named_to_who_may_know_them(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        for number in range(8):
            stand.create(f"s{number}", *["x" * number] * 10)
        stand.create("secret", "x" * 100_000)
        for _ in range(2):
            stand.hub.watch(stand.engine.log("s3"), Nobody())
        some = Access("k", frozenset({"read"}), ("s0", "s3", "s7"))
        top = body_of(await stand.face.server_details.mem(stand.call()))["top_streams"]
        assert [each["stream"] for each in top["pending_wal_bytes"]] == ["secret", "s7", "s6", "s5", "s4"]
        assert top["pending_wal_bytes"][1] == {"stream": "s7", "pending_wal_bytes": 90, "pending_rows": 10}
        assert top["local_storage_bytes"][1] == {
            "stream": "s7", "bytes": 90, "wal_retained_bytes": 90, "segment_cache_bytes": 0, "index_cache_bytes": 0,
        }  # fmt: skip
        assert top["notifier_waiters"] == [{"stream": "s3", "waiters": 2}]
        top = body_of(await stand.face.server_details.mem(stand.call(access=some)))["top_streams"]
        assert [each["stream"] for each in top["pending_wal_bytes"]] == ["s7", "s3", "s0"]
        stand.engine.seal()
        top = body_of(await stand.face.server_details.mem(stand.call()))["top_streams"]
        assert top["pending_wal_bytes"] == top["local_storage_bytes"] == []

    at_stand(tmp_path, test)


def test_the_filters_of_live_invalidation_are_named(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a")
        profile = {"kind": "state-protocol", "touch": {"enabled": True, "memory": {"filterPow2": 10}}}
        stream.log.note({"profile": profile}).wait()
        stand.face.touching.meta(stand.call(name="a"))
        found = body_of(await stand.face.server_details.mem(stand.call()))
        assert found["top_streams"]["touch_journal_filter_bytes"] == [{"stream": "a", "bytes": 4096}]
        assert found["runtime_counts"]["touch_journals"] == 1

    at_stand(tmp_path, test)


def test_segments_that_are_to_be_moved_are_counted(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a")
        for value in range(3):
            stand.append(stream, value)
            stand.engine.maintenance.run(everything=True)
        found = body_of(await stand.face.server_details.details(stand.call()))
        assert found["runtime"]["uploads"]["pending_segments"] == 0
        assert found["configured_limits"]["concurrency"]["upload"] == 1
        assert found["configured_limits"]["caches"]["segment_cache_bytes"] > 0

    options = Options(cold_url=str(tmp_path / "cold"), hot_segments=1, segment_bytes=1)
    at_stand(tmp_path / "data", test, options=options)


# --- memory ----------------------------------------------------------------------------------------------------------


def status_file(path: Path, rss: int) -> str:
    path.write_text(f"Name:\tx\nVmRSS:\t {rss} kB\nRssAnon:\t 4 kB\nRssFile:\t 2 kB\nThreads:\t3\n")
    return str(path)


def test_what_linux_says_is_read_in_bytes(tmp_path: Path) -> None:
    assert read_status(status_file(tmp_path / "status", 7)) == {"VmRSS": 7168, "RssAnon": 4096, "RssFile": 2048}
    assert read_status(str(tmp_path / "none")) == {}


def test_marks_are_those_of_the_highest_sample(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        status = status_file(tmp_path / "status", 7)
        memory = Memory(engine, Searcher(1000), lambda: 5, status)
        memory.sample(NOW)
        status_file(tmp_path / "status", 9)
        memory.sample(NOW + 1)
        status_file(tmp_path / "status", 8)
        memory.sample(NOW + 2)
        assert memory.rss == 8 * 1024
        assert memory.max_rss == 9 * 1024
        assert memory.high_water.process["rss_bytes"] == {"value": 9 * 1024, "at": "2023-11-14T22:13:20.001Z"}
        assert memory.high_water.runtime_totals["pipeline_buffer_bytes"]["value"] == 5
        assert memory.runtime_bytes.configured_budgets["search_index_bytes"] == 1000


@pytest.mark.parametrize("missing", ["none"])
def test_where_linux_says_nothing_it_is_told_so(tmp_path: Path, missing: str) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        memory = Memory(engine, Searcher(1000), lambda: 0, str(tmp_path / missing))
        memory.sample(NOW)
        assert memory.breakdown["source"] == "process_memory_usage_only"
        assert memory.rss == 0
