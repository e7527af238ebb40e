"""gzip in both directions: in linear time, within bounds, and large bodies off the event loop."""

from __future__ import annotations

import asyncio
import gzip
import os
from time import perf_counter

import msgspec
import pytest
from support.gate_calls import ask_gate
from support.server_process import ServerProcess
from support.topics_client import Client

from strandline.server.compression import INLINE_BYTES, MAX_MEMBERS, NotSmall, compress, decompress, decompress_small
from strandline.server.gate import Gate, Status
from strandline.service.http import Call, Head, Reply, Route
from strandline.service.limits import Limits
from strandline.service.problems import Refusal
from strandline.service.workers import Workers

pytestmark = pytest.mark.both_lanes

EMPTY = gzip.compress(b"", mtime=0)
LIMIT = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 100, 16 << 10, (16 << 10) + 1, 300_000])
def test_what_was_compressed_comes_back(size: int) -> None:
    body = os.urandom(size // 2) + b"x" * (size - size // 2)
    assert decompress(gzip.compress(body), LIMIT) == body
    assert decompress(gzip.compress(body[:7]) + EMPTY + gzip.compress(body[7:]), LIMIT) == body


def test_as_many_members_as_are_allowed() -> None:
    assert decompress(gzip.compress(b"a") * MAX_MEMBERS, LIMIT) == b"a" * MAX_MEMBERS
    with pytest.raises(Refusal, match=f"more than {MAX_MEMBERS} gzip members") as refused:
        decompress(EMPTY * (MAX_MEMBERS + 1), LIMIT)
    assert refused.value.status == 400


def test_the_time_is_linear_in_the_size_of_the_data() -> None:
    """A member at a time, in front of data that grows: copying the rest for each of them would be quadratic."""
    members = gzip.compress(b"a") * (MAX_MEMBERS - 1)
    body = os.urandom(32 << 20)
    last = gzip.compress(body, 0)
    began = perf_counter()
    assert len(decompress(members + last, 64 << 20)) == len(body) + MAX_MEMBERS - 1
    # Copying 32 MiB a thousand times takes several seconds on any machine.
    assert perf_counter() - began < 3


@pytest.mark.parametrize("limit", [0, 1, 999, 1000, 1001, 100_000])
def test_the_limit_is_on_what_is_decompressed(limit: int) -> None:
    for data in (gzip.compress(b"x" * 1000), gzip.compress(b"x") * 1000):
        if limit >= 1000:
            assert len(decompress(data, limit)) == 1000
        else:
            with pytest.raises(Refusal) as refused:
                decompress(data, limit)
            assert refused.value.status == 413


@pytest.mark.parametrize(
    "data",
    [b"", b"x", EMPTY[:-1], EMPTY + b"x", EMPTY + EMPTY[:5]],
    ids=["nothing", "text", "cut off", "text after it", "the second cut off"],
)
def test_what_is_not_gzip_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal, match="the body is not valid gzip: ") as refused:
        decompress(data, LIMIT)
    assert refused.value.status == 400


def test_the_loop_decompresses_only_what_is_small() -> None:
    assert decompress_small(gzip.compress(b"x" * INLINE_BYTES), LIMIT) == b"x" * INLINE_BYTES
    for body in (b"x" * (INLINE_BYTES + 1), os.urandom(INLINE_BYTES)):
        with pytest.raises(NotSmall):
            decompress_small(gzip.compress(body), LIMIT)
    with pytest.raises(NotSmall):
        decompress_small(EMPTY + EMPTY, LIMIT)


def test_what_does_not_get_smaller_is_not_compressed() -> None:
    assert compress(os.urandom(10_000)) is None
    assert compress(os.urandom(1 << 20)) is None
    text = msgspec.json.encode([os.urandom(16).hex() for _ in range(10_000)])
    compressed = compress(text)
    assert compressed is not None
    assert gzip.decompress(compressed) == text


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
    gate = gate_with(Route(method="GET", path="/", handler=lambda _: Reply(b"x" * 2000, content_type=content_type)))
    reply = ask_gate(gate, Call(Head("GET", "/", "", {b"accept-encoding": b"gzip"}), b"", 0.0)).answer
    assert isinstance(reply, Reply)
    assert ((b"content-encoding", b"gzip") in reply.headers) == expected


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


@pytest.fixture
def client(server: ServerProcess) -> Client:
    return server.client()
