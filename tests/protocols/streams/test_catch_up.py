"""A read without `live`: one answer up to the end, whatever is appended, removed or broken while it is sent."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from support.raw_http import RawConnection, request
from support.server_process import ServerProcess
from support.streams_client import JSON, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand
from support.topics_client import PATIENCE_SECONDS

from strandline.engine import Batch, Engine, Options
from strandline.protocols.streams.offsets import encode

pytestmark = pytest.mark.both_lanes

#: More than the kernel, the server and a slow client hold together.
LARGE = 120
RECORD = "x" * 250_000
#: A client with this receive buffer takes next to nothing before it reads.
TINY_BYTES = 4096


@pytest.fixture
def large(streams: StreamsClient, name: str) -> str:
    """A stream of 30 MB."""
    streams.create(name)
    for start in range(0, LARGE, 20):
        streams.append(name, [f"{number} {RECORD}" for number in range(start, start + 20)], stream_key=f"from {start}")
    return name


@contextmanager
def running(data: Path, lane: str, **settings: object) -> Iterator[ServerProcess]:
    process = ServerProcess(data, fast_lane=lane == "fast", settings=settings)
    try:
        yield process.start()
    finally:
        process.end()


class SlowReader:
    """A client that has got the head of an answer, and little else."""

    def __init__(self, url: str, name: str, query: str = "") -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._connection = HTTPConnection(parts.hostname, parts.port)
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TINY_BYTES)
        line.settimeout(PATIENCE_SECONDS)
        line.connect((parts.hostname, parts.port))
        self._connection.sock = line
        self._connection.request("GET", f"/v1/stream/{name}{query}")
        self.response: HTTPResponse = self._connection.getresponse()
        assert self.response.status == 200

    def numbers(self) -> list[int]:
        """The numbers of the records. Raises if the answer is not complete."""
        body = self.response.read()
        self._connection.close()
        return [int(text.split()[0]) for text in json.loads(body)]

    def leave(self) -> None:
        self.response.close()
        self._connection.close()

    def is_cut_off(self) -> bool:
        try:
            body = self.response.read()
        except (IncompleteRead, ConnectionResetError):
            return True
        raise AssertionError(f"a complete answer of {len(body)} bytes")


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 3500, 20_000])
def test_everything_comes_in_one_answer(streams: StreamsClient, name: str, count: int) -> None:
    values = [{"number": number} for number in range(count)]
    streams.create(name, JSON, values)
    response = streams.read(name)
    assert response.json() == values
    headers = response.headers
    assert headers["stream-next-offset"] == headers["stream-end-offset"] == encode(count)
    assert headers["stream-up-to-date"] == "true"
    assert headers["cache-control"] == "no-cache"
    assert "stream-closed" not in headers
    assert "stream-cursor" not in headers
    unchanged = streams.request("GET", name, headers={"if-none-match": headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["stream-next-offset"] == encode(count)


def test_all_bytes_come_in_one_answer(streams: StreamsClient, name: str) -> None:
    streams.create(name, "application/octet-stream")
    pieces = [bytes([number]) * 700_000 for number in range(8)]
    for piece in pieces:
        streams.append(name, piece, "application/octet-stream")
    response = streams.read(name)
    assert response.content == b"".join(pieces)
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["stream-up-to-date"] == "true"
    assert streams.read(name, offset=encode(3)).content == b"".join(pieces[3:])
    streams.create(f"{name}-text", TEXT, "ä" * 500_000)
    for _ in range(4):
        streams.append(f"{name}-text", "ö" * 500_000, TEXT)
    assert streams.read(f"{name}-text").text == "ä" * 500_000 + "ö" * 2_000_000


def test_json_comes_raw_as_well(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, list(range(40_000)))
    streams.append(name, list(range(40_000, 60_000)))
    assert streams.read(name, format="raw").text == "".join(map(str, range(60_000)))


def test_the_last_answer_of_a_closed_stream_says_so_and_may_be_kept(streams: StreamsClient, large: str) -> None:
    assert streams.request("POST", large, headers={"stream-closed": "true"}).status_code == 204
    response = streams.read(large)
    assert len(response.json()) == LARGE
    assert response.headers["stream-closed"] == response.headers["stream-up-to-date"] == "true"
    assert response.headers["cache-control"] == "immutable, max-age=31536000"


def test_a_key_and_a_time_select(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    for key in "abc":
        streams.append(name, [f"{key}{number}" for number in range(3000)], stream_key=key)
    late = streams.request(
        "POST", name, [0] * 2500, headers={"content-type": JSON, "stream-timestamp": "2040-01-01T00:00:00Z"}
    )
    assert late.status_code == 204
    response = streams.read(name, key="b")
    assert response.json() == [f"b{number}" for number in range(3000)]
    assert response.headers["stream-next-offset"] == encode(11_500)
    assert response.headers["stream-up-to-date"] == "true"
    assert len(streams.read(f"{name}/pk/c", offset=encode(7000)).json()) == 2000
    assert streams.read(name, since="2039-01-01T00:00:00Z").json() == [0] * 2500


def test_pages_of_a_filter_and_of_the_latest_records_stay_pages(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    number = {"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/n"}], "exact": True}
    at = {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True}
    search = {"primaryTimestampField": "at", "fields": {"n": number, "at": at}}
    installed = streams.request("POST", f"{name}/_schema", {"schema": {"type": "object"}, "search": search})
    assert installed.status_code == 200, installed.text
    streams.append(name, [{"n": 1}] * 1500)
    filtered = streams.read(name, filter="n:1")
    assert len(filtered.json()) == 1000
    assert "stream-up-to-date" not in filtered.headers
    assert len(streams.read(name).json()) == 1500
    topic = {"records": [{"data": number, "tag": str(number)} for number in range(1200)]}
    appended = streams.request("POST", f"/v0/topics/{name}-keys", topic, headers={"content-type": JSON})
    assert appended.status_code == 201
    latest = streams.read(f"{name}-keys", view="latest")
    assert (len(latest.json()), "stream-up-to-date" in latest.headers) == (1000, False)


def test_every_record_is_converted_to_the_current_schema(streams: StreamsClient, name: str) -> None:
    def schema(member: str) -> dict[str, object]:
        members = {member: {"type": "integer"}}
        return {"type": "object", "properties": members, "required": [member], "additionalProperties": False}

    streams.create(name)
    assert streams.request("POST", f"{name}/_schema", {"schema": schema("a")}).status_code == 200
    streams.append(name, [{"a": number} for number in range(20_000)])
    operations = [{"op": "rename", "from": "/a", "to": "/b"}]
    lens = {"apiVersion": "durable.lens/v1", "schema": name, "from": 1, "to": 2, "ops": operations}
    changed = streams.request("POST", f"{name}/_schema", {"schema": schema("b"), "lens": lens})
    assert changed.status_code == 200, changed.text
    streams.append(name, [{"b": number} for number in range(20_000, 30_000)])
    response = streams.read(name)
    assert response.json() == [{"b": number} for number in range(30_000)]
    assert response.headers["cache-control"] == "no-cache"


# --- what happens meanwhile -------------------------------------------------------------------------------------------


def test_what_is_appended_meanwhile_is_not_part_of_the_answer(
    server: ServerProcess, streams: StreamsClient, large: str
) -> None:
    reader = SlowReader(server.url, large)
    streams.append(large, ["999 late"])
    assert reader.numbers() == list(range(LARGE))
    assert reader.response.headers["stream-next-offset"] == encode(LARGE)
    assert reader.response.headers["stream-up-to-date"] == "true"
    assert streams.read(large, offset=encode(LARGE)).json() == ["999 late"]


@pytest.mark.parametrize("removed", ["all but one", "a key", "the stream"])
def test_what_is_removed_meanwhile_breaks_the_connection(
    server: ServerProcess, streams: StreamsClient, large: str, removed: str
) -> None:
    reader = SlowReader(server.url, large)
    if removed == "the stream":
        answer = streams.request("DELETE", large)
    elif removed == "a key":
        body = {"match": ["tag", "Glob", f"from {LARGE - 20}*"]}
        answer = streams.request("POST", f"/v0/topics/{large}/delete", body, headers={"content-type": JSON})
    else:
        answer = streams.request("PUT", f"/v0/topics/{large}", {"cap_records": 1}, headers={"content-type": JSON})
    assert answer.status_code in (200, 204), answer.text
    assert reader.is_cut_off()


def test_what_is_removed_before_the_reader_gets_there_but_after_it_was_sent_does_not(
    server: ServerProcess, streams: StreamsClient, large: str
) -> None:
    reader = SlowReader(server.url, large)
    body = {"before_seq": 3}
    assert (
        streams.request("POST", f"/v0/topics/{large}/delete", body, headers={"content-type": JSON}).status_code == 200
    )
    assert reader.numbers() == list(range(LARGE))
    assert streams.request("GET", large, headers={"if-none-match": reader.response.headers["etag"]}).status_code == 200


def test_a_compacted_stream_is_read_while_its_records_are_replaced(
    server: ServerProcess, streams: StreamsClient, large: str
) -> None:
    compact = {"compact": True}
    assert streams.request("PUT", f"/v0/topics/{large}", compact, headers={"content-type": JSON}).status_code == 200
    reader = SlowReader(server.url, large)
    body = {"match": ["tag", "Glob", f"from {LARGE - 20}*"]}
    assert (
        streams.request("POST", f"/v0/topics/{large}/delete", body, headers={"content-type": JSON}).status_code == 200
    )
    assert reader.numbers() == list(range(LARGE - 20))
    assert reader.response.headers["stream-next-offset"] == encode(LARGE)


def test_a_client_that_goes_away_is_forgotten(server: ServerProcess, streams: StreamsClient, large: str) -> None:
    for _ in range(5):
        SlowReader(server.url, large).leave()
    assert len(streams.read(large).json()) == LARGE


# --- the connection ---------------------------------------------------------------------------------------------------


def test_the_connection_is_used_again(server: ServerProcess, large: str) -> None:
    parts = urlsplit(server.url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
    line = None
    for _ in range(3):
        connection.request("GET", f"/v1/stream/{large}")
        response = connection.getresponse()
        assert "connection" not in response.headers
        assert len(json.loads(response.read())) == LARGE
        line = line or connection.sock
        assert connection.sock is line
    connection.request("GET", f"/v1/stream/{large}", headers={"connection": "close"})
    response = connection.getresponse()
    assert response.headers["connection"] == "close"
    assert len(response.read()) > LARGE * len(RECORD)


def test_requests_behind_a_long_answer_are_answered_after_it(server: ServerProcess, large: str) -> None:
    with RawConnection(server.url) as connection:
        health = request("GET", "/v0/health")
        connection.send(
            request("GET", f"/v1/stream/{large}") + health + request("GET", "/v0/health", None, "connection: close")
        )
        answers = connection.everything()
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3
    long, _, rest = answers.partition(b"]\r\n0\r\n\r\n")
    assert len(long) > LARGE * len(RECORD)
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_long_answer_is_compressed_piece_by_piece(streams: StreamsClient, large: str, coding: str) -> None:
    plain = streams.request("GET", large, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = streams.request("GET", large, headers={"accept-encoding": coding})
    assert packed.headers["content-encoding"] == coding
    for response in (plain, packed):
        assert "accept-encoding" in response.headers["vary"]
        assert "content-length" not in response.headers
    assert packed.content == plain.content
    assert packed.headers["etag"] == plain.headers["etag"]
    assert packed.num_bytes_downloaded < len(plain.content) // 100


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamsClient]:
    """A server whose answers have about 3 MB, or 5000 records."""
    data = tmp_path_factory.mktemp(f"limited-{lane}") / "data"
    with running(data, lane, catch_up_max_bytes=3_000_000, catch_up_max_records=5000) as server:
        client = StreamsClient(server.url)
        yield client
        client.close()


def answers(streams: StreamsClient, name: str, **query: str | int) -> list[httpx.Response]:
    """All answers from the start to the end."""
    found = [streams.read(name, **query)]
    while "stream-up-to-date" not in found[-1].headers:
        assert found[-1].headers["cache-control"] == "immutable, max-age=31536000"
        found.append(streams.read(name, **{**query, "offset": found[-1].headers["stream-next-offset"]}))
    return found


def test_an_answer_has_a_maximum_size(limited: StreamsClient, name: str) -> None:
    limited.create(name)
    values = [f"{number} {'x' * 10_000}" for number in range(1000)]
    for start in range(0, 1000, 100):
        limited.append(name, values[start : start + 100])
    found = answers(limited, name)
    assert [value for answer in found for value in answer.json()] == values
    assert all(2_500_000 < len(answer.content) <= 3_010_000 for answer in found[:-1])
    assert len(found) == 4


def test_an_array_has_a_maximum_number_of_records_and_bytes_have_none(limited: StreamsClient, name: str) -> None:
    limited.create(name, JSON, list(range(12_000)))
    assert [len(answer.json()) for answer in answers(limited, name)] == [5000, 5000, 2000]
    assert [len(answer.json()) for answer in answers(limited, name, offset=encode(1))] == [5000, 5000, 1999]
    assert limited.read(name, format="raw").text == "".join(map(str, range(12_000)))


def test_a_record_that_is_larger_than_an_answer_comes_alone(limited: StreamsClient, name: str) -> None:
    limited.create(name, TEXT)
    for letter in "abc":
        limited.append(name, letter * 4_000_000, TEXT)
    assert ["".join(sorted(set(answer.text))) for answer in answers(limited, name)] == ["a", "b", "c"]


# --- the parts of the engine ------------------------------------------------------------------------------------------


def test_sealed_records_are_read_from_their_segments(tmp_path: Path, lane: str) -> None:
    values = [{"number": number, "text": "x" * 200} for number in range(30_000)]
    with running(tmp_path / "data", lane) as server:
        client = StreamsClient(server.url)
        client.create("s", JSON, values[:20_000])
        client.close()
    with Engine.open(tmp_path / "data", Options(), background=False) as engine:
        engine.seal()
    with running(tmp_path / "data", lane) as server:
        client = StreamsClient(server.url)
        client.append("s", values[20_000:])
        assert client.read("s").json() == values
        client.close()


def test_damaged_data_breaks_the_connection_and_the_log_says_so(tmp_path: Path, lane: str) -> None:
    data = tmp_path / "data"
    with Engine.open(data, Options(), background=False) as engine:
        log = engine.create("s").wait()
        for number in range(40):
            log.append(Batch([b'"%d %b"' % (number, os.urandom(125_000).hex().encode())])).wait()
        engine.seal()
    segment = data / "segments" / "00000001.arrow"
    raw = bytearray(segment.read_bytes())
    at = len(raw) * 9 // 10
    raw[at : at + 8] = bytes(value ^ 0xFF for value in raw[at : at + 8])
    segment.write_bytes(raw)
    with running(data, lane) as server:
        assert SlowReader(server.url, "s").is_cut_off()
        assert "reset the connection of a reader of the stream 's'" in server.log()
        # Whoever asks again gets everything before the damage, and is then told of it.
        streams = StreamsClient(server.url)
        response = streams.read("s")
        offset = response.headers["stream-next-offset"]
        assert "stream-up-to-date" not in response.headers
        assert 20 < len(response.json()) < 40
        assert offset == encode(len(response.json()))
        streams.refused(500, "GET", "s", params={"offset": offset}, code="damaged_data")
        streams.close()


def test_a_client_of_http_1_0_gets_pages(server: ServerProcess, large: str) -> None:
    with RawConnection(server.url) as connection:
        connection.send(request("GET", f"/v1/stream/{large}", version="1.0"))
        head, body = connection.answer()
    assert b"transfer-encoding" not in head
    assert b"stream-up-to-date" not in head
    assert 0 < len(json.loads(body)) < LARGE


def test_a_reader_learns_of_a_gap_in_the_middle(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", json.dumps(list(range(2500))).encode())
        log = server.engine.log("s")
        log.skip(10, "lost").wait()
        log.append(Batch([b"1"] * 2000)).wait()
        page = await server.done("GET", "s")
        assert page.headers["stream-next-offset"] == encode(2500)
        assert "stream-up-to-date" not in page.headers
        assert (await server.done("GET", f"s?offset={encode(2500)}")).status == 410
        # Of a key whose last record is long before the gap, too.
        log.append(Batch([b"1"] * 1000, keys=["k"] * 1000)).wait()
        log.append(Batch([b"1"] * 1500)).wait()
        log.skip(10, "lost").wait()
        log.append(Batch([b"1"] * 10, keys=["k"] * 10)).wait()
        page = await server.done("GET", f"s?offset={encode(2510)}&key=k")
        assert json.loads(page.body) == [1] * 1000
        assert page.headers["stream-next-offset"] == encode(7010)

    by_hand(tmp_path, test)
