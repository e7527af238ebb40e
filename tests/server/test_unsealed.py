"""A server whose sealing does not keep up: writes of every protocol are slowed down and then refused with 429.

Reads and changes that free space are answered, and nothing that was acknowledged is lost.

Sealing stops for real: the worker process is stopped with SIGSTOP.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from support.arrow_client import ARROW, encode, table
from support.every_protocol import COLLECTIONS, Request
from support.server_process import ServerProcess, StartServer
from support.tables_client import POLLS
from support.topics_client import Client, eventually

from strandline.engine import Batch, Engine
from strandline.engine.segments import worker as worker_module
from strandline.server.application import Application
from strandline.server.settings import Settings, StorageSettings

BUDGET = 1 << 20
SETTINGS = {"unsealed_bytes": BUDGET, "journal_bytes": 1 << 16}
TEXT = "x" * 60_000
RECORDS = {"records": [{"data": TEXT}]}
#: What fills the budget, the large ones first. The writes above do not fit into what is left then.
FILLING: list[Any] = [{"records": [{"data": "x" * size}]} for size in (400_000, 120_000, 40_000)]

WRITES = {
    "topics: write": Request("POST", "/v0/topics/log", RECORDS),
    "topics: write to a fsync topic": Request("POST", "/v0/topics/careful", RECORDS),
    "topics: write to a new topic": Request("POST", "/v0/topics/new", RECORDS),
    "topics: write to several": Request(
        "POST", "/v0/write", {"writes": [{"topic": "log", **RECORDS}, {"topic": "careful", **RECORDS}]}
    ),
    "queues: enqueue": Request("POST", "/v0/topics/jobs", RECORDS),
    "queues: enqueue for later": Request(
        "POST", "/v0/topics/jobs", {"records": [{"data": TEXT, "not_before_ts": 9_000_000_000_000}]}
    ),
    "streams: append": Request("POST", "/v1/stream/s", {"a": TEXT}),
    "streams: create": Request("PUT", "/v1/stream/new-stream", {"a": TEXT}),
    "arrow: append": Request("POST", "/arrow/records/log", encode(table({"a": TEXT})), ARROW),
    "tables: append": Request("POST", "/tables/note/append", {"parent": "p", "payload": {"a": TEXT}}),
    "collections: push": Request("POST", "/push/open/d", {"data": {"a": TEXT}}),
    "collections: push to a new document": Request("POST", "/push/open/new", {"data": {"a": TEXT}}),
}
OTHERS = {
    "topics: read": Request("POST", "/v0/topics/log/diff", {"from_seq": 0}),
    "topics: write to an ephemeral topic": Request("POST", "/v0/topics/fleeting", RECORDS),
    "topics: delete records": Request("POST", "/v0/topics/log/delete", {"before_seq": 2}),
    "topics: commit of a consumer": Request("PUT", "/v0/topics/log/consumers/c", {"seq": 1}),
    "topics: drop": Request("DELETE", "/v0/topics/unwanted"),
    "queues: claim": Request("POST", "/v0/topics/jobs/claim", {"node": "n"}),
    "queues: ack": Request("POST", "/v0/topics/jobs/ack", "held"),
    "streams: read": Request("GET", "/v1/stream/s?format=json"),
    "arrow: read": Request("GET", "/arrow/records/log"),
    "tables: remove": Request("POST", "/tables/note/rm", {"id": "p:1"}),
    "collections: pull": Request("GET", "/pull/open/d?last=1"),
}


def sealing(client: Client) -> dict[str, int]:
    metrics: dict[str, Any] = client.http.get("/v0/metrics", headers={"accept": "application/json"}).json()
    found: dict[str, int] = metrics["sealing"]
    return found


def stall(server: ServerProcess, client: Client) -> tuple[int, int]:
    """Stop sealing, and fill the budget; returns the worker and how many records of the topic were acknowledged."""
    assert Request("POST", "/v0/topics/log", RECORDS).send(client).is_success
    assert Request("POST", "/v0/topics/log", RECORDS).send(client).is_success
    acknowledged = 2
    eventually(lambda: sealing(client)["rounds_total"] > 0)
    (worker,) = server.children(worker_module.MODULE)
    os.kill(worker, signal.SIGSTOP)
    filling = list(FILLING)
    while filling:
        response = Request("POST", "/v0/topics/log", filling[0]).send(client)
        if response.status_code == 429:
            assert response.headers["retry-after"] == "1"
            del filling[0]
        else:
            assert response.is_success, response.text
            acknowledged += 1
    return worker, acknowledged


Stalled = tuple[ServerProcess, Client, dict[str, httpx.Response]]


@pytest.fixture(scope="module")
def stalled(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stalled]:
    """A server with something of every protocol whose sealing has stopped, and its answers to all requests."""
    place = tmp_path_factory.mktemp(f"unsealed-{lane}")
    (place / "collections.json").write_text(json.dumps(COLLECTIONS))
    settings = {"config_file": str(place / "collections.json"), "declare": POLLS, **SETTINGS}
    process = ServerProcess(place / "data", fast_lane=lane == "fast", settings=settings)
    worker = 0
    try:
        client = process.start().client()
        for name in ("log", "unwanted"):
            client.put(name)
        client.put("careful", durability="fsync")
        client.put("fleeting", durability="ephemeral")
        client.queue("jobs", [1, 2])
        job = client.claim("jobs", lease_ms=600_000)[0]
        for request in (
            Request("PUT", "/v1/stream/s", b"", "application/json"),
            Request("POST", "/v1/stream/s", {"a": 1}),
            Request("POST", "/tables/note/append", {"parent": "p", "payload": {"a": 1}}),
            Request("POST", "/push/open/d", {"data": {"a": 1}}),
        ):
            assert request.send(client).is_success, request
        worker, _ = stall(process, client)
        write = WRITES["topics: write"]
        # The pressure is measured ten times a second.
        eventually(lambda: not write.send(client).is_success and sealing(client)["writes_slowed_total"] > 0)
        held = {"seqs": [job["$seq"]], "node": "worker"}

        def ask(request: Request) -> httpx.Response:
            own = Client(process.url)
            try:
                return (request._replace(body=held) if request.body == "held" else request).send(own)
            finally:
                own.close()

        # All at once, because each of the writes waits for a second.
        with ThreadPoolExecutor(len(WRITES)) as pool:
            responses = dict(zip(WRITES, pool.map(ask, WRITES.values()), strict=True))
        responses |= {name: ask(request) for name, request in OTHERS.items()}
        yield process, client, responses
    finally:
        if worker:
            os.kill(worker, signal.SIGCONT)
        process.end()


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_refused_with_a_time_to_come_back(stalled: Stalled, name: str) -> None:
    response = stalled[2][name]
    assert response.status_code == 429, response.text
    assert response.headers["retry-after"] == "1"
    assert "not sealed yet" in response.text
    assert "Nothing was written" in response.text


@pytest.mark.parametrize("name", OTHERS)
def test_reads_and_what_frees_space_go_on(stalled: Stalled, name: str) -> None:
    assert stalled[2][name].is_success, stalled[2][name].text


def test_a_publish_over_a_websocket_is_refused(stalled: Stalled) -> None:
    with stalled[1].websocket() as socket:
        socket.send({"op": "publish", "topic": "log", "request_id": "r", **RECORDS})
        answer = socket.next()
        assert (answer["op"], answer["request_id"], answer["code"]) == ("error", "r", "throttled")
        assert answer["detail"] == {"retry_after_ms": 1000}


def test_the_metrics_say_so(stalled: Stalled) -> None:
    found = sealing(stalled[1])
    assert found["budget_bytes"] == BUDGET
    assert BUDGET - 60_000 < found["unsealed_bytes"] < BUDGET * 9 // 8
    assert found["rounds_total"] >= 1
    assert 0 < found["round_bytes"] <= BUDGET
    assert found["writes_slowed_total"] >= len(WRITES)
    assert found["writes_refused_total"] >= len(WRITES)
    text = stalled[1].http.get("/v0/metrics").text
    assert f"\nstrandline_unsealed_budget_bytes {BUDGET}\n" in text


def test_nothing_was_made_by_refused_writes(stalled: Stalled) -> None:
    client = stalled[1]
    for path in ("/v0/topics/new", "/v1/stream/new-stream"):
        assert client.http.get(path).status_code == 404, path
    assert client.http.get("/pull/open/new?last=1").json()["data"]["items"] == []


def test_a_patient_write_and_a_router_wait_and_lose_nothing(start_server: StartServer) -> None:
    server = start_server(**SETTINGS)
    client = server.client()
    client.put("log")
    client.put("copy")
    client.call("PUT", "/v0/routers/r", {"source": "log", "dest": "copy"}, status=201)
    worker, acknowledged = stall(server, client)
    refused = sealing(client)["writes_refused_total"]
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(client.request, "POST", "/v0/topics/log", {**RECORDS, "disable_backpressure": True})
        other = server.client()
        eventually(lambda: sealing(other)["writes_refused_total"] > refused)
        assert not patient.done()
        os.kill(worker, signal.SIGCONT)
        assert patient.result(30).is_success
    acknowledged += 1
    assert client.call("GET", "/v0/topics/log")["head_seq"] == acknowledged
    eventually(lambda: client.call("GET", "/v0/topics/copy")["head_seq"] == acknowledged)


def test_kill_9_with_a_full_budget_loses_nothing(start_server: StartServer) -> None:
    server = start_server(**SETTINGS)
    client = server.client()
    client.put("log")
    worker, acknowledged = stall(server, client)
    server.close_clients()
    server.kill()
    os.kill(worker, signal.SIGKILL)  # it ends with its server, but not while it is stopped
    client = server.start().client()
    assert client.call("GET", "/v0/topics/log")["count"] == acknowledged
    eventually(lambda: sealing(client)["unsealed_bytes"] < BUDGET // 4)
    assert Request("POST", "/v0/topics/log", RECORDS).send(client).is_success


def test_a_server_stops_in_the_middle_of_a_replay(tmp_path: Path) -> None:
    async def main() -> None:
        application = Application(Settings(storage=StorageSettings(data_dir=str(tmp_path))))
        application.status.draining = True
        async with application.app.router.lifespan_context(application.app):
            pass
        assert (application.engine, application.failure) == (None, None)

    with Engine.open(tmp_path) as engine:
        engine.create("log", batch=Batch([b"x"])).wait()
    asyncio.run(main())
    with Engine.open(tmp_path) as engine:
        assert engine.log("log").head == 1


def test_a_server_stops_in_the_middle_of_a_sealing_job(start_server: StartServer) -> None:
    server = start_server(**SETTINGS)
    client = server.client()
    client.put("log")
    worker, acknowledged = stall(server, client)
    began = monotonic()
    assert server.stop() == 0
    assert monotonic() - began < 10
    assert not Path(f"/proc/{worker}").exists()
    assert " ERROR " not in server.log()
    assert "Traceback" not in server.log()
    client = server.start().client()
    assert client.call("GET", "/v0/topics/log")["count"] == acknowledged
    eventually(lambda: sealing(client)["unsealed_bytes"] < BUDGET // 4)
