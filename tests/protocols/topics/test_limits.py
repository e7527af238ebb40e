"""The caps of the server over HTTP: what is refused, how it is told, and that slots are given back."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client, Waiting, eventually

pytestmark = pytest.mark.both_lanes


def capped(client: Client, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The error of a request that is over a cap."""
    response = client.request(method, path, body)
    assert response.status_code == 429, response.text
    assert response.headers["retry-after"] == "1"
    error: dict[str, Any] = response.json()["error"]
    assert error["code"] == "throttled"
    return error


def test_there_are_only_so_many_topics(start_server: StartServer, lane: str) -> None:
    client = start_server(max_topics=2, lane=lane).client()
    client.put("a")
    client.write("b", [1])
    detail = {"limit": "max_topics", "max": 2}
    assert capped(client, "PUT", "/v0/topics/c", {})["detail"] == detail
    assert capped(client, "POST", "/v0/topics/c", {"records": [{"data": 1}]})["detail"] == detail
    router = {"source": "a", "dest": "c"}
    assert capped(client, "PUT", "/v0/routers/r", router)["detail"] == detail
    # What is there can still be changed and written to.
    client.put("a", status=200, ttl_ms=60_000)
    client.write("b", [2])
    client.drop("a")
    client.put("c", status=201)
    assert client.call("GET", "/v0/ready")["topics"] == 2


def test_there_are_only_so_many_routers(start_server: StartServer) -> None:
    client = start_server(max_routers=1).client()
    router = {"source": "a", "dest": "b"}
    client.call("PUT", "/v0/routers/r", router, status=201)
    error = capped(client, "PUT", "/v0/routers/s", {"source": "x", "dest": "y"})
    assert error["detail"] == {"limit": "max_routers", "max": 1}
    for name in ("x", "y"):
        client.refused("GET", f"/v0/topics/{name}", status=404)
    client.call("PUT", "/v0/routers/r", {**router, "preserve_tag": False})
    client.call("DELETE", "/v0/routers/r")
    client.call("PUT", "/v0/routers/s", router, status=201)


def test_there_are_only_so_many_watch_sessions_and_idle_ones_make_room(start_server: StartServer) -> None:
    client = start_server(max_watch_sessions=1, session_ttl_ms=1000).client()
    client.put("a")
    body = {"topics": {"a": {}}}
    wid = client.call("POST", "/v0/watch", body)["wid"]
    with client.events(f"/v0/watch/{wid}") as stream:
        stream.wait_for("caught-up")
        # One with an open stream stays, however long.
        error = capped(client, "POST", "/v0/watch", body)
        assert error["detail"] == {"limit": "max_watch_sessions", "max": 1}
    eventually(lambda: client.request("POST", "/v0/watch", body).status_code == 200)
    client.refused("GET", f"/v0/watch/{wid}", status=404)


def test_there_are_only_so_many_streams(start_server: StartServer, lane: str) -> None:
    client = start_server(max_sse_connections=2, lane=lane).client()
    client.queue("jobs")
    client.put("a")
    wid = client.call("POST", "/v0/watch", {"topics": {"a": {}}})["wid"]
    with ExitStack() as streams:
        streams.enter_context(client.events("/v0/topics/jobs/work?node=n"))
        streams.enter_context(client.websocket())
        for path in (f"/v0/watch/{wid}", "/v0/topics/jobs/work?node=m"):
            assert "detail" not in capped(client, "GET", path)
        # Ordinary requests go on.
        client.write("a", [1])
    eventually(lambda: "topics_sse_connections 0\n" in client.http.get("/v0/metrics").text)
    with client.events(f"/v0/watch/{wid}") as stream:
        assert stream.wait_for("record").json["to_seq"] == 1


def test_a_key_has_only_so_many_streams(start_server: StartServer) -> None:
    server = start_server(max_sse_connections_per_key=1, keys="one,two")
    one, two = server.client(key="one"), server.client(key="two")
    one.queue("jobs")
    path = "/v0/topics/jobs/work?node=n"
    with one.events(path):
        assert "detail" not in capped(one, "GET", path)
        with two.events(path):
            pass
    eventually(lambda: "topics_sse_connections 0\n" in one.http.get("/v0/metrics").text)
    with one.events(path):
        pass


