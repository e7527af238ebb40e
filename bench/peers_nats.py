"""NATS JetStream as one of the sides, in NATS's own text protocol.

A log is a stream with one subject, in memory or in files. The server flushes files every two minutes by default. If the
version has ``sync_interval: always`` (2.10 does, 2.9 does not), a second server is started that flushes before it
acknowledges.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.measure import Sample
from bench.peers import free_port
from bench.peers_daemon import daemon, program, version
from bench.peers_line import ANSWER_SECONDS, Line, Request
from bench.peers_sides import CLIENTS, EVERYTHING, PAGE, Durability, Log, Peer, Side, new_log

NAME = "NATS JetStream"
#: A placeholder for the inbox of the connection that sends a request, of the same length.
INBOX = b"_INBOX.XXXXXXXX"
#: The number of encoded requests that a connection caches. Measurements repeat few different requests.
REMEMBERED = 64
CONSUMER = "workers"
PING, PONG = b"PING\r\n", b"PONG\r\n"
ACKNOWLEDGED = b'"seq":'
#: Part of the reply subject of every message that a consumer delivers.
DELIVERED = b"$JS.ACK."
#: Part of the head of every message that is read by its sequence number.
GOT = b"Nats-Sequence:"
#: The number of pages that a catch-up read requests in advance.
PULLS_AHEAD = 2
#: The marks of errors: of JetStream, of the server, and of a message without a receiver.
ERRORS = (b'"error":', b"-ERR '", b"NATS/1.0 503")
#: More than the length of an error answer.
ERROR_BYTES = 500

#: The directory of the server on Debian, which is not in every PATH.
PROGRAMS = Path("/usr/sbin")

_inboxes = count(os.getpid() % 10_000 * 10_000)


HOW: Mapping[Durability, str] = {
    "memory": "memory storage",
    "disk": "file storage, sync_interval 2m",
    "fsync": "file storage, sync_interval always",
}


def publish(subject: str, content: bytes) -> bytes:
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), INBOX, len(content), content)


def counted(content: bytes, mark: bytes, number: int) -> Request:
    """A request whose answer is complete when the mark has occurred this number of times."""
    return Request(content, _ended, number, mark, number)


def call(line: Line, subject: str, body: object) -> Any:
    """Call JetStream's API. Raises an exception if the answer is an error."""
    content = publish(subject, b"" if body is None else msgspec.json.encode(body))
    answer = line.ask(Request(content, lambda data: _ended(data) and data.startswith(b"MSG ")))
    return msgspec.json.decode(answer.partition(b"\r\n")[2])


def _ended(data: bytearray) -> bool:
    return data.endswith(b"\r\n")


def check(answer: bytes) -> None:
    if _tells_of_an_error(answer):
        raise RuntimeError(f"nats: {answer[-ERROR_BYTES:]!r}")


def _tells_of_an_error(answer: bytes | bytearray) -> bool:
    return any(sign in answer for sign in ERRORS)


