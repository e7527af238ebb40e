"""GET /v1/stream/{name} without waiting: places, pages, keys, times, formats; and HEAD."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.streams_client import JSON, START, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand

from strandline.engine import ManualClock
from strandline.protocols.streams.offsets import encode


def test_a_read_says_where_it_ends_and_where_the_stream_does(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2, 3])
    response = streams.read(name)
    assert response.content == b"[1,2,3]"
    headers = response.headers
    assert headers["content-type"] == JSON
    assert headers["stream-next-offset"] == headers["stream-end-offset"] == encode(3)
    assert headers["stream-up-to-date"] == "true"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "stream-closed" not in headers
    assert "stream-cursor" not in headers
    assert "etag" in headers


def test_an_empty_stream_has_a_place_too(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    response = streams.read(name, offset="-1")
    assert response.content == b"[]"
    assert response.headers["stream-next-offset"] == START
    assert response.headers["stream-up-to-date"] == "true"
    streams.create(f"{name}-text", TEXT)
    assert streams.read(f"{name}-text").content == b""


def test_an_offset_gives_what_comes_behind_it(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2, 3])
    for offset, values in (("-1", [1, 2, 3]), (START, [1, 2, 3]), (encode(1), [2, 3]), (encode(3), [])):
        response = streams.read(name, offset=offset)
        assert response.json() == values
        assert response.headers["stream-next-offset"] == encode(3)
        assert response.headers["stream-up-to-date"] == "true"
    assert streams.read(name, offset=encode(1).lower()).json() == [2, 3]


def test_a_place_behind_the_end_is_no_error(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1])
    response = streams.read(name, offset=encode(50))
    assert response.json() == []
    assert response.headers["stream-next-offset"] == encode(50)
    assert response.headers["stream-end-offset"] == encode(1)
    assert "stream-up-to-date" not in response.headers


def test_a_reader_behind_the_end_of_a_closed_stream_learns_that_there_is_no_more(
    streams: StreamsClient, name: str
) -> None:
    streams.create(name, JSON, [1], stream_closed="true")
    response = streams.read(name, offset=encode(50))
    assert response.headers["stream-closed"] == "true"
    assert response.headers["stream-up-to-date"] == "true"
    waited = streams.request("GET", name, params={"offset": encode(50), "live": "long-poll"})
    assert (waited.status_code, waited.headers["stream-closed"]) == (204, "true")


def test_now_is_the_end(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2])
    response = streams.read(name, offset="now")
    assert response.json() == []
    headers = response.headers
    assert headers["stream-next-offset"] == headers["stream-end-offset"] == encode(2)
    assert headers["stream-up-to-date"] == "true"
    assert headers["cache-control"] == "no-store"
    assert "etag" not in headers
    streams.create(f"{name}-text", TEXT, "x", stream_closed="true")
    response = streams.read(f"{name}-text", offset="now")
    assert (response.content, response.headers["stream-closed"]) == (b"", "true")


@pytest.mark.parametrize(
    "query",
    ["offset=", "offset=0", "offset=5", "offset=-2", "offset=NOW", f"offset={START[:-1]}", f"offset={START}0",
     f"offset={START[:-1]}U", "offset=a%2Cb", "offset=%00", "offset=a%0D%0Ab", "offset=..%2F..", "offset=%E2%82%AC",
     f"offset={START}&offset={START}", "offset=-1&offset=now", "offset=-1&%6Fffset=now", "live=yes&offset=-1",
     "live=SSE&offset=-1", "live=long-poll", "live=sse", "live=true", "format=xml", "format=", "since=", "since=then",
     "since=2020-01-01", "timeout=soon&live=long-poll&offset=-1", "timeout=-1", "timeout_ms=1.5", "filter=a",
     "filter=%20"],
)  # fmt: skip
@pytest.mark.parametrize("content_type", [JSON, TEXT])
def test_what_makes_no_sense_is_refused(streams: StreamsClient, name: str, content_type: str, query: str) -> None:
    streams.create(name, content_type, "1")
    streams.refused(400, "GET", f"/v1/stream/{name}?{query}", code="bad_request")


@pytest.mark.parametrize("query", ["", "?", "?other=1", "?live=", "?live=false", "?live=0", "?cursor=abc", "?key="])
def test_what_is_not_known_or_says_nothing_is_passed_over(streams: StreamsClient, name: str, query: str) -> None:
    streams.create(name, JSON, [1])
    assert streams.http.get(f"/v1/stream/{name}{query}").json() == [1]


def test_a_stream_that_is_not_there_is_not_found(streams: StreamsClient, name: str) -> None:
    for query in ("", "?offset=-1&live=long-poll", "?offset=-1&live=sse", "?offset=nonsense"):
        assert streams.refused(404, "GET", f"/v1/stream/{name}{query}", code="not_found") == "not_found"
    response = streams.request("HEAD", name)
    assert (response.status_code, response.content) == (404, b"")


# --- pages ----------------------------------------------------------------------------------------------------------


def test_a_page_of_a_live_read_has_so_many_records(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, list(range(2500)))
    offset, pages = "-1", []
    while offset != encode(2500):
        response = streams.read(name, offset=offset, live="long-poll")
        pages.append(response.json())
        offset = response.headers["stream-next-offset"]
        assert response.headers["stream-end-offset"] == encode(2500)
        assert ("stream-up-to-date" in response.headers) == (offset == encode(2500))
    assert [len(page) for page in pages] == [1000, 1000, 500]
    assert [value for page in pages for value in page] == list(range(2500))


def test_a_page_of_a_live_read_has_so_many_bytes_or_one_record(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    for letter, size in (("a", 600_000), ("b", 400_000), ("c", 300_000), ("d", 3_000_000), ("e", 10)):
        streams.append(name, letter * size, TEXT)
    offset, pages = "-1", []
    while offset != encode(5):
        response = streams.read(name, offset=offset, live="long-poll")
        pages.append("".join(sorted(set(response.text))))
        offset = response.headers["stream-next-offset"]
    assert pages[0] == "ab"
    assert "".join(pages) == "abcde"
    assert "d" in pages or "cd" in pages


# --- formats ----------------------------------------------------------------------------------------------------------


def test_json_may_be_read_raw_and_text_not_as_json(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [{"a": 1}, 2, "x"])
    assert streams.read(name, format="json").json() == [{"a": 1}, 2, "x"]
    assert streams.read(name, format="raw").content == b'{"a": 1}2"x"'
    assert streams.read(name, format="raw", offset="now").content == b""
    streams.create(f"{name}-text", TEXT, "1")
    assert streams.read(f"{name}-text", format="raw").text == "1"
    streams.refused(400, "GET", f"{name}-text", params={"format": "json"})
    streams.refused(400, "GET", f"{name}-text", params={"format": "json", "offset": "now"})


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_selects_and_the_place_goes_on_all_the_same(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    for number in range(6):
        streams.append(name, number, stream_key="ab"[number % 2])
    streams.append(name, 6)
    response = streams.read(name, key="a")
    assert response.json() == [0, 2, 4]
    assert response.headers["stream-next-offset"] == encode(7)
    assert response.headers["stream-up-to-date"] == "true"
    assert streams.read(name, key="a", offset=encode(3)).json() == [4]
    assert streams.read(f"{name}/pk/b").json() == [1, 3, 5]
    # The path counts more than the query, and an empty key asks for nothing.
    assert streams.read(f"{name}/pk/b", key="a").json() == [1, 3, 5]
    assert len(streams.read(name, key="").json()) == 7
    assert streams.read(name, key="A").json() == []


@pytest.mark.parametrize("key", ["a/b", "a b", "ä€😀", "%41", "a+b", "?&=#", "x" * 1024])
def test_keys_are_exactly_what_they_are(streams: StreamsClient, name: str, key: str) -> None:
    from urllib.parse import quote

    streams.create(name)
    headers = {b"content-type": b"application/json", b"stream-key": key.encode()}
    assert streams.http.post(f"/v1/stream/{name}", content="[1]", headers=headers).status_code == 204
    streams.append(name, [2])
    assert streams.http.get(f"/v1/stream/{name}/pk/{quote(key, safe='')}").json() == [1]
    assert streams.http.get(f"/v1/stream/{name}?key={quote(key, safe='')}").json() == [1]


def test_a_page_of_a_key_that_is_rare_ends_where_it_was_looked(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        many = json.dumps(list(range(500))).encode()
        await server.done("POST", "s", many, stream_key="many")
        await server.done("POST", "s", b'["one"]', stream_key="rare")
        await server.done("POST", "s", many, stream_key="many")
        rare = server.ask("GET", "s?key=rare")
        assert (rare.body, rare.headers["stream-next-offset"]) == (b'["one"]', encode(1001))
        offset, found = "-1", list[int]()
        while offset != encode(1001):
            page = server.ask("GET", f"s?key=many&offset={offset}")
            assert len(json.loads(page.body)) == 10
            found += json.loads(page.body)
            offset = page.headers["stream-next-offset"]
        assert found == [*range(500), *range(500)]

    by_hand(tmp_path, test, read_max_records=10, catch_up_max_bytes=1)


# --- since ------------------------------------------------------------------------------------------------------------


def test_a_time_gives_what_was_appended_then_or_later(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    for day in (1, 2, 3):
        streams.append(name, day, stream_key="k", stream_timestamp=f"2024-01-0{day}T00:00:00Z")
    assert streams.values(name, since="2024-01-02T00:00:00Z") == [2, 3]
    assert streams.values(name, since="2024-01-02T00:00:00.001Z") == [3]
    assert streams.values(name, since="2024-01-02T00:00:00Z", key="k") == [2, 3]
    assert streams.values(name, since="2024-01-02T00:00:00Z", key="l") == []
    late = streams.read(name, since="2030-01-01T00:00:00Z")
    assert (late.json(), late.headers["stream-next-offset"]) == ([], encode(3))
    assert late.headers["stream-up-to-date"] == "true"
    # An offset counts more.
    assert streams.read(name, since="2024-01-03T00:00:00Z", offset=encode(1)).json() == [2, 3]
    assert streams.read(name, since="2024-01-03T00:00:00Z", offset="-1").json() == [1, 2, 3]
    streams.refused(400, "GET", name, params={"since": "x", "offset": "-1"})


def test_pages_by_time_go_on_by_offset(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s")
        await server.done("POST", "s", b"[1,2]", stream_timestamp="2024-01-01T00:00:00Z")
        await server.done("POST", "s", b"[3,4,5]", stream_timestamp="2024-01-02T00:00:00Z")
        page = server.ask("GET", "s?since=2024-01-02T00:00:00Z")
        assert (page.body, page.headers["stream-next-offset"]) == (b"[3,4]", encode(4))
        assert server.ask("GET", f"s?offset={encode(4)}").body == b"[5]"

    by_hand(tmp_path, test, read_max_records=2, catch_up_max_bytes=1, clock=ManualClock(1_800_000_000_000))


# --- what is gone -----------------------------------------------------------------------------------------------------


def test_an_offset_that_retention_has_passed_is_gone(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2, 3, 4, 5])
    configured = streams.request("PUT", f"/v0/topics/{name}", {"cap_records": 2}, headers={"content-type": JSON})
    assert configured.status_code == 200
    message = streams.refused(410, "GET", name, params={"offset": encode(1)}, code="gone")
    assert encode(3) in message
    streams.refused(410, "GET", name, params={"offset": encode(1), "live": "long-poll"}, code="gone")
    streams.refused(410, "GET", name, params={"offset": encode(1), "live": "sse"}, code="gone")
    # Whoever has everything up to there, or wants what there is, gets it.
    assert streams.values(name, offset=encode(3)) == [4, 5]
    assert streams.values(name, offset="-1") == [4, 5]
    assert streams.values(name) == [4, 5]
    assert streams.values(name, since="2020-01-01T00:00:00Z") == [4, 5]


def test_what_was_deleted_on_purpose_is_passed_over(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2, 3])
    deleted = streams.request("POST", f"/v0/topics/{name}/delete", {"before_seq": 3}, headers={"content-type": JSON})
    assert deleted.status_code == 200
    assert streams.values(name, offset=encode(1)) == [3]
    assert streams.values(name) == [3]


# --- HEAD -------------------------------------------------------------------------------------------------------------


def test_a_head_says_what_the_stream_is(streams: StreamsClient, name: str) -> None:
    streams.create(name, "text/html; charset=utf-8", "<p>", stream_ttl="1h")
    response = streams.request("HEAD", name)
    assert (response.status_code, response.content) == (200, b"")
    headers = response.headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["stream-next-offset"] == headers["stream-end-offset"] == encode(1)
    assert headers["cache-control"] == "no-store"
    assert headers["stream-ttl"] == "3600"
    assert headers["stream-expires-at"].endswith("Z")
    assert headers["x-content-type-options"] == "nosniff"
    assert "stream-closed" not in headers
    assert "etag" not in headers
    streams.request("POST", name, headers={"stream-closed": "true"})
    assert streams.request("HEAD", name).headers["stream-closed"] == "true"


def test_an_expiry_is_told_as_it_was_given(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, stream_expires_at="2099-05-05T07:00:00.250+02:00")
    for response in (streams.request("HEAD", name), streams.read(name), streams.read(name, offset="now")):
        assert response.headers["stream-expires-at"] == "2099-05-05T05:00:00.250Z"
        assert "stream-ttl" not in response.headers
