"""Clients in a separate process: ``python -m bench.topics_load WHAT PORT TOPIC COUNT [MORE]``.

Watchers and workers do as little as possible per answer, so that the server is measured and not the client: one epoll
loop, plain sockets, and evaluation afterwards. Results are lines of JSON on the standard output. Commands are lines on
the standard input; the process ends with its input.
"""

from __future__ import annotations

import os
import re
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from bench.topics_server import HOST, request_bytes

#: The writer puts the time of the write into every record.
STAMP = re.compile(rb'"t":([0-9]+\.[0-9]+)')
MARK = b'"t":'
#: More than the length of a stamp, which the end of a piece may divide.
STAMP_BYTES = 40
#: Records that have not arrived after this time count as missing.
COLLECT_SECONDS = 60.0
QUIET_SECONDS = 3.0
#: The seconds before a request to a busy server is repeated.
PAUSE_SECONDS = 0.05
#: Descriptors that a process needs in addition to its connections.
SPARE_FILES = 200

SEQ = re.compile(rb'"\$seq":([0-9]+)')


class Collected(msgspec.Struct, frozen=True):
    """The result of watchers: records, their delays in ms, and the seconds from the first write to the last arrival."""

    records: int
    p50_ms: float
    p99_ms: float
    seconds: float
    #: Processor time of this process per second. Close to 1, the watchers were the limit.
    busy: float


class Worked(msgspec.Struct, frozen=True):
    jobs: list[int]
    seconds: float
    refused: int
    busy: float


