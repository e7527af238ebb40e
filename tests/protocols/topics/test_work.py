from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.topics_client import Client, EventStream, eventually


@contextmanager
def working(client: Client, topic: str, node: str = "worker", **query: Any) -> Iterator[EventStream]:
    parameters = "".join(f"&{name}={value}" for name, value in query.items())
    with client.events(f"/v0/topics/{topic}/work?node={node}{parameters}") as stream:
        assert stream.next_block() is not None  # retry
        assert stream.next_block() is not None  # the first heartbeat
        yield stream


def next_job(stream: EventStream) -> dict[str, Any]:
    event = stream.next()
    assert event.event == "job", event
    job: dict[str, Any] = event.json
    assert event.id == str(job["$seq"])
    return job


def next_jobs(stream: EventStream, count: int) -> list[int]:
    return [next_job(stream)["$seq"] for _ in range(count)]


def in_flight(client: Client, topic: str) -> int:
    number: int = client.get(topic)["queue"]["in_flight"]
    return number


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_a_stream_begins_with_a_retry_and_a_heartbeat(client: Client, topic: str) -> None:
    client.queue(topic)
    with client.events(f"/v0/topics/{topic}/work?node=a") as stream:
        headers = stream.response.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")
        retry, heartbeat = stream.next_block(), stream.next_block()
        assert retry is not None
        assert (retry.retry, retry.data, retry.event) == (2000, None, None)
        assert heartbeat is not None
        assert heartbeat.comment is not None
        word, _, when = heartbeat.comment.partition(" ")
        assert word == "hb"
        assert abs(int(when) - time() * 1000) < 60_000


def test_a_job_is_one_frame_with_its_seq_as_id(client: Client, topic: str) -> None:
    client.queue(topic, [{"data": {"a": 1}, "tag": "t", "meta": {"m": 2}, "node": "n"}, {"data": 2}])
    before = int(time() * 1000)
    with working(client, topic, max=2, lease_ms=5000) as stream:
        first, second = stream.next(), stream.next()
    assert (first.event, first.id) == ("job", "1")
    assert list(first.json) == ["topic", "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"]
    assert list(second.json) == ["topic", "$seq", "lease_id", "deadline", "$ts", "deliveries", "data"]
    assert (first.json["topic"], first.json["data"], first.json["deliveries"]) == (topic, {"a": 1}, 1)
    assert before + 5000 <= first.json["deadline"] <= int(time() * 1000) + 5000


def test_data_with_line_ends_takes_several_lines(client: Client, topic: str) -> None:
    client.queue(topic)
    body = b'{"records":[{"data":{\n"a":\r\n1,\r"b"\n:\n2},"meta":{\n"m":1}}]}'
    client.call("POST", f"/v0/topics/{topic}", body)
    with working(client, topic) as stream:
        job = next_job(stream)
        assert b"\r" not in stream.raw
    assert (job["data"], job["meta"]) == ({"a": 1, "b": 2}, {"m": 1})


# --- how much is in flight -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"max": 0}, {"max": 1}])
def test_without_a_number_one_job_is_in_flight(client: Client, topic: str, query: dict[str, Any]) -> None:
    client.queue(topic, [1, 2])
    with working(client, topic, **query) as stream:
        assert next_jobs(stream, 1) == [1]
        assert in_flight(client, topic) == 1
        client.ack(topic, [1])
        assert next_jobs(stream, 1) == [2]


def test_no_more_than_max_are_in_flight_and_an_ack_brings_the_next(client: Client, topic: str) -> None:
    client.queue(topic, list(range(6)))
    with working(client, topic, max=3) as stream:
        assert next_jobs(stream, 3) == [1, 2, 3]
        assert in_flight(client, topic) == 3
        client.ack(topic, [2, 3])
        assert next_jobs(stream, 2) == [4, 5]
        assert in_flight(client, topic) == 3
        assert client.ack(topic, [1, 4, 5])["acked"] == 3
        assert next_jobs(stream, 1) == [6]


