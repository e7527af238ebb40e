"""HTTP as bytes on a socket, for what no client library sends."""

from __future__ import annotations

import socket
from types import TracebackType
from urllib.parse import urlsplit

#: An answer that has not come by then does not come.
PATIENCE_SECONDS = 15.0


class RawConnection:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.socket = socket.create_connection((parts.hostname, parts.port or 80), PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.socket.close()

    def send(self, data: bytes, piece: int = 0) -> None:
        """All at once, or in pieces of so many bytes."""
        for start in range(0, len(data), piece or max(1, len(data))):
            self.socket.sendall(data[start : start + (piece or len(data))])

    def answer(self, *, has_body: bool = True) -> tuple[bytes, bytes]:
        """Head and body of the next answer, the body by its length."""
        while b"\r\n\r\n" not in self._rest:
            self._receive()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        if not has_body:
            length = 0
        while len(self._rest) < length:
            self._receive()
        body, self._rest = self._rest[:length], self._rest[length:]
        return head, body

    def chunked_answer(self) -> tuple[bytes, bytes]:
        """Head and body of the next answer, which is sent in chunks."""
        head, _ = self.answer()
        body = b""
        while True:
            while b"\r\n" not in self._rest:
                self._receive()
            line, _, self._rest = self._rest.partition(b"\r\n")
            size = int(line, 16)
            while len(self._rest) < size + 2:
                self._receive()
            body += self._rest[:size]
            self._rest = self._rest[size + 2 :]
            if not size:
                return head, body

    def some(self) -> bytes:
        """What has come and was not taken yet, or else what comes next."""
        if not self._rest:
            self._receive()
        rest, self._rest = self._rest, b""
        return rest

    def everything(self) -> bytes:
        """All that comes until the server closes the connection."""
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                rest, self._rest = self._rest, b""
                return rest
            self._rest += data

    def _receive(self) -> None:
        data = self.socket.recv(65536)
        assert data, f"the server closed the connection; so far: {self._rest!r}"
        self._rest += data


def request(method: str, path: str, body: bytes | None = None, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "host: localhost", *headers]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
