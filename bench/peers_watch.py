"""Live readers in a separate process: ``python -m bench.peers_watch FACE PORT LOG COUNT``.

They collect like the watchers of :mod:`bench.topics_load`. If a server does not push records, a reader requests the
next record as soon as it has one, or as soon as it is notified.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable

from bench import peers_nats, peers_postgres, peers_redis, streams_load, topics_load
from bench.peers_line import Line
from bench.topics_load import MARK, collect, raise_file_limit, tell

PAGE = b"1000"
ENTRY_ID = re.compile(rb"\r\n([0-9]+-[0-9]+)\r\n")

#: Handles the bytes that a reader received, piece by piece.
React = Callable[[bytes], None]


class Reader:
    """A connection, and its reaction to received bytes."""

    def __init__(self, connection: socket.socket, react: React | None = None) -> None:
        self.connection = connection
        self.react = react


def topics(port: int, log: str) -> Reader:
    return Reader(topics_load.open_event_stream(port, log))


def streams(port: int, path: str) -> Reader:
    return Reader(streams_load.open_event_stream(port, path))


def redis(port: int, log: str) -> Reader:
    """A blocking XREAD from the last entry on."""
    connection = _socket_of(peers_redis.RedisLine(port))
    data = bytearray()

    def ask(after: bytes) -> None:
        words = b"XREAD", b"COUNT", PAGE, b"BLOCK", b"0", b"STREAMS", log.encode(), after
        connection.sendall(peers_redis.command(*words))

    def react(piece: bytes) -> None:
        data.extend(piece)
        if MARK in data and data.endswith(b"}\r\n"):
            last = ENTRY_ID.findall(data)[-1]
            data.clear()
            ask(last)

    ask(b"$")
    return Reader(connection, react)


def nats(port: int, log: str) -> Reader:
    """A push consumer without acknowledgements, like the ordered consumers of NATS's own clients."""
    line = peers_nats.NatsLine(port)
    config = {"deliver_subject": f"{line.inbox.decode()}.push", "ack_policy": "none", "deliver_policy": "new"}
    line.ask(peers_nats.counted(b"SUB %b.push 2\r\n%b" % (line.inbox, peers_nats.PING), peers_nats.PONG, 1))
    peers_nats.create_consumer(line, log, f"CREATE.{log}", {**config, "mem_storage": True})
    connection = _socket_of(line)

    def react(piece: bytes) -> None:
        if peers_nats.PING in piece:
            connection.sendall(peers_nats.PONG)

    return Reader(connection, react)


def postgres(port: int, log: str) -> Reader:
    """LISTEN, and a SELECT after each notification."""
    line = peers_postgres.connected(port, "disk", peers_postgres.page_statement(log))
    line.ask(peers_postgres.simple(f"listen {log}"))
    answer = line.ask(peers_postgres.simple(f"select coalesce(max(seq), 0) from {log}"))
    found = re.search(rb"\x00\x01\x00\x00\x00.([0-9]+)C", answer, re.DOTALL)
    assert found is not None
    connection = _socket_of(line)
    told = log.encode() + b"\0"
    data = bytearray()
    read, asking = int(found[1]), False

    def react(piece: bytes) -> None:
        nonlocal read, asking
        data.extend(piece)
        if asking and data.endswith(peers_postgres.ENDINGS):
            read += data.count(peers_postgres.ROW)
            asking = False
        if not asking and told in data:
            connection.sendall(peers_postgres.execute(b"page", b"%d" % read, PAGE).content)
            asking = True
            data.clear()

    return Reader(connection, react)


def _socket_of(line: Line) -> socket.socket:
    return socket.socket(fileno=socket.dup(line.fileno()))


FACES = {"topics": topics, "streams": streams, "redis": redis, "nats": nats, "postgres": postgres}


def watch(face: str, port: int, log: str, count: int) -> None:
    """Open the readers, then collect once per command. A command is the number of records for each reader."""
    raise_file_limit()
    readers = [FACES[face](port, log) for _ in range(count)]
    reactions = {reader.connection.fileno(): reader.react for reader in readers if reader.react is not None}
    tell({"open": len(readers)})
    for line in sys.stdin:
        tell({"collecting": True})
        tell(collect([reader.connection for reader in readers], int(line), reactions))


if __name__ == "__main__":
    _, face_name, port_text, log_name, count_text = sys.argv
    watch(face_name, int(port_text), log_name, int(count_text))
