"""Messages of the state protocol carry the offset of their record when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.streams_client import JSON, StreamsClient
from support.streams_handlers import Stand, at_stand

from strandline.protocols.streams.offsets import encode
from strandline.protocols.streams.state_messages import with_offsets

CHANGE = {
    "type": "user",
    "key": "1",
    "value": {"n": 1.50, "headers": {"operation": "x"}},
    "headers": {"operation": "insert"},
}
CONTROL = {"headers": {"control": "reset", "offset": "-1", "operation": 1}}
OTHERS: list[Any] = [
    1,
    "headers",
    ["headers"],
    {"headers": 1},
    {"headers": {}},
    {"headers": {"operation": 1, "control": None}},
    {"value": {"headers": {"operation": "insert"}}},
]


def expected(message: Any, seq: int) -> Any:
    return {**message, "headers": {**message["headers"], "offset": encode(seq)}}


@pytest.mark.both_lanes
def test_messages_have_their_offsets_in_every_kind_of_read(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, [CHANGE, *OTHERS, CONTROL], stream_key="k")
    shown = [expected(CHANGE, 1), *OTHERS, expected(CONTROL, len(OTHERS) + 2)]
    for _ in range(2):
        assert streams.values(name) == shown
    assert streams.read(name, key="k").json() == streams.read(name, since="0").json() == shown
    polled = streams.read(name, live="long-poll", offset=encode(1))
    assert polled.json() == shown[1:]
    with streams.events(name, offset="-1") as (_, events):
        assert next(events).json == shown
    assert shown[0]["headers"]["offset"] == encode(1)
    assert streams.values(name, offset=encode(1)) == shown[1:], "a reader continues after the message"


@pytest.mark.both_lanes
def test_streams_of_the_profile_have_them_too(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    body = {"profile": {"kind": "state-protocol"}}
    assert streams.request("POST", f"{name}/_profile", body).status_code == 200
    control = {"headers": {"control": "snapshot-end"}}
    streams.append(name, [CHANGE, control])
    assert streams.values(name) == [expected(CHANGE, 1), expected(control, 2)]


def test_records_stay_as_they_are_where_something_else_says_what_they_are(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    streams.append(name, [CHANGE])
    assert b"offset" not in streams.read(name, format="raw").content
    streams.create(f"{name}/text", "text/plain", str(CONTROL))
    assert streams.read(f"{name}/text").text == str(CONTROL)
    streams.create(f"{name}/schema")
    assert streams.request("POST", f"{name}/schema/_schema", {"schema": {"type": "object"}}).status_code == 200
    streams.append(f"{name}/schema", [CHANGE])
    assert streams.values(f"{name}/schema") == [CHANGE]


def test_everything_but_the_headers_keeps_its_text(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    text = '{"value":[12345678901234567890123,1.50,"\\u00e9"],"headers":{"operation":"insert","txid":"1"}}'
    streams.append(name, text, JSON)
    assert streams.read(name).text == f'[{text[:-2]},"offset":"{encode(1)}"}}}}]'


def test_spans_without_messages_are_looked_at_once(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a", *range(10))
        message = b'{"headers":{"control":"reset"}}'

        def look(first: int, last: int, *data: bytes) -> list[bytes]:
            rows = list(data) or [b"0"] * (last - first)
            return with_offsets(stream, range(first + 1, last + 1), rows, (first, last))

        assert look(4, 6) == [b"0", b"0"]
        assert stream.without_messages == (4, 6)
        look(6, 8)
        look(3, 5)
        assert stream.without_messages == (3, 8)
        assert look(7, 8, message) == [message], "what is known is not looked at"
        assert look(8, 9, message) == [b'{"headers":{"control":"reset","offset":"%b"}}' % encode(9).encode()]
        look(0, 1)
        assert stream.without_messages == (3, 8)
        look(9, 10)
        assert stream.without_messages == (9, 10)
        with_offsets(stream, [1], [b"0"])
        assert stream.without_messages == (9, 10), "some records of a key say nothing about the others"

    at_stand(tmp_path, test)
