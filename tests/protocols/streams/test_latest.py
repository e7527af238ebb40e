"""The last record of every routing key, and streams that keep no more than that."""

from __future__ import annotations

import pytest
from protocols.streams.test_filter import declare, numbers, row
from support.server_process import ServerProcess, StartServer
from support.streams_client import START, TEXT, StreamsClient
from support.topics_client import Client, eventually


def put(streams: StreamsClient, name: str, *pairs: str) -> None:
    for pair in pairs:
        key, _, data = pair.rpartition("=")
        streams.append(name, data, **({"stream_key": key} if key else {}))


def test_a_view_shows_the_last_record_of_every_key(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    put(streams, name, "a=1", "b=2", "3", "a=4", "c=5", "b=6")
    for _ in range(2):
        response = streams.read(name, view="latest")
        assert response.json() == [4, 5, 6]
        assert response.headers["stream-next-offset"] == response.headers["stream-end-offset"]
        assert response.headers["stream-up-to-date"] == "true"
    assert streams.values(name, view="latest", key="b") == [6]
    assert streams.values(f"{name}/pk/a", view="latest") == [4]
    assert streams.values(name, view="latest", key="nobody") == []
    assert streams.read(name, view="latest", format="raw").text == "456"
    assert streams.read(name, view="latest", offset="now").json() == []
    assert streams.read(name, view="latest", offset="-1").json() == [4, 5, 6]


def test_bytes_have_last_records_too(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    for key, text in (("a", "one "), ("b", "two "), ("a", "three ")):
        streams.append(name, text, TEXT, stream_key=key)
    response = streams.read(name, view="latest")
    assert (response.text, response.headers["content-type"]) == ("two three ", TEXT)


def test_a_filter_chooses_among_the_last_records(streams: StreamsClient, name: str) -> None:
    declare(streams, name)
    for number, key in enumerate(("x", "y", "x", "y", "x")):
        streams.append(name, row(number), stream_key=key)
    assert numbers(streams.values(name, view="latest")) == [3, 4]
    assert numbers(streams.values(name, view="latest", filter="kind:a")) == [4]
    assert numbers(streams.values(name, view="latest", filter="kind:a", key="y")) == []


def test_an_etag_holds_until_there_is_something_new(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    put(streams, name, "a=1", "b=2")
    response = streams.read(name, view="latest")
    plain = streams.read(name)
    assert response.headers["cache-control"] == "no-cache"
    etag = response.headers["etag"]
    assert etag != plain.headers["etag"]
    again = streams.request("GET", name, params={"view": "latest"}, headers={"if-none-match": etag})
    assert again.status_code == 304
    put(streams, name, "a=3")
    changed = streams.request("GET", name, params={"view": "latest"}, headers={"if-none-match": etag})
    assert (changed.status_code, changed.json()) == (200, [2, 3])


def test_whoever_goes_on_without_the_view_has_the_last_of_every_key(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    put(streams, name, *(f"k{number % 4}={number}" for number in range(10)))
    response = streams.read(name, view="latest")
    assert response.json() == [6, 7, 8, 9]
    put(streams, name, "k1=10", "k9=11")
    rest = streams.values(name, offset=response.headers["stream-next-offset"])
    assert rest == [10, 11]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"view": "first"}, "view must be latest"),
        ({"view": ""}, "view must be latest"),
        ({"view": "latest", "live": "long-poll", "offset": "-1"}, "cannot be combined with live"),
        ({"view": "latest", "live": "sse", "offset": "-1"}, "cannot be combined with live"),
    ],
)
def test_what_makes_no_sense_is_refused(streams: StreamsClient, name: str, query: dict[str, str], why: str) -> None:
    streams.create(name)
    assert why in streams.refused(400, "GET", name, params=query, code="bad_request")


def test_a_fork_has_the_last_records_of_both_parts(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    put(streams, name, "a=1", "b=2")
    streams.create(f"{name}/fork", None, stream_forked_from=f"/v1/stream/{name}")
    put(streams, f"{name}/fork", "a=3")
    assert streams.values(f"{name}/fork", view="latest") == [2, 3]
    assert streams.values(name, view="latest") == [1, 2]


def test_a_stream_says_that_it_is_compacted(streams: StreamsClient, name: str) -> None:
    made = streams.create(name, stream_compact="true")
    assert made.headers["stream-compact"] == "true"
    head = streams.request("HEAD", name)
    assert head.headers["stream-compact"] == "true"
    assert streams.request("GET", f"{name}/_details").json()["stream"]["compact"] is True
    json = {"content-type": "application/json"}
    again = streams.request("PUT", name, headers={**json, "stream-compact": "True"})
    assert (again.status_code, again.headers["stream-next-offset"]) == (200, START)
    for headers in (json, {**json, "stream-compact": "false"}):
        streams.refused(409, "PUT", name, headers=headers, code="conflict")
    streams.refused(400, "PUT", f"{name}/x", headers={**json, "stream-compact": "yes"}, code="bad_request")
    source = {"stream-forked-from": f"/v1/stream/{name}"}
    for fork, header, compact in ((f"{name}/a", {}, True), (f"{name}/b", {"stream-compact": "false"}, False)):
        for status in (201, 200):
            forked = streams.request("PUT", fork, headers={**source, **header})
            assert (forked.status_code, "stream-compact" in forked.headers) == (status, compact)
    streams.create(f"{name}/plain")
    assert "stream-compact" not in streams.request("HEAD", f"{name}/plain").headers


@pytest.fixture
def compacting(start_server: StartServer, lane: str) -> ServerProcess:
    return start_server(lane=lane, compact_after_ms=0)


def test_a_compacted_stream_keeps_the_last_record_of_every_key(compacting: ServerProcess) -> None:
    streams = StreamsClient(compacting.url)
    streams.create("s", stream_compact="true")
    put(streams, "s", "a=1", "b=2", "3", "a=4")
    eventually(lambda: streams.values("s") == [2, 3, 4])
    # It can be changed later, where the protocol of topics has a word for it.
    topics = Client(compacting.url)
    topics.call("PUT", "/v0/topics/s", {"durable": True})
    assert "stream-compact" not in streams.request("HEAD", "s").headers
    put(streams, "s", "b=5")
    topics.call("PUT", "/v0/topics/s", {"durable": True, "compact": True})
    eventually(lambda: streams.values("s") == [3, 4, 5])