def test_a_nacked_job_comes_again(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    with working(client, topic) as stream:
        assert next_job(stream)["deliveries"] == 1
        client.nack(topic, [1])
        assert next_job(stream)["deliveries"] == 2
        before = time()
        client.nack(topic, [1], delay_ms=150)
        assert next_job(stream)["deliveries"] == 3
        assert time() - before >= 0.149


def test_new_jobs_are_pushed_as_they_come(client: Client, topic: str) -> None:
    client.queue(topic)
    with working(client, topic, max=10) as stream:
        for number in range(1, 4):
            client.write(topic, [number])
            assert next_jobs(stream, 1) == [number]
        client.write(topic, [4, 5])
        assert next_jobs(stream, 2) == [4, 5]


def test_jobs_of_a_durable_queue_are_pushed_too(client: Client, topic: str) -> None:
    client.queue(topic, durability="fsync", leases_durable=True)
    with working(client, topic, max=2) as stream:
        client.write(topic, [1, 2, 3])
        assert next_jobs(stream, 2) == [1, 2]
        client.ack(topic, [1])
        assert next_jobs(stream, 1) == [3]


def test_a_job_with_a_time_is_pushed_when_it_has_come(client: Client, topic: str) -> None:
    client.queue(topic)
    with working(client, topic, max=2) as stream:
        when = int(time() * 1000) + 150
        client.write(topic, [{"data": 1, "not_before_ts": when}])
        assert next_jobs(stream, 1) == [1]
        assert time() * 1000 >= when


def test_a_lease_that_is_over_makes_room_and_the_job_comes_again(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    with working(client, topic, lease_ms=100) as stream:
        assert [next_job(stream)["deliveries"] for _ in range(3)] == [1, 2, 3]


def test_a_job_that_somebody_deleted_makes_room(client: Client, topic: str) -> None:
    client.queue(topic, [{"data": 1, "tag": "bad"}, {"data": 2}])
    with working(client, topic) as stream:
        assert next_jobs(stream, 1) == [1]
        client.delete(topic, match="bad")
        assert next_jobs(stream, 1) == [2]


def test_urgent_jobs_are_pushed_first(client: Client, topic: str) -> None:
    client.queue(topic, [{"data": 1}, {"data": 2, "priority": 9}])
    with working(client, topic) as stream:
        assert next_job(stream)["priority"] == 9


def test_dead_letters_are_not_pushed(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2], max_deliveries=1, dead_letter=f"{topic}.dead")
    with working(client, topic) as stream:
        assert next_jobs(stream, 1) == [1]
        client.nack(topic, [1])
        assert next_jobs(stream, 1) == [2]
        assert [letter["data"] for letter in client.diff(f"{topic}.dead")["records"]] == [1]


def test_a_last_delivery_whose_worker_disconnects_makes_a_dead_letter(client: Client, topic: str) -> None:
    client.queue(topic, [1], max_deliveries=1, dead_letter=f"{topic}.dead")
    client.put(f"{topic}.dead")
    with working(client, topic) as stream:
        assert next_jobs(stream, 1) == [1]
    [letter] = eventually(lambda: client.diff(f"{topic}.dead")["records"])
    assert letter["meta"]["$dead_letter_reason"] == "the worker disconnected"


def test_jobs_are_pushed_with_their_failures(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    client.claim(topic, "a")
    client.nack(topic, [1], "a", reason="too hot")
    with working(client, topic) as stream:
        [failure] = next_job(stream)["failures"]
    assert (failure["delivery"], failure["node"], failure["reason"]) == (1, "a", "too hot")


# --- several workers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", [0, 20])
def test_workers_share_what_comes(client: Client, topic: str, jitter: int) -> None:
    client.queue(topic, claim_jitter_ms=jitter)
    with working(client, topic, "a", max=4) as one, working(client, topic, "b", max=4) as other:
        client.write(topic, list(range(6)))
        jobs = next_jobs(one, 3) + next_jobs(other, 3)
        assert sorted(jobs) == [1, 2, 3, 4, 5, 6]


def test_what_a_worker_held_is_for_others_as_soon_as_it_is_gone(client: Client, topic: str) -> None:
    client.queue(topic, [1, 2, 3])
    assert [job["$seq"] for job in client.claim(topic, "a")] == [1]
    with working(client, topic, "a", max=2) as stream:
        assert next_jobs(stream, 2) == [2, 3]
    jobs = eventually(lambda: client.claim(topic, "b", max=3))
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(2, 2), (3, 2)]
    # What the same node claimed by itself is none of the connection's business.
    assert client.ack(topic, [1], "a")["acked"] == 1


def test_another_worker_is_pushed_what_one_that_is_gone_held(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    with working(client, topic, "b") as other:
        assert next_jobs(other, 1) == [1]
        with working(client, topic, "a") as stream:
            client.nack(topic, [1], "b")
            # It is b's turn again or a's: whoever gets it, one of them has it in the end.
            client.write(topic, [2])
            assert sorted(next_jobs(other, 1) + next_jobs(stream, 1)) == [1, 2]
            held = {job["$seq"] for job in client.diff(topic)["records"]}
            assert held == {1, 2}
        client.ack(topic, [1, 2], "b")
        assert next_job(other)["deliveries"] >= 2


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_stream_ends_when_the_queue_is_deleted(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    with working(client, topic) as stream:
        assert next_jobs(stream, 1) == [1]
        client.drop(topic)
        client.put(topic)
        [event] = stream.ended()
        assert event.event == "error"
        assert set(event.json) == {"code", "error", "topic"}
        assert (event.json["code"], event.json["topic"]) == (409, topic)
    with pytest.raises(AssertionError, match="409"), working(client, topic):
        pass


@pytest.mark.both_lanes
def test_a_stream_is_told_when_the_server_stops_and_its_jobs_are_free(start_server: Any, lane: str) -> None:
    server = start_server(lane=lane)
    client = server.client()
    client.queue("jobs", [1])
    with working(client, "jobs", lease_ms=600_000) as stream:
        assert next_jobs(stream, 1) == [1]
        server.terminate()
        [event] = stream.ended()
        assert event.event == "error"
        assert set(event.json) == {"code", "error", "topic"}
        assert (event.json["code"], event.json["topic"]) == ("server_shutting_down", "jobs")
    server.wait()
    server.start()
    [job] = server.client().claim("jobs", "other")
    assert job["deliveries"] == 1


def test_a_broken_connection_frees_its_jobs(client: Client, topic: str) -> None:
    client.queue(topic, [1])
    address = urlsplit(client.url)
    connection = socket.create_connection((address.hostname, address.port), timeout=15)
    connection.sendall(f"GET /v0/topics/{topic}/work?node=a HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    received = b""
    while b"event: job" not in received:
        received += connection.recv(4096)
    assert in_flight(client, topic) == 1
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    eventually(lambda: in_flight(client, topic) == 0)
    assert client.claim(topic, "b")[0]["deliveries"] == 2


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_queue_must_be_there_and_be_a_queue(client: Client, topic: str) -> None:
    error = client.refused("GET", f"/v0/topics/{topic}/work?node=a", status=404)
    assert (error["code"], error["detail"]) == ("topic_not_found", {"topic": topic})
    client.put(topic)
    error = client.refused("GET", f"/v0/topics/{topic}/work?node=a", status=409)
    assert (error["code"], error["detail"]) == ("not_a_queue", {"topic": topic})


@pytest.mark.parametrize(
    "query",
    [
        "",
        "node=",
        "max=1",
        "node=" + "n" * 129,
        "node=a&max=many",
        "node=a&max=-1",
        "node=a&max=1.5",
        "node=a&max=",
        "node=a&lease_ms=long",
    ],
)
def test_a_query_that_makes_no_sense_is_refused(client: Client, topic: str, query: str) -> None:
    client.queue(topic, [1])
    error = client.refused("GET", f"/v0/topics/{topic}/work?{query}", status=400)
    assert error["code"] == "invalid_request"
    assert in_flight(client, topic) == 0


def test_the_client_must_accept_an_event_stream(client: Client, topic: str) -> None:
    client.queue(topic)
    url = f"/v0/topics/{topic}/work?node=a"
    error = client.refused("GET", url, status=406, headers={"accept": "application/json"})
    assert error["code"] == "not_acceptable"


def test_streams_are_counted_and_keys_are_asked_for(start_server: Any, lane: str) -> None:
    server = start_server(lane=lane, keys="all,r:read,w:write,rw:rw:jobs", max_sse_connections_per_key=1)
    client = server.client()
    client.queue("jobs", [1, 2])
    client.queue("other")
    work = "/v0/topics/{}/work?node=a"
    for key, topic, status in (("", "jobs", 401), ("r", "jobs", 403), ("w", "jobs", 403), ("rw", "other", 403)):
        server.client(key).refused("GET", work.format(topic), status=status)
    with working(client, "jobs") as stream:
        assert next_jobs(stream, 1) == [1]
        response = client.request("GET", work.format("jobs"))
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        assert set(response.json()["error"]) == {"code", "message"}
        # In a browser the key comes in the query string.
        with working(server.client(""), "jobs", token="rw") as other:
            assert next_jobs(other, 1) == [2]

    def opens_again() -> bool:
        try:
            with working(client, "jobs"):
                return True
        except AssertionError:
            return False

    eventually(opens_again)
