"""Closing: for good, atomically with a last append, and idempotent."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.streams_client import JSON, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand

from strandline.protocols.streams.offsets import encode

CLOSE = {"stream-closed": "true"}


def test_a_close_answers_where_the_stream_ends(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    for _ in range(2):
        response = streams.request("POST", name, headers=CLOSE)
        assert (response.status_code, response.content) == (204, b"")
        assert response.headers["stream-closed"] == "true"
        assert response.headers["stream-next-offset"] == encode(1)


@pytest.mark.parametrize("content_type", [None, JSON, "nonsense"])
def test_closing_looks_at_no_content_type(streams: StreamsClient, name: str, content_type: str | None) -> None:
    streams.create(name, TEXT)
    headers = CLOSE if content_type is None else {**CLOSE, "content-type": content_type}
    assert streams.request("POST", name, headers=headers).status_code == 204
    assert streams.request("POST", name, headers=headers).status_code == 204


@pytest.mark.parametrize("value", ["false", "1", "yes", ""])
def test_any_other_value_closes_nothing(streams: StreamsClient, name: str, value: str) -> None:
    streams.create(name, TEXT)
    assert "stream-closed" not in streams.append(name, "x", TEXT, stream_closed=value).headers
    streams.refused(400, "POST", name, headers={"stream-closed": value})
    streams.append(name, "y", TEXT)


def test_a_last_append_and_the_close_are_one(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    response = streams.append(name, [1, 2], stream_closed="True")
    assert (response.status_code, response.headers["stream-closed"]) == (204, "true")
    assert response.headers["stream-next-offset"] == encode(2)
    read = streams.read(name)
    assert (read.json(), read.headers["stream-closed"]) == ([1, 2], "true")


def test_a_closed_stream_takes_nothing(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1], stream_closed="true")
    for headers in ({}, CLOSE, {"stream-seq": "1"}, {"content-type": TEXT}):
        response = streams.request("POST", name, "[2]", headers={"content-type": JSON, **headers})
        assert response.status_code == 409
        assert response.json()["error"] == {"code": "conflict", "message": "the stream is closed"}
        assert response.headers["stream-closed"] == "true"
        assert response.headers["stream-next-offset"] == encode(1)
    assert streams.values(name) == [1]


def test_a_refused_last_append_closes_nothing(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON)
    streams.refused(400, "POST", name, "[", headers={"content-type": JSON, **CLOSE})
    streams.refused(409, "POST", name, "x", headers={"content-type": TEXT, **CLOSE})
    streams.refused(400, "POST", name, "[]", headers={"content-type": JSON, **CLOSE})
    streams.append(name, [1])


def test_only_the_last_page_says_that_there_is_no_more(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"[1,2,3]", JSON, stream_closed="true")
        first = server.ask("GET", "s")
        assert "stream-closed" not in first.headers
        assert "stream-up-to-date" not in first.headers
        last = server.ask("GET", f"s?offset={first.headers['stream-next-offset']}")
        assert last.headers["stream-closed"] == last.headers["stream-up-to-date"] == "true"
        # A page of a key that has no more in it ends at the end as well.
        assert server.ask("GET", "s?key=none").headers["stream-closed"] == "true"

    by_hand(tmp_path, test, read_max_records=2, catch_up_max_bytes=1)


def test_what_was_closed_stays_closed(tmp_path: Path) -> None:
    producer = {"producer_id": "p", "producer_epoch": "3", "producer_seq": "0"}

    async def first(server: HandServer) -> None:
        await server.done("PUT", "alone", b"x", TEXT)
        await server.done("POST", "alone", stream_closed="true")
        await server.done("PUT", "last", content_type=TEXT)
        await server.done("POST", "last", b"y", TEXT, stream_closed="true", **producer)

    async def second(server: HandServer) -> None:
        for name, text in (("alone", b"x"), ("last", b"y")):
            read = server.ask("GET", name)
            assert (read.body, read.headers["stream-closed"]) == (text, "true")
            assert server.ask("POST", name, b"z", TEXT).status == 409
        # Who closed it is remembered too.
        assert (await server.done("POST", "last", b"y", TEXT, stream_closed="true", **producer)).status == 204

    by_hand(tmp_path, first, second)


def test_a_repeated_close_waits_for_the_first_one_to_be_durable(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        first = server.ask("POST", "s", stream_closed="true")
        again = server.ask("POST", "s", stream_closed="true")
        await server.turns()
        assert (first.status, again.status) == (None, None)
        await server.flush()
        assert (first.status, again.status) == (204, 204)

    by_hand(tmp_path, test)


def test_nobody_is_told_of_a_close_before_it_is_durable(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT)
        waiting = server.ask("GET", f"s?live=long-poll&offset={encode(1)}")
        reader = server.ask("GET", f"s?live=sse&offset={encode(1)}")
        closing = server.ask("POST", "s", stream_closed="true")
        await server.turns()
        assert (closing.status, waiting.status) == (None, None)
        assert b"streamClosed" not in reader.written
        for request in ("s", "s?offset=now", f"s?offset={encode(9)}"):
            assert "stream-closed" not in server.ask("GET", request).headers
        assert "stream-closed" not in server.ask("HEAD", "s").headers
        # Appends are refused from now on: what would come behind the close could never be read.
        assert server.ask("POST", "s", b"y", TEXT).status == 409
        await server.flush()
        assert (closing.status, waiting.status, waiting.headers["stream-closed"]) == (204, 204, "true")
        assert reader.written.endswith(b'"streamClosed":true}\n\n')
        assert reader.closed
        assert server.ask("GET", "s").headers["stream-closed"] == "true"

    by_hand(tmp_path, test)


def test_a_close_that_took_too_long_is_told_to_those_who_wait(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT)
        closing = server.ask("POST", "s", stream_closed="true")
        waiting = server.ask("GET", f"s?live=long-poll&offset={encode(1)}&timeout=5s")
        await server.later(3.2)
        assert (closing.status, waiting.status) == (408, None)
        await server.flush()
        assert (waiting.status, waiting.headers["stream-closed"]) == (204, "true")

    by_hand(tmp_path, test)


def test_a_duplicate_waits_for_the_first_one_to_be_durable(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        producer = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
        first = server.ask("POST", "s", b"x", TEXT, **producer)
        again = server.ask("POST", "s", b"x", TEXT, **producer)
        await server.turns()
        assert (first.status, again.status) == (None, None)
        await server.flush()
        assert (first.status, again.status) == (200, 204)
        assert server.ask("GET", "s").body == b"x"

    by_hand(tmp_path, test)
