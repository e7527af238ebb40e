"""Queues of a server process that is killed: leases end or survive as configured, and the rest is kept."""

from __future__ import annotations

from time import time

from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, eventually


def kill(server: ServerProcess) -> Client:
    server.kill()
    server.close_clients()
    server.start()
    return server.client()


def test_leases_that_are_not_durable_end_with_a_killed_process(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    client.queue("jobs", [1, 2, 3], leases_durable=False, lease_ms=3_600_000)
    first, _ = client.claim("jobs", "worker-1", max=2)
    client.nack("jobs", [2], "worker-1", reason="out of memory", delay_ms=3_600_000)
    client = kill(server)
    # At once, and not when the lease ends. The other job is still delayed.
    again = client.claim("jobs", "worker-1", max=5)
    assert [(job["$seq"], job["deliveries"], "failures" in job) for job in again] == [(1, 1, False), (3, 1, False)]
    assert again[0]["lease_id"] != first["lease_id"]
    answer = client.ack("jobs", [1], "worker-1", lease_ids=[first["lease_id"]])
    assert (answer["acked"], answer["skipped"]) == (0, [1])
    assert client.get("jobs")["queue"]["delayed"] == 1


def test_durable_leases_survive_a_killed_process(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    client.queue("jobs", [1, 2], leases_durable=True, lease_ms=3_600_000)
    [held] = client.claim("jobs", "worker-1")
    client = kill(server)
    [other] = client.claim("jobs", "worker-2", max=5)
    assert (other["$seq"], "failures" in other) == (2, False)
    assert client.ack("jobs", [1], "worker-1", lease_ids=[held["lease_id"]])["acked"] == 1


def test_a_last_delivery_that_ends_with_the_process_is_repeated(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    client.queue("jobs", [1], max_deliveries=1, dead_letter="dead", lease_ms=3_600_000)
    client.claim("jobs", "w")
    client = kill(server)
    [job] = client.claim("jobs", "w")
    assert job["deliveries"] == 1


def test_a_server_that_was_down_for_longer_than_the_lease_drops_no_job(start_server: StartServer) -> None:
    server = start_server()
    client = server.client()
    client.queue("jobs", [1], max_deliveries=1)
    [held] = client.claim("jobs", "w", lease_ms=100)
    server.kill()
    server.close_clients()
    eventually(lambda: time() * 1000 > held["deadline"] + 1)
    server.start()
    client = server.client()
    [job] = client.claim("jobs", "w")
    assert (job["deliveries"], "failures" in job) == (1, False)


def test_a_last_delivery_whose_lease_expires_after_a_restart_makes_a_dead_letter_without_a_claim(
    start_server: StartServer,
) -> None:
    server = start_server()
    client = server.client()
    client.put("dead")
    client.queue("jobs", [2], max_deliveries=1, dead_letter="dead", leases_durable=True)
    client.claim("jobs", "w", lease_ms=1000)
    client = kill(server)
    # Nobody asks for anything but the dead letters.
    [letter] = eventually(lambda: client.diff("dead")["records"])
    assert (letter["data"], letter["meta"]["$dead_letter_reason"]) == (2, "the lease expired")
    assert client.get("jobs")["count"] == 0
