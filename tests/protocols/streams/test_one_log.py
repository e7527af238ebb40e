"""A log is a topic and a stream at once: reading, waiting, watching, deleting and forking across the protocols."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.server_process import ServerProcess
from support.streams_client import JSON, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand
from support.topics_client import Client, Waiting

from strandline.protocols.streams.offsets import encode


@pytest.fixture
def topics(server: ServerProcess) -> Iterator[Client]:
    client = Client(server.url)
    yield client
    client.close()


def fork(streams: StreamsClient, name: str, source: str) -> None:
    streams.create(name, None, stream_forked_from=f"/v1/stream/{source}")


# --- a topic as a stream ----------------------------------------------------------------------------------------------


def test_a_topic_can_be_read_as_a_stream(streams: StreamsClient, topics: Client, name: str) -> None:
    topics.put(name)
    topics.write(name, [{"data": {"n": number}, "tag": "ab"[number % 2]} for number in range(4)])
    response = streams.read(name)
    assert response.headers["content-type"] == JSON
    assert response.headers["stream-next-offset"] == encode(4)
    assert [value["n"] for value in response.json()] == [0, 1, 2, 3]
    assert [value["n"] for value in streams.values(name, key="b")] == [1, 3]
    assert streams.values(name, offset=encode(3)) == [{"n": 3}]
    head = streams.request("HEAD", name)
    assert (head.status_code, "stream-ttl" in head.headers) == (200, False)
    # It is the stream that one would make.
    assert streams.request("PUT", name, headers={"content-type": JSON}).status_code == 200
    streams.refused(409, "PUT", name, headers={"content-type": TEXT})
    streams.refused(409, "POST", name, "x", headers={"content-type": TEXT})


def test_a_topic_is_live_as_a_stream(streams: StreamsClient, topics: Client, name: str) -> None:
    topics.put(name)
    waiting = Waiting(topics, lambda own: own.http.get(f"/v1/stream/{name}?live=long-poll&offset=-1&timeout=5s"))
    with streams.events(name, offset="-1") as (_, events):
        assert next(events).type == "control"
        topics.write(name, [1])
        assert next(events).json == [1]
    assert waiting.answer().json() == [1]


def test_deletions_caps_and_losses_of_a_topic_are_those_of_the_stream(
    streams: StreamsClient, topics: Client, name: str
) -> None:
    topics.put(name, cap_records=3)
    topics.write(name, [1, 2, 3, 4, 5])
    streams.refused(410, "GET", name, params={"offset": encode(1)}, code="gone")
    assert streams.values(name) == [3, 4, 5]
    topics.delete(name, before_seq=5)
    assert streams.values(name, offset=encode(3)) == [5]
    topics.put(name, cap_records=3, discard="reject")
    streams.append(name, [6, 7])
    streams.refused(409, "POST", name, "[8]", headers={"content-type": JSON}, code="conflict")


# --- a stream as a topic ----------------------------------------------------------------------------------------------


def test_a_stream_can_be_read_written_and_watched_as_a_topic(streams: StreamsClient, topics: Client, name: str) -> None:
    streams.create(name, JSON, [{"a": 1}], stream_key="k")
    waiting = Waiting(topics, lambda own: own.diff(name, 1, wait_ms=10_000))
    streams.append(name, ["two"])
    assert [record["data"] for record in waiting.answer()["records"]] == ["two"]
    topics.write(name, [{"data": 3, "tag": "k"}])
    records = topics.diff(name, include_tags=True)["records"]
    assert [(record["$seq"], record.get("$tag"), record["data"]) for record in records] == [
        (1, "k", {"a": 1}), (2, None, "two"), (3, "k", 3),
    ]  # fmt: skip
    assert streams.values(name, key="k") == [{"a": 1}, 3]
    assert topics.get(name)["config"]["durability"] == "fsync"
    wid = topics.call("POST", "/v0/watch", {"topics": {name: {"from_seq": 2}}})["wid"]
    with topics.events(f"/v0/watch/{wid}") as events:
        assert [record["data"] for record in events.wait_for("record").json["records"]] == [3]
        streams.append(name, ["live"])
        assert [record["data"] for record in events.wait_for("record").json["records"]] == ["live"]


def test_a_configured_stream_is_still_the_same_stream(streams: StreamsClient, topics: Client, name: str) -> None:
    streams.create(name, "Application/JSON; charset=utf-8", [1], stream_ttl="1h")
    topics.put(name, cap_records=10, durability="fsync")
    head = streams.request("HEAD", name)
    assert head.headers["content-type"] == "Application/JSON; charset=utf-8"
    assert head.headers["stream-ttl"] == "3600"
    streams.append(name, [2])
    assert streams.values(name) == [1, 2]


def test_a_stream_of_text_is_no_topic(streams: StreamsClient, topics: Client, name: str) -> None:
    streams.create(name, TEXT, "x")
    for method, path, body in (
        ("GET", "", None),
        ("PUT", "", {}),
        ("POST", "", {"records": [{"data": 1}]}),
        ("POST", "/diff", {"from_seq": 0}),
        ("POST", "/delete", {"before_seq": 5}),
        ("DELETE", "", None),
    ):
        error = topics.refused(method, f"/v0/topics/{name}{path}", body, status=409)
        assert error["code"] == "not_json"
        assert error["detail"] == {"topic": name}
    listed = topics.call("GET", "/v0/topics", params={"prefix": name})
    assert listed["topics"] == []
    assert streams.read(name).text == "x"


def test_routers_and_queues_work_over_streams(streams: StreamsClient, topics: Client, name: str) -> None:
    streams.create(f"{name}.in")
    streams.create(f"{name}.out")
    body = {"source": f"{name}.in", "dest": f"{name}.out"}
    topics.call("PUT", f"/v0/routers/{name}", body, status=201)
    streams.append(f"{name}.in", [1, 2], stream_key="k")
    with streams.events(f"{name}.out", offset="-1") as (_, events):
        while (event := next(events)).type != "data":
            pass
        assert event.json == [1, 2]
    assert streams.values(f"{name}.out", key="k") == [1, 2]
    assert topics.call("GET", f"/v0/routers/{name}")["lag"] == 0


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_deleting_on_either_side_is_deleting(streams: StreamsClient, topics: Client, name: str) -> None:
    streams.create(f"{name}.a", JSON, [1])
    topics.write(f"{name}.b", [1])
    assert topics.drop(f"{name}.a")["deleted"] is True
    assert streams.request("DELETE", f"{name}.b").status_code == 204
    for each in (f"{name}.a", f"{name}.b"):
        assert streams.request("HEAD", each).status_code == 404
        assert topics.refused("GET", f"/v0/topics/{each}", status=404)["code"] == "topic_not_found"
    streams.create(f"{name}.a", TEXT)
    topics.write(f"{name}.b", [2])
    assert streams.values(f"{name}.b") == [2]


def test_deleting_a_stream_takes_its_routers_and_its_queue_along(
    streams: StreamsClient, topics: Client, name: str
) -> None:
    topics.queue(f"{name}.jobs", [1])
    body = {"source": f"{name}.in", "dest": f"{name}.jobs"}
    topics.call("PUT", f"/v0/routers/{name}", body, status=201)
    assert len(topics.claim(f"{name}.jobs")) == 1
    assert streams.request("DELETE", f"{name}.jobs").status_code == 204
    topics.refused("GET", f"/v0/routers/{name}", status=404)
    topics.queue(f"{name}.jobs", [2])
    assert [job["data"] for job in topics.claim(f"{name}.jobs")] == [2]


def test_deleting_a_topic_ends_those_who_read_it_as_a_stream(streams: StreamsClient, topics: Client, name: str) -> None:
    topics.put(name)
    waiting = Waiting(topics, lambda own: own.http.get(f"/v1/stream/{name}?live=long-poll&offset=-1&timeout=5s"))
    with streams.events(name, offset="-1") as (_, events):
        next(events)
        topics.drop(name)
        assert list(events) == []
    assert waiting.answer().status_code == 404


def test_a_topic_that_streams_were_forked_from_stays_whole(streams: StreamsClient, topics: Client, name: str) -> None:
    topics.write(name, [1, 2])
    topics.call("PUT", f"/v0/routers/{name}", {"source": name, "dest": f"{name}.copy"}, status=201)
    fork(streams, f"{name}.fork", name)
    error = topics.refused("DELETE", f"/v0/topics/{name}", status=409)
    assert (error["code"], error["detail"]) == ("topic_has_forks", {"topic": name, "forks": 1})
    # Nothing is half done: its router is there and works.
    topics.write(name, [3])
    assert [record["data"] for record in topics.diff(f"{name}.copy")["records"]] == [3]
    assert streams.values(f"{name}.fork") == [1, 2]
    assert topics.drop(f"{name}.fork")["deleted"] is True
    assert topics.drop(name)["deleted"] is True


def test_a_hidden_source_is_no_topic_and_cannot_be_made_one(streams: StreamsClient, topics: Client, name: str) -> None:
    streams.create(name, JSON, [1])
    fork(streams, f"{name}.fork", name)
    assert streams.request("DELETE", name).status_code == 204
    assert topics.refused("PUT", f"/v0/topics/{name}", {"cap_records": 1}, status=409)["code"] == "topic_has_forks"
    write = {"records": [{"data": 2}]}
    assert topics.refused("POST", f"/v0/topics/{name}", write, status=409)["code"] == "not_writable"
    assert topics.refused("POST", f"/v0/topics/{name}/diff", {"from_seq": 0}, status=404)["code"] == "topic_not_found"
    assert topics.drop(name)["deleted"] is False
    assert [each["topic"] for each in topics.call("GET", f"/v0/topics?prefix={name}")["topics"]] == [f"{name}.fork"]
    assert streams.values(f"{name}.fork") == [1]


def test_a_fork_that_is_deleted_as_a_topic_lets_its_hidden_sources_go(
    streams: StreamsClient, topics: Client, name: str
) -> None:
    streams.create(name, JSON, [1])
    fork(streams, f"{name}.1", name)
    fork(streams, f"{name}.2", f"{name}.1")
    for each in (name, f"{name}.1"):
        assert streams.request("DELETE", each).status_code == 204
        assert streams.request("HEAD", each).status_code == 410
    assert topics.drop(f"{name}.2")["deleted"] is True
    assert [streams.request("HEAD", each).status_code for each in (name, f"{name}.1", f"{name}.2")] == [404] * 3
    topics.put(name, status=201)


def test_whoever_indexes_streams_learns_that_a_topic_was_dropped(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"[1]")
        dropped: list[str] = []
        server.context.kernel.catalog.dropping.append(lambda log: dropped.append(log.name))
        log = server.engine.log("s")
        server.context.kernel.catalog.drop(log)
        await server.flush()
        assert dropped == ["s"]
        assert (await server.done("HEAD", "s")).status == 404

    by_hand(tmp_path, test)


# --- one log, one order -----------------------------------------------------------------------------------------------


def test_writes_of_both_protocols_have_one_order(streams: StreamsClient, topics: Client, name: str) -> None:
    streams.create(name)
    for number in range(20):
        if number % 2:
            streams.append(name, [number])
        else:
            topics.write(name, [number])
    assert streams.values(name) == list(range(20))
    assert [record["data"] for record in topics.diff(name)["records"]] == list(range(20))


def test_what_is_json_for_one_is_json_for_the_other(streams: StreamsClient, topics: Client, name: str) -> None:
    odd = [{"ü": "€😀"}, [1, [2]], "\u2028", 12345678901234567890, 1e-7, None, True, {"": {"$seq": 5}}]
    streams.create(name, JSON, json.dumps(odd).encode())
    topics.write(name, [{"data": value} for value in odd])
    assert streams.values(name) == odd * 2
    assert [record["data"] for record in topics.diff(name)["records"]] == odd * 2
