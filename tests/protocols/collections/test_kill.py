"""kill -9 under load: what was acknowledged is there, in order, and so is its event."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from threading import Event
from time import time
from typing import Any

import httpx
from support.collections_client import CollectionsClient, root_of
from support.server_process import ServerProcess
from support.signed_calls import ALICE, headers_of

from strandline.signing.author_proofs import sign
from strandline.signing.canonical_json import canonical

CONFIG = {
    "version": 1,
    "collections": [
        {
            "name": "open",
            "storagePath": "open/{id}",
            "readRoles": ["public"],
            "writeRoles": ["public"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "appendOnly": {"requireAuthorSignature": False, "chunkSize": 3},
            "queue": {"topic": "told", "includeParams": True, "includeBody": True},
        },
        {
            "name": "signed",
            "storagePath": "signed/{id}",
            "readRoles": ["public"],
            "writeRoles": ["cap:write:*"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "appendOnly": True,
        },
    ],
}
WRITERS = 6
#: So many acknowledged appends, over all writers, before the plug is pulled.
ENOUGH = 100

Acknowledged = list[tuple[str, int, dict[str, Any]]]


def load(server: ServerProcess, writer: int, life: int, counted: list[int], killed: Event) -> Acknowledged:
    """Append to documents in turn until the server is gone; tells what was acknowledged, in order."""
    acknowledged: Acknowledged = []
    signer = ALICE if writer % 2 else None
    with CollectionsClient(server.url, signer) as client:
        for n in range(10_000):
            path = f"{'signed' if signer else 'open'}/{(writer + n) % 3}"
            data = {"life": life, "writer": writer, "n": n}
            try:
                response = client.push(path, data)
            except httpx.TransportError:
                break
            assert response.status_code == 200, response.text
            acknowledged.append((path, response.json()["timestamp"], data))
            counted.append(n)
            if len(counted) > ENOUGH:
                killed.set()
    return acknowledged


def test_every_acknowledged_element_is_there_in_order_after_a_kill(tmp_path: Path) -> None:
    config = tmp_path / "collections.json"
    config.write_text(json.dumps(CONFIG))
    server = ServerProcess(tmp_path / "data", settings={"config_file": str(config)})
    acknowledged: Acknowledged = []
    try:
        for life in range(2):
            server.start()
            counted: list[int] = []
            enough = Event()
            with ThreadPoolExecutor(WRITERS) as pool:
                loads = [pool.submit(load, server, writer, life, counted, enough) for writer in range(WRITERS)]
                enough.wait(60)
                server.kill()
                acknowledged += [one for each in loads for one in each.result()]
        server.start()
        check(server, acknowledged)
    finally:
        server.end()


def check(server: ServerProcess, acknowledged: Acknowledged) -> None:
    with CollectionsClient(server.url) as client:
        for path in {path for path, _, _ in acknowledged}:
            pulled = client.pull(path)
            items = pulled["data"]["items"]
            times = [item["ts"] for item in items]
            assert times == sorted(set(times))
            there = {item["ts"]: item["data"] for item in items}
            for written_to, ts, data in acknowledged:
                assert written_to != path or there[ts] == data
            for life in range(2):
                for writer in range(WRITERS):
                    numbers = [each["n"] for each in there.values() if (each["life"], each["writer"]) == (life, writer)]
                    assert numbers == sorted(set(numbers)), "each writer waited for one answer before the next request"
            assert pulled["hash"] == sha256(canonical({"n": len(items), "last": items[-1]["data"]})).hexdigest()
            assert client.push(path, {}, times[-1]).status_code in (403, 409)
        check_events(client)


def check_events(client: CollectionsClient) -> None:
    """There is one for every element of the documents that are told of, and no other."""
    events: list[tuple[str, int]] = []
    after = 0
    while True:
        page = client.http.post("/v0/topics/told/diff", json={"from_seq": after, "limit": 1000}).json()
        events += [(record["data"]["params"]["id"], record["data"]["timestamp"]) for record in page["records"]]
        after = page["next_from_seq"]
        if page["caught_up"]:
            break
    elements = [(id, item["ts"]) for id in "012" for item in client.pull(f"open/{id}")["data"]["items"]]
    assert sorted(events) == sorted(elements)


def test_an_append_whose_answer_was_lost_with_the_server_gets_it_from_the_next_one(tmp_path: Path) -> None:
    config = tmp_path / "collections.json"
    config.write_text(json.dumps(CONFIG))
    server = ServerProcess(tmp_path / "data", settings={"config_file": str(config)})
    proof = sign(ALICE, "signed/d1", {"n": 1})
    body = json.dumps({"data": {"n": 1}, "authorPubkey": proof.public_key, "authorSignature": proof.signature}).encode()
    now = int(time() * 1000)
    # The next server has another port, which is not in this name.
    headers = headers_of(root_of(ALICE), ALICE, "POST", "/push/signed/d1", body, ts=now, host="localhost")
    headers["content-type"] = "application/json"
    answers = []
    try:
        for _ in range(2):
            server.start()
            with CollectionsClient(server.url, ALICE) as alice:
                answers += [alice.http.post("/push/signed/d1", content=body, headers=headers) for _ in range(2)]
                assert len(alice.pull("signed/d1")["data"]["items"]) == 1
            server.kill()
    finally:
        server.end()
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len({answer.content for answer in answers}) == 1
