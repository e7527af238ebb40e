"""Collections over real sockets."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import pairwise

import pytest
from support.collections_client import CollectionsClient
from support.server_process import ServerProcess
from support.signed_calls import ALICE, BOB

from strandline.signing.author_proofs import Proof, holds
from strandline.signing.canonical_json import canonical


def test_signed_elements_go_in_and_come_out(served: ServerProcess, name: str) -> None:
    with CollectionsClient(served.url, ALICE) as alice:
        path = f"signed/{name}"
        answers = [alice.push(path, {"n": n, "text": "é ✓ 😀"}).json() for n in range(3)]
        pulled = alice.pull(path)
        assert [item["data"]["n"] for item in pulled["data"]["items"]] == [0, 1, 2]
        assert [item["ts"] for item in pulled["data"]["items"]] == [answer["timestamp"] for answer in answers]
        assert pulled["hash"] == answers[2]["hash"]
        for item in pulled["data"]["items"]:
            assert holds(Proof(ALICE.public, item["authorSignature"]), path, canonical(item["data"]))
        assert len(alice.pull(path, f"checkpoint={answers[1]['timestamp']}")["data"]["items"]) == 1


def test_what_is_somebodys_own_is_for_nobody_else(served: ServerProcess) -> None:
    with CollectionsClient(served.url, ALICE) as alice, CollectionsClient(served.url, BOB) as bob:
        path = f"users/{ALICE.user_id}/log"
        assert alice.push(path, {"_encrypted": "AAAA", "_epoch": 1}).status_code == 200
        assert bob.push(path, {}).status_code == 403
        assert bob.ask("GET", f"/pull/{path}?last=1").json() == {"error": "Forbidden"}


@pytest.mark.both_lanes
def test_a_signed_append_is_made_once_and_answered_as_often_as_it_is_sent(served: ServerProcess, name: str) -> None:
    with CollectionsClient(served.url, ALICE) as alice:
        first = alice.push(f"signed/{name}", {"n": 1})
        again = [alice.http.send(first.request) for _ in range(3)]
        assert [first.status_code, *(answer.status_code for answer in again)] == [200] * 4
        assert all(answer.content == first.content for answer in again)
        assert len(alice.pull(f"signed/{name}")["data"]["items"]) == 1
        pulled = alice.ask("GET", f"/pull/signed/{name}?last=1")
        again = [alice.http.send(pulled.request)]
        assert (pulled.status_code, again[0].status_code, again[0].json()) == (200, 401, {"error": "Unauthorized"})


@pytest.mark.parametrize("mount", ["/team", "/v1/team"])
def test_a_namespace_has_routes_of_its_own(served: ServerProcess, name: str, mount: str) -> None:
    with CollectionsClient(served.url, ALICE) as alice:
        path = f"chat/{name}{mount.count('/')}"
        assert alice.push(path, {"n": 1}, mount=mount).status_code == 200
        assert len(alice.pull(path, mount=mount)["data"]["items"]) == 1
        assert alice.push(path, {"n": 1}).status_code == 404
        query = f'collections=chat&params={{"chat":[{{"room":"{path[5:]}"}}]}}&appendParams={{"chat":[{{"last":1}}]}}'
        entry = alice.http.get(f"{mount}/batch/pull?{query}").json()["collections"]["chat"][0]
        assert entry["data"]["items"][0]["data"] == {"n": 1}


def test_whoever_has_the_version_is_told_so_without_a_body(served: ServerProcess, name: str) -> None:
    with CollectionsClient(served.url) as client:
        hash = client.push(f"open/{name}", {"n": 1}).json()["hash"]
        response = client.ask("GET", f"/pull/open/{name}?last=1", if_none_match=f'"{hash}"')
        assert (response.status_code, response.content) == (304, b"")
        assert "etag" not in response.headers
        fresh = client.ask("GET", f"/pull/open/{name}?last=1")
        assert fresh.headers["etag"] == f'"{hash}"'


def test_health_config_and_list_are_there(served: ServerProcess, name: str) -> None:
    with CollectionsClient(served.url) as client:
        health = client.http.get("/health").json()
        assert (health["ok"], type(health["ts"])) == (True, int)
        assert {one["name"] for one in client.http.get("/config").json()["collections"]} >= {"open", "signed"}
        client.push(f"open/{name}", {})
        assert name in client.http.get("/list/open?limit=1000").json()["items"]


def test_many_connections_append_to_one_document(served: ServerProcess, name: str) -> None:
    """Times rise strictly, each is acknowledged with its own, and the last hash is that of the log."""
    writers, each, path = 8, 25, f"open/{name}"

    def write(writer: int) -> list[tuple[int, int, int]]:
        with CollectionsClient(served.url) as client:
            return [(client.push(path, {"w": writer, "n": n}).json()["timestamp"], writer, n) for n in range(each)]

    with ThreadPoolExecutor(writers) as pool:
        acknowledged = sorted(one for written in pool.map(write, range(writers)) for one in written)
    with CollectionsClient(served.url) as client:
        pulled = client.pull(path)
        last = client.pull(path, "last=7")
    items = [(item["ts"], item["data"]["w"], item["data"]["n"]) for item in pulled["data"]["items"]]
    assert items == acknowledged
    times = [ts for ts, _, _ in items]
    assert all(before < after for before, after in pairwise(times))
    text = {"n": writers * each, "last": {"w": items[-1][1], "n": items[-1][2]}}
    assert pulled["hash"] == last["hash"] == sha256(canonical(text)).hexdigest()
    assert [item["ts"] for item in last["data"]["items"]] == times[-7:]


def test_requests_that_are_sent_ahead_are_answered_in_turn(served: ServerProcess, name: str) -> None:
    request = b"".join(
        b"POST /push/open/%b HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: 18\r\n\r\n"
        b'{"data":{"n":%d}}' % (name.encode(), n)
        for n in range(100, 120)
    )
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        received = b""
        while received.count(b'"timestamp"') < 20:
            chunk = connection.recv(65536)
            assert chunk, received
            received += chunk
    assert received.count(b"HTTP/1.1 200 OK") == 20
    with CollectionsClient(served.url) as client:
        numbers = [item["data"]["n"] for item in client.pull(f"open/{name}")["data"]["items"]]
    assert numbers == [*range(100, 120)]


def test_an_event_and_its_element_are_there_together(served: ServerProcess, name: str) -> None:
    with CollectionsClient(served.url) as client:
        answer = client.push(f"told/{name}", {"n": 1}).json()
        records = client.http.post("/v0/topics/told-jobs/diff", json={"limit": 1000}).json()["records"]
        (event,) = [record["data"] for record in records if record["data"]["params"] == {"id": name}]
        assert event == {
            "collection": "told",
            "hash": answer["hash"],
            "timestamp": answer["timestamp"],
            "params": {"id": name},
            "body": {"n": 1},
        }


def test_errors_are_in_the_words_of_the_protocol(served: ServerProcess, name: str) -> None:
    with CollectionsClient(served.url) as client:
        for method, target, body, status, error in (
            ("GET", f"/pull/open/{name}", b"", 400, "pull_bound_required"),
            ("POST", f"/push/open/{name}", b"[", 400, "Body must be a JSON object"),
            ("GET", "/pull/open/a%20b?last=1", b"", 400, "Invalid path parameter"),
            ("GET", f"/pull/signed/{name}?last=1", b"", 403, "Forbidden"),
            ("GET", "/pull/nothing/here?last=1", b"", 404, "Not Found"),
            ("GET", "/batch/pull", b"", 400, "Missing collections parameter"),
        ):
            response = client.ask(method, target, body)
            assert (response.status_code, json.loads(response.content)) == (status, {"error": error})
            assert response.headers["content-type"] == "application/json"
        assert client.ask("GET", f"/push/open/{name}").status_code == 405
        assert client.ask("GET", f"/pull/signed/{name}?last=1", authorization="Cap nonsense").status_code == 401
