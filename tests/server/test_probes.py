"""What load balancers and monitoring ask, over HTTP; and what they are told while a server starts or stops."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.server_process import StartServer
from support.topics_client import Client, eventually

import strandline
from strandline.engine import Config, Engine
from strandline.server.application import Application
from strandline.server.settings import Settings, StorageSettings


def samples(client: Client) -> dict[str, float]:
    """All samples of the metrics, by name and labels as they are written."""
    response = client.http.get("/v0/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4"
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_health(client: Client) -> None:
    for path in ("/v0/health", "/healthz"):
        answer = client.call("GET", path)
        assert set(answer) == {"status", "version", "uptime_ms"}
        assert (answer["status"], answer["version"]) == ("ok", strandline.__version__)
        assert answer["uptime_ms"] >= 0


def test_ready_counts_the_topics(client: Client, topic: str) -> None:
    before = client.call("GET", "/v0/ready")["topics"]
    client.put(topic)
    client.queue(topic + ".queue", [1])
    client.claim(topic + ".queue")
    for path in ("/v0/ready", "/readyz"):
        answer = client.call("GET", path)
        assert answer == {"status": "ready", "wal_replay_complete": True, "topics": before + 2}


def test_wrong_verbs_at_probes(client: Client) -> None:
    for path in ("/v0/health", "/readyz", "/v0/metrics"):
        assert client.refused("POST", path, {}, status=405)["code"] == "method_not_allowed"


# --- metrics ---------------------------------------------------------------------------------------------------


def test_metrics_follow_what_happens(start_server: StartServer, lane: str) -> None:
    client = start_server(lane=lane).client()
    for durability in ("ephemeral", "memory", "disk", "fsync", "fsync"):
        client.put(f"{durability}-{client.call('GET', '/v0/ready')['topics']}", durability=durability)
    client.put("ephemeral-0", durability="memory")
    client.put("disk-2", cap_records=2)
    client.write("disk-2", [{"data": 11, "meta": 22}, 33, 44])
    client.queue("jobs", [1, 2, 3])
    client.claim("jobs", max=2)
    client.call("PUT", "/v0/routers/r", {"source": "jobs", "dest": "copies"}, status=201)
    client.write("jobs", [4])
    client.call("PUT", "/v0/topics/disk-2/consumers/billing", {"seq": 1})
    wid = client.call("POST", "/v0/watch", {"topics": {"jobs": {}}})["wid"]
    eventually(lambda: client.get("copies")["count"] == 1)
    with client.events(f"/v0/watch/{wid}") as stream:
        stream.wait_for("caught-up")
        found = samples(client)
    by_class = {
        name: found[f"topics_topics_by_class{{class={name}}}"] for name in ("ephemeral", "memory", "disk", "fsync")
    }
    assert by_class == {"ephemeral": 0, "memory": 2, "disk": 3, "fsync": 2}
    expected = {
        "topics_topics": 7,
        "topics_routers": 1,
        "topics_records_live": 2 + 4 + 1,
        "topics_bytes_live": 4 + 4 + 1,
        "topics_queue_topics": 1,
        "topics_queue_leases_in_flight": 2,
        "topics_sse_connections": 1,
        "topics_watch_sessions": 1,
        "topics_ready": 1,
        "topics_recovery_progress": 1,
        "topics_topic_head_seq{topic=disk-2}": 3,
        "topics_topic_earliest_seq{topic=disk-2}": 2,
        "strandline_log_evict_floor{log=disk-2}": 2,
        "topics_topic_records_live{topic=disk-2}": 2,
        "topics_topic_bytes_live{topic=disk-2}": 4,
        "topics_topic_queue_ready{topic=jobs}": 2,
        "topics_topic_queue_in_flight{topic=jobs}": 2,
        "strandline_queue_delayed_jobs{log=jobs}": 0,
        "strandline_queue_dead_lettered_total{log=jobs}": 0,
        "strandline_router_lag_records{router=r}": 0,
        "strandline_router_forwarded_total{router=r}": 1,
        "strandline_consumer_lag_records{log=disk-2,consumer=billing}": 2,
        "topics_topic_metrics_truncated": 0,
        "topics_wal_read_only": 0,
        "topics_wal_submit_full_total": 0,
        "strandline_throttled_total": 0,
        "strandline_requests_total{protocol=topics,method=POST,route=/v0/topics/{topic}/claim,status=200}": 1,
        "strandline_request_seconds_count{protocol=topics,method=POST,route=/v0/topics/{topic}/claim}": 1,
        "strandline_log_appended_records_total{log=disk-2}": 3,
        "strandline_log_appended_bytes_total{log=disk-2}": 8,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not [name for name in found if "__" in name]
    assert "topics_topic_queue_ready{topic=disk-2}" not in found
    assert found["topics_wal_frames_total"] > 0
    assert found["topics_wal_bytes_written_total"] > 0
    assert found["topics_wal_fsyncs_total"] == found["topics_wal_fsync_latency_us_count"] > 0
    assert found["topics_wal_fsync_latency_us_bucket{le=+Inf}"] == found["topics_wal_fsync_latency_us_count"]
    assert found["topics_wal_queue_depth_peak"] >= 1
    assert found["process_resident_memory_bytes"] > 0


def test_a_drop_takes_a_topic_out_of_the_metrics(start_server: StartServer, topic: str) -> None:
    # On the shared server, leases of other tests may end at the same time.
    client = start_server().client()
    client.queue(topic, [1, 2])
    client.claim(topic)
    before = samples(client)
    client.drop(topic)
    after = samples(client)
    assert f"topics_topic_head_seq{{topic={topic}}}" not in after
    for name, less in (("topics_topics", 1), ("topics_queue_topics", 1), ("topics_queue_leases_in_flight", 1)):
        assert after[name] == before[name] - less
    assert after["topics_records_live"] == before["topics_records_live"] - 2


#: What Prometheus sends.
SCRAPE = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "is_text"),
    [
        (SCRAPE, True),
        ("text/plain", True),
        ("application/json, text/plain", False),
        ("*/*", False),
        ("text/html", False),
    ],
)
def test_metrics_have_the_form_that_the_client_accepts(client: Client, accept: str, is_text: bool) -> None:
    response = client.http.get("/metrics", headers={"accept": accept})
    if is_text:
        assert response.headers["content-type"] == "text/plain; version=0.0.4"
        families = {family.name for family in text_string_to_metric_families(response.text)}
        assert {"strandline_build_info", "strandline_request_seconds", "topics_topics"} <= families
    else:
        assert set(response.json()) == {"uptime_ms", "series"}
    assert client.http.get("/v0/metrics", headers={"accept": "*/*"}).text.startswith("# HELP strandline_")


def test_metrics_as_json(client: Client, topic: str) -> None:
    client.write(topic, [1])
    for accept in ("application/json", "application/json, text/plain"):
        response = client.http.get("/v0/metrics", headers={"accept": accept})
        assert response.headers["content-type"] == "application/json"
    answer = response.json()
    text = samples(client)
    for key in ("topics", "routers", "queue_topics", "queue_leases_in_flight", "watch_sessions"):
        assert answer[key] == text[f"topics_{key}"]
    assert (answer["ready"], answer["replay_progress"]) == (True, 1.0)
    assert sum(answer[f"topics_{name}"] for name in ("ephemeral", "memory", "disk", "fsync")) == answer["topics"]
    assert {
        "fsyncs", "frames", "batches", "bytes_written", "rotations", "queue_depth", "queue_depth_peak",
        "submit_full_total", "read_only", "fsync_count", "fsync_micros_total",
    } == set(answer["wal"])  # fmt: skip


def test_metrics_know_of_leases_from_before_a_restart_and_looking_leaves_no_trace(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    client.queue("jobs", [1, 2, 3], leases_durable=True)
    client.claim("jobs", max=2)
    client.put("untouched", type="queue")
    server.stop()
    client = server.start().client()
    frames = client.http.get("/v0/metrics", headers={"accept": "application/json"}).json()["wal"]["frames"]
    found = samples(client)
    assert found["topics_queue_leases_in_flight"] == found["topics_topic_queue_in_flight{topic=jobs}"] == 2
    assert found["topics_topic_queue_ready{topic=untouched}"] == 0
    assert found["topics_wal_frames_total"] == frames


def test_of_many_topics_only_the_first_have_rows(start_server: StartServer, tmp_path: Path) -> None:
    with Engine.open(tmp_path / "many", background=False) as engine:
        for number in range(1005):
            engine.create(f"t{number:05d}", Config())
        engine.flush()
    found = samples(start_server(data=tmp_path / "many").client())
    assert (found["topics_topics"], found["topics_topic_metrics_truncated"]) == (1005, 1)
    rows = [name for name in found if name.startswith("topics_topic_head_seq")]
    assert len(rows) == 1000
    assert "topics_topic_head_seq{topic=t00999}" in found
    assert "topics_topic_head_seq{topic=t01000}" not in found


# --- starting --------------------------------------------------------------------------------------------------


def ask_while_starting(tmp_path: Path, *paths: str, progress: float = 0.25, **headers: str) -> list[httpx.Response]:
    """What a server says whose engine is not open yet: its lifespan has not begun."""
    application = Application(Settings(storage=StorageSettings(data_dir=str(tmp_path / "data"))))
    application.status.progress = progress

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(application.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.get(path, headers=headers) for path in paths]

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz", "/v0/topics", "/v0/topics/a", "/v0/watch/wid", "/nowhere"])
def test_while_the_journal_is_replayed_a_server_is_not_ready(tmp_path: Path, path: str) -> None:
    (response,) = ask_while_starting(tmp_path, path)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    error: dict[str, Any] = response.json()["error"]
    assert (error["code"], error["detail"]) == ("not_ready", {"replay_progress": 0.25})


def test_while_the_journal_is_replayed_a_server_is_alive_and_has_metrics(tmp_path: Path) -> None:
    health, text = ask_while_starting(tmp_path, "/v0/health", "/v0/metrics", progress=0.5)
    assert (health.status_code, health.json()["status"]) == (200, "ok")
    assert text.status_code == 200
    assert "\ntopics_ready 0\n" in text.text
    assert "\ntopics_recovery_progress 0.5\n" in text.text
    (json,) = ask_while_starting(tmp_path, "/v0/metrics", accept="application/json")
    assert (json.json()["ready"], json.json()["topics"]) == (False, 0)


def test_a_server_becomes_ready_when_its_journal_is_replayed(start_server: StartServer) -> None:
    server = start_server()
    server.client().write("a", [1])
    server.stop()
    server.launch()
    response = httpx.get(server.url + "/v0/ready", trust_env=False)
    assert response.status_code in (200, 503)
    if response.status_code == 503:
        assert 0.0 <= response.json()["error"]["detail"]["replay_progress"] <= 1.0
    eventually(server.is_ready)
    assert server.client().get("a")["count"] == 1


# --- when something is wrong -----------------------------------------------------------------------------------


def test_a_background_task_that_fails_shows_until_it_works_again(tmp_path: Path) -> None:
    async def main() -> None:
        application = Application(Settings(storage=StorageSettings(data_dir=str(tmp_path / "data"))))
        transport = httpx.ASGITransport(application.app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            application.app.router.lifespan_context(application.app),
        ):
            while not application.status.ready:
                await asyncio.sleep(0.001)
            assert application.engine is not None
            health = application.engine.health
            assert {"flusher", "housekeeping", "compaction"} <= set(health.totals())
            health.failed("compaction", RuntimeError("a secret of the server"))
            answer = (await client.get("/v0/health")).json()
            assert answer["status"] == "degraded"
            (failing,) = answer["failing"]
            assert failing["since"] > 1_700_000_000_000
            assert (failing["task"], failing["failures"]) == ("compaction", 1)
            assert failing["error"] == "an internal error, RuntimeError", "anybody may ask: no details"
            ready = await client.get("/v0/ready")
            assert ready.status_code == 200
            assert ready.json() == {
                "status": "ready", "wal_replay_complete": True, "topics": 0, "failing": [failing],
            }  # fmt: skip
            assert (await client.get("/health")).json()["status"] == "degraded"
            text = (await client.get("/v0/metrics")).text
            assert 'strandline_background_failing{task="compaction"} 1' in text
            assert 'strandline_background_failing{task="flusher"} 0' in text
            assert 'strandline_background_failures_total{task="compaction"} 1' in text
            health.succeeded("compaction")
            assert (await client.get("/v0/health")).json()["status"] == "ok"
            assert set((await client.get("/v0/ready")).json()) == {"status", "wal_replay_complete", "topics"}
            text = (await client.get("/v0/metrics")).text
            assert 'strandline_background_failing{task="compaction"} 0' in text
            assert 'strandline_background_failures_total{task="compaction"} 1' in text

    asyncio.run(main())


def test_a_server_that_cannot_start_says_why_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error behind the replay of the journal must not leave a server that is never ready."""

    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("strandline.server.application.StreamsProtocol", broken)

    async def main() -> Application:
        application = Application(Settings(storage=StorageSettings(data_dir=str(tmp_path / "data"))))
        async with application.app.router.lifespan_context(application.app):
            async with asyncio.timeout(30):
                while application.failure is None:
                    await asyncio.sleep(0.001)
        return application

    application = asyncio.run(main())
    assert str(application.failure) == "a defect"
    assert not application.status.ready
    assert "the server cannot start" in caplog.text
    with Engine.open(tmp_path / "data") as engine:
        assert engine.recovered.clean, "it was closed in order"
