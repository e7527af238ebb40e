"""kill -9 while clients replace the same documents: every acknowledged version is there, and each replaced the one that
its writer had seen."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
from support.collections_client import CollectionsClient
from support.server_process import ServerProcess
from support.signed_calls import ALICE

from strandline.signing.canonical_json import digest

CONFIG = {
    "version": 1,
    "collections": [
        {
            "name": "members",
            "storagePath": "members/{id}",
            "readRoles": ["public"],
            "writeRoles": ["public"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "maxVersions": 10_000,
            "queue": {"topic": "told", "includeBody": True},
        },
        {
            "name": "signed",
            "storagePath": "signed/{id}",
            "readRoles": ["public"],
            "writeRoles": ["cap:write:*"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "maxVersions": 10_000,
        },
    ],
}
WRITERS = 6
#: So many acknowledged versions, over all writers, before the plug is pulled.
ENOUGH = 60

#: The path and the data of a version.
Acknowledged = list[tuple[str, dict[str, Any]]]


def load(server: ServerProcess, writer: int, life: int, counted: list[int], enough: Event) -> Acknowledged:
    """Replace two documents in turn until the server is gone. Each version names the hash that it replaces."""
    acknowledged: Acknowledged = []
    signer = ALICE if writer % 2 else None
    with CollectionsClient(server.url, signer) as client:
        for n in range(10_000):
            path = f"{'signed' if signer else 'members'}/{n % 2}"
            try:
                base = client.pull(path, "")["hash"]
                data = {"life": life, "writer": writer, "n": n, "base": base}
                body = json.dumps({"data": data, "baseHash": base}).encode()
                response = client.ask("POST", f"/push/{path}", body)
            except httpx.TransportError:
                break
            assert response.status_code in (200, 409), response.text
            if response.status_code == 409:
                assert response.json()["currentHash"] != base
                continue
            assert response.json()["hash"] == digest(data)
            acknowledged.append((path, data))
            counted.append(n)
            if len(counted) > ENOUGH:
                enough.set()
    return acknowledged


def test_every_acknowledged_version_is_there_after_a_kill(tmp_path: Path) -> None:
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
        told = history(client, "told")
        for path in {path for path, _ in acknowledged}:
            versions = history(client, path.replace("/", "%2F"))
            for written_to, data in acknowledged:
                assert written_to != path or data in versions
            for before, version in zip([None, *versions], versions, strict=False):
                assert version["base"] == ("" if before is None else digest(before)), "two replaced the same version"
            pulled = client.pull(path, "")
            assert (pulled["data"], pulled["hash"]) == (versions[-1], digest(versions[-1]))
            if path.startswith("members"):
                assert [event["body"] for event in told if event["body"] in versions] == versions


def history(client: CollectionsClient, topic: str) -> list[Any]:
    """All records of a log, read as a topic."""
    found: list[Any] = []
    after = 0
    while True:
        page = client.http.post(f"/v0/topics/{topic}/diff", json={"from_seq": after, "limit": 1000}).json()
        found += [record["data"] for record in page["records"]]
        after = page["next_from_seq"]
        if page["caught_up"]:
            return found
