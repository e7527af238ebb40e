"""A real ``strandline serve`` for the measurements, and a plain connection to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from strandline.engine.process import child_environment
from strandline.server.settings import VARIABLES, variable_of

#: The maximum time until a server is ready.
START_SECONDS = 30.0
STOP_SECONDS = 30.0
#: The timeout of a single answer.
ANSWER_SECONDS = 30.0

HOST = "127.0.0.1"
#: The unit of processor time.
TICKS = os.sysconf("SC_CLK_TCK")


class Server(NamedTuple):
    port: int
    pid: int
    #: The data directory, if this module started the server.
    data: Path = Path()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def connect(self) -> Connection:
        return Connection(self.port)

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"process {self.pid} does not report its memory")

    def children(self) -> list[int]:
        """The processes that the server has started and that are running."""
        return [pid for pid, parent, _ in _processes() if parent == self.pid]

    def processor_seconds(self) -> float:
        """The processor time of the server and of the processes it has started, so far."""
        return sum(ticks for pid, parent, ticks in _processes() if self.pid in (pid, parent)) / TICKS


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield the id of each process, of its parent, and its processor time with that of its children that have ended."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        yield int(directory.name), int(fields[1]), sum(map(int, fields[11:15]))


@contextmanager
def serving(
    data: Path,
    *,
    fast_lane: bool = True,
    ready: bool = True,
    environment: Mapping[str, str] = MappingProxyType({}),
    **settings: object,
) -> Iterator[Server]:
    """A server on a free port, once it is ``ready``, or else once it listens. ``settings`` are settings of the server,
    by name, and ``environment`` further variables."""
    port_file = data.with_name(data.name + ".port")
    command = [sys.executable, "-m", "strandline", "serve", "--data", str(data), "--log-level", "error"]
    command += ["--port", "0", "--port-file", str(port_file)]
    if not fast_lane:
        command.append("--no-fast-lane")
    own = {name: value for name, value in child_environment().items() if name not in VARIABLES} | environment
    # The measured server has the machine to itself.
    settings = {"pipeline": "off", **settings}
    own |= {variable_of(name): str(value) for name, value in settings.items()}
    process = subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL)
    try:
        yield _started(process, port_file, ready)._replace(data=data)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        port_file.unlink(missing_ok=True)


def _started(process: subprocess.Popen[bytes], port_file: Path, ready: bool) -> Server:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if port_file.exists():
            server = Server(int(port_file.read_text().strip().rpartition(":")[2]), process.pid)
            if not ready or _is_ready(server):
                return server
        time.sleep(0.01)
    raise RuntimeError(f"the server was not ready within {START_SECONDS} s, or ended: {process.poll()}")


def _is_ready(server: Server) -> bool:
    try:
        with server.connect() as connection:
            return connection.request("GET", "/v0/ready").status == 200
    except OSError:
        return False


def send_all(server: Server, requests: Iterable[tuple[str, str, bytes]], connections: int) -> None:
    """Make requests (method, path, body) on a number of connections; all of them must succeed."""
    rest = iter(requests)
    with ExitStack() as stack:
        lines = [stack.enter_context(server.connect()) for _ in range(connections)]
        while True:
            asked = 0
            for line, (method, path, body) in zip(lines, rest, strict=False):
                line.send(request_bytes(method, path, body))
                asked += 1
            for line in lines[:asked]:
                answer = line.receive()
                if not 200 <= answer.status < 300:
                    raise RuntimeError(f"refused: {answer.status} {answer.body[:500]!r}")
            if asked < connections:
                return


class Answer(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Connection:
    """One blocking keep-alive connection that does as little as possible, so that the server is measured."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """The JSON of an answer. Raises RuntimeError for an error status."""
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        answer = self.request(method, path, content, **headers)
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:500]!r}")
        return answer.json()

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        self.send(request_bytes(method, path, body, **headers))
        return self.receive()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> Answer:
        data = self._rest
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        stop = end + 4 + length
        while len(data) < stop:
            data += self._more()
        self._rest = data[stop:]
        return Answer(int(head[9:12]), data[end + 4 : stop])

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def request_bytes(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole request; header names are given with underscores."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {HOST}"]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def write_body(payloads: list[bytes]) -> bytes:
    """The body of a write of these records."""
    return b'{"records":[' + b",".join([b'{"data":%b}' % payload for payload in payloads]) + b"]}"
