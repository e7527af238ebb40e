"""Clients that ask for a lot and read nothing, over every protocol."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic, sleep

import httpx

from support.server_process import ServerProcess

#: A condition that has not come true by then does not.
PATIENCE_SECONDS = 20.0
#: Together far more than kernel buffers take.
RECORDS = 12
RECORD = "x" * 900_000
#: Pages that a client asks for at once; each has one record.
PAGES = 20


def fill(server: ServerProcess) -> None:
    """A topic and a stream with about ten megabytes each."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        client.put("/v1/stream/s", headers={"content-type": "application/json"}).raise_for_status()
        for _ in range(RECORDS):
            client.post("/v0/topics/t", json={"records": [{"data": RECORD}]}).raise_for_status()
            client.post("/v1/stream/s", json=[RECORD]).raise_for_status()


def watch(server: ServerProcess) -> bytes:
    created = httpx.post(f"{server.url}/v0/watch", json={"topics": {"t": {"from_seq": 0}}}, trust_env=False)
    return _get(f"/v0/watch/{created.json()['wid']}")


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n\r\n".encode()


def pages(server: ServerProcess) -> bytes:
    """Requests for pages, sent ahead: the last ones are answered when the first ones are read."""
    body = json.dumps({"from_seq": 0, "limit": 1000, "max_batch_bytes": 1 << 20}).encode()
    head = b"POST /v0/topics/t/diff HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return (head + b"content-length: %d\r\n\r\n" % len(body) + body) * PAGES


#: What a client sends, by the kind of answer that it does not read.
REQUESTS: dict[str, Callable[[ServerProcess], bytes]] = {
    "watch": watch,
    "stream events": lambda server: _get("/v1/stream/s?offset=-1&live=sse"),
    "console tail": lambda server: _get("/console/api/log/t/tail?after=0"),
    "arrow": lambda server: _get("/arrow/records/s"),
    "pages": pages,
}


def open_reader(server: ServerProcess, stack: ExitStack) -> socket.socket:
    """A connection that takes next to nothing before it is read from."""
    line = stack.enter_context(socket.socket())
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(PATIENCE_SECONDS)
    line.connect(("127.0.0.1", server.port))
    return line


def metric(server: ServerProcess, name: str) -> int:
    text = httpx.get(f"{server.url}/v0/metrics", trust_env=False, timeout=30).text
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while not condition():
        assert monotonic() < deadline, "it did not come true"
        sleep(0.05)
