"""GET with live=long-poll: data, time, closing, deletion; waits are ended by what happens, not by what passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.raw_http import RawConnection, request
from support.server_process import StartServer
from support.streams_client import JSON, START, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand
from support.topics_client import Client, Waiting

from strandline.protocols.streams.offsets import encode


@pytest.fixture
def wait(streams: StreamsClient) -> Iterator[Callable[..., Waiting]]:
    """Begin a long-poll on a thread of its own; the test has to see to its end."""
    client = Client(streams.url)

    def begin(name: str, **query: Any) -> Waiting:
        params = {"live": "long-poll", "timeout": "5s", **query}
        return Waiting(client, lambda own: own.http.get(f"/v1/stream/{name}", params=params))

    yield begin
    client.close()


def poll(streams: StreamsClient, name: str, **query: Any) -> httpx.Response:
    return streams.request("GET", name, params={"live": "long-poll", **query})


@pytest.mark.parametrize("live", ["long-poll", "true", "1"])
def test_what_is_there_is_answered_at_once(streams: StreamsClient, name: str, live: str) -> None:
    streams.create(name, JSON, [1, 2])
    response = streams.read(name, live=live, offset=START)
    assert response.json() == [1, 2]
    headers = response.headers
    assert headers["stream-next-offset"] == headers["stream-end-offset"] == encode(2)
    assert headers["stream-up-to-date"] == "true"
    assert headers["cache-control"] == "no-store"
    assert headers["stream-cursor"].isdigit()
    assert "etag" not in headers
    # There is nothing to compare with: a wait is never answered with 304.
    assert streams.request("GET", name, params={"live": live, "offset": START}, headers={"if-none-match": "*"}).json()


def test_a_wait_ends_with_what_is_appended(streams: StreamsClient, name: str, wait: Callable[..., Waiting]) -> None:
    streams.create(name, JSON, [1])
    waiting = wait(name, offset=encode(1))
    streams.append(name, [2, 3])
    response = waiting.answer()
    assert (response.status_code, response.json()) == (200, [2, 3])
    assert response.headers["stream-next-offset"] == encode(3)


def test_a_wait_for_a_key_passes_over_the_others(
    streams: StreamsClient, name: str, wait: Callable[..., Waiting]
) -> None:
    streams.create(name, JSON)
    waiting = wait(name, offset=START, key="a")
    streams.append(name, [1], stream_key="b")
    streams.append(name, [2], stream_key="a")
    response = waiting.answer()
    assert response.json() == [2]
    assert response.headers["stream-next-offset"] == encode(2)


def test_time_that_is_up_is_no_error(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    for offset in ("now", encode(1)):
        response = poll(streams, name, offset=offset, timeout="1")
        assert (response.status_code, response.content) == (204, b"")
        headers = response.headers
        assert headers["stream-next-offset"] == headers["stream-end-offset"] == encode(1)
        assert headers["stream-up-to-date"] == "true"
        assert headers["stream-cursor"].isdigit()
        assert headers["cache-control"] == "no-store"
        assert "content-type" not in headers
        assert "content-length" not in headers
    assert poll(streams, name, offset="now", timeout="0").status_code == 204
    assert poll(streams, name, offset="now", timeout_ms="1").status_code == 204
    # The first of two names counts.
    assert poll(streams, name, offset="now", timeout="1ms", timeout_ms="4000").status_code == 204


def test_cursors_grow(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    cursor = ""
    for _ in range(3):
        response = poll(streams, name, offset="now", timeout="1", cursor=cursor)
        assert int(response.headers["stream-cursor"]) > int(cursor or 0)
        cursor = response.headers["stream-cursor"]


def test_a_closed_stream_that_was_read_makes_nobody_wait(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x", stream_closed="true")
    rest = poll(streams, name, offset=START)
    assert (rest.status_code, rest.text, rest.headers["stream-closed"]) == (200, "x", "true")
    for offset in (encode(1), "now"):
        response = poll(streams, name, offset=offset, timeout="5s")
        assert (response.status_code, response.headers["stream-closed"]) == (204, "true")
        assert response.headers["stream-up-to-date"] == "true"


def test_closing_ends_a_wait(streams: StreamsClient, name: str, wait: Callable[..., Waiting]) -> None:
    streams.create(name, TEXT, "x")
    waiting = wait(name, offset=encode(1))
    streams.request("POST", name, headers={"stream-closed": "true"})
    response = waiting.answer()
    assert (response.status_code, response.headers["stream-closed"]) == (204, "true")
    assert response.headers["stream-next-offset"] == encode(1)


def test_a_last_append_ends_a_wait_and_says_that_it_is_the_last(
    streams: StreamsClient, name: str, wait: Callable[..., Waiting]
) -> None:
    streams.create(name, TEXT)
    waiting = wait(name, offset=START)
    streams.append(name, "last", TEXT, stream_closed="true")
    response = waiting.answer()
    assert (response.status_code, response.text, response.headers["stream-closed"]) == (200, "last", "true")


def test_deleting_ends_a_wait(streams: StreamsClient, name: str, wait: Callable[..., Waiting]) -> None:
    streams.create(name, TEXT)
    waiting = wait(name, offset=START)
    streams.request("DELETE", name)
    response = waiting.answer()
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.both_lanes
def test_a_server_that_stops_answers_those_who_wait(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane)
    streams = StreamsClient(server.url)
    streams.create("s", TEXT)
    with RawConnection(server.url) as connection:
        connection.send(request("GET", "/v1/stream/s"))
        connection.answer()
        connection.send(request("GET", "/v1/stream/s?live=long-poll&offset=-1&timeout=5s"))
        # By the time that this is answered the server has looked at what came before.
        streams.read("s")
        server.terminate()
        head, _ = connection.answer(has_body=False)
    assert head.startswith(b"HTTP/1.1 204")
    assert b"stream-next-offset" in head.lower()
    streams.close()
    assert server.wait() == 0


# --- time, turned by hand ------------------------------------------------------------------------------------------


def test_a_wait_lasts_as_long_as_it_says(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        default = server.ask("GET", "s?live=long-poll&offset=now")
        short = server.ask("GET", "s?live=long-poll&offset=now&timeout=500ms")
        whole = server.ask("GET", "s?live=long-poll&offset=now&timeout=5s")
        long = server.ask("GET", "s?live=long-poll&offset=now&timeout=6s")
        await server.later(0.49)
        assert [each.status for each in (short, default, whole, long)] == [None] * 4
        await server.later(0.02)
        assert [each.status for each in (short, default, whole, long)] == [204, None, None, None]
        await server.later(2.4)
        assert default.status is None
        await server.later(0.2)
        assert default.status == 204
        await server.later(1.8)
        assert (whole.status, long.status) == (None, None)
        await server.later(0.2)
        # What asks for more than any request may take is cut off, and told so.
        assert (whole.status, long.status) == (204, 408)
        assert long.code == "request_timeout"
        assert server.face.reading.waiting == 0

    by_hand(tmp_path, test)


def test_the_longest_wait_can_be_set(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        default = server.ask("GET", "s?live=long-poll&offset=now")
        long = server.ask("GET", "s?live=long-poll&offset=now&timeout=101")
        await server.later(0.11)
        assert (default.status, long.status) == (204, 408)

    by_hand(tmp_path, test, request_timeout_ms=100)


def test_now_is_when_the_wait_begins(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"[1]")
        waiting = server.ask("GET", "s?live=long-poll&offset=now")
        await server.turns()
        assert waiting.status is None
        await server.done("POST", "s", b"[2]")
        assert (waiting.status, waiting.body, waiting.headers["stream-next-offset"]) == (200, b"[2]", encode(2))

    by_hand(tmp_path, test)


def test_nothing_is_seen_before_it_is_on_the_disk(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        waiting = server.ask("GET", "s?live=long-poll&offset=-1")
        append = server.ask("POST", "s", b"x", TEXT)
        await server.turns()
        assert (append.status, waiting.status) == (None, None)
        assert server.ask("GET", "s").body == b""
        await server.flush()
        assert (append.status, waiting.status, waiting.body) == (204, 200, b"x")

    by_hand(tmp_path, test)


def test_a_last_append_that_is_not_on_the_disk_ends_nothing(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        waiting = server.ask("GET", "s?live=long-poll&offset=-1")
        append = server.ask("POST", "s", b"x", TEXT, stream_closed="true")
        await server.turns()
        assert (append.status, waiting.status) == (None, None)
        read = server.ask("GET", "s")
        assert (read.body, "stream-closed" in read.headers) == (b"", False)
        assert "stream-closed" not in server.ask("HEAD", "s").headers
        await server.flush()
        assert (waiting.status, waiting.body, waiting.headers["stream-closed"]) == (200, b"x", "true")

    by_hand(tmp_path, test)


def test_expiry_and_hiding_end_waits(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT, stream_expires_at="2023-11-14T22:13:21Z")
        await server.done("PUT", "t", content_type=TEXT)
        await server.done("PUT", "fork", b"", "", stream_forked_from="/v1/stream/t")
        expiring = server.ask("GET", "s?live=long-poll&offset=-1")
        hiding = server.ask("GET", "t?live=long-poll&offset=-1")
        assert (await server.done("DELETE", "t")).status == 204
        await server.later(1.5)
        assert (expiring.status, hiding.status) == (404, 410)

    by_hand(tmp_path, test)
