"""A key that is limited to a prefix can neither read, write, create, delete nor learn of anything outside of it.

Every route of the server is tried with a name outside; every place where a body or a header can name a log is listed
in ``MENTIONS``, and everything that can be looked at in ``test_nothing_that_the_tenant_may_look_at_names_a_secret``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from support.server_process import ServerProcess
from support.topics_client import Client

KEYS = "boss,tenant::orders"
JSON = {"content-type": "application/json"}
DS = "/v1/stream/__ds/subscriptions"
RECORD = {"records": [{"data": 1}]}
TRACES = {"apiVersion": "durable.streams/profile/v1", "profile": {"kind": "otel-traces"}}

Mention = tuple[str, str, Any, dict[str, str]]


def mention(method: str, path: str, body: Any = None, **headers: str) -> Mention:
    return method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}


#: Requests that are about the tenant's own logs, and name one of somebody else besides.
MENTIONS = [
    mention("PUT", "/v0/topics/orders.new", {"type": "queue", "dead_letter": "secret.new", "max_deliveries": 1}),
    mention("PUT", "/v0/topics/orders.jobs", {"type": "queue", "dead_letter": "secret.log", "max_deliveries": 1}),
    mention("PUT", "/v0/topics/orders.jobs", {"type": "queue", "dead_letter": "order", "max_deliveries": 1}),
    mention("POST", "/v0/topics/orders.new", {**RECORD, "config": {"type": "queue", "dead_letter": "secret.new"}}),
    mention(
        "POST",
        "/v0/write",
        {"writes": [{"topic": "orders.new", **RECORD, "config": {"type": "queue", "dead_letter": "secret.new"}}]},
    ),
    mention("POST", "/v0/write", {"writes": [{"topic": "orders.log", **RECORD}, {"topic": "secret.log", **RECORD}]}),
    mention("POST", "/v0/write", {"writes": [{"topic": "secret.new", **RECORD}]}),
    mention("PUT", "/v0/routers/orders.r", {"source": "secret.log", "dest": "orders.new"}),
    mention("PUT", "/v0/routers/orders.r", {"source": "orders.log", "dest": "secret.new"}),
    mention("PUT", "/v0/routers/secret.r", {"source": "orders.log", "dest": "orders.new"}),
    mention("PUT", "/v0/routers/orders.leak", {"source": "orders.log", "dest": "orders.new"}),
    mention("DELETE", "/v0/routers/orders.leak"),
    mention("POST", "/v0/watch", {"topics": {"secret.log": {}}}),
    mention("POST", "/v0/watch", {"topics": {"secret.*": {}}}),
    mention("POST", "/v0/topics/orders.jobs/redrive", {"to": "secret.log"}),
    mention("PUT", "/v1/stream/orders.fork", b"", stream_forked_from="/v1/stream/secret.log"),
    mention("PUT", f"{DS}/mine", {"type": "webhook", "streams": ["secret.log"], "webhook": {"url": "https://a.example"}}),
    mention("PUT", f"{DS}/mine", {"type": "webhook", "pattern": "secret/*", "webhook": {"url": "https://a.example"}}),
    mention("PUT", f"{DS}/mine", {"type": "webhook", "pattern": "*", "webhook": {"url": "https://a.example"}}),
    mention("PUT", f"{DS}/mine", {"type": "pull-wake", "pattern": "orders/*", "wake_stream": "secret.new"}),
    mention("PUT", f"{DS}/shared", {"type": "pull-wake", "pattern": "orders/*", "wake_stream": "orders.wakes"}),
    mention("GET", f"{DS}/shared"),
    mention("DELETE", f"{DS}/shared"),
    mention("POST", f"{DS}/shared/claim", {"worker": "w"}),
    mention("POST", f"{DS}/shared/streams", {"streams": ["orders.log"]}),
    mention("DELETE", f"{DS}/shared/streams/secret.log"),
    mention("POST", f"{DS}/owned/streams", {"streams": ["secret.log"]}),
    mention(
        "POST",
        "/v1/stream/orders.events/_profile",
        {**TRACES, "profile": {"kind": "evlog", "observability": {"request": {"tracesStream": "secret.traces"}}}},
    ),
    mention(
        "POST",
        "/v1/stream/orders.traces/_profile",
        {**TRACES, "profile": {"kind": "otel-traces", "observability": {"request": {"eventsStream": "secret.log"}}}},
    ),
    mention(
        "POST", "/v1/observe/request", {"streams": {"traces": "secret.traces"}, "lookup": {"requestId": "1"}}
    ),
    # What goes with a log is not the tenant's to remove, either.
    mention("DELETE", "/v0/topics/orders.source"),
    mention("DELETE", "/v1/stream/orders.source"),
]  # fmt: skip


class World:
    """A server with logs of a tenant and of others, and the two who look at it."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.boss = server.client("boss")
        self.tenant = server.client("tenant")
        boss = self.boss
        boss.put("secret.log")
        boss.put("secret.dead")
        boss.write("secret.log", [1, 2])
        boss.put("orders.log")
        boss.put("orders.source")
        boss.put("orders.jobs", type="queue", dead_letter="secret.dead", max_deliveries=1)
        boss.call("PUT", "/v0/routers/orders.leak", {"source": "orders.source", "dest": "secret.copy"}, status=201)
        boss.call("PUT", "/v0/routers/secret.into", {"source": "secret.log", "dest": "orders.filled"}, status=201)
        for name, kind, named in (
            ("secret.traces", "otel-traces", {}),
            ("orders.traces", "otel-traces", {"eventsStream": "secret.log"}),
            ("orders.events", "evlog", {"tracesStream": "secret.traces"}),
        ):
            self.ask(boss, "PUT", f"/v1/stream/{name}", b"").raise_for_status()
            profile = {"kind": kind, "observability": {"request": named}}
            self.ask(boss, "POST", f"/v1/stream/{name}/_profile", {**TRACES, "profile": profile}).raise_for_status()
        pulled = {"type": "pull-wake", "pattern": "orders/*", "wake_stream": "orders.wakes"}
        self.ask(boss, "PUT", f"{DS}/shared", pulled).raise_for_status()
        self.ask(boss, "POST", f"{DS}/shared/streams", {"streams": ["secret.log"]}).raise_for_status()
        self.ask(self.tenant, "PUT", f"{DS}/owned", pulled).raise_for_status()

    @staticmethod
    def ask(client: Client, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        return client.http.request(method, path, content=content, headers={**JSON, **headers})

    def everything(self) -> Any:
        """All logs with where they end, all routers, and what the subscriptions are about."""
        logs = self.boss.call("GET", "/arrow/logs?internal=true&limit=10000")["logs"]
        return (
            {log["name"]: log["head"] for log in logs if not log["name"].startswith("_")},
            self.boss.call("GET", "/v0/routers")["routers"],
            [self.ask(self.boss, "GET", f"{DS}/{id}").json() for id in ("shared", "owned", "mine")],
            self.boss.get("orders.jobs")["config"],
        )

    def routes(self) -> list[tuple[str, str]]:
        paths = self.boss.call("GET", "/openapi.json")["paths"]
        return [(method.upper(), path) for path, methods in paths.items() for method in methods if method != "options"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("prefixes")
    process = ServerProcess(directory / "data", keys=KEYS, settings={"metrics_flush_ms": 0})
    try:
        yield World(process.start())
    finally:
        process.end()


@pytest.mark.parametrize("asked", MENTIONS, ids=lambda asked: f"{asked[0]} {asked[1]}")
def test_a_name_outside_is_refused_wherever_it_is_mentioned(world: World, asked: Mention) -> None:
    method, path, body, headers = asked
    before = world.everything()
    response = world.ask(world.tenant, method, path, body, **headers)
    assert response.status_code == 403, response.text
    # Nothing is told but what was said.
    said = f"{path}{json.dumps(body) if not isinstance(body, bytes) else ''}{headers}"
    for name in ("secret.log", "secret.copy", "secret.dead", "secret.into", "secret.traces"):
        assert name in said or name not in response.text
    assert world.everything() == before


def test_every_route_refuses_a_name_outside(world: World) -> None:
    before, tried = world.everything(), 0
    for method, path in world.routes():
        parameter = next((each for each in ("{topic}", "{router}", "{name}") if each in path), None)
        if parameter is None:
            continue
        for name in ("secret.log", "secret.new", "secret.into", "order", "Orders.log"):
            filled = (
                path.replace(parameter, quote(name, safe=""))
                .replace("{consumer}", "c")
                .replace("{group}", "g")
                .replace("{key}", "k")
            )
            assert "{" not in filled, path
            body = None if method in ("GET", "HEAD", "DELETE") else b"{}"
            response = world.ask(world.tenant, method, filled, body, accept="*/*")
            assert response.status_code == 403, (method, filled, response.text)
            tried += 1
    assert tried > 150
    assert world.everything() == before


def test_nothing_that_the_tenant_may_look_at_names_a_secret(world: World) -> None:
    names = ["orders.log", "orders.jobs", "orders.source", "orders.filled", "orders.traces", "orders.events"]
    looked = 0
    for method, path in world.routes():
        if method != "GET" or any(word in path for word in ("/watch/", "/work", "/live", "/tail", "{path}", "__ds")):
            continue
        parameter = next((each for each in ("{topic}", "{router}", "{name}") if each in path), None)
        for name in names if parameter is not None else [""]:
            filled = path.replace(parameter or "", name) if parameter else path
            filled = filled.replace("{consumer}", "c").replace("{group}", "g").replace("{key}", "k")
            response = world.ask(world.tenant, "GET", filled)
            assert response.status_code < 500, (filled, response.text)
            assert b"secret." not in response.content, (filled, response.text)
            looked += 1
    assert looked > 80
    for path in (
        "/v0/topics?prefix=secret", "/v0/routers?source=orders.source", "/v0/routers?dest=orders.filled",
        "/v1/streams?prefix=secret", "/arrow/logs?internal=true&prefix=secret", "/console/api/logs?search=secret",
        "/console/api/queues?search=jobs", "/console/api/routers",
    ):  # fmt: skip
        assert b"secret." not in world.ask(world.tenant, "GET", path).content, path
    metrics = world.ask(world.tenant, "GET", "/v0/metrics", accept="application/json")
    assert b"secret." not in metrics.content


def test_a_tenant_changes_its_queue_and_keeps_the_dead_letters_that_it_cannot_see(world: World) -> None:
    tenant, boss = world.tenant, world.boss
    assert tenant.get("orders.jobs")["config"]["dead_letter"] is None
    config = {"type": "queue", "max_deliveries": 1, "lease_ms": 5000}
    answer = tenant.call("PUT", "/v0/topics/orders.jobs", config)
    assert (answer["config"]["lease_ms"], answer["config"]["dead_letter"]) == (5000, None)
    kept = boss.get("orders.jobs")["config"]
    assert (kept["lease_ms"], kept["dead_letter"]) == (5000, "secret.dead")


def test_a_tenant_changes_its_profile_and_keeps_the_stream_that_it_cannot_see(world: World) -> None:
    path = "/v1/stream/orders.events/_profile"
    profile = {"kind": "evlog", "redactKeys": ["pin"]}
    assert world.ask(world.tenant, "POST", path, {"profile": profile}).json()["profile"] == profile
    kept = world.ask(world.boss, "GET", path).json()["profile"]
    assert kept == {**profile, "observability": {"request": {"tracesStream": "secret.traces"}}}


def test_a_tenant_that_waits_for_details_learns_no_secret(world: World) -> None:
    path = "/v1/stream/orders.traces/_details"
    etags = {client: world.ask(client, "GET", path).headers["etag"] for client in (world.boss, world.tenant)}
    assert etags[world.boss] != etags[world.tenant]
    with ThreadPoolExecutor(2) as threads:
        waiting = {
            client: threads.submit(world.ask, client, "GET", f"{path}?live=true&timeout=20s", **{"if-none-match": etag})
            for client, etag in etags.items()
        }
        span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "n", "startUnixNano": "1", "endUnixNano": "2"}
        world.ask(world.server.client("boss"), "POST", "/v1/stream/orders.traces", span).raise_for_status()
        answers = {client: answer.result(30) for client, answer in waiting.items()}
    assert {answer.status_code for answer in answers.values()} == {200}
    assert "secret.log" in answers[world.boss].text
    assert "secret." not in answers[world.tenant].text


def test_a_tenant_may_name_what_is_its_own(world: World) -> None:
    tenant = world.tenant
    tenant.put("orders.own", type="queue", dead_letter="orders.dead", max_deliveries=1)
    tenant.call("PUT", "/v0/routers/orders.own", {"source": "orders.own", "dest": "orders.copy"}, status=201)
    assert tenant.call("GET", "/v0/routers/orders.own")["dest"] == "orders.copy"
    assert tenant.call("DELETE", "/v0/topics/orders.own")["routers_removed"] == ["orders.own"]
    pulled = {"type": "pull-wake", "pattern": "orders/*", "wake_stream": "orders.wakes"}
    assert world.ask(tenant, "PUT", f"{DS}/owned", pulled).status_code == 200


def test_a_router_is_refused_without_naming_what_is_in_its_way(world: World) -> None:
    # The destination has a source that the tenant may not know of.
    body = {"source": "orders.log", "dest": "orders.filled"}
    error = world.tenant.refused("PUT", "/v0/routers/orders.second", body, status=409)
    assert error["detail"]["reason"] == "router_dest_fan_in"
    assert "secret." not in json.dumps(error)
    assert "'secret.log'" in world.boss.refused("PUT", "/v0/routers/orders.second", body, status=409)["message"]
    # And so has a cycle.
    world.boss.call("PUT", "/v0/routers/secret.back", {"source": "secret.copy", "dest": "orders.end"}, status=201)
    body = {"source": "orders.end", "dest": "orders.source"}
    error = world.tenant.refused("PUT", "/v0/routers/orders.cycle", body, status=409)
    assert error["code"] == "router_cycle"
    assert "secret." not in json.dumps(error)
    world.boss.call("DELETE", "/v0/routers/secret.back")


def test_a_websocket_publishes_no_configuration_that_names_something_outside(world: World) -> None:
    with world.tenant.websocket() as socket:
        for topic, config in (("orders.ws", {"type": "queue", "dead_letter": "secret.ws"}), ("secret.ws", None)):
            socket.send(
                {"op": "publish", "request_id": "p", "topic": topic, "records": [{"data": 1}], "config": config}
            )
            answer = socket.next()
            assert (answer["op"], answer["code"]) == ("error", "forbidden"), answer
        socket.send({"op": "subscribe", "request_id": "s", "topic": "secret.log"})
        assert socket.next()["code"] == "forbidden"
    assert "orders.ws" not in world.everything()[0]
