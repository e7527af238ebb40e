"""Several servers over one replica: takeovers, standbys, and what became of the server before. In real processes."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.command_line import Cli
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, eventually

from bench.delaying_proxy import delaying_proxy
from bench.minio import BUCKET, MinioServer
from bench.peers import free_port
from strandline.engine.replica.takeover import has_data

#: Chunks follow each other at once, and no write fails because the machine is busy.
QUICK = {"replica_interval_ms": 1, "replica_timeout_ms": 60_000}
#: A takeover may take this long on a busy machine.
SECONDS = 60.0


def replica_of(tmp_path: Path) -> str:
    return str(tmp_path / "replica")


def data_of(client: Client, topic: str) -> list[Any]:
    return [record["data"] for record in client.diff(topic)["records"]]


def is_standby(server: ServerProcess, leader: str) -> bool:
    answer = httpx.get(f"{server.url}/v0/ready", trust_env=False).json()
    return bool(answer["error"]["code"] == "standby" and answer["error"].get("detail", {}).get("leader") == leader)


def address_of(server: ServerProcess) -> str:
    return server.url.removeprefix("http://")


def test_an_empty_machine_takes_over(start_server: StartServer, tmp_path: Path) -> None:
    replica = replica_of(tmp_path)
    first = start_server(replica=replica, **QUICK)
    client = first.client()
    client.put("kept", durability="replicated")
    client.put("fast", durability="disk")
    client.queue("jobs", [{"job": 1}, {"job": 2}, {"job": 3}], durability="replicated", leases_durable=True)
    client.call("PUT", "/v0/routers/copies", {"source": "kept", "dest": "copies"}, status=201)
    client.call("PUT", "/v0/topics/kept/consumers/billing", {"seq": 0})
    for number in range(40):
        client.write("kept", [{"number": number}], idempotency_key=f"key-{number}")
    client.write("fast", [1, 2, 3])
    client.call("PUT", "/v0/topics/kept/consumers/billing", {"seq": 17})
    (leased,) = client.claim("jobs", max=1, lease_ms=600_000)
    client.ack("jobs", client.claim("jobs", max=1) and [2])
    # A later write of a replicated log: the replica has everything before it too.
    client.write("kept", [{"number": 40}])
    first.kill()

    second = start_server(replica=replica, **QUICK)
    client = second.client()
    assert data_of(client, "kept") == [{"number": number} for number in range(41)]
    assert client.write("kept", [{"number": 3}], idempotency_key="key-3")["first_seq"] == 4
    assert client.write("kept", [{"number": 41}])["first_seq"] == 42, "no seq is skipped and none is used twice"
    assert client.call("GET", "/v0/topics/kept/consumers/billing")["seq"] == 17
    # The lease still holds, the acknowledged job is gone.
    assert [job["$seq"] for job in client.claim("jobs", node="other", max=10)] == [3]
    assert client.ack("jobs", [leased["$seq"]])["acked"]
    # The log that promises less says what it may have lost, and never uses these numbers again.
    seen = client.diff("fast")
    assert [record["data"] for record in seen["records"]] == [1, 2, 3]
    assert client.write("fast", [4])["first_seq"] > 4
    assert client.diff("fast", 3)["tombstone"]["reason"] == "lost"
    eventually(lambda: client.get("copies")["count"] == 42)
    assert httpx.get(f"{second.url}/v0/health", trust_env=False).json()["role"] == "leader"
    cli = Cli(second.url)
    fields = {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in cli.lines("info")}
    assert fields["role"] == "leader"
    assert fields["not in the replica"]
    assert any(line.startswith("ok    replica") and "term 2" in line for line in cli.lines("doctor"))

    # The old machine comes back: it must not serve what it has.
    with pytest.raises(AssertionError, match="ended with 1"):
        first.start()
    assert "is ahead of the data directory" in first.log()
    assert "Traceback" not in first.log()


def test_all_segments_arrive_in_the_background(start_server: StartServer, tmp_path: Path) -> None:
    replica = replica_of(tmp_path)
    first = start_server(replica=replica, **QUICK, journal_bytes=65_536)
    client = first.client()
    client.put("kept", durability="replicated")
    for number in range(40):
        client.write("kept", [{"number": number, "filler": "x" * 4000}] * 4)
    # Once the last state names segments, the chunks before it go.
    eventually(lambda: list((tmp_path / "replica/segments").glob("*.arrow")))
    first.kill()
    shutil.rmtree(first.data)

    second = start_server(replica=replica, **QUICK)
    client = second.client()
    assert len(client.diff("kept", limit=1000)["records"]) == 160

    def missing() -> int:
        figures = client.call("GET", "/v0/metrics", headers={"accept": "application/json"})["replica"]
        assert figures["term"] == 2
        return int(figures["missing_segments"])

    eventually(lambda: missing() == 0)
    names = {path.name.partition("-")[0] for path in (tmp_path / "replica/segments").glob("*.arrow")}
    assert names
    assert second.stop() == 0
    assert start_server(data=second.data, replica=replica, **QUICK).client().get("kept")["head_seq"] == 160


def test_a_takeover_from_a_paused_leader(start_server: StartServer, tmp_path: Path) -> None:
    replica = replica_of(tmp_path)
    first = start_server(replica=replica, **QUICK)
    client = first.client()
    client.put("kept", durability="replicated")
    client.put("fast", durability="disk")
    client.write("kept", [1])
    standby = start_server(replica=replica, **QUICK, standby=True, ready=False)
    eventually(lambda: is_standby(standby, address_of(first)))
    health = httpx.get(f"{standby.url}/v0/health", trust_env=False)
    assert health.is_success
    assert "strandline_standby 1" in httpx.get(f"{standby.url}/v0/metrics", trust_env=False).text.splitlines()
    assert (health.json()["role"], health.json()["leader"]) == ("standby", address_of(first))
    refused = httpx.post(f"{standby.url}/v0/topics/kept", json={"records": [{"data": 9}]}, trust_env=False)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "standby")
    assert refused.headers["retry-after"] == "1"

    leading, standing_by = Cli(f"{first.url},{standby.url}").lines("ping")
    assert (leading.startswith(first.url), leading.endswith(", leader")) == (True, True)
    assert standing_by.startswith(standby.url)
    assert standing_by.endswith(f", standby (the leader is at {address_of(first)})")
    (_, row) = Cli(f"{first.url},{standby.url}").rows("ping")
    assert (row["url"], row["role"]) == (standby.url, "standby")

    os.kill(first.pid, signal.SIGSTOP)
    try:
        assert Cli("").lines("takeover", replica) == [
            f"requested a takeover from the server at {address_of(first)} (term 1)",
            f"the server at {address_of(standby)} has taken over (term 2)",
        ]
        eventually(standby.is_ready, SECONDS)
        assert standby.client().write("kept", [2])["first_seq"] == 2
    finally:
        os.kill(first.pid, signal.SIGCONT)
    # The one that was replaced does not know it yet, unless it was paused between two uploads. It never acknowledges.
    answer = httpx.post(
        f"{first.url}/v0/topics/kept", json={"records": [{"data": "late"}]}, trust_env=False, timeout=30
    )
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] in ("read_only", "standby")
    assert f"another server at {address_of(standby)} has taken over" in answer.json()["error"]["message"]
    # From now on it refuses everything: what it would show is old.
    eventually(lambda: client.http.get("/v0/topics/kept").status_code == 503)
    for topic in ("kept", "fast"):
        refused = client.refused("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}, status=503)
        assert (refused["code"], refused["detail"]) == ("standby", {"leader": address_of(standby)})
    health = client.call("GET", "/v0/health")
    assert (health["status"], health["role"], health["leader"]) == ("read_only", "replaced", address_of(standby))
    assert client.http.get("/v0/ready").status_code == 503
    assert "strandline_replica_superseded 1" in client.http.get("/v0/metrics").text
    assert data_of(standby.client(), "kept") == [1, 2]
    assert first.stop() == 0


def test_a_standby_takes_over_when_the_leader_is_killed(start_server: StartServer, tmp_path: Path) -> None:
    replica = replica_of(tmp_path)
    first = start_server(replica=replica, **QUICK, replica_lease_ms=6000)
    client = first.client()
    client.put("kept", durability="replicated")
    client.write("kept", [1, 2])
    standbys = [
        start_server(
            replica=replica,
            **QUICK,
            standby=True,
            ready=False,
            replica_lease_ms=60_000,
            advertise=f"host-{n}:1",
        )
        for n in range(2)
    ]
    for standby in standbys:
        eventually(lambda standby=standby: is_standby(standby, address_of(first)))
    first.kill()
    eventually(lambda: any(standby.is_ready() for standby in standbys), SECONDS)
    leader = 0 if standbys[0].is_ready() else 1
    client = standbys[leader].client()
    assert data_of(client, "kept") == [1, 2]
    assert client.write("kept", [3])["first_seq"] == 3
    # The other one waits for the new leader.
    eventually(lambda: is_standby(standbys[1 - leader], f"host-{leader}:1"), SECONDS)
    assert standbys[1 - leader].stop() == 0
    assert standbys[leader].stop() == 0


def test_a_leader_may_start_again_with_the_options_of_a_standby(start_server: StartServer, tmp_path: Path) -> None:
    first = start_server(replica=replica_of(tmp_path), **QUICK, standby=False)
    first.client().put("kept", durability="replicated")
    first.client().write("kept", [1])
    first.kill()
    again = start_server(replica=replica_of(tmp_path), **QUICK, standby=True, data=first.data)
    assert data_of(again.client(), "kept") == [1]


def test_takeover_of_what_is_not_a_replica(tmp_path: Path) -> None:
    cli = Cli("")
    assert "is not a directory" in cli.fails(1, "takeover", tmp_path / "absent")
    assert "no server has used the replica" in cli.fails(1, "takeover", tmp_path)
    assert "cannot request a takeover" in cli.fails(1, "takeover", "nowhere://bucket")


def test_a_takeover_without_a_standby_fails(start_server: StartServer, tmp_path: Path) -> None:
    first = start_server(replica=replica_of(tmp_path), **QUICK)
    requested = f"requested a takeover from the server at {address_of(first)} (term 1)"
    assert Cli("").lines("takeover", replica_of(tmp_path), "--wait", 0) == [requested]
    failed = Cli("").fails(1, "takeover", replica_of(tmp_path), "--wait", 0.01)
    assert "no server has taken over within 0.01 s; start a server with --standby" in failed


def test_a_server_stops_during_a_takeover(tmp_path: Path, minio: MinioServer) -> None:
    with delaying_proxy(free_port(), int(minio.url.rpartition(":")[2])) as proxy, ExitStack() as endings:

        def machine(name: str) -> ServerProcess:
            settings = {"replica": f"s3://{BUCKET}/{tmp_path.name}", "replica_interval_ms": 0}
            environment = {**minio.environment, "AWS_ENDPOINT_URL": proxy.url}
            server = ServerProcess(tmp_path / name, settings=settings, environment=environment)
            endings.callback(server.end)
            return server

        first = machine("first").start()
        client = first.client()
        client.put("kept", durability="replicated")
        for number in range(300):
            client.write("kept", [number])
        first.kill()

        # Every write is a chunk, and eight of them are read at a time: this takes 19 seconds.
        proxy.delay(500)
        second = machine("second")
        second.launch()
        eventually(lambda: list(second.data.glob("journal/*.journal")), SECONDS)
        assert second.stop() == 0
        assert "stopped while replaying the journal" in second.log()
        assert not has_data(second.data)

        proxy.delay(0)
        second.start()
        assert len(second.client().diff("kept", limit=1000)["records"]) == 300
