"""ETags and Cache-Control: what may be kept, for how long, and when it is no longer true."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support.server_process import ServerProcess
from support.streams_client import JSON, TEXT, StreamsClient

from strandline.protocols.streams.offsets import encode


@pytest.fixture(scope="module")
def small(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp(f"small-{lane}") / "data"
    process = ServerProcess(data, fast_lane=lane == "fast", settings={"read_max_records": 2, "catch_up_max_bytes": 1})
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def paged(small: ServerProcess) -> Iterator[StreamsClient]:
    """A server whose pages have two records."""
    client = StreamsClient(small.url)
    yield client
    client.close()


def again(streams: StreamsClient, name: str, etag: str, **query: str) -> httpx.Response:
    return streams.request("GET", name, params=query, headers={"if-none-match": etag})


def test_what_reaches_the_end_is_asked_for_again(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    response = streams.read(name)
    assert response.headers["cache-control"] == "no-cache"
    unchanged = again(streams, name, response.headers["etag"])
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    for header in ("etag", "stream-next-offset", "stream-end-offset", "stream-up-to-date", "cache-control"):
        assert unchanged.headers[header] == response.headers[header]
    streams.append(name, "y", TEXT)
    changed = again(streams, name, response.headers["etag"])
    assert (changed.status_code, changed.text) == (200, "xy")


def test_a_full_page_may_be_kept_for_ever(paged: StreamsClient, name: str) -> None:
    paged.create(name, JSON, [1, 2, 3, 4])
    full = paged.read(name)
    assert full.headers["cache-control"] == "immutable, max-age=31536000"
    assert again(paged, name, full.headers["etag"]).status_code == 304
    paged.append(name, [5])
    assert again(paged, name, full.headers["etag"]).status_code == 304
    # The page that was the last one is not any more.
    second = paged.read(name, offset=encode(2))
    assert second.headers["cache-control"] == "immutable, max-age=31536000"
    third = paged.read(name, offset=encode(4))
    assert third.headers["cache-control"] == "no-cache"
    assert paged.read(name, offset=encode(99)).headers["cache-control"] == "no-cache"


def test_what_a_schema_shows_may_change_and_is_asked_for_again(paged: StreamsClient, name: str) -> None:
    paged.create(name)
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert paged.request("POST", f"{name}/_schema", {"schema": schema}).status_code == 200
    paged.append(name, [{"a": "1"}, {"a": "2"}, {"a": "3"}])
    before = paged.read(name)
    assert before.headers["cache-control"] == "no-cache"
    assert paged.read(name, offset="-1", live="long-poll", cursor="1").headers["cache-control"] == "no-store"
    renamed = {
        "type": "object",
        "properties": {"b": {"type": "string"}},
        "required": ["b"],
        "additionalProperties": False,
    }
    lens = {
        "apiVersion": "durable.lens/v1", "schema": name, "from": 1, "to": 2,
        "ops": [{"op": "rename", "from": "/a", "to": "/b"}],
    }  # fmt: skip
    response = paged.request("POST", f"{name}/_schema", {"schema": renamed, "lens": lens})
    assert response.status_code == 200, response.text
    after = again(paged, name, before.headers["etag"])
    assert (after.status_code, after.json()) == (200, [{"b": "1"}, {"b": "2"}])


def test_closing_changes_what_the_end_is(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    etag = streams.read(name).headers["etag"]
    streams.request("POST", name, headers={"stream-closed": "true"})
    closed = again(streams, name, etag)
    assert (closed.status_code, closed.headers["stream-closed"]) == (200, "true")
    assert closed.headers["etag"] != etag
    unchanged = again(streams, name, closed.headers["etag"])
    assert (unchanged.status_code, unchanged.headers["stream-closed"]) == (304, "true")


def test_a_stream_of_the_same_name_is_another_one(streams: StreamsClient, name: str) -> None:
    etags = set()
    for text in ("one", "two", "one"):
        streams.create(name, TEXT, text)
        response = streams.read(name)
        etags.add(response.headers["etag"])
        streams.request("DELETE", name)
    assert len(etags) == 3
    streams.create(name, TEXT, "one")
    assert all(again(streams, name, etag).status_code == 200 for etag in etags)


def test_what_was_removed_is_not_said_to_be_unchanged(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2, 3])
    etag = streams.read(name).headers["etag"]
    body = {"before_seq": 2}
    deleted = streams.request("POST", f"/v0/topics/{name}/delete", body, headers={"content-type": JSON})
    assert deleted.status_code == 200
    response = again(streams, name, etag)
    assert (response.status_code, response.json()) == (200, [2, 3])


def test_what_is_removed_from_a_source_changes_the_pages_of_its_forks(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2])
    streams.create(f"{name}-f", None, stream_forked_from=f"/v1/stream/{name}")
    etag = streams.read(f"{name}-f").headers["etag"]
    body = {"before_seq": 2}
    deleted = streams.request("POST", f"/v0/topics/{name}/delete", body, headers={"content-type": JSON})
    assert deleted.status_code == 200
    response = again(streams, f"{name}-f", etag)
    assert (response.status_code, response.json()) == (200, [2])


def test_every_way_to_look_has_its_own_tag(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2], stream_key="k")
    queries: list[dict[str, str]] = [{}, {"offset": encode(1)}, {"key": "k"}, {"key": "l"}, {"format": "raw"}]
    etags = [streams.read(name, **query).headers["etag"] for query in queries]
    assert len(set(etags)) == len(etags)
    assert streams.read(name, offset="-1").headers["etag"] == etags[0]
    assert streams.read(f"{name}/pk/k").headers["etag"] == etags[2]


@pytest.mark.parametrize("key", ['a"b', "ü", "a\\b", "a,b", "%"])
def test_tags_are_tags_whatever_the_key(streams: StreamsClient, name: str, key: str) -> None:
    streams.create(name, JSON, [1])
    etag = streams.read(name, key=key).headers["etag"]
    assert etag.isascii()
    assert etag.startswith('W/"')
    assert etag.count('"') == 2
    assert again(streams, name, etag, key=key).status_code == 304


def test_one_of_several_tags_is_enough(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    etag = streams.read(name).headers["etag"]
    for sent in (f'"a", {etag}', f'{etag},"b"', "*", etag.removeprefix("W/")):
        assert again(streams, name, sent).status_code == 304
    for sent in ('"a"', "", '"a", "b"', etag[:-2] + '"'):
        assert again(streams, name, sent).status_code == 200


def test_the_end_of_a_closed_stream_may_be_kept_for_ever(paged: StreamsClient, name: str) -> None:
    paged.create(name, JSON, [1, 2, 3], stream_closed="true")
    for offset in (encode(2), encode(3), encode(99)):
        assert paged.read(name, offset=offset).headers["cache-control"] == "immutable, max-age=31536000"
    paged.create(f"{name}-open", JSON, [1, 2, 3])
    assert paged.read(f"{name}-open", offset=encode(2)).headers["cache-control"] == "no-cache"


def test_a_stream_that_expires_is_asked_for_again(paged: StreamsClient, name: str) -> None:
    paged.create(name, JSON, [1, 2, 3], stream_closed="true", stream_ttl="3600")
    for offset in ("-1", encode(2)):
        assert paged.read(name, offset=offset).headers["cache-control"] == "no-cache"
    polled = paged.read(name, offset="-1", live="long-poll", cursor="1")
    assert polled.headers["cache-control"] == "no-store"


def test_a_long_poll_with_a_cursor_may_answer_others(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    first = streams.read(name, offset="-1", live="long-poll")
    assert first.headers["cache-control"] == "no-store"
    second = streams.read(name, offset="-1", live="long-poll", cursor=first.headers["stream-cursor"])
    assert second.headers["cache-control"] == "max-age=60"
    assert int(second.headers["stream-cursor"]) > int(first.headers["stream-cursor"])
    assert "etag" not in second.headers


def test_a_long_poll_without_records_answers_no_other(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    query = {"offset": encode(1), "live": "long-poll", "cursor": "1", "timeout": "1ms"}
    nothing = streams.request("GET", name, params=query)
    assert (nothing.status_code, nothing.headers["cache-control"]) == (204, "no-store")
    streams.request("POST", name, headers={"stream-closed": "true"})
    closed = streams.request("GET", name, params=query)
    assert (closed.status_code, closed.headers["cache-control"]) == (204, "no-store")


def test_what_is_live_is_not_kept(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    for query in ({"offset": "now"}, {"offset": "-1", "live": "long-poll"}):
        response = streams.read(name, **query)
        assert response.headers["cache-control"] == "no-store"
        assert "etag" not in response.headers
        assert streams.request("GET", name, params=query, headers={"if-none-match": "*"}).status_code == 200
    assert streams.request("HEAD", name).headers["cache-control"] == "no-store"


def test_errors_are_never_kept(streams: StreamsClient, name: str) -> None:
    for method, query in (("GET", ""), ("POST", ""), ("GET", "?offset=-1&live=sse"), ("DELETE", "")):
        response = streams.request(method, f"/v1/stream/{name}{query}")
        assert response.status_code == 404
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["content-type"] == "application/json; charset=utf-8"


def test_compressed_pages_have_the_same_tag(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x" * 5000)
    zipped = streams.request("GET", name, headers={"accept-encoding": "gzip"})
    plain = streams.request("GET", name, headers={"accept-encoding": "identity"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert "accept-encoding" in zipped.headers["vary"]
    assert "accept-encoding" in plain.headers["vary"]
    assert "accept-encoding" in again(streams, name, plain.headers["etag"]).headers["vary"]
    assert "content-encoding" not in plain.headers
    assert zipped.text == plain.text
    assert zipped.headers["etag"] == plain.headers["etag"]
