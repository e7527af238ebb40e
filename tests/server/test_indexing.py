"""A real server that indexes in the background: searches answer meanwhile, and nothing is lost when it is killed.

Journal files are small here, so that records are sealed soon.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import httpx
from support.server_process import ServerProcess, StartServer
from support.topics_client import eventually

from strandline.query.index_files.worker import MODULE

#: More than a request indexes by itself, so that index files are needed.
RECORDS = 20_000
BATCH = 5_000
#: Indexing has the lowest priority on a machine that other tests share.
INDEX_SECONDS = 120.0
SETTINGS = {"journal_bytes": 1 << 18}

SEARCH = {
    "fields": {
        "number": {
            "kind": "integer",
            "bindings": [{"version": 1, "jsonPointer": "/number"}],
            "exact": True,
            "column": True,
        },
        "text": {
            "kind": "text",
            "analyzer": "unicode_word_v1",
            "bindings": [{"version": 1, "jsonPointer": "/text"}],
            "positions": True,
        },
    }
}


class Events:
    """A stream with a search configuration on a server that may be replaced."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.sent = 0

    def _http(self) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, timeout=60, trust_env=False)

    def create(self, *, searchable: bool = True) -> None:
        with self._http() as http:
            assert http.put("/v1/stream/events", headers={"content-type": "application/json"}).status_code == 201
        if searchable:
            self.install({"schema": {"type": "object"}, "search": SEARCH})

    def install(self, schema: dict[str, Any]) -> None:
        with self._http() as http:
            assert http.post("/v1/stream/events/_schema", json=schema).is_success

    def append(self, count: int) -> None:
        with self._http() as http:
            for first in range(self.sent, self.sent + count, BATCH):
                documents = [
                    {"number": number, "text": f"event {number % 1000} of the day"}
                    for number in range(first, min(first + BATCH, self.sent + count))
                ]
                body = json.dumps(documents).encode()
                assert http.post(
                    "/v1/stream/events", content=body, headers={"content-type": "application/json"}
                ).is_success
        self.sent += count

    def search(self, query: str, **settings: Any) -> dict[str, Any]:
        """The first answer that is not late: on a busy machine, an answer may take longer than a search has."""
        with self._http() as http:

            def answer() -> dict[str, Any]:
                response = http.post("/v1/stream/events/_search", json={"q": query, **settings})
                found: dict[str, Any] = response.json()
                assert response.status_code == (408 if found.get("timed_out") else 200), response.text
                return {} if found["timed_out"] else found

            return eventually(answer, INDEX_SECONDS)

    def count(self, query: str) -> int:
        """All hits, page by page."""
        hits, after = 0, None
        while True:
            page = self.search(query, size=500, sort=["offset:asc"], **({"search_after": after} if after else {}))
            assert page["coverage"]["complete"]
            hits += len(page["hits"])
            after = page["next_search_after"]
            if after is None:
                return hits

    def progress(self) -> dict[str, Any]:
        with self._http() as http:
            status: dict[str, Any] = http.get("/v1/stream/events/_index_status").json()
            found: dict[str, Any] = status["progress"]
            return found

    def wait(self) -> None:
        """Until everything is indexed."""
        eventually(
            lambda: self.search("number:0")["coverage"]["complete"] and self.progress()["complete"], INDEX_SECONDS
        )

    def metrics(self) -> dict[str, Any]:
        with self._http() as http:
            found: dict[str, Any] = http.get("/v0/metrics", headers={"accept": "application/json"}).json()["indexing"]
            return found


def test_history_is_indexed_while_it_is_searched_and_the_index_survives_a_kill(start_server: StartServer) -> None:
    server = start_server(**SETTINGS)
    events = Events(server)
    events.create()
    while not list((server.data / "indexes").glob("*/*.arrow")):
        events.append(RECORDS)
        first = events.search("number:>=0", size=10)
        # There are always hits, and what is missing is said.
        assert len(first["hits"]) == 10
        assert first["coverage"]["possible_missing_events_upper_bound"] <= events.sent
    for worker in server.children(MODULE):
        os.kill(worker, signal.SIGKILL)
    events.wait()
    assert events.count('text:"event 7 of"') == events.sent // 1000
    # The index in memory may have answered so far. The job of the killed worker is repeated after a pause.
    eventually(lambda: events.metrics()["file_bytes"] > 0, INDEX_SECONDS)
    server.kill()
    files = {path.name for path in (server.data / "indexes").glob("*/*.arrow")}
    assert files
    server.start()
    again = events.search("number:>=0", size=10)
    assert len(again["hits"]) == 10
    assert again["coverage"]["indexed_segments"] > 0
    events.wait()
    assert events.count('text:"event 7 of"') == events.sent // 1000
    progress = events.progress()
    assert (progress["indexed_records"], progress["records"]) == (events.sent, events.sent)


def test_a_log_that_became_searchable_stays_so_when_the_server_is_killed(start_server: StartServer) -> None:
    """Its records are sealed and indexed in files, although the journal is far from full."""
    server = start_server()
    events = Events(server)
    events.create(searchable=False)
    events.append(RECORDS)
    events.install({"search": SEARCH})
    assert len(events.search("number:>=0", size=10)["hits"]) == 10
    eventually(lambda: events.progress()["complete"], INDEX_SECONDS)
    server.kill()
    server.start()
    found = events.search("number:>=0", size=10)
    assert (len(found["hits"]), found["coverage"]["complete"]) == (10, True)
    assert found["coverage"]["scanned_tail_docs"] == 0


def test_a_log_that_is_dropped_takes_its_index_files_with_it(start_server: StartServer) -> None:
    server = start_server(**SETTINGS)
    events = Events(server)
    events.create()
    events.append(RECORDS)
    events.wait()
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        assert http.delete("/v1/stream/events").is_success
    eventually(lambda: not list((server.data / "indexes").glob("*/*.arrow")))


def test_a_server_without_searchable_logs_starts_no_process_for_indexes(start_server: StartServer) -> None:
    server = start_server(**SETTINGS)
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        for _ in range(20):
            body = {"records": [{"data": "x" * 20_000}]}
            assert http.post("/v0/topics/plain", json=body).is_success
        eventually(
            lambda: http.get("/v0/metrics", headers={"accept": "application/json"}).json()["sealing"]["rounds_total"]
        )
    assert server.children(MODULE) == []
    assert not (server.data / "indexes").exists()
