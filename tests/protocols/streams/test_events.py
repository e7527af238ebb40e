"""GET with live=sse: events byte for byte, where readers stand, and how long a connection lasts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.raw_http import RawConnection, request
from support.server_process import StartServer
from support.streams_client import JSON, START, TEXT, Event, StreamsClient
from support.streams_in_process import HandServer, by_hand
from support.topics_client import eventually

from strandline.protocols.streams.offsets import encode


def whole(streams: StreamsClient, name: str, query: str = "offset=-1") -> tuple[dict[bytes, bytes], bytes]:
    """Everything that comes on the connection of a stream that is closed: headers, and the events as they are."""
    with RawConnection(streams.url) as connection:
        connection.send(request("GET", f"/v1/stream/{name}?live=sse&{query}", None, "connection: close"))
        head, _, rest = connection.everything().partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return headers, body


def data_and_control(events: Iterator[Event]) -> tuple[str, dict[str, object]]:
    data, control = next(events), next(events)
    assert (data.type, control.type) == ("data", "control")
    return data.data, control.json


def test_the_bytes_of_a_closed_stream(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "one\ntwo", stream_closed="true")
    headers, body = whole(streams, name)
    assert body == (
        b"event: data\ndata:one\ndata:two\n\n"
        b'event: control\ndata:{"streamNextOffset":"%b","upToDate":true,"streamClosed":true}\n\n' % encode(1).encode()
    )
    assert headers[b"content-type"] == b"text/event-stream"
    assert headers[b"cache-control"] == b"no-cache"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"cross-origin-resource-policy"] == b"same-origin"
    assert headers[b"stream-next-offset"] == START.encode()
    assert headers[b"stream-end-offset"] == encode(1).encode().lower()
    assert b"content-length" not in headers
    assert b"stream-sse-data-encoding" not in headers


def test_whoever_has_everything_of_a_closed_stream_is_told_so(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x", stream_closed="true")
    for query in (f"offset={encode(1)}", "offset=now", f"offset={encode(70)}"):
        _, body = whole(streams, name, query)
        control = b'{"streamNextOffset":"%b","upToDate":true,"streamClosed":true}' % encode(1).encode()
        assert body == b"event: control\ndata:" + control + b"\n\n"


@pytest.mark.parametrize(
    "text",
    ["a\nb", "a\r\nb", "a\rb", "\n", "\r\n\r\n", "a\n\nevent: control\ndata:{}\n\n", "\r\revent: data", "data: x"],
)  # fmt: skip
def test_no_text_can_pass_for_an_event(streams: StreamsClient, name: str, text: str) -> None:
    streams.create(name, TEXT, text, stream_closed="true")
    with streams.events(name, offset="-1") as (_, events):
        found = list(events)
    assert [event.type for event in found] == ["data", "control"]
    assert found[0].data == text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("content_type", ["application/octet-stream", "image/png", "application/x-ndjson"])
def test_bytes_come_in_base_64(streams: StreamsClient, name: str, content_type: str) -> None:
    everything = bytes(range(256))
    streams.create(name, content_type, everything, stream_closed="true")
    headers, body = whole(streams, name)
    assert headers[b"stream-sse-data-encoding"] == b"base64"
    first = body.split(b"\n")[1]
    assert base64.b64decode(first.removeprefix(b"data:"), validate=True) == everything


def test_json_comes_as_arrays(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, '[{"a":\n1}, "\\n"]', stream_closed="true")
    with streams.events(name, offset="-1") as (_, events):
        found = list(events)
    assert [event.type for event in found] == ["data", "control"]
    assert found[0].json == [{"a": 1}, "\n"]


def test_raw_json_comes_as_text(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [1, 2], stream_closed="true")
    with streams.events(name, offset="-1", format="raw") as (response, events):
        assert "stream-sse-data-encoding" not in response.headers
        assert next(events).data == "12"


def test_a_long_stream_comes_page_by_page_each_with_its_place(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, list(range(2500)), stream_closed="true")
    values: list[int] = []
    with streams.events(name, offset="-1") as (_, events):
        found = list(events)
    assert [event.type for event in found] == ["data", "control"] * 3
    for data, control in zip(found[::2], found[1::2], strict=True):
        values += data.json
        assert control.json["streamNextOffset"] == encode(len(values))
        assert ("upToDate" in control.json) == (len(values) == 2500)
        assert ("streamCursor" in control.json) == ("streamClosed" not in control.json)
    assert values == list(range(2500))


def test_readers_get_what_is_appended_and_where_they_stand(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, ["before"])
    with streams.events(name, offset="now") as (_, now), streams.events(name, offset="-1") as (_, all_of_it):
        first = next(now)
        assert (first.type, first.json["streamNextOffset"], first.json["upToDate"]) == ("control", encode(1), True)
        assert first.json["streamCursor"].isdigit()
        data, control = data_and_control(all_of_it)
        assert json.loads(data) == ["before"]
        assert control["upToDate"] is True
        for number in range(3):
            streams.append(name, [number])
            for events in (now, all_of_it):
                data, control = data_and_control(events)
                assert json.loads(data) == [number]
                assert control["streamNextOffset"] == encode(number + 2)
        streams.append(name, ["last"], stream_closed="true")
        for events in (now, all_of_it):
            data, control = data_and_control(events)
            assert (json.loads(data), control["streamClosed"]) == (["last"], True)
            assert list(events) == []


def test_closing_alone_is_told_without_data(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    with streams.events(name, offset="-1") as (_, events):
        assert "streamClosed" not in next(events).json
        streams.request("POST", name, headers={"stream-closed": "true"})
        control = next(events)
        assert (control.type, control.json["streamClosed"]) == ("control", True)
        assert list(events) == []


def test_a_key_selects_events_too(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, [1], stream_key="b")
    with streams.events(f"{name}/pk/a", offset="-1") as (_, events):
        assert next(events).json["streamNextOffset"] == encode(1)
        streams.append(name, [2], stream_key="b")
        streams.append(name, [3], stream_key="a")
        data, control = data_and_control(events)
        assert (json.loads(data), control["streamNextOffset"]) == ([3], encode(3))


def test_the_cursor_of_an_event_stream_is_later_than_the_clients(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    with streams.events(name, offset="now", cursor="99999999") as (_, events):
        assert int(next(events).json["streamCursor"]) > 99999999


def test_deleting_ends_event_streams(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    with streams.events(name, offset="now") as (_, events):
        next(events)
        streams.request("DELETE", name)
        assert list(events) == []


@pytest.mark.both_lanes
def test_only_so_many_may_be_open(start_server: StartServer, lane: str) -> None:
    streams = StreamsClient(start_server(lane=lane, max_sse_connections=1).url)
    streams.create("s", TEXT)
    with streams.events("s", offset="now") as (_, events):
        next(events)
        response = streams.request("GET", "s", params={"offset": "now", "live": "sse"})
        assert (response.status_code, response.json()["error"]["code"]) == (429, "overloaded")
        assert response.headers["retry-after"] == "1"
        assert streams.read("s").status_code == 200
    path = "/v1/stream/s?offset=now&live=sse"

    def opened() -> bool:
        with streams.http.stream("GET", path) as response:
            return response.status_code == 200

    eventually(opened)
    streams.close()


# --- time, turned by hand ---------------------------------------------------------------------------------------------


def test_a_silent_stream_says_where_it_stands_now_and_then_and_ends_after_a_minute(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT)
        reader = server.ask("GET", "s?live=sse&offset=now")
        await server.turns()
        control = b'event: control\ndata:{"streamNextOffset":"%b","upToDate":true' % encode(1).encode()
        assert reader.written.count(control) == 1
        await server.later(29)
        assert reader.written.count(control) == 1
        await server.later(1.5)
        assert reader.written.count(control) == 2
        await server.later(28)
        assert (reader.written.count(control), reader.closed) == (2, False)
        await server.later(2)
        assert reader.closed
        assert server.face.reading.waiting == 0
        assert server.context.live.slots.used == 0

    by_hand(tmp_path, test)


def test_data_puts_off_the_word_but_not_the_end(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT)
        reader = server.ask("GET", "s?live=sse&offset=now")
        for _ in range(5):
            await server.later(11)
            await server.done("POST", "s", b"y", TEXT)
        # One to begin with, and one with each piece of data; at most one more in between.
        assert 6 <= reader.written.count(b"event: control") <= 7
        assert reader.written.count(b"event: data\ndata:y\n\n") == 5
        assert not reader.closed
        await server.later(6)
        assert reader.closed

    by_hand(tmp_path, test)


def test_the_length_of_a_connection_can_be_set(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b"x", TEXT)
        reader = server.ask("GET", "s?live=sse&offset=now")
        await server.later(2.1)
        assert reader.closed

    by_hand(tmp_path, test, sse_rotate_seconds=2.0)


def test_events_tell_only_of_what_is_on_the_disk(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        reader = server.ask("GET", "s?live=sse&offset=now")
        append = server.ask("POST", "s", b"x", TEXT, stream_closed="true")
        await server.turns()
        assert b"event: data" not in reader.written
        assert b"streamClosed" not in reader.written
        late = server.ask("GET", "s?live=sse&offset=-1")
        await server.turns()
        assert b"streamClosed" not in late.written
        await server.flush()
        assert append.status == 204
        for each in (reader, late):
            assert each.written.endswith(b'"upToDate":true,"streamClosed":true}\n\n')
            assert each.written.count(b"event: data\ndata:x\n\n") == 1
            assert each.closed

    by_hand(tmp_path, test)


def test_a_server_that_stops_ends_event_streams(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        reader = server.ask("GET", "s?live=sse&offset=now")
        server.context.live.drain()
        assert reader.closed

    by_hand(tmp_path, test)


def test_a_stream_that_is_hidden_or_expires_ends_its_events(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "hidden", content_type=TEXT)
        await server.done("PUT", "fork", content_type="", stream_forked_from="/v1/stream/hidden")
        await server.done("PUT", "short", content_type=TEXT, stream_ttl="5")
        readers = [server.ask("GET", f"{name}?live=sse&offset=now") for name in ("hidden", "short", "fork")]
        await server.done("DELETE", "hidden")
        await server.turns()
        assert [reader.closed for reader in readers] == [True, False, False]
        await server.later(6.5)
        assert [reader.closed for reader in readers] == [True, True, False]

    by_hand(tmp_path, test)
