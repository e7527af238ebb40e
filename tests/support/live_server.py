"""A server in a thread of the test, and one request for a live response of every protocol."""

from __future__ import annotations

import json
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import httpx
from websockets.frames import Frame, Opcode

from strandline.collections import AppendOnly, Collection, DeclaredCollections
from strandline.server.application import Application
from strandline.server.declarations import Declarations
from strandline.server.run import Server, listen
from strandline.server.settings import ServerSettings, Settings, StorageSettings
from strandline.service.access import Keys
from strandline.service.settings import DeliverySettings, LimitSettings
from strandline.tables import make_log

#: A condition that is not met by then never is.
PATIENCE_SECONDS = 20.0
#: Together far more than the buffers of the kernel and of the server.
RECORDS = 12
RECORD = "x" * 900_000
#: How long the server waits for clients that read nothing, and for responses when it stops, unless a test is about it:
#: longer than any test takes.
LONG_SECONDS = 60

EVENTS = Collection(
    name="events",
    storage_path="events/{day}",
    read_roles=("public",),
    write_roles=("public",),
    max_body_bytes=1 << 20,
    append_only=AppendOnly(require_author_signature=False),
)
NOTES = make_log("note", parent="desk", schema={"type": "object"}, pub=True)

DECLARED = Declarations(tables=(NOTES,), collections=DeclaredCollections(collections=(EVENTS,)))


class LiveServer:
    def __init__(self, data: Path, lane: str, slots: int, slow_ms: int, keys: str = "") -> None:
        settings = Settings(
            server=ServerSettings(fast_lane=lane == "fast", drain_seconds=LONG_SECONDS, api_keys=Keys.parse(keys)),
            storage=StorageSettings(data_dir=str(data)),
            limits=LimitSettings(max_sse_connections=slots),
            delivery=DeliverySettings(
                slow_consumer_grace_ms=0, slow_consumer_timeout_ms=slow_ms, target_latency_ms=10_000
            ),
        )
        self.application = Application(settings, declared=DECLARED)
        self._server = Server(self.application)
        self._listener = listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        #: The API key that the requests of this server's kinds of live responses have; empty: none.
        self.secret = ""
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[self._listener]))

    def start(self) -> None:
        self._thread.start()
        wait_for(lambda: self.application.status.ready)

    def terminate(self) -> None:
        """As SIGTERM does, without waiting."""
        self._server.handle_exit(signal.SIGTERM, None)

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def fill(self) -> None:
        """About ten megabytes for a reader of every protocol."""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=30, headers=self.headers) as client:
            client.put("/v0/topics/jobs", json={"type": "queue"}).raise_for_status()
            client.put("/v1/stream/s", headers={"content-type": "application/json"}).raise_for_status()
            for _ in range(RECORDS):
                for topic in ("t", "jobs"):
                    client.post(f"/v0/topics/{topic}", json={"records": [{"data": RECORD}]}).raise_for_status()
                client.post("/v1/stream/s", json=[RECORD]).raise_for_status()
                client.post("/push/events/d", json={"data": {"text": RECORD}}).raise_for_status()
                note = {"parent": "d", "payload": {"text": RECORD}}
                client.post("/tables/note/append", json=note, headers={"strandline-user": "ann"}).raise_for_status()

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"} if self.secret else {}

    @property
    def open(self) -> tuple[int, int]:
        """How many slots are taken, and how many live responses are known."""
        live = self.application.live
        assert live is not None
        return live.slots.used, len(live)

    def connect(self, receive_bytes: int = 0) -> socket.socket:
        """A connection; with ``receive_bytes`` one that takes next to nothing before it is read from."""
        line = socket.socket()
        if receive_bytes:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        line.settimeout(PATIENCE_SECONDS)
        line.connect(("127.0.0.1", self.port))
        return line

    def connect_silent(self) -> socket.socket:
        """A connection whose live response holds a slot and has nothing to send. Connections of earlier tests may hold
        slots for a moment after their clients are gone."""
        deadline = monotonic() + PATIENCE_SECONDS
        while True:
            line = self.connect()
            line.sendall(SILENT)
            if line.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200":
                return line
            line.close()
            assert monotonic() < deadline, "no slot became free in time"


