"""Every error code of the protocol, produced once, with its status and its envelope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.raw_http import RawConnection, request
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, eventually

from strandline.engine import Batch, Config, Engine, Options
from strandline.engine.errors import DiskFull, ReplicaBehind
from strandline.protocols.topics.errors import PROBLEMS
from strandline.server.application import Application
from strandline.server.settings import Settings, StorageSettings
from strandline.service.http import Call, Reply, Route

Ask = Callable[[Client], httpx.Response]


def post(path: str, body: Any) -> Ask:
    return lambda client: client.request("POST", path, body)


def put(path: str, body: Any) -> Ask:
    return lambda client: client.request("PUT", path, body)


def get(path: str, **headers: str) -> Ask:
    return lambda client: client.http.get(path, headers=headers)


RECORD = {"records": [{"data": 1}]}
#: Those that one server with one key gives, by the key that asks.
ASKED: dict[str, Ask] = {
    "invalid_request": post("/v0/topics/log", {"records": []}),
    "batch_too_large": post("/v0/topics/log", {"records": [{"data": 1}] * 3}),
    "record_too_large": post("/v0/topics/log", {"records": [{"data": "x" * 100}]}),
    "unauthorized": get("/v0/topics", authorization="Bearer stranger"),
    "forbidden": get("/v0/topics", authorization="Bearer writer"),
    "not_found": get("/v0/nowhere"),
    "topic_not_found": get("/v0/topics/absent"),
    "router_not_found": get("/v0/routers/absent"),
    "consumer_not_found": get("/v0/topics/log/consumers/absent"),
    "group_not_found": get("/v0/topics/log/groups/absent"),
    "method_not_allowed": lambda client: client.http.patch("/v0/topics/log"),
    "not_acceptable": get("/v0/topics/jobs/work?node=n", accept="text/html"),
    "router_cycle": put("/v0/routers/back", {"source": "copy", "dest": "log"}),
    "topic_exists_incompatible": put("/v0/topics/log", {"type": "queue"}),
    "topic_not_empty": lambda client: client.http.delete("/v0/topics/full?if_empty=true"),
    "group_has_members": lambda client: (
        client.request("POST", "/v0/topics/log/groups/g", {"node": "n"})
        and client.http.delete("/v0/topics/log/groups/g")
    ),
    "topic_has_forks": lambda client: client.http.delete("/v0/topics/log"),
    "not_a_queue": post("/v0/topics/log/claim", {"node": "n"}),
    "not_json": get("/v0/topics/text"),
    "not_writable": post("/v0/topics/closed", RECORD),
    "payload_too_large": post("/v0/topics/log", {"records": [{"data": "x" * 1000}]}),
    "unsupported_media_type": lambda client: client.http.post("/v0/topics/log", content=b"1"),
    "topic_full": post("/v0/topics/full", RECORD),
    "throttled": put("/v0/topics/one-too-many", {}),
}


def check(code: str, response: httpx.Response) -> None:
    """The answer is this error, and is as every error is."""
    assert response.status_code == PROBLEMS[code].status, response.text
    answer = response.json()
    assert set(answer) == {"error"}
    assert {"code", "message"} <= set(answer["error"]) <= {"code", "message", "detail"}
    assert answer["error"]["code"] == code
    assert isinstance(answer["error"]["message"], str)
    assert isinstance(answer["error"].get("detail", {}), dict)
    assert response.headers["content-type"] == "application/json"
    assert ("retry-after" in response.headers) is PROBLEMS[code].retry
    assert ("allow" in response.headers) is (code == "method_not_allowed")


@pytest.fixture(scope="module")
def strict(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with narrow limits, and with a topic of every kind: as many logs as there may be."""
    data = tmp_path_factory.mktemp(f"strict-{lane}") / "data"
    settings = {"max_batch_records": 2, "max_record_bytes": 50, "max_body_bytes": 500, "max_logs": 7}
    process = ServerProcess(data, fast_lane=lane == "fast", keys="admin,writer:w", settings=dict(settings))
    try:
        client = process.start().client()
        client.put("log")
        client.queue("jobs")
        client.put("full", discard="reject", cap_records=1)
        client.write("full", [1])
        client.call("PUT", "/v0/routers/forth", {"source": "log", "dest": "copy"}, status=201)
        client.http.put("/v1/stream/text", headers={"content-type": "text/plain"})
        client.http.put("/v1/stream/closed", headers={"content-type": "application/json", "stream-closed": "true"})
        client.http.put("/v1/stream/fork", headers={"stream-forked-from": "/v1/stream/log"})
        yield client
    finally:
        process.end()


@pytest.mark.parametrize("code", list(ASKED))
def test_a_request_can_be_refused_with(strict: Client, code: str) -> None:
    check(code, ASKED[code](strict))