@pytest.fixture
def narrow(start_server: StartServer, lane: str) -> ServerProcess:
    """Each key may have one request in flight. The second key may only read."""
    server = start_server(max_inflight_per_key=1, keys="one,two:r", lane=lane)
    server.client().put("a")
    return server


def test_a_key_has_only_so_many_requests_in_flight(narrow: ServerProcess) -> None:
    one, two = narrow.client(key="one"), narrow.client(key="two")
    waiting = Waiting(one, lambda own: own.diff("a", wait_ms=30_000))
    eventually(lambda: one.request("GET", "/v0/topics/a").status_code == 429)
    assert "detail" not in capped(one, "GET", "/v0/topics/a")
    # It is looked at before the scope, the body and everything else, but not before the key.
    capped(one, "GET", "/nowhere")
    response = one.http.post("/v0/topics/a", content=b"x", headers={"content-type": "text/plain"})
    assert response.status_code == 429
    narrow.client(key="").refused("GET", "/v0/topics/a", status=401)
    # Another key has its own, and probes are nobody's.
    two.get("a")
    narrow.client(key="").call("GET", "/v0/health")
    two.refused("POST", "/v0/topics/a", {"records": [{"data": 1}]}, status=403)
    # Told to stop, the server answers whoever waits.
    narrow.terminate()
    assert waiting.answer()["records"] == []
    assert narrow.wait() == 0


def test_an_upload_is_a_request_in_flight_until_it_ends_or_breaks_off(narrow: ServerProcess) -> None:
    one = narrow.client(key="one")
    url = httpx.URL(narrow.url)
    for finish in (True, False):
        with socket.create_connection((url.host, url.port or 80)) as upload:
            upload.sendall(
                b"POST /v0/topics/a HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer one\r\n"
                b"content-type: application/json\r\ncontent-length: 24\r\n\r\n" + b'{"records":'
            )
            eventually(lambda: one.request("GET", "/v0/topics/a").status_code == 429)
            if finish:
                upload.sendall(b'[{"data":1}]}')
                assert upload.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        eventually(lambda: one.request("GET", "/v0/topics/a").status_code == 200)
    assert one.get("a")["count"] == 1


