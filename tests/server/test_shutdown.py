"""The end of a server: what is under way finishes, what comes is refused, and it takes a bounded time."""

from __future__ import annotations

import signal
from time import monotonic

import httpx
import pytest
from support.raw_http import RawConnection, request
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, eventually

pytestmark = pytest.mark.both_lanes

BODY = b'{"records":[{"data":1}]}'


@pytest.fixture
def server(start_server: StartServer, lane: str) -> ServerProcess:
    process = start_server(lane=lane)
    process.client().put("a", durability="fsync")
    return process


def upload(server: ServerProcess, path: str = "/v0/topics/a") -> RawConnection:
    """A write that is under way: all of it but the last byte has been sent."""
    connection = RawConnection(server.url)
    connection.send(request("POST", path, BODY)[:-1])
    # Whatever this connection's neighbour is told, the server has looked at both.
    assert httpx.get(server.url + "/v0/health", trust_env=False).status_code == 200
    return connection


def refused_as_shutting_down(server: ServerProcess, path: str) -> bool:
    response = httpx.get(server.url + path, trust_env=False)
    if response.status_code != 503:
        return False
    error = response.json()["error"]
    assert (error["code"], response.headers["retry-after"]) == ("shutting_down", "1")
    assert set(error) == {"code", "message"}
    return True


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once(server: ServerProcess, sig: signal.Signals) -> None:
    client = server.client()
    client.write("a", [1])
    started = monotonic()
    server._process.send_signal(sig)  # type: ignore[union-attr]
    assert server.wait() == 0
    assert monotonic() - started < 8, "it waited for a connection that nobody uses"
    assert f"received {sig.name}: waiting for open requests" in server.log()


def test_while_an_upload_is_under_way_others_are_told_that_the_server_stops(server: ServerProcess) -> None:
    with upload(server) as under_way:
        server.terminate()
        eventually(lambda: refused_as_shutting_down(server, "/v0/ready"))
        for path in ("/v0/topics", "/v0/topics/a", "/readyz", "/nowhere"):
            assert refused_as_shutting_down(server, path)
        response = httpx.post(f"{server.url}/v0/topics/a", json={"records": [{"data": 2}]}, trust_env=False)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "shutting_down")
        # It is alive all the same, and can be looked at.
        assert httpx.get(server.url + "/v0/health", trust_env=False).status_code == 200
        assert "\ntopics_ready 0\n" in httpx.get(server.url + "/v0/metrics", trust_env=False).text
        under_way.send(BODY[-1:])
        head, _ = under_way.answer()
        assert head.startswith(b"HTTP/1.1 200 OK")
    assert server.wait() == 0
    assert server.start().client().get("a")["count"] == 1


def test_a_stop_takes_a_bounded_time_whatever_is_under_way(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, drain_seconds=0.2)
    server.client().put("a")
    with upload(server):
        started = monotonic()
        server.terminate()
        assert server.wait() == 0
        assert monotonic() - started < 8
    assert server.start().client().get("a")["count"] == 0


def test_being_told_twice_does_not_wait_for_what_is_under_way(server: ServerProcess) -> None:
    with upload(server):
        server.terminate()
        eventually(lambda: refused_as_shutting_down(server, "/v0/ready"))
        started = monotonic()
        server.terminate()
        assert server.wait() == 0
        assert monotonic() - started < 8


def test_streams_are_told_and_ended(server: ServerProcess) -> None:
    client = server.client()
    client.queue("jobs", [1])
    wid = client.call("POST", "/v0/watch", {"topics": {"a": {}}})["wid"]
    with (
        client.events(f"/v0/watch/{wid}") as watch,
        client.events("/v0/topics/jobs/work?node=n") as work,
        client.websocket() as ws,
    ):
        watch.wait_for("caught-up")
        work.wait_for("job")
        server.terminate()
        assert watch.ended()[-1].json["code"] == "server_shutting_down"
        assert work.ended()[-1].json["code"] == "server_shutting_down"
        assert ws.wait_for("error")["code"] == "server_shutting_down"
    assert server.wait() == 0
    # The job of a worker that was sent away is for others.
    assert server.start().client().get("jobs")["queue"]["in_flight"] == 0


def test_what_was_acknowledged_is_there_after_the_restart(server: ServerProcess) -> None:
    client = server.client()
    for durability in ("memory", "disk", "fsync"):
        client.put(durability, durability=durability)
        client.write(durability, list(range(50)))
    server.stop()
    client = server.start().client()
    for durability in ("memory", "disk", "fsync"):
        page = client.diff(durability)
        assert (len(page["records"]), page["tombstone"], page["head_seq"]) == (50, None, 50)


def test_a_second_server_on_the_same_directory_does_not_start(start_server: StartServer) -> None:
    first = start_server()
    first.client().write("a", [1])
    second = ServerProcess(first.data.parent / "second")
    second.data = first.data
    with pytest.raises(AssertionError, match="ended with 1"):
        second.start()
    assert "cannot open the data directory" in second.log()
    assert first.client().get("a")["count"] == 1


def test_a_new_client_after_the_end_is_not_answered(server: ServerProcess) -> None:
    url = server.url
    server.stop()
    with pytest.raises(httpx.ConnectError):
        Client(url).get("a")


def test_what_is_answered_while_the_server_stops_ends_the_connection(server: ServerProcess) -> None:
    """A client that would use the connection again would find it closed in the middle of a request."""
    one = request("POST", "/v0/topics/a", BODY)
    idle = [RawConnection(server.url) for _ in range(4)]
    for connection in idle:
        connection.send(one)
        assert b"connection:" not in connection.answer()[0].lower()
    with upload(server) as under_way:
        server.terminate()
        eventually(lambda: refused_as_shutting_down(server, "/v0/ready"))
        requests = [one, request("GET", "/v0/topics/a"), request("GET", "/nowhere"), request("GET", "/v0/health")]
        for connection, late in zip(idle, requests, strict=True):
            with connection:
                connection.send(late)
                answer = connection.everything()
                assert answer.count(b"HTTP/1.1 ") == 1
                assert answer.startswith(b"HTTP/1.1 200" if late is requests[-1] else b"HTTP/1.1 503")
                assert b"connection: close\r\n" in answer
        under_way.send(BODY[-1:])
        answer = under_way.everything()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close\r\n" in answer
    assert server.wait() == 0