def raise_file_limit() -> int:
    """Raise the limit of open files to the maximum. Returns the possible number of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard - SPARE_FILES


def connect(port: int) -> socket.socket:
    connection = socket.create_connection((HOST, port), 30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError(f"the connection ended before {wanted!r}: {data!r}")
        data += piece
    return data


# --- watching ------------------------------------------------------------------------------------------------------


def open_event_stream(port: int, topic: str) -> socket.socket:
    connection = connect(port)
    body = msgspec.json.encode({"topics": {topic: {"tail": True}}, "heartbeat_ms": 60_000})
    connection.sendall(request_bytes("POST", "/v0/watch", body))
    answer = read_until(connection, b"}}")
    found = re.search(rb'"stream_url":"([^"]+)"', answer)
    if found is None:
        raise ConnectionError(f"no watch session: {answer!r}")
    connection.sendall(request_bytes("GET", found[1].decode(), accept="text/event-stream"))
    read_until(connection, b"caught-up")
    return connection


def open_websocket(port: int, topic: str) -> socket.socket:
    connection = connect(port)
    connection.sendall(
        request_bytes(
            "GET",
            "/v0/ws",
            connection="Upgrade",
            upgrade="websocket",
            sec_websocket_version="13",
            sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA==",
        )
    )
    read_until(connection, b"\r\n\r\n")
    text = msgspec.json.encode({"op": "subscribe", "topic": topic, "tail": True})
    # A mask of zeros does not change the text.
    connection.sendall(struct.pack("!BB4x", 0x81, 0x80 | len(text)) + text)
    read_until(connection, b"caught_up")
    return connection


OPENERS: dict[str, Callable[[int, str], socket.socket]] = {"sse": open_event_stream, "ws": open_websocket}


def watch(kind: str, port: int, topic: str, count: int) -> None:
    """Open the watchers, then collect once per command. A command is the number of records for each watcher."""
    raise_file_limit()
    connections = [OPENERS[kind](port, topic) for _ in range(count)]
    tell({"open": len(connections)})
    for line in sys.stdin:
        tell({"collecting": True})
        tell(collect(connections, int(line)))


def collect(
    connections: list[socket.socket], records: int, reactions: Mapping[int, Callable[[bytes], None]] | None = None
) -> Collected:
    """``reactions`` get the received bytes, by descriptor, because some servers need a request for more."""
    poll = select.epoll()
    pieces: dict[int, list[tuple[float, bytes]]] = {}
    for connection in connections:
        poll.register(connection.fileno(), select.EPOLLIN)
        pieces[connection.fileno()] = []
    clock, read = time.perf_counter, os.read
    missing = records * len(connections)
    used, began = time.process_time(), clock()
    quiet_since = began
    while missing > 0 and clock() - began < COLLECT_SECONDS:
        ready = poll.poll(0.2)
        if not ready and clock() - quiet_since > QUIET_SECONDS and missing < records * len(connections):
            # A divided stamp is not counted here, but below.
            break
        for descriptor, _ in ready:
            data = read(descriptor, 262_144)
            now = quiet_since = clock()
            if not data:
                raise ConnectionError("the server closed a stream")
            pieces[descriptor].append((now, data))
            missing -= data.count(MARK)
            if reactions:
                reactions[descriptor](data)
    busy = (time.process_time() - used) / max(clock() - began, 1e-9)
    poll.close()
    return _summed_up(pieces, busy)


def _summed_up(pieces: dict[int, list[tuple[float, bytes]]], busy: float) -> Collected:
    delays: list[float] = []
    first, last = float("inf"), 0.0
    for received in pieces.values():
        for arrived, written in _stamps(received):
            delays.append(arrived - written)
            first, last = min(first, written), max(last, arrived)
    if not delays:
        return Collected(0, 0.0, 0.0, 0.0, busy)
    delays.sort()
    p50, p99 = (delays[int(len(delays) * part)] * 1000 for part in (0.5, 0.99))
    return Collected(len(delays), p50, p99, last - first, busy)


def _stamps(received: list[tuple[float, bytes]]) -> Iterator[tuple[float, float]]:
    """The time a record arrived and the time it was written. A stamp has arrived with its last byte."""
    rest = b""
    for arrived, data in received:
        data = rest + data
        end = 0
        for found in STAMP.finditer(data):
            # The last digits may not have arrived yet.
            if found.end() == len(data):
                break
            end = found.end()
            yield arrived, float(found[1])
        rest = data[max(end, len(data) - STAMP_BYTES) :]


def idle(port: int, topic: str, count: int) -> None:
    """Open ``count`` event streams, or as many as possible, and keep them open until the input ends."""
    connections = []
    try:
        for _ in range(min(count, raise_file_limit())):
            connections.append(open_event_stream(port, topic))
    except OSError as error:
        print(f"idle streams: {error} after {len(connections)}", file=sys.stderr)
    tell({"open": len(connections)})
    sys.stdin.read()


# --- working -------------------------------------------------------------------------------------------------------


class Worker:
    """Claims and acknowledges jobs until no jobs are left."""

    def __init__(self, port: int, topic: str, number: int, at_a_time: int) -> None:
        self.socket = connect(port)
        self.jobs = 0
        self._node = f"worker-{number}"
        self._ack = f"/v0/topics/{topic}/ack"
        body = msgspec.json.encode({"node": self._node, "max": at_a_time})
        self._claim = request_bytes("POST", f"/v0/topics/{topic}/claim", body)
        self._data = b""
        self._held = 0
        self._last = b""

    def claim(self) -> None:
        self._send(self._claim)

    def again(self) -> None:
        self._send(self._last)

    def _send(self, request: bytes) -> None:
        self._last = request
        self.socket.sendall(request)

    def received(self) -> int:
        """Handle received bytes. Returns 0 to continue, 204 if no jobs are left, or the status of a refusal."""
        self._data += self.socket.recv(65536)
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return 0
        head = self._data[:end].lower()
        length = int(head[head.index(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
        if len(self._data) < end + 4 + length:
            return 0
        body, self._data = self._data[end + 4 :], b""
        status = int(head[9:12])
        if status != 200:
            return status
        if self._held:
            self.jobs += self._held
            self._held = 0
            self.claim()
            return 0
        seqs = SEQ.findall(body)
        if not seqs:
            return 204
        self._held = len(seqs)
        self._send(
            request_bytes("POST", self._ack, b'{"node":"%b","seqs":[%b]}' % (self._node.encode(), b",".join(seqs)))
        )
        return 0


def work(port: int, topic: str, count: int, at_a_time: int) -> None:
    raise_file_limit()
    workers = [Worker(port, topic, number, at_a_time) for number in range(count)]
    poll = select.epoll()
    by_descriptor = {worker.socket.fileno(): worker for worker in workers}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    refused, left = 0, len(workers)
    used, began = time.process_time(), time.perf_counter()
    last = began
    for worker in workers:
        worker.claim()
    while left and time.perf_counter() - began < COLLECT_SECONDS:
        for descriptor, _ in poll.poll(1):
            worker = by_descriptor[descriptor]
            before = worker.jobs
            status = worker.received()
            if worker.jobs != before:
                last = time.perf_counter()
            if status == 204:
                left -= 1
            elif status == 429:
                refused += 1
                time.sleep(PAUSE_SECONDS)
                worker.again()
            elif status:
                raise RuntimeError(f"a worker got the status {status}")
    busy = (time.process_time() - used) / (time.perf_counter() - began)
    tell(Worked([worker.jobs for worker in workers], last - began, refused, busy))


def tell(answer: Any) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()


def main() -> None:
    what, port, topic, count, *more = sys.argv[1:]
    if what == "idle":
        idle(int(port), topic, int(count))
    elif what == "work":
        work(int(port), topic, int(count), int(more[0]))
    else:
        watch(what, int(port), topic, int(count))


if __name__ == "__main__":
    main()