class NatsLine(Line):
    """A connection with its own inbox for acknowledgements. It also answers the server's pings."""

    def __init__(self, port: int) -> None:
        super().__init__(port, check)
        self.inbox = b"_INBOX.%08d" % next(_inboxes)
        self._remembered: dict[bytes, bytes] = {}
        options = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
        self.ask(Request(options + b"SUB %b 1\r\n" % self.inbox + PING, lambda data: data.endswith(PONG)))

    def send(self, request: Request) -> None:
        super().send(request._replace(content=self.addressed(request.content)))

    def addressed(self, content: bytes) -> bytes:
        known = self._remembered.get(content)
        if known is None:
            known = content.replace(INBOX, self.inbox)
            if len(self._remembered) < REMEMBERED:
                self._remembered[content] = known
        return known

    def _more(self) -> None:
        seen = max(len(self._data) - len(PING), 0)
        super()._more()
        at = self._data.find(PING, seen)
        if at >= 0:
            del self._data[at : at + len(PING)]
            self._socket.sendall(PONG)

    def _has_failed(self) -> bool:
        return _tells_of_an_error(self._data[-ERROR_BYTES:])

    def pulled(self, subject: str, records: int) -> Sample:
        """Pull this number of messages from a consumer, page by page, and request each page in advance."""
        request = self.addressed(publish(subject, b'{"batch":%d,"expires":30000000000}' % PAGE))
        read = 0
        asked = min(PULLS_AHEAD * PAGE, records)
        began = time.perf_counter()
        self._socket.sendall(request * (-(-asked // PAGE)))
        while read < records:
            self._more()
            # Only whole lines are counted: a mark in the rest may be incomplete.
            end = self._data.rfind(b"\r\n") + 2
            read += self._data.count(DELIVERED, 0, end)
            del self._data[:end]
            while asked < records and asked - read < PULLS_AHEAD * PAGE:
                self._socket.sendall(request)
                asked += PAGE
        return Sample(read, time.perf_counter() - began)


class Server(NamedTuple):
    port: int
    pid: int


class JetStream:
    name = NAME
    face = "nats"
    does = EVERYTHING

    def __init__(self, servers: Mapping[Durability, Server], version: str) -> None:
        self.classes = {durability: f"{version}, {HOW[durability]}" for durability in servers}
        self._servers = servers

    def pid(self, durability: Durability) -> int:
        return self._servers[durability].pid

    def port(self, log: Log) -> int:
        return self._servers[log.durability].port

    def create(self, durability: Durability, *, queue: bool = False) -> Log:
        log = new_log(durability)
        settings = {
            "name": log.name,
            "subjects": [log.name],
            "storage": "memory" if durability == "memory" else "file",
            "retention": "workqueue" if queue else "limits",
            "num_replicas": 1,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "allow_direct": True,
        }
        with self.connect(log) as line:
            call(line, f"$JS.API.STREAM.CREATE.{log.name}", settings)
            if queue:
                config = {"durable_name": CONSUMER, "ack_policy": "explicit", "max_ack_pending": -1}
                create_consumer(line, log.name, f"DURABLE.CREATE.{log.name}.{CONSUMER}", config)
        return log

    def drop(self, log: Log) -> None:
        with self.connect(log) as line:
            call(line, f"$JS.API.STREAM.DELETE.{log.name}", None)

    def connect(self, log: Log) -> NatsLine:
        return NatsLine(self.port(log))

    def append(self, log: Log, records: Sequence[bytes]) -> Request:
        """One message for each record, all sent at once, all acknowledged."""
        content = b"".join([publish(log.name, record) for record in records])
        return counted(content, ACKNOWLEDGED, len(records))

    fill = append

    def announce(self, log: Log, record: bytes) -> Request:
        return self.append(log, [record])

    def singles(self, log: Log, record: bytes, seconds: float) -> Sample:
        with ExitStack() as stack:
            lines = [stack.enter_context(self.connect(log)) for _ in range(CLIENTS)]
            return in_parallel(lines, publish(log.name, record), seconds)

    def page(self, log: Log, after: int, limit: int) -> Request:
        """One direct get for each record, all sent at once."""
        gets = [publish(f"$JS.API.DIRECT.GET.{log.name}", b'{"seq":%d}' % (after + 1 + at)) for at in range(limit)]
        return counted(b"".join(gets), GOT, limit)

    def catch_up(self, log: Log, records: int) -> Sample:
        """A pull consumer without acknowledgements."""
        with self.connect(log) as line:
            began = time.perf_counter()
            config = {"ack_policy": "none", "deliver_policy": "all", "mem_storage": True}
            name = create_consumer(line, log.name, f"CREATE.{log.name}", config)
            line.pulled(f"$JS.API.CONSUMER.MSG.NEXT.{log.name}.{name}", records)
            return Sample(records, time.perf_counter() - began)


def in_parallel(lines: Sequence[NatsLine], message: bytes, seconds: float) -> Sample:
    """Each client publishes the same message repeatedly, always after the previous answer.

    The loop does as little as possible: no distribution has a load generator in C for this.
    """
    poll = select.epoll()
    messages = {line.fileno(): line.addressed(message) for line in lines}
    for descriptor in messages:
        poll.register(descriptor, select.EPOLLIN)
    read, write, clock = os.read, os.write, time.perf_counter
    done, under_way = 0, len(messages)
    began = now = clock()
    for descriptor, content in messages.items():
        write(descriptor, content)
    while under_way:
        for descriptor, _ in poll.poll(ANSWER_SECONDS):
            answer = read(descriptor, 4096)
            if PING in answer:
                write(descriptor, PONG)
            # An answer is far shorter than a packet, so it arrives in one piece.
            if ACKNOWLEDGED in answer:
                done += 1
                if now - began < seconds:
                    write(descriptor, messages[descriptor])
                else:
                    under_way -= 1
            elif PING not in answer:
                check(answer)
                raise RuntimeError(f"nats: {answer[:300]!r}")
        now = clock()
    poll.close()
    return Sample(done, now - began)


def create_consumer(line: Line, stream: str, subject: str, config: Mapping[str, object]) -> str:
    """The name of the consumer, which the server generates if it is not durable."""
    made = call(line, f"$JS.API.CONSUMER.{subject}", {"stream_name": stream, "config": config})
    return str(made["name"])


# --- the server ------------------------------------------------------------------------------------------------------


@contextmanager
def serving(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
    strict = "fsync" in durabilities and knows_always(directory)
    servers: dict[Durability, Server] = {}
    with ExitStack() as stack:
        if strict:
            servers["fsync"] = stack.enter_context(server(directory / "strict", always=True))
        if not strict or len(durabilities) > 1:
            servers["memory"] = servers["disk"] = stack.enter_context(server(directory / "relaxed"))
        yield JetStream(servers, version(_program()))


@contextmanager
def server(directory: Path, *, always: bool = False) -> Iterator[Server]:
    """Whether JetStream answers, which it does after its streams are recovered."""
    port = free_port()
    configuration = _configured(directory, port, always=always)
    with daemon([_program(), "-c", str(configuration)], partial(_is_ready, port)) as pid:
        yield Server(port, pid)


def _configured(directory: Path, port: int, *, always: bool) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "nats.conf"
    store = msgspec.json.encode(str(directory / "store")).decode()
    sync = "sync_interval: always\n" if always else ""
    path.write_text(f"listen: 127.0.0.1:{port}\njetstream {{\nstore_dir: {store}\n{sync}}}\n")
    return path


def _is_ready(port: int) -> bool:
    with NatsLine(port) as line:
        call(line, "$JS.API.INFO", None)
        return True


def knows_always(directory: Path) -> bool:
    """Whether this version can flush before it acknowledges a message."""
    configuration = _configured(directory / "question", 4222, always=True)
    return subprocess.run([_program(), "-t", "-c", str(configuration)], capture_output=True).returncode == 0


def _program() -> str:
    return program("nats-server", PROGRAMS) or "nats-server"


def lacking() -> str:
    found = program("nats-server", PROGRAMS)
    return "" if found else "nats-server is not installed (Debian: apt-get install nats-server)"


PEER = Peer(NAME, lacking, serving)
