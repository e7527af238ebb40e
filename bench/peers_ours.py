"""This server as one of the sides: topics, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import topics_server
from bench.measure import Sample
from bench.peers_line import Line, Request, http_complete
from bench.peers_sides import CLIENTS, EVERYTHING, Durability, Log, Peer, Side, catch_up_in_pages, new_log
from bench.topics_peers import Wrk, missing
from bench.topics_server import Server, request_bytes, write_body

NAME = "Strandline"


class Strandline:
    name = NAME
    face = "topics"
    does = EVERYTHING
    classes: Mapping[Durability, str] = {"memory": "memory", "disk": "disk", "fsync": "fsync"}

    def __init__(self, directory: Path, server: Server) -> None:
        self._directory = directory
        self.server = server

    def pid(self, durability: Durability) -> int:
        return self.server.pid

    def port(self, log: Log) -> int:
        return self.server.port

    def create(self, durability: Durability, *, queue: bool = False) -> Log:
        log = new_log(durability)
        with self.connect(log) as line:
            settings = {"type": "queue" if queue else "log", "durability": durability}
            line.ask(_request("PUT", f"/v0/topics/{log.name}", msgspec.json.encode(settings)))
        return log

    def drop(self, log: Log) -> None:
        with self.connect(log) as line:
            line.ask(_request("DELETE", f"/v0/topics/{log.name}"))

    def connect(self, log: Log) -> Line:
        return Line(self.server.port, check)

    def append(self, log: Log, records: Sequence[bytes]) -> Request:
        return _request("POST", f"/v0/topics/{log.name}", write_body(list(records)), len(records))

    fill = append

    def announce(self, log: Log, record: bytes) -> Request:
        return self.append(log, [record])

    def singles(self, log: Log, record: bytes, seconds: float) -> Sample:
        wrk = Wrk(self._directory, self.server)
        return wrk.run(write_body([record]), [f"/v0/topics/{log.name}"], CLIENTS, seconds).sample()

    def page(self, log: Log, after: int, limit: int) -> Request:
        body = b'{"from_seq":%d,"limit":%d}' % (after, limit)
        return _request("POST", f"/v0/topics/{log.name}/diff", body, limit)

    def catch_up(self, log: Log, records: int) -> Sample:
        return catch_up_in_pages(self, log, records, b'"$seq":')


def _request(method: str, path: str, body: bytes = b"", records: int = 1) -> Request:
    return Request(request_bytes(method, path, body), http_complete, records)


def check(answer: bytes) -> None:
    if answer[9:10] != b"2":
        raise RuntimeError(f"refused: {answer[:500]!r}")


@contextmanager
def serving(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
    directory.mkdir(exist_ok=True)
    with topics_server.serving(directory / "data") as server:
        yield Strandline(directory, server)


def without_wrk() -> str:
    return "wrk is not installed (Debian: apt-get install wrk)" if missing("wrk") else ""


PEER = Peer(NAME, without_wrk, serving)
