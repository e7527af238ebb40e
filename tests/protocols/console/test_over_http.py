"""The console of a real server."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, eventually

API = "/console/api"


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    client = Client(server.url)
    yield client
    client.close()


def test_every_endpoint_is_answered(client: Client) -> None:
    name = "console/lanes"
    path = f"{API}/log/{quote(name, safe='')}"
    assert client.request("PUT", f"/v1/stream/{name}", headers={"content-type": "application/json"}).is_success
    client.queue("console-jobs", [1, 2])
    client.claim("console-jobs", "worker")
    for target in ("session", "overview", "logs?search=console", "queues?search=console", "routers"):
        client.call("GET", f"{API}/{target}")
    for below in ("", "/records", "/records?before=9", "/keys", "/removal?key=a", "/inference"):
        client.call("GET", path + below)
    assert client.call("GET", f"{API}/queue/console-jobs")["held"][0]["worker"] == "worker"
    assert client.call("GET", f"{API}/fields/console-jobs") == {"fields": []}
    assert client.refused("GET", f"{API}/log/console-nothing", status=404)["code"] == "log_not_found"


def test_records_are_told_as_they_come_and_again_from_where_one_was(client: Client) -> None:
    client.put("console-tail")
    with client.events(f"{API}/log/console-tail/tail") as events:
        eventually(lambda: client.call("GET", f"{API}/overview")["samples"])
        client.write("console-tail", ["first", "second"])
        event = events.wait_for("record")
        assert event.json["data"] == "first"
    assert event.id is not None
    with client.events(f"{API}/log/console-tail/tail", last_event_id=event.id) as events:
        assert events.wait_for("record").json["data"] == "second"
        client.drop("console-tail")
        assert events.wait_for("dropped").json["log"] == "console-tail"
        assert events.ended() == []


def test_samples_come_by_themselves(client: Client) -> None:
    with client.events(f"{API}/live") as events:
        first, second = events.wait_for("sample").json, events.wait_for("sample").json
    assert second["at"] > first["at"]
    assert first["connections"] >= 1


def test_assets_are_compressed_once_and_for_all(client: Client) -> None:
    path = "/console/vendor/uplot/uPlot.esm.js"
    response = client.http.get(path, headers={"accept-encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert b"uPlot" in response.content
    assert "date" in response.headers
    tag = response.headers["etag"]
    again = client.http.get(path, headers={"accept-encoding": "gzip", "if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_the_console_is_found_with_and_without_its_slash(client: Client) -> None:
    moved = client.http.get("/console")
    assert (moved.status_code, moved.headers["location"]) == (308, "console/")


@pytest.mark.both_lanes
def test_streams_end_when_the_server_stops(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane)
    client = server.client()
    client.put("orders")
    with client.events(f"{API}/live") as live, server.client().events(f"{API}/log/orders/tail") as tail:
        live.wait_for("sample")
        server.terminate()
        live.ended()
        assert tail.ended() == []
        assert server.wait() == 0


def test_a_key_learns_who_it_is_and_nobody_that_a_key_is_needed(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, keys="boss,limited:read:app-")
    boss = server.client()
    for name in ("app-orders", "other"):
        boss.put(name)
    for _ in range(2):
        assert server.client("").call("GET", f"{API}/session")["key"] is None
        assert server.client("wrong").call("GET", f"{API}/session")["key"] is None
        assert server.client("limited").call("GET", f"{API}/session")["key"]["prefixes"] == ["app-"]
    assert server.client("").refused("GET", f"{API}/logs", status=401)["code"] == "unauthorized"
    logs = server.client("limited").call("GET", f"{API}/logs")
    assert ([row["name"] for row in logs["logs"]], logs["total"]) == (["app-orders"], 1)
    assert server.client("limited").refused("GET", f"{API}/log/other", status=403)["code"] == "forbidden"
    with server.client("").events(f"{API}/live?token=limited") as live:
        live.wait_for("sample")
