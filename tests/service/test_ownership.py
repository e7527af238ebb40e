"""A log that belongs to a table or a collection is changed by its owner only. Every other protocol may read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.arrow_client import ARROW, encode, table
from support.every_protocol import COLLECTIONS, Request
from support.server_process import ServerProcess
from support.tables_client import POLLS
from support.topics_client import Client, eventually

from strandline.history.directory import DirectoryHistory
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.targets import CannotAppend, open_target

PROFILE = {"apiVersion": "durable.streams/profile/v1", "profile": {"kind": "generic"}}
#: The logs that have owners. Topics, which have no slashes in the names that they create, could take the last one.
OWNED = {"table": "note/p", "changes of a table": "note~changes/p", "collection": "open/d", "plain name": "flat"}
OPEN: list[dict[str, Any]] = COLLECTIONS["collections"]  # type: ignore[assignment]
FLAT = {**OPEN[0], "name": "flat", "storagePath": "flat"}
RESERVED = {**OPEN[0], "name": "reserved", "storagePath": "reserved"}

#: How the owners make them.
OWNERS = (
    Request("POST", "/tables/note/append", {"parent": "p", "payload": {"a": 1}}),
    Request("POST", "/tables/note/update", {"id": "p:1", "patch": {"a": 2}}),
    Request("POST", "/push/open/d", {"data": {"a": 1}}),
    Request("POST", "/push/flat", {"data": {"a": 1}}),
)


def changes_of(name: str) -> dict[str, Request]:
    """Requests of other protocols that would change the log."""
    path = name.replace("/", "%2F")
    records = {"records": [{"data": 1}]}
    return {
        "topics: write": Request("POST", f"/v0/topics/{path}", records),
        "topics: write to several": Request("POST", "/v0/write", {"writes": [{"topic": name, **records}]}),
        "topics: configure": Request("PUT", f"/v0/topics/{path}", {"ttl_ms": 1}),
        "topics: delete records": Request("POST", f"/v0/topics/{path}/delete", {"before_seq": 100}),
        "topics: drop": Request("DELETE", f"/v0/topics/{path}"),
        "queues: make it one": Request("PUT", f"/v0/topics/{path}", {"type": "queue"}),
        "queues: claim": Request("POST", f"/v0/topics/{path}/claim", {"node": "n"}),
        "queues: acknowledge": Request("POST", f"/v0/topics/{path}/ack", {"node": "n", "seqs": [1]}),
        "queues: redrive": Request("POST", f"/v0/topics/{path}/redrive", {"to": "other"}),
        "queues: dead letters into it": Request("PUT", "/v0/topics/jobs", {"type": "queue", "dead_letter": name}),
        "routers: forward into it": Request("PUT", "/v0/routers/r", {"source": "other", "dest": name}),
        "streams: append": Request("POST", f"/v1/stream/{name}", {"a": 1}),
        "streams: create": Request("PUT", f"/v1/stream/{name}", b"", "text/plain"),
        "streams: schema": Request("POST", f"/v1/stream/{name}/_schema", {"schema": {"type": "object"}}),
        "streams: profile": Request(
            "POST",
            f"/v1/stream/{name}/_profile",
            PROFILE,
        ),
        "streams: OTLP": Request("POST", f"/v1/stream/{name}/_otlp/v1/traces", {"resourceSpans": []}),
        "streams: wakes into it": Request(
            "PUT",
            "/v1/stream/__ds/subscriptions/waker",
            {"type": "pull-wake", "pattern": "woken/*", "wake_stream": name},
        ),
        "streams: delete": Request("DELETE", f"/v1/stream/{name}"),
        "arrow: forget a writer": Request("DELETE", f"/arrow/progress/{name}?writer=w"),
        "arrow: append": Request("POST", f"/arrow/records/{name}", encode(table({"a": 1})), ARROW),
        "arrow: stage": Request("POST", f"/arrow/staged/{name}", encode(table({"a": 1})), ARROW),
    }


def server_in(place: Path) -> ServerProcess:
    (place / "collections.json").write_text(json.dumps({**COLLECTIONS, "collections": [*OPEN, FLAT, RESERVED]}))
    settings = {"config_file": str(place / "collections.json"), "declare": POLLS}
    return ServerProcess(place / "data", fast_lane=True, settings=settings)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    process = server_in(tmp_path_factory.mktemp("ownership"))
    try:
        client = process.start().client()
        client.write("other", [1])
        for request in OWNERS:
            assert request.send(client).is_success, request
        yield client
    finally:
        process.end()


@pytest.mark.parametrize("kind", OWNED)
@pytest.mark.parametrize("change", changes_of("x"))
def test_nobody_but_its_owner_changes_a_log(client: Client, kind: str, change: str) -> None:
    name = OWNED[kind]
    before = client.http.get(f"/arrow/records/{name}").content
    response = changes_of(name)[change].send(client)
    assert response.status_code in (400, 404, 409), (change, response.text)
    assert client.http.get(f"/arrow/records/{name}").content == before
    error = response.json()["error"]
    assert isinstance(error, dict), "the error has the shape of the protocol that was asked"


def test_a_stream_with_an_owner_is_not_closed_by_others(client: Client) -> None:
    for name in OWNED.values():
        closed = client.http.post(f"/v1/stream/{name}", headers={"stream-closed": "true"})
        assert closed.status_code == 409, closed.text
        assert "stream-closed" not in client.http.head(f"/v1/stream/{name}").headers


@pytest.mark.parametrize("kind", OWNED)
def test_other_protocols_read_it(client: Client, kind: str) -> None:
    name = OWNED[kind]
    assert client.http.get(f"/v1/stream/{name}", params={"format": "json"}).json()
    assert client.http.get(f"/arrow/records/{name}").is_success


def test_rows_and_seqs_of_a_table_survive_a_delete_by_streams(client: Client) -> None:
    appended = Request("POST", "/tables/note/append", {"parent": "kept", "payload": {"a": 1}}).send(client).json()
    assert client.http.delete("/v1/stream/note/kept").status_code == 409
    again = Request("POST", "/tables/note/append", {"parent": "kept", "payload": {"a": 2}}).send(client).json()
    assert again["seq"] == appended["seq"] + 1


@pytest.mark.parametrize(
    "creation",
    [
        Request("PUT", "/v1/stream/note/squatted", b"", "application/json"),
        Request("PUT", "/v1/stream/note~changes/squatted", b"", "application/json"),
        Request("POST", "/arrow/records/note/squatted?create=true", encode(table({"a": 1})), ARROW),
        Request("PUT", "/v1/stream/open/squatted", b"", "application/json"),
        Request("PUT", "/v1/stream/reserved", b"", "application/json"),
        Request("PUT", "/v0/topics/reserved", {}),
        Request("POST", "/v0/topics/reserved", {"records": [{"data": 1}]}),
        Request("POST", "/v0/write", {"writes": [{"topic": "reserved", "records": [{"data": 1}]}]}),
        Request("PUT", "/v0/routers/squatter", {"source": "other", "dest": "reserved"}),
        Request("PUT", "/v0/topics/jobs", {"type": "queue", "dead_letter": "reserved"}),
        Request("POST", "/arrow/records/reserved?create=true", encode(table({"a": 1})), ARROW),
    ],
)
def test_the_names_of_tables_and_collections_cannot_be_taken(client: Client, creation: Request) -> None:
    response = creation.send(client)
    assert response.status_code in (400, 409), response.text
    assert Request("POST", "/tables/note/append", {"parent": "squatted", "payload": {"a": 1}}).send(client).is_success
    for path in ("open/squatted", "reserved"):
        assert client.http.get(f"/pull/{path}?full=true").json()["hash"] == ""


def test_a_log_beside_a_table_or_a_collection_does_not_block_it(client: Client) -> None:
    for name in ("note", "open"):
        assert client.http.put(f"/v0/topics/{name}").status_code == 201
    assert Request("POST", "/tables/note/append", {"parent": "beside", "payload": {"a": 1}}).send(client).is_success
    assert Request("POST", "/push/open/beside", {"data": {"a": 1}}).send(client).is_success


@pytest.mark.parametrize("kind", OWNED)
def test_a_consumer_is_a_reader_and_changes_nothing(client: Client, kind: str) -> None:
    name = OWNED[kind]
    before = client.http.get(f"/arrow/records/{name}").content
    consumer = f"/v0/topics/{name.replace('/', '%2F')}/consumers/c"
    assert Request("PUT", consumer, {"seq": 1}).send(client).json()["lag"] == 0
    assert client.http.delete(consumer).is_success
    assert client.http.get(f"/arrow/records/{name}").content == before


def test_a_fork_of_a_table_is_a_stream_of_its_own(client: Client) -> None:
    head = {"stream-forked-from": "/v1/stream/note/p", "content-type": "application/json"}
    assert client.http.put("/v1/stream/copy", headers=head).status_code == 201
    assert Request("POST", "/v1/stream/copy", {"a": 1}).send(client).is_success
    assert client.http.delete("/v1/stream/copy").status_code == 204


def test_a_log_that_has_an_owner_cannot_be_written_by_path(tmp_path: Path) -> None:
    """As Spark and imports do that get a data directory instead of a server."""
    process = server_in(tmp_path)
    try:
        client = process.start().client()
        for request in OWNERS:
            assert request.send(client).is_success, request
        process.stop()
    finally:
        process.end()
    with open_target(LogLocation(path=str(tmp_path / "data"))) as target:
        for name in OWNED.values():
            with pytest.raises(CannotAppend, match=f"cannot append to log '{name}'"):
                target.append(name, pa.table({"data": pa.array([b"{}"], pa.binary())}))
        assert target.append("other", pa.table({"data": pa.array([b"{}"], pa.binary())})).count == 1
    history = DirectoryHistory(tmp_path / "data")
    assert {info.name: info.head for info in history.logs() if info.name in OWNED.values()} == dict.fromkeys(
        OWNED.values(), 1
    )
    history.close()


@pytest.mark.parametrize(("kind", "write"), list(zip(OWNED, OWNERS, strict=True)))
def test_a_router_copies_from_it(client: Client, kind: str, write: Request) -> None:
    name, copies = OWNED[kind], f"copies-of-{kind.replace(' ', '-')}"
    Request("PUT", f"/v0/routers/{copies}", {"source": name, "dest": copies}).send(client).raise_for_status()
    write.send(client).raise_for_status()
    copied = eventually(lambda: client.diff(copies)["records"])
    read = client.diff(name.replace("/", "%2F"))["records"]
    assert [record["data"] for record in copied] == [read[-1]["data"]]