def test_a_broken_off_wait_gives_its_slot_back(narrow: ServerProcess) -> None:
    one = narrow.client(key="one")
    url = httpx.URL(narrow.url)
    with socket.create_connection((url.host, url.port or 80)) as connection:
        body = b'{"wait_ms":100}'
        connection.sendall(
            b"POST /v0/topics/a/diff HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer one\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        eventually(lambda: one.request("GET", "/v0/topics/a").status_code == 429)
    eventually(lambda: one.request("GET", "/v0/topics/a").status_code == 200)


def test_an_open_stream_is_no_request_in_flight(narrow: ServerProcess) -> None:
    one = narrow.client(key="one")
    wid = one.call("POST", "/v0/watch", {"topics": {"a": {}}})["wid"]
    with one.events(f"/v0/watch/{wid}") as stream:
        stream.wait_for("caught-up")
        one.write("a", [1])
        assert stream.wait_for("record").json["to_seq"] == 1


def test_without_keys_there_is_nobody_to_attribute_requests_to(start_server: StartServer) -> None:
    client = start_server(max_inflight_per_key=1, max_sse_connections_per_key=1).client()
    client.queue("jobs")
    with client.events("/v0/topics/jobs/work?node=a"), client.events("/v0/topics/jobs/work?node=b"):
        waiting = Waiting(client, lambda own: own.diff("jobs", wait_ms=30_000))
        client.write("jobs", [1])
        assert len(waiting.answer()["records"]) == 1


def test_all_topics_together_hold_only_so_much(start_server: StartServer, lane: str) -> None:
    client = start_server(max_total_bytes=10, lane=lane).client()
    client.write("a", [12345], idempotency_key="k")
    client.write("b", [1234])
    body: dict[str, Any] = {"records": [{"data": 12}]}
    error = capped(client, "POST", "/v0/topics/a", body)
    assert error["detail"] == {"limit": "max_total_bytes", "max": 10}
    capped(client, "POST", "/v0/topics/new", body)
    client.refused("GET", "/v0/topics/new", status=404)
    capped(client, "POST", "/v0/topics/a", {"records": [{"data": 1, "meta": 2}]})
    # A repetition takes no room, and the last byte can be used.
    assert client.write("a", [12345], idempotency_key="k")["deduped"] is True
    client.write("a", [1])
    client.delete("a", before_seq=2)
    client.write("a", [12])
    client.drop("b")
    client.write("a", [1234])


def test_what_queues_and_routers_note_for_themselves_takes_no_room(start_server: StartServer) -> None:
    client = start_server(max_total_bytes=10).client()
    client.queue("jobs", [1, 2, 3])
    for _ in range(3):
        (job,) = client.claim("jobs")
        client.nack("jobs", [job["$seq"]])
    client.write("jobs", [1234567])
    capped(client, "POST", "/v0/topics/jobs", {"records": [{"data": 1}]})


@pytest.mark.parametrize(
    ("setting", "value", "path", "fits", "over", "code"),
    [
        ("max_batch_records", 2, "", {"records": [{"data": 1}] * 2}, {"records": [{"data": 1}] * 3}, "batch_too_large"),
        ("max_record_bytes", 3, "", {"records": [{"data": 123}]}, {"records": [{"data": 1234}]}, "record_too_large"),
        ("max_meta_bytes", 3, "", {"records": [{"data": 1, "meta": 123}]}, {"records": [{"data": 1, "meta": 1234}]},
         "invalid_request"),
        ("max_tag_bytes", 3, "", {"records": [{"data": 1, "tag": "abc"}]}, {"records": [{"data": 1, "tag": "abcd"}]},
         "invalid_request"),
        ("max_node_bytes", 3, "", {"records": [{"data": 1, "node": "abc"}]}, {"records": [{"data": 1, "node": "abcd"}]},
         "invalid_request"),
        ("max_claim", 2, "/ack", {"node": "n", "seqs": [1, 2]}, {"node": "n", "seqs": [1, 2, 3]}, "batch_too_large"),
    ],
)  # fmt: skip
def test_the_bounds_of_requests_can_be_moved(
    start_server: StartServer, setting: str, value: int, path: str, fits: object, over: object, code: str
) -> None:
    client = start_server(**{setting: value}).client()
    client.put("jobs", type="queue")
    client.call("POST", f"/v0/topics/jobs{path}", fits)
    assert client.refused("POST", f"/v0/topics/jobs{path}", over, status=400)["code"] == code


def test_the_bounds_of_answers_can_be_moved(start_server: StartServer) -> None:
    client = start_server(max_limit=2, max_claim=3, max_watch_topics=1).client()
    client.queue("jobs", [1, 2, 3, 4, 5])
    client.put("other")
    assert len(client.diff("jobs", limit=100)["records"]) == 2
    assert len(client.claim("jobs", max=100)) == 3
    error = client.refused("POST", "/v0/watch", {"topics": {"jobs": {}, "other": {}}}, status=400)
    assert error["code"] == "invalid_request"


def test_a_body_has_a_bound_with_or_without_its_length(start_server: StartServer, lane: str) -> None:
    client = start_server(max_body_bytes=100, lane=lane).client()
    big = b'{"records":[{"data":"%b"}]}' % (b"x" * 100)
    for path in ("/v0/topics/a", "/v0/topics/a/diff", "/v0/topics/a/delete"):
        error = client.refused("POST", path, big, status=413)
        assert (error["code"], error["detail"]) == ("payload_too_large", {"max": 100})

    headers = {"content-type": "application/json"}
    response = client.http.post("/v0/topics/a", content=iter([big[:60], big[60:]]), headers=headers)
    assert response.status_code == 413
    # It is too large before it is of the wrong type.
    assert client.http.post("/v0/topics/a", content=big, headers={"content-type": "x/y"}).status_code == 413
    client.refused("GET", "/v0/topics/a", status=404)
    client.write("a", [1])