@contextmanager
def live_server(
    data: Path, lane: str, slots: int = 0, slow_ms: int = LONG_SECONDS * 1000, keys: str = ""
) -> Iterator[LiveServer]:
    server = LiveServer(data, lane, slots, slow_ms, keys)
    server.start()
    try:
        yield server
    finally:
        server.end()


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\nconnection: close\r\n\r\n".encode()


def _watch(server: LiveServer) -> bytes:
    created = httpx.post(
        f"{server.url}/v0/watch", json={"topics": {"t": {"from_seq": 0}}}, headers=server.headers, trust_env=False
    )
    return _get(f"/v0/watch/{created.json()['wid']}")


def _websocket(server: LiveServer) -> bytes:
    return (
        b"GET /v0/ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nsec-websocket-version: 13\r\n\r\n"
    )


def _closing(code: int) -> bytes:
    """How the payload of a close frame begins."""
    return struct.pack("!H", code)


class Kind(NamedTuple):
    """A live response: its request, what its bytes end with when the reader is too slow and when the server stops.
    ``None``: the connection is reset, or the response is left to its own end."""

    request: Callable[[LiveServer], bytes]
    too_slow: bytes | None
    shutdown: bytes | None


#: A live response that has nothing to send.
SILENT = _get("/v1/stream/s?offset=now&live=sse")

_END = b"\r\n0\r\n\r\n"
KINDS = {
    "watch": Kind(_watch, b'data: {"code":408,', b'data: {"code":"server_shutting_down",'),
    "work": Kind(
        lambda server: _get(f"/v0/topics/jobs/work?node=n&max={RECORDS}"),
        b'data: {"code":408,',
        b'data: {"code":"server_shutting_down",',
    ),
    "websocket": Kind(_websocket, _closing(1013), _closing(1012)),
    "stream events": Kind(lambda server: _get("/v1/stream/s?offset=-1&live=sse"), _END, _END),
    "console tail": Kind(
        lambda server: _get("/console/api/log/t/tail?after=0"), b'event: end\ndata: {"message":', _END
    ),
    "table": Kind(
        lambda server: _get("/tables/note/pub/live?parent=d"), b'event: end\ndata: {"error":{"code":"THROTTLED"', _END
    ),
    "collection": Kind(
        lambda server: _get("/live/events/d?checkpoint=0"),
        b'event: end\ndata: {"error":"the client does not keep up',
        _END,
    ),
    "arrow": Kind(lambda server: _get("/arrow/records/s"), None, None),
    "catch-up": Kind(lambda server: _get("/v1/stream/s?offset=-1"), None, None),
}


def ask(server: LiveServer, line: socket.socket, kind: str) -> None:
    """Send the request for a live response."""
    request = KINDS[kind].request(server)
    if server.secret:
        request = request.replace(b"\r\n", b"\r\nauthorization: Bearer " + server.secret.encode() + b"\r\n", 1)
    line.sendall(request)
    if kind == "websocket" and line.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) == b"HTTP/1.1 101":
        subscribe = json.dumps({"op": "subscribe", "topic": "t"}).encode()
        line.sendall(Frame(Opcode.TEXT, subscribe).serialize(mask=True))


def read_to_end(line: socket.socket) -> bytes:
    """Everything up to the end of the connection, however it ends."""
    chunks = []
    try:
        while chunk := line.recv(1 << 20):
            chunks.append(chunk)
    except ConnectionResetError:
        pass
    return b"".join(chunks)


def read_until(line: socket.socket, expected: bytes) -> bool:
    """Read until the bytes come; False if the connection ends before."""
    tail = b""
    while expected not in tail:
        chunk = line.recv(1 << 20)
        if not chunk:
            return False
        tail = tail[-len(expected) :] + chunk
    return True


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while not condition():
        assert monotonic() < deadline, "the condition was not met in time"
        sleep(0.01)
