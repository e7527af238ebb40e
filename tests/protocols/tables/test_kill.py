"""A server that is killed in the middle of appends, again and again, while clients repeat what is in doubt."""

from __future__ import annotations

import http.client
import os
import threading
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from support.server_process import ServerProcess, StartServer
from support.tables_client import POLLS, TablesClient

LONG = os.environ.get("STRANDLINE_LONG") == "1"
ROUNDS = 25 if LONG else 2
#: A round ends after so many acknowledgements, drawn at random, and at the latest after so many seconds.
ACKNOWLEDGEMENTS = (20, 200)
ROUND_SECONDS = 3.0
SEED = 7


class Writer:
    """Appends rows with keys. Whatever was not acknowledged it sends again, with the same key."""

    def __init__(self, name: str, table: str, field: str) -> None:
        self.name = name
        self.table = table
        self._field = field
        #: What was acknowledged, by key: the seq.
        self.acknowledged: dict[str, int] = {}
        self.doubtful: list[str] = []
        self.failures: list[str] = []
        self._number = 0

    def run(self, url: str, dying: threading.Event, enough: Enough) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        line = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        try:
            while True:
                if self.doubtful:
                    keys = self.doubtful
                else:
                    keys = [f"{self.name}.{self._number + at}" for at in range(1 + self._number % 3)]
                    self._number += len(keys)
                self.doubtful = keys
                self._append(line, keys)
                self.doubtful = []
                enough.one_more()
        except (OSError, http.client.HTTPException) as error:
            if not dying.is_set():
                self.failures.append(f"{self.name}: {error!r} from a server that was not killed")
        except AssertionError as error:
            self.failures.append(str(error))
        finally:
            line.close()

    def _append(self, line: http.client.HTTPConnection, keys: list[str]) -> None:
        items = [{"payload": {self._field: key}, "idempotencyKey": key} for key in keys]
        if len(keys) == 1:
            answer = self._post(line, "append", {"parent": "p", **items[0]})
            results = [answer]
        else:
            results = self._post(line, "appendBulk", {"parent": "p", "items": items})["results"]
        for key, result in zip(keys, results, strict=True):
            known = self.acknowledged.setdefault(key, result["seq"])
            assert known == result["seq"], f"{key} was {known}, and is {result['seq']} now"

    def _post(self, line: http.client.HTTPConnection, op: str, body: Any) -> Any:
        headers = {"content-type": "application/json", "strandline-user": self.name}
        line.request("POST", f"/tables/{self.table}/{op}", msgspec.json.encode(body), headers)
        response = line.getresponse()
        answer = response.read()
        assert response.status == 200, f"{self.name}: {response.status} {answer!r}"
        return msgspec.json.decode(answer)


class Follower:
    """Is told of rows, and goes on behind the last one whenever the server is there again."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.failures: list[str] = []
        self._after = "0.0"

    def run(self, url: str, dying: threading.Event, until_ready: bool = False) -> None:
        client = TablesClient(url)
        try:
            with client.events(f"/tables/audit/pub/live?parent=p&after={self._after}") as events:
                while True:
                    event = events.next(30)
                    assert event.id is not None
                    self._after = event.id
                    if event.event == "append":
                        self.seqs.append(event.json["seq"])
                    elif until_ready:
                        return
        except (OSError, httpx.HTTPError, AssertionError) as error:
            if not dying.is_set():
                self.failures.append(f"{error!r} from a server that was not killed")
        finally:
            client.close()


class Enough:
    def __init__(self, wanted: int) -> None:
        self._missing = wanted
        self._lock = threading.Lock()
        self.reached = threading.Event()

    def one_more(self) -> None:
        with self._lock:
            self._missing -= 1
            if self._missing <= 0:
                self.reached.set()


def rows_of(server: ServerProcess, table: str, parent: str = "p") -> list[Any]:
    client = TablesClient(server.url)
    rows: list[Any] = []
    last, has_more = 0, True
    while has_more:
        page, beside = client.rows_after(table, variant="pub", parent=parent, seq=last, limit=1000)
        rows += page
        last, has_more = beside["last"], beside["has-more"]
    client.close()
    return rows


def feed_of(server: ServerProcess, table: str) -> list[str]:
    client = TablesClient(server.url)
    ids: list[str] = []
    query: dict[str, Any] = {"limit": 1000}
    while True:
        answer = client.read(table, "feed", variant="pub", **query)
        ids += [row["id"] for row in answer["page"]]
        if answer["isDone"]:
            client.close()
            return ids
        query["cursor"] = answer["continueCursor"]


def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(start_server: StartServer) -> None:
    random = Random(SEED)
    # Journals are small, so that keys are looked for in segments too.
    server = start_server(declare=POLLS, journal_bytes=50_000)
    writers = [
        Writer("plain-1", "audit", "what"),
        Writer("plain-2", "audit", "what"),
        Writer("hooked", "message", "content"),
    ]
    follower = Follower()
    for _ in range(ROUNDS):
        dying, enough = threading.Event(), Enough(random.randint(*ACKNOWLEDGEMENTS))
        threads = [threading.Thread(target=writer.run, args=(server.url, dying, enough)) for writer in writers]
        threads.append(threading.Thread(target=follower.run, args=(server.url, dying)))
        for thread in threads:
            thread.start()
        enough.reached.wait(ROUND_SECONDS)
        dying.set()
        server.kill()
        for thread in threads:
            thread.join(30)
        assert [failure for actor in (*writers, follower) for failure in actor.failures] == []
        server.start()
    audits, messages = rows_of(server, "audit"), rows_of(server, "message")
    for writer, rows in ((writers[0], audits), (writers[1], audits), (writers[2], messages)):
        by_key = {row["idempotencyKey"]: row["seq"] for row in rows}
        assert writer.acknowledged.items() <= by_key.items(), f"{writer.name}: something is lost"
    for rows in (audits, messages):
        keys = [row["idempotencyKey"] for row in rows]
        assert len(set(keys)) == len(keys), "something is there twice"
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    # What the hook wrote is there with the row, or neither is.
    told_rows = rows_of(server, "audit", "messages")
    told = [row["what"] for row in told_rows]
    assert sorted(told) == sorted(row["id"] for row in messages)
    assert all(writer.acknowledged for writer in writers)
    follower.run(server.url, threading.Event(), until_ready=True)
    assert follower.failures == []
    assert follower.seqs == [row["seq"] for row in audits]
    # Every row is in the feed once, and nothing else is.
    assert sorted(feed_of(server, "audit")) == sorted(row["id"] for row in [*audits, *told_rows])
