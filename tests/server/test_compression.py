"""Compression in both directions: in linear time, within bounds, and large bodies off the event loop."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import weakref
import zlib
from collections.abc import Iterator
from time import perf_counter

import msgspec
import pyarrow as pa
import pytest
from support.gate_calls import ask_gate
from support.server_process import ServerProcess
from support.topics_client import Client

from strandline.server.compression import (
    CODINGS,
    DEFLATE,
    GZIP,
    INLINE_BYTES,
    MAX_MEMBERS,
    STREAM_CODINGS,
    NotSmall,
    PieceEncoder,
    compress,
    decompress,
    decompress_small,
)
from strandline.server.gate import Gate, Status
from strandline.service.http import NO_STORE, VARY_ENCODING, Call, Head, Reply, Route
from strandline.service.limits import Limits
from strandline.service.problems import INVALID_REQUEST, Refusal
from strandline.service.workers import Workers

pytestmark = pytest.mark.both_lanes

EMPTY = gzip.compress(b"", mtime=0)
LIMIT = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 100, 16 << 10, (16 << 10) + 1, 300_000])
def test_what_was_compressed_comes_back(size: int) -> None:
    body = os.urandom(size // 2) + b"x" * (size - size // 2)
    assert decompress(gzip.compress(body), GZIP, LIMIT) == body
    assert decompress(gzip.compress(body[:7]) + EMPTY + gzip.compress(body[7:]), GZIP, LIMIT) == body


def test_as_many_members_as_are_allowed() -> None:
    assert decompress(gzip.compress(b"a") * MAX_MEMBERS, GZIP, LIMIT) == b"a" * MAX_MEMBERS
    with pytest.raises(Refusal, match=f"more than {MAX_MEMBERS} gzip members") as refused:
        decompress(EMPTY * (MAX_MEMBERS + 1), GZIP, LIMIT)
    assert refused.value.status == 400


def test_the_time_is_linear_in_the_size_of_the_data() -> None:
    """A member at a time, in front of data that grows: copying the rest for each of them would be quadratic."""
    members = gzip.compress(b"a") * (MAX_MEMBERS - 1)
    body = os.urandom(32 << 20)
    last = gzip.compress(body, 0)
    began = perf_counter()
    assert len(decompress(members + last, GZIP, 64 << 20)) == len(body) + MAX_MEMBERS - 1
    # Copying 32 MiB a thousand times takes several seconds on any machine.
    assert perf_counter() - began < 3


@pytest.mark.parametrize("limit", [0, 1, 999, 1000, 1001, 100_000])
def test_the_limit_is_on_what_is_decompressed(limit: int) -> None:
    for data in (gzip.compress(b"x" * 1000), gzip.compress(b"x") * 1000):
        if limit >= 1000:
            assert len(decompress(data, GZIP, limit)) == 1000
        else:
            with pytest.raises(Refusal) as refused:
                decompress(data, GZIP, limit)
            assert refused.value.status == 413


@pytest.mark.parametrize(
    "data",
    [b"", b"x", EMPTY[:-1], EMPTY + b"x", EMPTY + EMPTY[:5]],
    ids=["nothing", "text", "cut off", "text after it", "the second cut off"],
)
def test_what_is_not_gzip_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal, match="the body is not valid gzip: ") as refused:
        decompress(data, GZIP, LIMIT)
    assert refused.value.status == 400


@pytest.mark.parametrize("window", [15, -15])
def test_deflate_comes_with_and_without_a_header(window: int) -> None:
    body = b"some text, some text" * 9999
    compressor = zlib.compressobj(wbits=window)
    data = compressor.compress(body) + compressor.flush()
    assert decompress(data, DEFLATE, LIMIT) == body
    assert decompress_small(zlib.compress(body[:99], wbits=window), DEFLATE, LIMIT) == body[:99]
    for broken in (data[:-5], data + b"x", b"", b"x" * 99):
        with pytest.raises(Refusal, match="the body is not valid deflate"):
            decompress(broken, DEFLATE, LIMIT)
    with pytest.raises(Refusal, match="larger than"):
        decompress(data, DEFLATE, len(body) - 1)


def test_the_loop_decompresses_only_what_is_small() -> None:
    assert decompress_small(gzip.compress(b"x" * INLINE_BYTES), GZIP, LIMIT) == b"x" * INLINE_BYTES
    for body in (b"x" * (INLINE_BYTES + 1), os.urandom(INLINE_BYTES)):
        with pytest.raises(NotSmall):
            decompress_small(gzip.compress(body), GZIP, LIMIT)
    with pytest.raises(NotSmall):
        decompress_small(EMPTY + EMPTY, GZIP, LIMIT)


def unpacked(data: bytes, coding: bytes) -> bytes:
    name = {b"br": "brotli"}.get(coding, coding.decode())
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        content: bytes = stream.read()
        return content


@pytest.mark.parametrize("coding", CODINGS)
def test_what_does_not_get_smaller_is_not_compressed(coding: bytes) -> None:
    assert compress(os.urandom(10_000), coding) is None
    assert compress(os.urandom(1 << 20), coding) is None
    text = msgspec.json.encode([os.urandom(16).hex() for _ in range(10_000)])
    compressed = compress(text, coding)
    assert compressed is not None
    assert unpacked(compressed, coding) == text


@pytest.mark.parametrize("coding", STREAM_CODINGS)
def test_every_piece_of_a_stream_can_be_read_before_the_next(coding: bytes) -> None:
    pieces = [b"a" * 100_000, b"b", os.urandom(200_000), b"[1,2,3]" * 50_000]
    packed = list(PieceEncoder(coding).encoded(iter(pieces)))
    assert unpacked(b"".join(packed), coding) == b"".join(pieces)
    assert len(packed) == len(pieces) + 1
    for count in range(1, len(pieces) + 1):
        got = b""
        with pa.CompressedInputStream(pa.BufferReader(b"".join(packed[:count])), coding.decode()) as stream:
            wanted = b"".join(pieces[:count])
            while len(got) < len(wanted):
                got += stream.read(len(wanted) - len(got))
        assert got == wanted


def test_an_encoder_makes_a_piece_when_it_is_asked_for() -> None:
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            made.append(number)
            yield b"x" * 1000

    for coding in STREAM_CODINGS:
        made.clear()
        encoded = PieceEncoder(coding).encoded(pieces())
        for count in range(1, 4):
            assert next(encoded)
            assert len(made) == count


# --- at the gate -----------------------------------------------------------------------------------------------


def gate_with(route: Route) -> Gate:
    return Gate(
        [route], keys=None, limits=Limits(), status=Status(ready=True), workers=Workers(), max_body_bytes=8 << 20
    )


def test_large_bodies_are_left_to_threads() -> None:
    """Neither direction keeps the loop from other requests."""

    async def main() -> None:
        seen: list[bytes] = []

        def handler(call: Call) -> Reply:
            seen.append(call.body)
            return Reply(call.body)

        gate = gate_with(Route(method="POST", path="/", handler=handler, body="any"))
        body = b"0123456789" * 100_000
        head = Head("POST", "/", "", {b"content-encoding": b"gzip", b"accept-encoding": b"gzip"})
        answered = ask_gate(gate, Call(head, gzip.compress(body), 0.0))
        assert not seen, "the loop has decompressed it"
        while not seen:
            await asyncio.sleep(0)
        assert seen == [body]
        assert answered.answer is None, "the loop has compressed it"
        compressed = await answered
        assert isinstance(compressed, Reply)
        assert (b"content-encoding", b"gzip") in compressed.headers
        assert gzip.decompress(compressed.body) == body

    asyncio.run(main())


class Held:
    """Something large."""


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_refused_request_leaves_nothing_in_memory(size: int) -> None:
    """Also with large bodies, whose refusal passes a thread, a task and the gate."""

    async def main() -> None:
        gone: list[weakref.ref[Held]] = []

        async def handler(call: Call) -> Reply:
            held = Held()
            gone.append(weakref.ref(held))
            raise Refusal(INVALID_REQUEST, f"not {held}")

        gate = gate_with(Route(method="POST", path="/", handler=handler, body="any"))
        head = Head("POST", "/", "", {b"content-encoding": b"gzip"})
        answered = await ask_gate(gate, Call(head, gzip.compress(b"x" * size), 0.0))
        assert answered.status == 400
        while gone[0]() is not None:
            await asyncio.sleep(0)

    gc.disable()
    try:
        asyncio.run(asyncio.wait_for(main(), 10))
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (b"application/json", True),
        (b"image/svg+xml", True),
        (b"image/png", False),
        (b"video/mp4", False),
        (b"application/zip", False),
    ],
)
def test_compressed_types_are_sent_as_they_are(content_type: bytes, expected: bool) -> None:
    reply = answered(Reply(b"x" * 2000, content_type=content_type), b"gzip")
    assert ((b"content-encoding", b"gzip") in reply.headers) == expected
    assert (VARY_ENCODING in reply.headers) == expected


def answered(reply: Reply, accept: bytes | None, method: str = "GET") -> Reply:
    """What the gate makes of a reply."""
    gate = gate_with(Route(method=method, path="/", handler=lambda _: reply))
    headers = {} if accept is None else {b"accept-encoding": accept}
    answer = ask_gate(gate, Call(Head(method, "/", "", headers), b"", 0.0)).answer
    assert isinstance(answer, Reply)
    return answer


@pytest.mark.parametrize("accept", [None, b"identity", b"gzip;q=0", b"gzip"])
def test_caches_learn_that_the_answer_depends_on_what_the_client_accepts(accept: bytes | None) -> None:
    large, small = Reply(b"x" * 2000), Reply(b"x" * 200)
    assert answered(large, accept).headers.count(VARY_ENCODING) == 1
    assert VARY_ENCODING not in answered(small, accept).headers
    assert answered(Reply(b"", 304), accept).headers == (VARY_ENCODING,)
    # No cache keeps these.
    assert VARY_ENCODING not in answered(large, None, "POST").headers
    assert VARY_ENCODING not in answered(Reply(b"x" * 2000, headers=(NO_STORE,)), None).headers


def test_what_the_handler_chose_stays() -> None:
    for headers in ((VARY_ENCODING,), (VARY_ENCODING, (b"content-encoding", b"gzip"))):
        reply = answered(Reply(b"x" * 2000, headers=headers), b"zstd, gzip")
        assert (reply.body, reply.headers) == (b"x" * 2000, headers)


def test_the_preferred_coding_is_used() -> None:
    for accept, coding in ((b"gzip, br, zstd", b"zstd"), (b"gzip, br", b"br"), (b"br;q=0.5, gzip", b"gzip")):
        reply = answered(Reply(b"x" * 2000), accept)
        assert (b"content-encoding", coding) in reply.headers
        assert unpacked(reply.body, coding) == b"x" * 2000


# --- over HTTP, in both lanes ----------------------------------------------------------------------------------


def test_many_members_are_refused_and_nobody_else_waits(server: ServerProcess, client: Client) -> None:
    began = perf_counter()
    headers = {"content-encoding": "gzip"}
    for path in ("/v0/topics/members", "/v1/stream/members", "/v1/traces"):
        response = client.request("POST", path, EMPTY * 52_428, headers=headers)
        assert response.status_code == 400
        assert "more than 1000 gzip members" in response.text
    assert client.http.get("/v0/health").status_code == 200
    # Each of them took seconds when what follows a member was copied for every member.
    assert perf_counter() - began < 5


def test_large_bodies_in_both_directions(client: Client) -> None:
    """Bodies above the size that is handled on the loop, also with further requests on the same connection."""
    data = [os.urandom(24).hex() for _ in range(3000)]
    body = gzip.compress(msgspec.json.encode({"records": [{"data": data}]}))
    assert len(body) > INLINE_BYTES
    for number in range(2):
        answer = client.call(
            "POST",
            "/v0/topics/both-ways",
            body,
            status=200 if number else 201,
            headers={"content-encoding": "gzip"},
        )
        assert answer["head_seq"] == number + 1
    response = client.request("POST", "/v0/topics/both-ways/diff", {}, headers={"accept-encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert [record["data"] for record in response.json()["records"]] == [data, data]


def test_bytes_that_do_not_compress_are_sent_as_they_are(client: Client) -> None:
    noise = os.urandom(200_000)
    headers = {"content-type": "application/octet-stream"}
    assert client.http.put("/v1/stream/noise", content=noise, headers=headers).status_code in (200, 201)
    response = client.http.get("/v1/stream/noise", headers={"accept-encoding": "gzip"})
    assert response.content == noise
    assert "content-encoding" not in response.headers


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("size", [2000, 300_000])
def test_every_coding_over_http(client: Client, coding: bytes, size: int) -> None:
    path = f"/v1/stream/coded-{coding.decode()}-{size}"
    assert client.http.put(path, content=b"x" * size, headers={"content-type": "text/plain"}).status_code in (200, 201)
    with client.http.stream("GET", path, headers={"accept-encoding": coding.decode()}) as response:
        body = b"".join(response.iter_raw())
    assert response.headers["content-encoding"] == coding.decode()
    assert response.headers["content-length"] == str(len(body))
    assert "accept-encoding" in response.headers["vary"]
    assert unpacked(body, coding) == b"x" * size


@pytest.fixture
def client(server: ServerProcess) -> Client:
    return server.client()
