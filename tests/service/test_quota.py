"""Bounds on all logs together hold for every protocol: the bytes of their records, and their number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.arrow_client import ARROW, encode, table
from support.every_protocol import COLLECTIONS, Request
from support.server_process import ServerProcess, StartServer
from support.tables_client import POLLS
from support.topics_client import Client, eventually

TEXT = "x" * 600
RECORDS = {"records": [{"data": TEXT}]}

#: Each appends more than there is room for, to a log that exists.
APPENDS = {
    "topics": Request("POST", "/v0/topics/log", RECORDS),
    "topics, several at once": Request("POST", "/v0/write", {"writes": [{"topic": "log", **RECORDS}]}),
    "queues": Request("POST", "/v0/topics/jobs", RECORDS),
    "streams": Request("POST", "/v1/stream/s", {"a": TEXT}),
    "arrow": Request("POST", "/arrow/records/log", encode(table({"a": TEXT})), ARROW),
    "tables": Request("POST", "/tables/note/append", {"parent": "p", "payload": {"a": TEXT}}),
    "tables, an update": Request("POST", "/tables/note/update", {"id": "p:1", "patch": {"a": TEXT}}),
    "collections": Request("POST", "/push/open/d", {"data": {"a": TEXT}}),
}
#: Each creates one more log.
CREATIONS = {
    "topics": Request("PUT", "/v0/topics/another", {}),
    "topics, by a write": Request("POST", "/v0/topics/another", {"records": [{"data": 1}]}),
    "topics, several at once": Request(
        "POST", "/v0/write", {"writes": [{"topic": "another", "records": [{"data": 1}]}]}
    ),
    "routers": Request("PUT", "/v0/routers/r", {"source": "log", "dest": "another", "create_dest": True}),
    "streams": Request("PUT", "/v1/stream/another", b"", "application/json"),
    "arrow": Request("POST", "/arrow/records/another?create=true", encode(table({"a": 1})), ARROW),
    "tables": Request("POST", "/tables/note/append", {"parent": "another", "payload": {"a": 1}}),
    "collections": Request("POST", "/push/open/another", {"data": {"a": 1}}),
}
#: Each makes room, so none is refused.
REMOVALS = {
    "topics: delete records": Request("POST", "/v0/topics/log/delete", {"before_seq": 1}),
    "queues: claim": Request("POST", "/v0/topics/jobs/claim", {"node": "n"}),
    "tables: remove": Request("POST", "/tables/note/rm", {"id": "p:1"}),
    "topics: drop": Request("DELETE", "/v0/topics/unwanted"),
    "streams: delete": Request("DELETE", "/v1/stream/unwanted-stream"),
}


def start(start_server: StartServer, path: Path, **settings: Any) -> ServerProcess:
    (path / "collections.json").write_text(json.dumps(COLLECTIONS))
    return start_server(config_file=str(path / "collections.json"), declare=POLLS, data=path / "data", **settings)


def fill(client: Client) -> int:
    """Make a log of every protocol; returns the number of logs."""
    for request in (
        Request("PUT", "/v0/topics/log", {}),
        Request("POST", "/v0/topics/log", {"records": [{"data": 1}]}),
        Request("PUT", "/v0/topics/unwanted", {}),
        Request("PUT", "/v0/topics/jobs", {"type": "queue"}),
        Request("POST", "/v0/topics/jobs", {"records": [{"data": 1}]}),
        Request("PUT", "/v1/stream/s", b"", "application/json"),
        Request("PUT", "/v1/stream/unwanted-stream", b"", "application/json"),
        Request("POST", "/tables/note/append", {"parent": "p", "payload": {"a": 1}}),
        Request("POST", "/push/open/d", {"data": {"a": 1}}),
    ):
        response = request.send(client)
        assert response.is_success, (request, response.text)
    # Two tables have a feed.
    return 9


def test_every_protocol_stays_below_the_bytes_of_all_records(start_server: StartServer, tmp_path: Path) -> None:
    client = start(start_server, tmp_path, max_total_bytes=600).client()
    fill(client)
    for name, request in APPENDS.items():
        response = request.send(client)
        assert (response.status_code, response.headers.get("retry-after")) == (429, "1"), (name, response.text)
        assert "max_total_bytes" in response.text, name
    for name, request in REMOVALS.items():
        response = request.send(client)
        assert response.is_success, (name, response.text)


def test_every_protocol_stays_below_the_number_of_logs(start_server: StartServer, tmp_path: Path) -> None:
    server = start(start_server, tmp_path, metrics_flush_ms=0)
    count = fill(server.client())
    server.stop()
    client = start(start_server, tmp_path, metrics_flush_ms=0, max_topics=count).client()
    for name, request in CREATIONS.items():
        response = request.send(client)
        assert (response.status_code, response.headers.get("retry-after")) == (429, "1"), (name, response.text)
        missing = client.http.get("/v0/topics/another")
        assert missing.status_code == 404, name
    assert REMOVALS["topics: drop"].send(client).is_success
    assert CREATIONS["streams"].send(client).is_success


def test_a_router_waits_until_its_records_fit(start_server: StartServer) -> None:
    client = start_server(max_total_bytes=1000).client()
    client.write("source", ["x" * 600])
    assert Request("PUT", "/v0/routers/r", {"source": "source", "dest": "dest"}).send(client).is_success
    assert client.diff("dest")["records"] == []
    client.delete("source", before_seq=2)
    client.write("source", ["y" * 300])
    eventually(lambda: [record["data"] for record in client.diff("dest")["records"]] == ["y" * 300])


def test_a_job_is_delivered_again_while_there_is_no_room_for_its_dead_letter(start_server: StartServer) -> None:
    # A dead letter has its failures with it, so it is larger than the job.
    client = start_server(max_total_bytes=2500).client()
    client.put("jobs", type="queue", max_deliveries=1, dead_letter="dead", lease_ms=100)
    client.write("jobs", ["x" * 600])
    client.write("other", ["y" * 1600])

    def claim() -> list[Any]:
        claimed: list[Any] = client.call("POST", "/v0/topics/jobs/claim", {"node": "n"})["claimed"]
        return claimed

    assert len(claim()) == 1
    eventually(lambda: len(claim()) == 1)
    assert client.http.delete("/v0/topics/other").is_success
    eventually(lambda: not claim() and len(client.diff("dead")["records"]) == 1)


@pytest.mark.parametrize("setting", ["max_topics", "max_streams"])
def test_both_names_of_the_setting_bound_the_same_number(start_server: StartServer, setting: str) -> None:
    client = start_server(**{setting: 1}).client()
    client.put("a")
    assert CREATIONS["streams"].send(client).status_code == 429
