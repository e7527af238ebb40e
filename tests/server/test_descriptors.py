"""A server whose connections have taken all file descriptors still goes on to new journal files and seals them."""

from __future__ import annotations

import os
import resource
import socket
from contextlib import ExitStack

from support.server_process import StartServer
from support.topics_client import Client, eventually

LIMIT = 64
RECORDS = {"records": [{"data": "x" * 30_000}]}


def figures(client: Client, part: str) -> dict[str, int]:
    metrics = client.http.get("/v0/metrics", headers={"accept": "application/json"}).json()
    found: dict[str, int] = metrics[part]
    return found


def test_connections_that_take_all_descriptors_do_not_stop_sealing(start_server: StartServer) -> None:
    server = start_server(journal_bytes=1 << 16)
    client = server.client()
    client.put("log")
    assert not figures(client, "sealing")["rounds_total"], "the worker is started without descriptors, too"
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    lines = len(server.log().splitlines())
    with ExitStack() as connections:
        for _ in range(2 * LIMIT):
            connections.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))
        eventually(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) == LIMIT)
        rotations = figures(client, "wal")["rotations"]

        def written_and_sealed() -> bool:
            assert client.request("POST", "/v0/topics/log", RECORDS).is_success
            return figures(client, "sealing")["rounds_total"] >= 6  # more than enough segments to merge some

        eventually(written_and_sealed, 60)
        assert figures(client, "wal")["rotations"] >= rotations + 6
    assert len(server.log().splitlines()) - lines < 20
    assert "housekeeping failed" not in server.log()
