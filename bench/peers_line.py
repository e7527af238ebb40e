"""A connection to any measured server: sends whole requests and receives whole answers over one plain socket.

A request determines when its answer is complete, mostly by counting. So every protocol costs the client about the same,
which is very little, and no driver slows a server down.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple, Self

from bench.measure import Sample
from bench.topics_server import HOST

#: The timeout of a single answer.
ANSWER_SECONDS = 60.0


class Request(NamedTuple):
    """The bytes to send, and how to recognise a complete answer: it contains ``mark`` a number of times and passes
    ``complete``. Only new bytes are searched for the mark, because an answer may come in many pieces."""

    content: bytes
    complete: Callable[[bytearray], bool]
    #: The number of records that it appends or reads.
    records: int = 1
    mark: bytes = b""
    marks: int = 0


class Line:
    """One connection. ``check`` gets every whole answer and raises an exception if it is an error."""

    def __init__(self, port: int, check: Callable[[bytes], None]) -> None:
        self._socket = socket.create_connection((HOST, port), ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._check = check
        self._data = bytearray()
        self._request = Request(b"", bool)
        self._counted = 0
        self._from = 0

    def ask(self, request: Request) -> bytes:
        self.send(request)
        return self.receive()

    def send(self, request: Request) -> None:
        self._request, self._counted, self._from = request, 0, 0
        self._socket.sendall(request.content)

    def receive(self) -> bytes:
        """The whole answer to the last request."""
        while not self._is_complete():
            self._more()
        answer = bytes(self._data)
        self._data.clear()
        self._check(answer)
        return answer

    def _is_complete(self) -> bool:
        request, data = self._request, self._data
        if request.mark:
            self._counted += data.count(request.mark, self._from)
            # The end of the received bytes may divide a mark.
            last = data.rfind(request.mark, self._from)
            self._from = max(self._from, 0 if last < 0 else last + len(request.mark), len(data) - len(request.mark) + 1)
            if self._counted < request.marks and not self._has_failed():
                return False
        return bool(data) and request.complete(data)

    def _has_failed(self) -> bool:
        """Whether the received bytes contain an error, after which the rest of an answer may never come."""
        return False

    def fileno(self) -> int:
        return self._socket.fileno()

    def _more(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError(f"the server closed the connection after {bytes(self._data[:300])!r}")
        self._data += data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def drive(connect: Callable[[], Line], connections: int, requests: Iterator[Request], seconds: float) -> Sample:
    """Send the requests, one at a time on each connection, until the time is up or no requests are left.

    Waits for the answers to all requests that were sent, and counts them.
    """
    with ExitStack() as stack:
        lines = [stack.enter_context(connect()) for _ in range(connections)]
        done, asked = 0, {}
        began = time.perf_counter()
        for line, request in zip(lines, requests, strict=False):
            line.send(request)
            asked[line] = request.records
        while asked:
            for line in select.select(list(asked), (), (), ANSWER_SECONDS)[0]:
                line.receive()
                done += asked.pop(line)
                following = next(requests, None) if time.perf_counter() - began < seconds else None
                if following is not None:
                    line.send(following)
                    asked[line] = following.records
        return Sample(done, time.perf_counter() - began)


def one_by_one(line: Line, requests: Iterator[Request], seconds: float) -> Sample:
    """Send requests on one connection, each after the previous answer, until the time is up."""
    times = 0
    began = now = time.perf_counter()
    for request in requests:
        line.ask(request)
        times += 1
        now = time.perf_counter()
        if now - began >= seconds:
            break
    return Sample(times, now - began)


def http_complete(data: bytearray) -> bool:
    """Whether an HTTP answer with a length is complete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(data[:end]).lower()
    at = head.find(b"content-length:")
    length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    return len(data) >= end + 4 + length
