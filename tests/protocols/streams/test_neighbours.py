"""One namespace, two protocols: what topics may do with streams, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.server_process import ServerProcess
from support.streams_client import JSON, TEXT, StreamsClient
from support.topics_client import Client

OBJECTS = {"schema": {"type": "object"}}


@pytest.fixture
def topics(server: ServerProcess) -> Iterator[Client]:
    client = Client(server.url)
    yield client
    client.close()


def configure(streams: StreamsClient, name: str, body: object) -> None:
    response = streams.request("POST", f"{name}/_schema", body)
    assert response.status_code == 200, response.text


def untouchable(streams: StreamsClient, name: str) -> dict[str, str]:
    """Streams that topics do not write to, and what they say instead."""
    closed, strict, shaped, text = (f"{name}-{kind}" for kind in ("closed", "strict", "shaped", "text"))
    streams.create(closed, stream_closed="true")
    streams.create(strict)
    configure(streams, strict, OBJECTS)
    streams.create(shaped)
    assert streams.request("POST", f"{shaped}/_profile", {"profile": {"kind": "evlog"}}).status_code == 200
    streams.create(text, TEXT)
    return {closed: "not_writable", strict: "not_writable", shaped: "not_writable", text: "not_json"}


def put_router(topics: Client, name: str, source: str, dest: str) -> Any:
    return topics.call("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}, status=201)


def test_a_stream_is_a_topic_and_a_topic_is_a_stream(streams: StreamsClient, topics: Client, name: str) -> None:
    streams.create(name)
    streams.append(name, [{"n": 1}], stream_key="a")
    topics.write(name, [{"data": {"n": 2}, "tag": "b"}])
    assert [record["data"] for record in topics.diff(name)["records"]] == [{"n": 1}, {"n": 2}]
    assert streams.values(name, key="b") == [{"n": 2}]
    topics.write(f"{name}.made", [{"data": 3}])
    assert streams.values(f"{name}.made") == [3]


def test_a_queue_is_given_its_jobs_by_either_protocol(streams: StreamsClient, topics: Client, name: str) -> None:
    topics.queue(name)
    streams.append(name, ["job"])
    assert [job["data"] for job in topics.claim(name)] == ["job"]


def test_topics_do_not_write_where_streams_have_the_say(streams: StreamsClient, topics: Client, name: str) -> None:
    for stream, code in untouchable(streams, name).items():
        write = {"records": [{"data": 1}]}
        assert topics.refused("POST", f"/v0/topics/{stream}", write, status=409)["code"] == code
        writes = {"writes": [{"topic": f"{name}.other", **write}, {"topic": stream, **write}]}
        assert topics.refused("POST", "/v0/write", writes, status=409)["code"] == code
        assert streams.read(stream).content in (b"[]", b"")


def test_no_router_is_made_into_such_a_stream(streams: StreamsClient, topics: Client, name: str) -> None:
    for stream, code in untouchable(streams, name).items():
        body = {"source": f"{name}.source", "dest": stream}
        assert topics.refused("PUT", f"/v0/routers/{stream}", body, status=409)["code"] == code


def test_what_is_closed_later_gets_no_more_from_its_router(streams: StreamsClient, topics: Client, name: str) -> None:
    source, closed, strict = f"{name}.source", f"{name}.closed", f"{name}.strict"
    for dest in (closed, strict):
        streams.create(dest)
        put_router(topics, dest, source, dest)
    configure(streams, strict, OBJECTS)
    topics.write(source, [{"data": {"n": 1}}])
    assert streams.values(strict) == []
    assert [record["data"] for record in topics.diff(closed)["records"]] == [{"n": 1}]
    assert streams.request("POST", closed, headers={"stream-closed": "true"}).status_code == 204
    end = streams.request("HEAD", closed).headers["stream-next-offset"]
    topics.write(source, [{"data": {"n": 2}}])
    # Looking at a destination has its router catch up first.
    assert len(topics.diff(closed)["records"]) == 1
    assert streams.request("HEAD", closed).headers["stream-next-offset"] == end
    assert topics.call("GET", f"/v0/routers/{closed}")["lag"] == 1
    assert topics.call("GET", f"/v0/routers/{strict}")["lag"] == 2


def test_dead_letters_do_not_go_where_topics_do_not_write(streams: StreamsClient, topics: Client, name: str) -> None:
    for stream in untouchable(streams, name):
        queue = f"{stream}.jobs"
        topics.queue(queue, ["job"], max_deliveries=1, dead_letter=stream)
        for _ in range(3):
            assert [job["data"] for job in topics.claim(queue)] == ["job"], "better once more than lost"
            topics.nack(queue, [1])
        assert streams.read(stream).content in (b"[]", b"")


def test_dead_letters_are_not_moved_there_either(streams: StreamsClient, topics: Client, name: str) -> None:
    queue, dead = f"{name}.jobs", f"{name}.dead"
    topics.queue(queue, ["job"], max_deliveries=1, dead_letter=dead)
    topics.claim(queue)
    topics.nack(queue, [1])
    assert topics.claim(queue) == []
    assert len(topics.diff(dead)["records"]) == 1
    for stream, code in untouchable(streams, name).items():
        assert topics.refused("POST", f"/v0/topics/{dead}/redrive", {"to": stream}, status=409)["code"] == code
    assert streams.request("POST", queue, headers={"stream-closed": "true", "content-type": JSON}).status_code == 204
    moved = topics.call("POST", f"/v0/topics/{dead}/redrive")
    assert (moved["redriven"], moved["remaining"]) == (0, 1)


def test_what_is_kept_only_for_its_forks_is_no_topic(streams: StreamsClient, topics: Client, name: str) -> None:
    source, fork = f"{name}.source", f"{name}.fork"
    streams.create(source, body=[1])
    put_router(topics, name, f"{name}.above", source)
    streams.create(fork, None, stream_forked_from=f"/v1/stream/{source}")
    assert streams.request("DELETE", source).status_code == 204
    topics.write(f"{name}.above", [{"data": 2}])
    assert topics.refused("GET", f"/v0/topics/{source}", status=404)["code"] == "topic_not_found"
    assert topics.call("GET", f"/v0/routers/{name}")["lag"] == 1
    assert streams.values(fork) == [1]
