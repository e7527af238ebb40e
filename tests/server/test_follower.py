"""A server that follows another one: what it answers, and what it refuses. In real processes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.command_line import Cli
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, eventually

from strandline.client import Client as PythonClient

#: Chunks follow each other at once, and the follower looks at once.
LEADER = {"replica_interval_ms": 1, "replica_timeout_ms": 60_000}
FOLLOWER = {"follow_interval_ms": 10}


class Servers:
    def __init__(self, start_server: StartServer, replica: str, **settings: Any) -> None:
        self.leader: ServerProcess = start_server(replica=replica, **LEADER, **settings)
        self.follower: ServerProcess = start_server(follow=replica, **FOLLOWER, **settings)
        self.address = self.leader.url.removeprefix("http://")

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(f"{self.follower.url}{path}", trust_env=False, timeout=30, **options)


@pytest.fixture
def servers(start_server: StartServer, tmp_path: Path) -> Servers:
    return Servers(start_server, str(tmp_path / "replica"))


def test_a_follower_says_that_its_data_is_the_leaders(servers: Servers) -> None:
    found = servers.follower.client().call("GET", "/v0/backups")
    assert found["replica"] is None
    assert found["follower"]["leader"] == servers.address
    assert found["follower"]["term"] == 1
    assert servers.leader.client().call("GET", "/v0/backups")["follower"] is None
    assert servers.get("/v0/clients").json()["counts"]["request"] >= 1


def data_of(client: Client, topic: str) -> list[Any]:
    return [record["data"] for record in client.diff(topic)["records"]]


def test_a_follower_answers_reads_and_names_the_leader(servers: Servers) -> None:
    leader, follower = servers.leader.client(), servers.follower.client()
    leader.put("orders")
    seq = leader.write("orders", [{"item": "book"}, {"item": "pen"}])["last_seq"]
    # The reader sees its own write, although the follower may not have the log yet.
    answer = servers.get(f"/v0/topics/orders?min_seq={seq}")
    assert answer.json()["head_seq"] == seq
    assert int(answer.headers["strandline-lag-ms"]) >= 0
    assert data_of(follower, "orders") == [{"item": "book"}, {"item": "pen"}]

    for method, path, body in (
        ("POST", "/v0/topics/orders", {"records": [{"data": 1}]}),
        ("PUT", "/v0/topics/other", {}),
        ("DELETE", "/v0/topics/orders", None),
        ("PUT", "/v0/topics/orders/consumers/c", {"seq": 1}),
        ("PUT", "/v1/stream/visits", None),
        ("POST", "/v1/stream/orders", [1]),
        ("PUT", "/v0/routers/r", {"source": "orders", "dest": "copies"}),
        ("DELETE", "/v0/routers/r", None),
    ):
        refused = httpx.request(method, f"{servers.follower.url}{path}", json=body, trust_env=False)
        assert refused.status_code == 503, (method, path, refused.text)
        error = refused.json()["error"]
        assert error["code"] == "standby", (path, error)
        assert servers.address in error["message"]
        assert "retry-after" in refused.headers
    assert data_of(leader, "orders") == [{"item": "book"}, {"item": "pen"}]

    health = servers.get("/v0/health").json()
    assert (health["status"], health["role"], health["leader"]) == ("ok", "follower", servers.address)
    assert servers.get("/v0/ready").json()["status"] == "ready"
    metrics = servers.get("/v0/metrics").text
    assert "strandline_follower_lag_seconds " in metrics
    assert "strandline_journal_read_only 0" in metrics
    cli = Cli(servers.follower.url)
    fields = {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in cli.lines("info")}
    assert fields["role"] == "follower"
    assert fields["behind the leader"].endswith(" s")
    assert any(line.startswith("ok    follower") for line in cli.lines("doctor"))


def test_min_seq_says_what_is_missing(servers: Servers) -> None:
    servers.leader.client().write("orders", [1])
    assert servers.get("/v0/topics/orders?min_seq=1").status_code == 200
    for path, expected in (
        ("/v0/topics/orders?min_seq=x", "expected a sequence number"),
        ("/v0/topics?min_seq=1", "the request reads no single log"),
    ):
        answer = servers.get(path)
        assert answer.status_code == 400
        assert expected in answer.json()["error"]["message"]
    for number in ("9" * 20, "9" * 5000):
        answer = servers.get(f"/v0/topics/orders?min_seq={number}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        assert len(answer.content) < 300
    # It says nothing about the logs of the server itself.
    assert servers.get("/v0/topics/__quota__?min_seq=9").status_code == 404
    # The leader need not wait: there is no such record.
    answer = httpx.get(f"{servers.leader.url}/v0/topics/orders?min_seq=9", trust_env=False)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_min_seq_holds_for_bodies_that_are_large_or_compressed(servers: Servers) -> None:
    servers.leader.client().write("orders", [1])
    path = f"{servers.leader.url}/v0/topics/orders/diff?min_seq=9"
    # White space makes the body large.
    body = b'{"from_seq":0}'.ljust(300_000)
    headers = {"content-type": "application/json"}
    for content, coding in ((body, {}), (gzip.compress(body), {"content-encoding": "gzip"})):
        answer = httpx.post(path, content=content, headers={**headers, **coding}, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_a_follower_gives_no_shares_of_a_consumer_group(servers: Servers) -> None:
    leader, follower = servers.leader.client(), servers.follower.client()
    seq = leader.write("orders", [1, 2])["last_seq"]
    group = "/v0/topics/orders/groups/g"
    leader.call("POST", group, {"node": "a", "of": 2})
    leader.call("PUT", "/v0/topics/orders/consumers/c", {"seq": seq})
    eventually(lambda: len(follower.call("GET", "/v0/consumers")["consumers"]) == 3)
    assert [each["node"] for each in follower.call("GET", group)["shares"]] == [None, None]
    refused = httpx.post(f"{servers.follower.url}{group}", json={"node": "b"}, trust_env=False)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "standby")
    assert follower.call("GET", group)["members"] == []
    # The leader begins the group again with other shares.
    leader.call("POST", group, {"node": "a", "leave": True})
    leader.call("DELETE", group)
    leader.call("POST", group, {"node": "a", "of": 3})
    eventually(lambda: follower.request("GET", group).json().get("of") == 3)


def test_a_follower_shows_the_routers_of_the_leader_and_forwards_nothing(servers: Servers) -> None:
    leader, follower = servers.leader.client(), servers.follower.client()
    leader.put("orders")
    leader.put("copies")

    def routers() -> list[tuple[str, int]]:
        found = follower.call("GET", "/console/api/routers")["routers"]
        return [(each["name"], each["lag"]) for each in found]

    leader.call("PUT", "/v0/routers/r", {"source": "orders", "dest": "copies"}, status=201)
    eventually(lambda: routers() == [("r", 0)])
    leader.write("orders", [1, 2])
    assert servers.get("/v0/topics/copies?min_seq=2").status_code == 200
    assert data_of(follower, "copies") == [1, 2]
    eventually(lambda: routers() == [("r", 0)])
    refused = httpx.delete(f"{servers.follower.url}/v0/routers/r", trust_env=False)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "standby")
    servers.follower.stop()
    servers.follower.start()
    follower = servers.follower.client()
    eventually(lambda: routers() == [("r", 0)])
    leader.write("orders", [3])
    assert servers.get("/v0/topics/copies?min_seq=3").status_code == 200
    assert "forwarding failed" not in servers.follower.log()
    leader.call("DELETE", "/v0/routers/r")
    eventually(lambda: routers() == [])


def test_a_follower_does_not_say_that_it_deleted_a_subscription(servers: Servers) -> None:
    path = "/v1/stream/__ds/subscriptions/s"
    wanted = {"type": "pull-wake", "pattern": "*", "wake_stream": "wake"}
    httpx.put(f"{servers.leader.url}{path}", json=wanted, trust_env=False).raise_for_status()
    assert httpx.delete(f"{servers.follower.url}{path}", trust_env=False).status_code == 503
    assert httpx.get(f"{servers.leader.url}{path}", trust_env=False).status_code == 200


def test_a_follower_does_not_run_the_pipeline(servers: Servers) -> None:
    refused = httpx.post(f"{servers.follower.url}/pipeline/run", trust_env=False)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "standby")
    assert servers.get("/pipeline").json()["state"] == "off"


def test_live_readers_and_searches_of_a_follower(servers: Servers) -> None:
    leader, follower = servers.leader.client(), servers.follower.client()
    stream = f"{servers.leader.url}/v1/stream/visits"
    httpx.put(stream, headers={"content-type": "application/json"}, trust_env=False)
    field = {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/page"}]}
    schema = {"schema": {"type": "object"}, "search": {"fields": {"page": field}}}
    httpx.post(f"{stream}/_schema", json=schema, trust_env=False).raise_for_status()
    httpx.post(stream, json=[{"page": "/"}, {"page": "/pay"}], trust_env=False).raise_for_status()
    found = servers.get("/v1/stream/visits/_search?q=page:/pay&min_seq=2").json()
    assert [hit["source"] for hit in found["hits"]] == [{"page": "/pay"}]

    leader.write("orders", [1])
    assert servers.get("/v0/topics/orders?min_seq=1").status_code == 200
    session = follower.call("POST", "/v0/watch", {"topics": {"orders": {"from_seq": 1}}})
    with httpx.stream("GET", f"{servers.follower.url}{session['stream_url']}", trust_env=False, timeout=30) as events:
        leader.write("orders", [{"live": True}])
        assert any('"live":true' in line for line in events.iter_lines())


def test_an_api_key_that_the_leader_revokes_ends_on_the_follower(start_server: StartServer, tmp_path: Path) -> None:
    servers = Servers(start_server, str(tmp_path / "replica"), keys="secret")
    admin = {"authorization": "Bearer secret"}
    keys = f"{servers.leader.url}/v0/keys"
    made = httpx.post(keys, json={"name": "reader", "scopes": ["read"]}, headers=admin, trust_env=False).json()
    reader = {"authorization": f"Bearer {made['secret']}"}
    eventually(lambda: servers.get("/v0/topics", headers=reader).status_code == 200)
    httpx.delete(f"{keys}/{made['key']['id']}", headers=admin, trust_env=False).raise_for_status()
    eventually(lambda: servers.get("/v0/topics", headers=reader).status_code == 401)


def test_clients_find_the_leader_for_writes(servers: Servers) -> None:
    with PythonClient([servers.follower.url, servers.leader.url]) as client:
        topic = client.topic("parcels")
        topic.write({"to": "ann"})
        assert [record.data for record in topic.read()] == [{"to": "ann"}]


def test_a_follower_waits_for_the_first_leader(start_server: StartServer, tmp_path: Path) -> None:
    replica = str(tmp_path / "replica")
    follower = start_server(follow=replica, ready=False, **FOLLOWER)
    eventually(lambda: "cannot follow" in follower.log())
    assert httpx.get(f"{follower.url}/v0/ready", trust_env=False).status_code == 503
    leader = start_server(replica=replica, **LEADER)
    leader.client().write("orders", [1])
    eventually(lambda: httpx.get(f"{follower.url}/v0/topics/orders", trust_env=False).status_code == 200)
