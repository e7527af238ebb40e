"""How much and how long: bodies, appends that wait for the disk, streams there may be, a server that stops."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support.raw_http import RawConnection, request
from support.server_process import StartServer
from support.streams_client import TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand
from support.topics_client import eventually

from strandline.protocols.streams.offsets import encode

pytestmark = pytest.mark.both_lanes

LIMIT = 10 << 20


def test_a_body_may_have_so_many_bytes(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    streams.append(name, b"x" * LIMIT, TEXT)
    for method, path in (("POST", name), ("PUT", f"{name}-new")):
        body = b"x" * (LIMIT + 1)
        streams.refused(413, method, path, body, headers={"content-type": TEXT}, code="payload_too_large")
    assert streams.request("HEAD", f"{name}-new").status_code == 404
    assert len(streams.read(name).content) == LIMIT


def test_a_body_that_unpacks_to_too_much_is_refused(streams: StreamsClient, name: str) -> None:
    import gzip

    streams.create(name, TEXT)
    headers = {"content-type": TEXT, "content-encoding": "gzip"}
    small = gzip.compress(b"x" * (LIMIT + 1))
    streams.refused(413, "POST", name, small, headers=headers, code="payload_too_large")
    large = gzip.compress(b"x" * (70 << 20))
    streams.refused(413, "POST", name, large, headers=headers, code="payload_too_large")


def test_the_bound_can_be_set(start_server: StartServer, lane: str) -> None:
    streams = StreamsClient(start_server(lane=lane, max_append_bytes=10, max_body_bytes=1000).url)
    streams.create("s", TEXT, "0123456789")
    streams.append("s", "0123456789", TEXT)
    for size in (11, 1000, 1001, 5000):
        streams.refused(413, "POST", "s", "x" * size, headers={"content-type": TEXT}, code="payload_too_large")

    def chunks() -> object:
        for _ in range(50):
            yield b"x" * 100

    response = streams.http.post("/v1/stream/s", content=chunks(), headers={"content-type": TEXT})  # type: ignore[arg-type]
    assert (response.status_code, response.json()["error"]["code"]) == (413, "payload_too_large")
    assert response.headers["cache-control"] == "no-store"
    streams.close()


def test_an_append_can_be_larger_than_sixteen_mebibytes(start_server: StartServer, lane: str, tmp_path: Path) -> None:
    size = 20 << 20
    server = start_server(lane=lane, max_append_bytes=size, max_body_bytes=size, data=tmp_path / "data")
    streams = StreamsClient(server.url)
    body = b"x" * size
    streams.create("one", TEXT, body)
    streams.append("one", body, TEXT)
    streams.create("json")
    streams.append("json", b'["%b"]' % body[:-4])
    streams.refused(413, "POST", "one", body + b"x", headers={"content-type": TEXT}, code="payload_too_large")
    streams.close()
    server.stop()
    server.start()
    streams = StreamsClient(server.url)
    assert streams.read("one").content == body + body
    assert streams.read("json").content == b'["%b"]' % body[:-4]
    streams.close()


def test_there_may_be_so_many_streams(start_server: StartServer, lane: str) -> None:
    streams = StreamsClient(start_server(lane=lane, max_streams=5, metrics_flush_ms=0).url)
    made = 0
    while (response := streams.request("PUT", f"s{made}", headers={"content-type": TEXT})).status_code == 201:
        made += 1
    assert 3 <= made <= 5
    assert (response.status_code, response.json()["error"]["code"]) == (429, "overloaded")
    assert response.headers["retry-after"] == "1"
    # What is there can be used, and asked for again.
    assert streams.request("PUT", "s0", headers={"content-type": TEXT}).status_code == 200
    streams.append("s0", "x", TEXT)
    fork = {"stream-forked-from": "/v1/stream/s0"}
    streams.refused(429, "PUT", "fork", headers=fork, code="overloaded")
    streams.request("DELETE", "s1")
    streams.create("fork", None, stream_forked_from="/v1/stream/s0")
    streams.close()


def test_an_append_that_takes_too_long_is_answered_without_its_outcome(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        append = server.ask("POST", "s", b"x", TEXT)
        closing = server.ask("POST", "s", stream_closed="true")
        await server.later(2.9)
        assert (append.status, closing.status) == (None, None)
        await server.later(0.3)
        assert (append.status, append.code) == (408, "append_timeout")
        assert (closing.status, closing.code) == (408, "append_timeout")
        assert "unknown" in append.body.decode()
        assert append.headers["cache-control"] == "no-store"
        # It is journaled all the same, and there once the disk has it.
        assert server.context.appends.count == 2
        await server.flush()
        read = server.ask("GET", "s")
        assert (read.body, read.headers["stream-closed"]) == (b"x", "true")
        assert (server.context.appends.count, server.context.appends.size) == (0, 0)

    by_hand(tmp_path, test)


def test_a_stream_that_takes_too_long_to_be_made_is_there_in_the_end(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        making = server.ask("PUT", "s", b"x", TEXT)
        await server.later(3.2)
        assert (making.status, making.code) == (408, "append_timeout")
        await server.flush()
        assert (await server.done("PUT", "s", b"", TEXT)).status == 200
        assert server.ask("GET", "s").body == b"x"

    by_hand(tmp_path, test)


def test_a_retry_of_what_took_too_long_is_recognised(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        producer = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
        first = server.ask("POST", "s", b"x", TEXT, **producer)
        await server.later(3.2)
        assert first.status == 408
        assert (await server.done("POST", "s", b"x", TEXT, **producer)).status == 204
        assert server.ask("GET", "s").body == b"x"

    by_hand(tmp_path, test)


@pytest.mark.parametrize("settings", [{"max_waiting_appends": 3}, {"max_waiting_bytes": 30}])
def test_while_too_much_waits_for_the_disk_others_are_sent_away(tmp_path: Path, settings: dict[str, int]) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", content_type=TEXT)
        await server.done("PUT", "t", content_type=TEXT)
        waiting = [server.ask("POST", "s", b"0123456789", TEXT) for _ in range(3)]
        for name in ("s", "t"):
            refused = server.ask("POST", name, b"x", TEXT)
            assert (refused.status, refused.code) == (429, "overloaded")
            assert refused.headers["retry-after"] == "1"
        # Reading goes on.
        assert server.ask("GET", "s").status == 200
        assert [each.status for each in waiting] == [None] * 3
        # Appends of one turn are made together, when it ends.
        await server.turns()
        await server.flush()
        assert [each.status for each in waiting] == [204] * 3
        assert (await server.done("POST", "t", b"x", TEXT)).status == 204
        assert len(server.ask("GET", "s").body) == 30

    by_hand(tmp_path, test, **settings)


def test_a_server_that_stops_says_so(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane)
    streams = StreamsClient(server.url)
    streams.create("s", TEXT)
    body = b"0123456789"
    whole = request("POST", "/v1/stream/s", None, f"content-type: {TEXT}", f"content-length: {len(body)}") + body
    with RawConnection(server.url) as upload:
        upload.send(request("GET", "/v1/stream/s"))
        upload.answer()
        upload.send(whole[:-1])
        # By the time that this is answered the server has looked at what came before.
        streams.read("s")
        streams.close()
        server.terminate()

        def stopping() -> bool:
            headers = {"origin": "http://localhost:5173"}
            response = httpx.get(f"{server.url}/v1/stream/s", headers=headers, trust_env=False, verify=False)
            if response.status_code != 503:
                return False
            assert response.json()["error"]["code"] == "unavailable"
            assert response.headers["retry-after"] == "5"
            assert response.headers["access-control-allow-origin"] == headers["origin"]
            return True

        eventually(stopping)
        # What was on its way is taken.
        upload.send(whole[-1:])
        assert upload.answer(has_body=False)[0].startswith(b"HTTP/1.1 204")
    assert server.wait() == 0
    streams = StreamsClient(server.start().url)
    assert streams.read("s").content == body
    streams.close()


def test_pages_can_be_smaller(tmp_path: Path) -> None:
    async def test(server: HandServer) -> None:
        await server.done("PUT", "s", b'["1234","5678","9","0000000000000000"]')
        offset, pages = "-1", list[bytes]()
        while offset != encode(4):
            page = server.ask("GET", f"s?offset={offset}")
            pages.append(page.body)
            offset = page.headers["stream-next-offset"]
        assert pages == [b'["1234"]', b'["5678","9"]', b'["0000000000000000"]']

    by_hand(tmp_path, test, read_max_bytes=10, catch_up_max_bytes=1)
