"""Companions over HTTP: they answer, and it is told what they cover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.companion_lake import CompanionBed
from support.searched_log import DECLARED, NOW
from support.server_process import ServerProcess, StartServer
from support.streams_client import StreamsClient

from strandline.engine import Engine
from strandline.schema.registry import Registry

JSON_TYPE = {"content-type": "application/json"}
BODY = {"rollup": "requests", "from": NOW // 1000 * 1000, "to": NOW // 1000 * 1000 + 60_000, "interval": "1s"}


def entry(number: int) -> dict[str, Any]:
    return {"at": NOW + number * 100, "status": 200 + number % 3, "took": 1.5, "service": "api", "note": f"n{number}"}


def post(streams: StreamsClient, path: str, body: object) -> dict[str, Any]:
    response = streams.request("POST", path, body, headers=JSON_TYPE)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def get(streams: StreamsClient, path: str) -> dict[str, Any]:
    response = streams.request("GET", path)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def ask(process: ServerProcess) -> list[dict[str, Any]]:
    streams = StreamsClient(process.url)
    try:
        return [
            get(streams, "s/_index_status"),
            post(streams, "s/_search", {"q": "status:201", "sort": ["offset:asc"]}),
            post(streams, "s/_aggregate", BODY),
            get(streams, "s/_details"),
        ]
    finally:
        streams.close()


def cover(data: Path, first: int, last: int) -> None:
    """As a pipeline does while the server is down."""
    with Engine.open(data, background=False) as engine:
        log = engine.log("s")
        registry = Registry.load(log.notes["registry"])
        assert registry.search is not None
        bed = CompanionBed(engine, data, registry.search, log)
        bed.versions = registry.versions
        bed.cover((first, last))
        engine.seal()


def test_companions_answer_and_are_told_of(start_server: StartServer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = start_server(data=data)
    streams = StreamsClient(process.url)
    streams.create("s")
    post(streams, "s/_schema", {"schema": {"type": "object"}, "search": DECLARED})
    streams.append("s", [entry(number) for number in range(60)])
    streams.close()
    _, found, summed, _ = ask(process)
    assert summed["coverage"]["used_rollups"] is False
    process.stop()
    cover(data, 1, 50)
    process.start()
    status, again, summed_again, details = ask(process)
    # Before anybody has searched, it is known what there is.
    assert status["bundled_companions"]["object_count"] == 1
    assert int(status["bundled_companions"]["bytes_at_rest"]) > 0
    assert all(family["updated_at"] is not None for family in status["search_families"])
    assert again["hits"] == found["hits"]
    # Only what is behind the companion had to be read.
    assert again["coverage"]["scanned_tail_docs"] == 10
    assert again["coverage"]["indexed_segments"] == 2
    assert again["coverage"]["complete"]
    assert summed_again["buckets"] == summed["buckets"]
    assert summed_again["coverage"]["used_rollups"] is True
    assert "agg" in summed_again["coverage"]["index_families_used"]
    storage = details["storage"]
    assert storage["object_storage"]["bundled_companion_object_count"] == 1
    assert int(storage["object_storage"]["indexes_bytes"]) > 0
    assert sum(map(int, storage["companion_families"].values())) == int(
        details["index_status"]["bundled_companions"]["bytes_at_rest"]
    )
    for family in details["index_status"]["search_families"]:
        assert (family["covered_segment_count"], family["lag_segments"]) == (1, 0)
