"""Servers of the streams protocol and of the collections protocol as sides, and this server as one of each.

They are started and configured as in the groups *streams* and *collections*, which have more measurements.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench import collections_peers, streams_load, streams_peers, topics_server
from bench.collections_peers import OPEN, RELAXED, SMALL_CHUNKS
from bench.measure import Sample
from bench.peers_line import Line, Request
from bench.peers_ours import NAME, check, without_wrk
from bench.peers_sides import CLIENTS, Durability, Log, Peer, Side, Workload, new_log
from bench.streams_load import array, pages
from bench.topics_peers import Wrk
from bench.topics_server import Server


class HttpSide(ABC):
    """A server with an HTTP interface of which only appends are implemented here."""

    face = "http"
    does: frozenset[Workload] = frozenset(("singles", "one"))

    def __init__(self, name: str, directory: Path, server: Server, classes: Mapping[Durability, str]) -> None:
        self.name = name
        self.classes = classes
        self._directory = directory
        self.server = server

    def pid(self, durability: Durability) -> int:
        return self.server.pid

    def port(self, log: Log) -> int:
        return self.server.port

    def create(self, durability: Durability, *, queue: bool = False) -> Log:
        return new_log(durability)

    @abstractmethod
    def drop(self, log: Log) -> None: ...

    def connect(self, log: Log) -> Line:
        return Line(self.server.port, check)

    @abstractmethod
    def path(self, log: Log) -> str: ...

    @abstractmethod
    def body(self, records: Sequence[bytes]) -> bytes: ...

    def append(self, log: Log, records: Sequence[bytes]) -> Request:
        content = streams_load.request_bytes("POST", self.path(log), self.body(records))
        return Request(content, _complete, len(records))

    def fill(self, log: Log, records: Sequence[bytes]) -> Request:
        return self.append(log, records)

    def announce(self, log: Log, record: bytes) -> Request:
        return self.append(log, [record])

    def singles(self, log: Log, record: bytes, seconds: float) -> Sample:
        return Wrk(self._directory, self.server).run(self.body([record]), [self.path(log)], CLIENTS, seconds).sample()

    def page(self, log: Log, after: int, limit: int) -> Request:
        raise NotImplementedError

    def catch_up(self, log: Log, records: int) -> Sample:
        raise NotImplementedError


def _complete(data: bytearray) -> bool:
    """An answer to an append: without a body, with a length, or in chunks."""
    head, found, body = bytes(data).partition(b"\r\n\r\n")
    if not found:
        return False
    answer = streams_load.Answer(int(head[9:12]), head.lower(), body)
    if answer.status == 204:
        return True
    if answer.header(b"transfer-encoding") == "chunked":
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(answer.header(b"content-length") or 0)


class Streams(HttpSide):
    face = "streams"
    does: frozenset[Workload] = frozenset(("singles", "one", "batches", "catch-up", "fan-out", "growth"))

    def create(self, durability: Durability, *, queue: bool = False) -> Log:
        log = new_log(durability)._replace(name=f"/v1/stream/{new_log(durability).name}")
        with streams_load.Line(self.server) as line:
            line.call("PUT", log.name)
        return log

    def drop(self, log: Log) -> None:
        with streams_load.Line(self.server) as line:
            line.call("DELETE", log.name)

    def path(self, log: Log) -> str:
        return log.name

    def body(self, records: Sequence[bytes]) -> bytes:
        return records[0] if len(records) == 1 else array(records)

    def catch_up(self, log: Log, records: int) -> Sample:
        with streams_load.Line(self.server) as line:
            began = time.perf_counter()
            read = sum(page.body.count(b'"id":') for page in pages(line, log.name))
            seconds = time.perf_counter() - began
        if read != records:
            raise RuntimeError(f"{self.name}: {read} records of {records} were read")
        return Sample(read, seconds)


class Collections(HttpSide):
    """Anonymous appends, with one document for each log. The published servers store it in chunks of 100."""

    face = "collections"

    def __init__(self, name: str, directory: Path, server: Server, how: str, collection: str) -> None:
        super().__init__(name, directory, server, {"disk": how})
        self._collection = collection

    def drop(self, log: Log) -> None:
        """Nothing to do: logs are small, and the directory is removed soon."""

    def path(self, log: Log) -> str:
        return f"/{OPEN}/push/{self._collection}/{log.name}"

    def body(self, records: Sequence[bytes]) -> bytes:
        return b'{"data":%b}' % records[0]


# --- starting them -------------------------------------------------------------------------------------------------


@contextmanager
def our_streams(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
    directory.mkdir(exist_ok=True)
    with topics_server.serving(directory / "data") as server:
        yield Streams(NAME, directory, server, {"fsync": "fsync"})


def _stream_server(
    start: Callable[[Path], AbstractContextManager[streams_peers.Side]], name: str, how: str
) -> Callable[[Path, Sequence[Durability]], AbstractContextManager[Side]]:
    @contextmanager
    def serving(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
        directory.mkdir(exist_ok=True)
        with start(directory / "data") as side:
            yield Streams(name, directory, side.server, {"fsync": how})

    return serving


@contextmanager
def our_collections(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
    with collections_peers.ours(directory) as side:
        yield Collections(NAME, directory, side.server, "disk", RELAXED)


def _collection_server(
    start: Callable[[Path], AbstractContextManager[collections_peers.Side]],
) -> Callable[[Path, Sequence[Durability]], AbstractContextManager[Side]]:
    @contextmanager
    def serving(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
        with start(directory) as side:
            yield Collections(
                side.name, directory, side.server, "files that are never flushed, chunks of 100", SMALL_CHUNKS
            )

    return serving


OUR_STREAMS = Peer(NAME, without_wrk, our_streams)
OUR_COLLECTIONS = Peer(NAME, without_wrk, our_collections)
STREAM_SERVERS = [
    Peer(name, peer.install, _stream_server(peer.start, name, peer.how)) for name, peer in streams_peers.PEERS.items()
]
COLLECTION_SERVERS = [
    Peer(name, peer.install, _collection_server(peer.start)) for name, peer in collections_peers.PEERS.items()
]
