"""DELETE /v1/stream/{name}."""

from __future__ import annotations

from pathlib import Path

from support.streams_client import JSON, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand


def test_what_is_deleted_is_not_there(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x")
    response = streams.request("DELETE", name)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["cache-control"] == "no-store"
    assert streams.request("HEAD", name).status_code == 404
    streams.refused(404, "GET", name, code="not_found")
    streams.refused(404, "POST", name, "x", headers={"content-type": TEXT}, code="not_found")
    streams.refused(404, "GET", f"{name}/_schema", code="not_found")


def test_deleting_again_is_no_error_and_deleting_nothing_is(streams: StreamsClient, name: str) -> None:
    streams.refused(404, "DELETE", name, code="not_found")
    streams.create(name, TEXT)
    assert [streams.request("DELETE", name).status_code for _ in range(3)] == [204, 204, 204]
    streams.create(name, JSON)
    assert streams.request("DELETE", name).status_code == 204


def test_a_stream_that_has_expired_was_not_deleted(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, stream_ttl="0")
    streams.refused(404, "DELETE", name, code="not_found")


def test_what_was_deleted_stays_so(tmp_path: Path) -> None:
    async def first(server: HandServer) -> None:
        await server.done("PUT", "s", b"old", TEXT)
        await server.done("DELETE", "s")
        await server.done("PUT", "t", b"old", TEXT)
        await server.done("DELETE", "t")
        await server.done("PUT", "t", b"new", TEXT)

    async def second(server: HandServer) -> None:
        assert (await server.done("HEAD", "s")).status == 404
        assert server.ask("GET", "t").body == b"new"

    by_hand(tmp_path, first, second)


def test_the_servers_own_streams_cannot_be_deleted_or_written(streams: StreamsClient) -> None:
    own = "__stream_metrics__"
    streams.refused(403, "DELETE", own, code="forbidden")
    streams.refused(403, "POST", own, "[1]", headers={"content-type": JSON}, code="forbidden")
    streams.refused(403, "POST", f"{own}/_schema", {"routingKey": None}, code="forbidden")
    streams.refused(403, "POST", f"{own}/_profile", {"profile": {"kind": "generic"}}, code="forbidden")
    streams.refused(400, "DELETE", "__routers__", code="bad_request")
