from __future__ import annotations

import socket

from support.command_line import Cli
from support.live_server import wait_for
from support.server_process import StartServer


def test_connections_are_listed_and_ended(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1")
    host, port = cli.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(f"GET /console/api/log/{name}/tail?after=0 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        mine = f"{host}:{line.getsockname()[1]}"

        def listed() -> list[str] | None:
            rows = cli.words("clients", "ls", "--kind", "event_stream")
            return next((row for row in rows if mine in row), None)

        wait_for(lambda: (listed() or ["", "", "", "", "", "", ""])[6:7] == [name])
        row = listed()
        assert row is not None
        assert row[3:7] == ["event_stream", "GET", "/console/api/log/{name}/tail", name]
        found = cli.json("clients", "ls", "--limit", "1")
        assert len(found["clients"]) == 1
        assert found["total"] >= 2
        assert cli.lines("clients", "end", row[0]) == [f"ended connection {row[0]}"]
        received = b""
        while chunk := line.recv(1 << 16):
            received += chunk
        assert b"an administrator closed the connection" in received
    message = f"strandline: connection '{row[0]}' not found; list the names with `strandline clients ls`"
    assert cli.fails(3, "clients", "end", row[0]) == message
    assert "kind must be" in cli.fails(2, "clients", "ls", "--kind", "lazy")


def test_clients_need_the_scope_admin(start_server: StartServer) -> None:
    cli = Cli(start_server(keys="root,reader:read").url)
    cli.fails(5, "clients", "ls", "--api-key", "reader")
    assert cli.json("clients", "ls", "--api-key", "root")["total"] >= 1
