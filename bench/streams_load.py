"""Clients of the streams protocol: plain connections, and event streams in a separate process.

``python -m bench.streams_load sse PORT PATH COUNT`` opens ``COUNT`` event streams and collects from them like the
watchers of :mod:`bench.topics_load`.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec

from bench.measure import Row
from bench.topics_load import collect, connect, raise_file_limit, read_until, tell
from bench.topics_server import HOST, Server

JSON = "application/json"
#: The timeout of a single answer. It is long because some answers take many seconds.
ANSWER_SECONDS = 120.0


class Refused(Exception):
    """An answer with an error status."""

    def __init__(self, request: str, answer: Answer) -> None:
        super().__init__(f"{request}: {answer.status} {answer.body[:300]!r}")
        self.status = answer.status


def attempted(what: str, rows: Iterable[Row], group: str = "streams") -> Iterator[Row]:
    """These rows, up to the first error. The error is printed, and the run continues with other rows."""
    try:
        yield from rows
    except (Refused, OSError, RuntimeError) as error:
        print(f"{group}: {what}: {error!r}", file=sys.stderr)


class Answer(NamedTuple):
    status: int
    #: The status line and the headers, in lower case.
    head: bytes
    body: bytes

    def header(self, name: bytes) -> str | None:
        _, found, rest = self.head.partition(b"\r\n" + name + b":")
        return rest.split(b"\r\n", 1)[0].strip().decode() if found else None

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Line:
    """One blocking keep-alive connection that does as little as possible, so that the server is measured."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection((HOST, server.port), ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """The answer. Raises Refused for an error status."""
        answer = self.request(method, path, body, **headers)
        if not 200 <= answer.status < 300:
            raise Refused(f"{method} {path}", answer)
        return answer

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        self.send(method, path, body, **headers)
        return self.receive()

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        self.send_bytes(request_bytes(method, path, body, **headers))

    def send_bytes(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> Answer:
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            self._more()
        head = bytes(self._data[:end]).lower()
        del self._data[: end + 4]
        status = int(head[9:12])
        bare = Answer(status, head, b"")
        if status in (204, 304):
            return bare
        if bare.header(b"transfer-encoding") == "chunked":
            return bare._replace(body=b"".join(self._chunks()))
        return bare._replace(body=self._take(int(bare.header(b"content-length") or 0)))

    def fileno(self) -> int:
        return self._socket.fileno()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            while (end := self._data.find(b"\r\n")) < 0:
                self._more()
            size = int(self._data[:end], 16)
            del self._data[: end + 2]
            piece = self._take(size + 2)
            if not size:
                return
            yield piece[:-2]

    def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            self._more()
        with memoryview(self._data) as view:
            taken = bytes(view[:size])
        del self._data[:size]
        return taken

    def _more(self) -> None:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._data += data

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def request_bytes(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole request; header names are given with underscores."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {HOST}"]
    if method in ("PUT", "POST"):
        lines += [f"content-type: {JSON}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def send_all(server: Server, requests: Iterable[tuple[str, str, bytes]], connections: int) -> None:
    """Make requests (method, path, body) on a number of connections; all of them must succeed.

    Each connection sends its next request immediately, because some servers close idle connections.
    """
    rest = iter(requests)
    with ExitStack() as stack:
        waiting: list[Line] = []
        for _, (method, path, body) in zip(range(connections), rest, strict=False):
            waiting.append(stack.enter_context(Line(server)))
            waiting[-1].send(method, path, body)
        while waiting:
            for line in select.select(waiting, (), (), ANSWER_SECONDS)[0]:
                answer = line.receive()
                if not 200 <= answer.status < 300:
                    raise Refused("one of many", answer)
                following = next(rest, None)
                if following is None:
                    waiting.remove(line)
                else:
                    line.send(*following)


def array(records: Iterable[bytes]) -> bytes:
    """The body of an append of these records."""
    return b"[" + b",".join(records) + b"]"


class Page(NamedTuple):
    body: bytes
    next_offset: str


def pages(line: Line, path: str, parameters: str = "") -> Iterator[Page]:
    """All pages of a stream, from its beginning until it is up to date."""
    offset = "-1"
    while True:
        answer = line.call("GET", f"{path}?offset={offset}{parameters}")
        # The head is in lower case, but some servers have case-sensitive offsets, of digits and capitals.
        offset = (answer.header(b"stream-next-offset") or "").upper()
        yield Page(answer.body, offset)
        if answer.header(b"stream-up-to-date") is not None:
            return


# --- event streams -------------------------------------------------------------------------------------------------


def open_event_stream(port: int, path: str) -> socket.socket:
    connection = connect(port)
    connection.sendall(request_bytes("GET", f"{path}?offset=now&live=sse", accept="text/event-stream"))
    read_until(connection, b"upToDate")
    return connection


def watch(port: int, path: str, count: int) -> None:
    """Open the readers, then collect once per command. A command is the number of records for each reader."""
    raise_file_limit()
    connections = [open_event_stream(port, path) for _ in range(count)]
    tell({"open": len(connections)})
    for line in sys.stdin:
        tell({"collecting": True})
        tell(collect(connections, int(line)))


if __name__ == "__main__":
    _, _, port_text, stream_path, count_text = sys.argv
    watch(int(port_text), stream_path, int(count_text))
