"""Connected clients: what an administrator sees of them, and ending one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.live_server import KINDS, LiveServer, ask, live_server, read_to_end, read_until, wait_for

from strandline.server.client_routes import MAX_CLIENTS

ROOT = "root-secret"
CONFIGURED = f"{ROOT},tenant-secret:admin+rw:mine:,reader-secret:read"

#: The kind of each live response, and the logs that it is shown with. A collection and a table have logs of their own.
SHOWN: dict[str, tuple[str, list[str] | None]] = {
    "watch": ("event_stream", ["t"]),
    "work": ("worker", ["jobs"]),
    "websocket": ("websocket", ["t"]),
    "stream events": ("event_stream", ["s"]),
    "console tail": ("event_stream", ["t"]),
    "table": ("event_stream", None),
    "collection": ("event_stream", None),
    "arrow": ("download", ["s"]),
    "catch-up": ("download", ["s"]),
}
LAST_WORDS = b"an administrator closed the connection"


@pytest.fixture(scope="module")
def server(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp(f"clients-{lane}"), lane, keys=CONFIGURED) as live:
        live.secret = ROOT
        live.fill()
        yield live


def call(
    server: LiveServer, method: str, path: str, secret: str = ROOT, body: Any = None, **headers: str
) -> httpx.Response:
    headers["authorization"] = f"Bearer {secret}"
    return httpx.request(method, server.url + path, json=body, headers=headers, trust_env=False, timeout=30)


def clients(server: LiveServer, query: str = "", secret: str = ROOT) -> list[dict[str, Any]]:
    answer = call(server, "GET", f"/v0/clients{query}", secret)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["clients"]
    return found


def row_of(server: LiveServer, line: socket.socket, query: str = "", secret: str = ROOT) -> dict[str, Any] | None:
    port = line.getsockname()[1]
    return next((client for client in clients(server, query, secret) if client["port"] == port), None)


def row_when(server: LiveServer, line: socket.socket, kind: str) -> dict[str, Any]:
    """The connection once it does this."""
    found: list[dict[str, Any]] = []

    def does() -> bool:
        row = row_of(server, line)
        found[:] = [] if row is None else [row]
        return row is not None and row["kind"] == kind

    wait_for(does)
    return found[0]


@pytest.mark.both_lanes
@pytest.mark.parametrize("kind", KINDS)
def test_a_live_response_of_every_protocol_is_shown_and_ended(server: LiveServer, kind: str) -> None:
    shown, logs = SHOWN[kind]
    before = server.open[1]
    with server.connect(4096) as line:
        ask(server, line, kind)
        wait_for(lambda: server.open[1] == before + 1)
        wait_for(lambda: bool((row_of(server, line) or {"logs": logs is None})["logs"]))
        row = row_when(server, line, shown)
        if logs is None:
            assert row["log_count"] == len(row["logs"]) > 0
        else:
            assert [log["log"] for log in row["logs"]] == logs
        assert row["api_key"]
        assert row["peer"] == "127.0.0.1"
        assert row["connected_at"] <= row["since"] + 1 <= server.application.engine.now() + 1000  # type: ignore[union-attr]
        # Far more than the buffers of the kernel: the client reads nothing.
        if kind != "websocket":
            wait_for(lambda: (row_of(server, line) or {"stalled_ms": None})["stalled_ms"] is not None)
            assert (row_of(server, line) or {})["unread_bytes"] > 0
        assert call(server, "DELETE", f"/v0/clients/{row['id']}").json() == {"id": row["id"], "disconnected": True}
        ended = read_to_end(line)
        wait_for(lambda: server.open[1] == before)
        if kind in ("watch", "work", "console tail", "table", "collection"):
            assert LAST_WORDS in ended
        elif kind == "websocket":
            assert b"\x03\xf0" in ended  # 1008
    wait_for(lambda: row["id"] not in [client["id"] for client in clients(server)])
    refused = call(server, "DELETE", f"/v0/clients/{row['id']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "client_not_found")


@pytest.mark.both_lanes
def test_a_client_that_keeps_up_is_at_the_end_of_its_log(server: LiveServer, lane: str) -> None:
    with server.connect() as line:
        ask(server, line, "stream events")
        row = row_when(server, line, "event_stream")
        assert (row["protocol"], row["method"], row["route"]) == ("streams", "GET", "/v1/stream/{name}")
        assert row["lane"] == lane
        assert read_until(line, b'"upToDate":true')

        def at_the_end() -> bool:
            row = row_of(server, line)
            return row is not None and (row["behind"], row["unread_bytes"], row["stalled_ms"]) == (0, 0, None)

        wait_for(at_the_end)
        row = row_of(server, line) or {}
        assert row["sent_bytes"] > 10_000_000
        assert 0 < row["received_bytes"] < 2_000


@pytest.mark.both_lanes
def test_a_read_that_waits_is_told_apart_and_gets_no_answer_when_it_is_ended(server: LiveServer) -> None:
    head = call(server, "GET", "/v0/topics/t").json()["head_seq"]
    wait = {"from_seq": head, "wait_ms": 20_000}
    ended: list[Exception] = []

    def read() -> None:
        try:
            call(server, "POST", "/v0/topics/t/diff", body=wait)
        except httpx.TransportError as error:
            ended.append(error)

    waiting = threading.Thread(target=read)
    waiting.start()
    try:
        wait_for(lambda: bool(clients(server, "?kind=long_poll")))
        row = clients(server, "?kind=long_poll")[0]
        assert row["logs"] == [{"log": "t", "behind": None}]
        assert row["since"] >= row["connected_at"]
        call(server, "DELETE", f"/v0/clients/{row['id']}")
        wait_for(lambda: not clients(server, "?kind=long_poll"))
    finally:
        waiting.join()
    assert len(ended) == 1


@pytest.mark.both_lanes
def test_an_idle_connection_has_its_last_request(server: LiveServer, lane: str) -> None:
    request = b"GET /v0/topics/t HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer root-secret\r\n\r\n"
    with server.connect() as line, server.connect() as silent:
        line.sendall(request)
        assert line.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        row = row_when(server, line, "idle")
        assert (row["method"], row["route"], row["lane"]) == ("GET", "/v0/topics/{topic}", lane)
        assert (row["since"], row["behind"], row["stalled_ms"]) == (None, None, None)
        assert row["logs"] == [{"log": "t", "behind": None}]
        nothing = row_when(server, silent, "idle")
        assert (nothing["api_key"], nothing["route"], nothing["protocol"], nothing["logs"]) == ("", "", "", [])
        call(server, "DELETE", f"/v0/clients/{row['id']}")
        read_to_end(line)


def test_a_key_sees_only_connections_of_keys_that_may_do_no_more(server: LiveServer) -> None:
    added = call(server, "POST", "/v0/keys", body={"name": "shop", "scopes": ["read"], "prefixes": ["mine:a"]}).json()
    server.secret = added["secret"]
    call(server, "POST", "/v0/topics/mine:a", body={"records": [{"data": 1}]})
    with server.connect() as theirs, server.connect() as mine:
        try:
            mine.sendall(
                b"GET /console/api/log/mine:a/tail HTTP/1.1\r\nhost: localhost\r\n"
                b"authorization: Bearer " + added["secret"].encode() + b"\r\n\r\n"
            )
        finally:
            server.secret = ROOT
        ask(server, theirs, "stream events")
        wide = row_when(server, theirs, "event_stream")
        narrow = row_when(server, mine, "event_stream")
        assert (narrow["api_key"], narrow["api_key_name"]) == (added["key"]["id"], "shop")
        assert row_of(server, theirs, secret="tenant-secret") is None
        assert row_of(server, mine, secret="tenant-secret") is not None
        assert call(server, "DELETE", f"/v0/clients/{wide['id']}", "tenant-secret").status_code == 404
        assert call(server, "DELETE", f"/v0/clients/{narrow['id']}", "tenant-secret").status_code == 200
        assert LAST_WORDS in read_to_end(mine)
    assert call(server, "GET", "/v0/clients", "reader-secret").status_code == 403
    assert call(server, "DELETE", "/v0/clients/1", "reader-secret").status_code == 403
    audited = call(server, "GET", "/v0/audit?limit=100").json()["entries"]
    assert {"DELETE"} == {one["method"] for one in audited if one["route"] == "/v0/clients/{id}"}


def test_the_list_is_bounded_and_the_counts_are_complete(server: LiveServer) -> None:
    lines = [server.connect() for _ in range(5)]
    try:
        wait_for(lambda: all(row_of(server, line) for line in lines))
        answer = call(server, "GET", "/v0/clients?limit=2").json()
        assert len(answer["clients"]) == 2
        assert answer["total"] == sum(answer["counts"].values()) >= 6
        # What does something comes before what is idle; among these, the oldest first.
        everything = clients(server)
        assert [row["kind"] == "idle" for row in everything] == sorted(row["kind"] == "idle" for row in everything)
        idle = [row["connected_at"] for row in clients(server, "?kind=idle")]
        assert idle == sorted(idle)
        for query in (f"?limit={MAX_CLIENTS + 1}", "?limit=0", "?kind=lazy"):
            assert call(server, "GET", f"/v0/clients{query}").status_code == 400
        for id in ("x", "0", "-1", "9" * 40):
            assert call(server, "DELETE", f"/v0/clients/{id}").status_code == 404
    finally:
        for line in lines:
            line.close()