def in_process(
    tmp_path: Path,
    ask: Callable[[Application], None],
    path: str,
    *,
    ready: bool = True,
    body: object = RECORD,
    **storage: Any,
) -> httpx.Response:
    """The answer of an application without a process, after something was done to it."""

    async def main() -> httpx.Response:
        application = Application(Settings(storage=StorageSettings(data_dir=str(tmp_path / "data"), **storage)))
        transport = httpx.ASGITransport(application.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            if not ready:
                ask(application)
                return await client.get(path)
            async with application.app.router.lifespan_context(application.app):
                while not application.status.ready:
                    await asyncio.sleep(0.001)
                ask(application)
                return await client.post(path, json=body)

    return asyncio.run(main())


def test_not_ready(tmp_path: Path) -> None:
    check("not_ready", in_process(tmp_path, lambda _: None, "/v0/topics", ready=False))


def test_internal(tmp_path: Path) -> None:
    def break_something(application: Application) -> None:
        def broken(call: Call) -> Reply:
            raise ZeroDivisionError("a secret of the server")

        application.gate.add("server", [Route(method="POST", path="/v0/broken", handler=broken)])

    response = in_process(tmp_path, break_something, "/v0/broken")
    check("internal", response)
    assert "secret" not in response.text


def test_disk_full(tmp_path: Path) -> None:
    def fill_the_disk(application: Application) -> None:
        assert application.engine is not None

        journal = application.engine.journal
        usual = journal.write

        def write(*_: object) -> None:
            journal.write = usual  # type: ignore[method-assign]
            raise DiskFull("journal", 200)

        journal.write = write  # type: ignore[assignment,method-assign]

    response = in_process(tmp_path, fill_the_disk, "/v0/topics/a")
    check("disk_full", response)


def test_read_only(tmp_path: Path) -> None:
    def fail_the_journal(application: Application) -> None:
        assert application.engine is not None
        application.engine.journal.fail(OSError(5, "Input/output error"))

    check("read_only", in_process(tmp_path, fail_the_journal, "/v0/topics/a"))


def test_damaged_data(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("a").wait().append(Batch.of(b"1")).wait()
        engine.seal()
    (tmp_path / "data/segments/00000001.arrow").unlink()
    check("damaged_data", in_process(tmp_path, lambda _: None, "/v0/topics/a/diff", body={}))


def test_standby(tmp_path: Path) -> None:
    def stand_by(application: Application) -> None:
        application.status.standby = True
        application.status.leader = "10.0.0.1:4000"

    response = in_process(tmp_path, stand_by, "/v0/topics", ready=False)
    check("standby", response)
    assert response.json()["error"]["detail"] == {"leader": "10.0.0.1:4000"}


COPIED = {**RECORD, "config": {"durability": "replicated"}}


def test_no_replica(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", Options(replica=str(tmp_path / "replica")), background=False) as engine:
        engine.create("a", Config(durability="replicated")).wait()
    check("no_replica", in_process(tmp_path, lambda _: None, "/v0/topics/a"))
    refused = in_process(tmp_path, lambda _: None, "/v0/topics/b", body=COPIED)
    check("invalid_request", refused)
    assert "replica" in refused.text


@pytest.mark.parametrize("code", ["replica_behind", "replica_away"])
def test_a_replica_that_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr("strandline.engine.replica.replica.CLOSE_SECONDS", 0.0)

    def fail_the_store(application: Application) -> None:
        assert application.engine is not None
        replica = application.engine.replica
        assert replica is not None

        def create(name: str, data: bytes) -> bool:
            raise OSError(5, "Input/output error")

        replica._store.create = create  # type: ignore[method-assign]
        if code == "replica_away":
            commit = application.engine.create("a", Config(durability="replicated"), batch=Batch.of(b"1"))
            with pytest.raises(ReplicaBehind):
                commit.wait()

    options = {"replica": str(tmp_path / "replica"), "replica_timeout_ms": 1}
    check(code, in_process(tmp_path, fail_the_store, "/v0/topics/a", body=COPIED, **options))


def test_shutting_down(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane)
    server.client().put("a")
    with RawConnection(server.url) as upload:
        upload.send(request("POST", "/v0/topics/a", b'{"records":[{"data":1}]}')[:-1])
        assert httpx.get(server.url + "/v0/health", trust_env=False).status_code == 200
        server.terminate()
        responses: list[httpx.Response] = []

        def ask() -> bool:
            responses.append(httpx.get(server.url + "/v0/topics", trust_env=False))
            return responses[-1].status_code == 503

        eventually(ask)
        check("shutting_down", responses[-1])
        upload.send(b"}")
        upload.answer()
    assert server.wait() == 0


def test_every_code_is_produced_here() -> None:
    elsewhere = {"not_ready", "internal", "damaged_data", "disk_full", "read_only", "shutting_down", "standby"}
    elsewhere |= {"no_replica", "replica_behind", "replica_away"}
    assert set(PROBLEMS) == set(ASKED) | elsewhere
