"""A server whose journal has failed refuses every write of every protocol, still answers reads, and says so.

The journal fails for real: the system refuses to let its file grow (EFBIG).
"""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.arrow_client import ARROW, encode, table
from support.every_protocol import COLLECTIONS, Request
from support.server_process import ServerProcess, StartServer
from support.tables_client import POLLS
from support.topics_client import Client, eventually

RECORD = {"records": [{"data": 1}]}
#: The system lets no file grow beyond this. The journal is larger by then, the server's log is not.
MAX_FILE_BYTES = 100_000


def topic_code(answer: Any) -> str:
    return str(answer["error"]["code"])


def collection_code(answer: Any) -> str:
    assert answer["message"]
    return str(answer["error"])


#: Requests by protocol, and where the protocol has the code of an error.
WRITES: dict[str, tuple[Request, Callable[[Any], str], str]] = {
    "topics: write": (Request("POST", "/v0/topics/log", RECORD), topic_code, "read_only"),
    "topics: write to a fsync topic": (Request("POST", "/v0/topics/careful", RECORD), topic_code, "read_only"),
    "topics: write to an ephemeral topic": (Request("POST", "/v0/topics/fleeting", RECORD), topic_code, "read_only"),
    "topics: write to several": (
        Request("POST", "/v0/write", {"writes": [{"topic": "log", **RECORD}, {"topic": "careful", **RECORD}]}),
        topic_code,
        "read_only",
    ),
    "topics: create": (Request("PUT", "/v0/topics/new", {}), topic_code, "read_only"),
    "topics: drop": (Request("DELETE", "/v0/topics/log"), topic_code, "read_only"),
    "topics: delete records": (Request("POST", "/v0/topics/log/delete", {"before_seq": 2}), topic_code, "read_only"),
    "topics: commit of a consumer": (Request("PUT", "/v0/topics/log/consumers/c", {"seq": 1}), topic_code, "read_only"),
    "topics: creation of a consumer group": (
        Request("POST", "/v0/topics/log/groups/g", {"node": "n"}),
        topic_code,
        "read_only",
    ),
    "topics: router": (Request("PUT", "/v0/routers/r", {"source": "log", "dest": "copy"}), topic_code, "read_only"),
    "queues: claim": (Request("POST", "/v0/topics/jobs/claim", {"node": "n"}), topic_code, "read_only"),
    "queues: ack": (Request("POST", "/v0/topics/jobs/ack", "held"), topic_code, "read_only"),
    "queues: nack": (Request("POST", "/v0/topics/jobs/nack", "held"), topic_code, "read_only"),
    "queues: extend": (Request("POST", "/v0/topics/jobs/extend", "held"), topic_code, "read_only"),
    "streams: append": (Request("POST", "/v1/stream/s", {"a": 1}), topic_code, "read_only"),
    "streams: create": (Request("PUT", "/v1/stream/new-stream", b"", "application/json"), topic_code, "read_only"),
    "streams: delete": (Request("DELETE", "/v1/stream/s"), topic_code, "read_only"),
    "streams: schema": (
        Request("POST", "/v1/stream/empty/_schema", {"schema": {"type": "object"}}),
        topic_code,
        "read_only",
    ),
    "streams: subscribe": (
        Request("PUT", "/v1/stream/__ds/subscriptions/x", {"type": "pull-wake", "wake_stream": "w", "streams": ["s"]}),
        topic_code,
        "read_only",
    ),
    "arrow: append": (Request("POST", "/arrow/records/log", encode(table({"a": 1})), ARROW), topic_code, "read_only"),
    "arrow: stage": (Request("POST", "/arrow/staged/log", encode(table({"a": 1})), ARROW), topic_code, "read_only"),
    "tables: append": (
        Request("POST", "/tables/note/append", {"parent": "p", "payload": {"a": 1}}),
        topic_code,
        "READ_ONLY",
    ),
    "tables: remove": (Request("POST", "/tables/note/rm", {"id": "p:1"}), topic_code, "READ_ONLY"),
    "collections: push": (Request("POST", "/push/open/d", {"data": {"a": 1}}), collection_code, "read_only"),
    "collections: push to a new document": (
        Request("POST", "/push/open/new", {"data": {"a": 1}}),
        collection_code,
        "read_only",
    ),
}
READS = {
    "topics: read": Request("POST", "/v0/topics/log/diff", {"from_seq": 0}),
    "topics: describe": Request("GET", "/v0/topics/log"),
    "topics: queue": Request("GET", "/v0/topics/jobs"),
    "topics: queue that nobody has used": Request("GET", "/v0/topics/unused"),
    "topics: jobs": Request("POST", "/v0/topics/jobs/diff", {"from_seq": 0}),
    "topics: list": Request("GET", "/v0/topics"),
    "topics: consumers": Request("GET", "/v0/topics/log/consumers"),
    "streams: read": Request("GET", "/v1/stream/s?format=json"),
    "streams: details": Request("GET", "/v1/stream/s/_details"),
    "arrow: read": Request("GET", "/arrow/records/log"),
    "tables: read": Request("GET", "/tables/note/auth/list?parent=p"),
    "collections: pull": Request("GET", "/pull/open/d?last=1"),
    "metrics": Request("GET", "/v0/metrics"),
    "console": Request("GET", "/console/api/overview"),
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Client, dict[str, Any]]]:
    """A server with something of every protocol, whose journal has failed; and a job that is held."""
    place = tmp_path_factory.mktemp("read-only")
    (place / "collections.json").write_text(json.dumps(COLLECTIONS))
    settings = {"config_file": str(place / "collections.json"), "declare": POLLS}
    process = ServerProcess(place / "data", settings=settings)
    try:
        client = process.start().client()
        for name, durability in (("log", "disk"), ("careful", "fsync"), ("fleeting", "ephemeral"), ("copy", "disk")):
            client.put(name, durability=durability)
        client.write("log", ["x" * (MAX_FILE_BYTES // 2)] * 3)
        client.queue("jobs", [1, 2])
        client.queue("unused", [1])
        job = client.claim("jobs", lease_ms=600_000)[0]
        for request in (
            Request("PUT", "/v1/stream/s", b"", "application/json"),
            Request("PUT", "/v1/stream/empty", b"", "application/json"),
            Request("POST", "/v1/stream/s", {"a": 1}),
            Request("POST", "/tables/note/append", {"parent": "p", "payload": {"a": 1}}),
            Request("POST", "/push/open/d", {"data": {"a": 1}}),
        ):
            assert request.send(client).is_success, request
        assert client.http.get("/v0/ready").status_code == 200
        assert client.http.get("/v0/health").json()["status"] == "ok"
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
        assert Request("POST", "/v0/topics/log", RECORD).send(client).status_code == 503
        yield process, client, {"seqs": [job["$seq"]], "node": "worker", "lease_ms": 1000}
    finally:
        process.end()


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_refused(failed: tuple[ServerProcess, Client, dict[str, Any]], name: str) -> None:
    _, client, held = failed
    request, code_of, code = WRITES[name]
    response = (request._replace(body=held) if request.body == "held" else request).send(client)
    assert response.status_code == 503, response.text
    assert code_of(response.json()) == code
    assert response.headers["retry-after"] == "5"
    assert "File too large" in response.text
    assert "/" not in response.text.replace("journal/", "").replace("application/json", ""), "no path of the machine"


def test_a_publish_over_a_websocket_is_refused(failed: tuple[ServerProcess, Client, dict[str, Any]]) -> None:
    with failed[1].websocket() as socket:
        for topic in ("log", "careful"):
            socket.send({"op": "publish", "topic": topic, "request_id": "r", **RECORD})
            answer = socket.next()
            assert (answer["op"], answer["request_id"], answer["code"]) == ("error", "r", "read_only")
            assert answer["detail"] == {"retry_after_ms": 5000}


@pytest.mark.parametrize("name", READS)
def test_a_read_is_answered(failed: tuple[ServerProcess, Client, dict[str, Any]], name: str) -> None:
    response = READS[name].send(failed[1])
    assert response.status_code == 200, response.text


def test_the_probes_the_metrics_and_the_log_say_so(failed: tuple[ServerProcess, Client, dict[str, Any]]) -> None:
    server, client, _ = failed
    for path in ("/v0/ready", "/readyz"):
        response = client.http.get(path)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "5"
        error = response.json()["error"]
        assert error["code"] == "read_only"
        assert "File too large" in error["message"]
    for path in ("/v0/health", "/healthz"):
        health = client.call("GET", path)
        assert health["status"] == "read_only"
        assert "File too large" in health["reason"]
    alive = client.call("GET", "/health")
    assert (alive["ok"], alive["status"]) == (True, "read_only")
    assert "\ntopics_wal_read_only 1\n" in client.http.get("/v0/metrics").text
    assert client.http.get("/v0/metrics", headers={"accept": "application/json"}).json()["wal"]["read_only"] is True
    lines = [line for line in server.log().splitlines() if " ERROR " in line]
    assert len(lines) == 1, lines
    assert "File too large. The server is read-only now" in lines[0]
    assert "restart the server" in lines[0]


def test_a_deleted_data_directory_is_noticed(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(data=tmp_path / "data")
    client = server.client()
    client.put("careful", durability="fsync")
    client.write("careful", [1])
    shutil.rmtree(tmp_path / "data")
    # Nothing is acknowledged from here on, however soon it is asked for.
    response = Request("POST", "/v0/topics/careful", RECORD).send(client)
    assert (response.status_code, topic_code(response.json())) == (503, "read_only")
    assert "removed or replaced" in response.text
    assert client.http.get("/v0/ready").status_code == 503
    assert client.diff("careful")["records"][0]["data"] == 1
    assert server.log().count("removed or replaced") == 1


def test_a_deleted_data_directory_is_noticed_without_any_write(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(data=tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    eventually(lambda: not server.is_ready())
    assert httpx.get(server.url + "/v0/health", trust_env=False).json()["status"] == "read_only"
