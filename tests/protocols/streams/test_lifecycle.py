"""PUT and DELETE /v1/stream/{name}: what is made, what is the same, what is refused, and what is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.server_process import StartServer
from support.streams_client import JSON, START, TEXT, StreamsClient
from support.streams_in_process import HandServer, by_hand

SECOND = "0000000000000000000G000000"


def test_a_new_stream_answers_what_it_is_and_where(streams: StreamsClient, name: str) -> None:
    response = streams.create(name, "Text/Plain; charset=latin-1")
    assert response.headers["content-type"] == "Text/Plain; charset=latin-1"
    assert response.headers["location"] == f"{streams.url}/v1/stream/{name}"
    assert response.headers["stream-next-offset"] == START
    assert response.content == b""
    assert "stream-closed" not in response.headers
    assert "stream-ttl" not in response.headers
    assert "stream-expires-at" not in response.headers


FORWARDED = {
    "x-forwarded-proto": "https", "x-forwarded-host": "streams.example", "forwarded": "host=evil.example;proto=https",
}  # fmt: skip


def test_what_a_client_says_of_a_proxy_is_ignored(streams: StreamsClient, name: str) -> None:
    response = streams.request("PUT", f"{name}%2Fone", headers=FORWARDED)
    assert response.headers["location"] == f"{streams.url}/v1/stream/{name}%2Fone"


@pytest.mark.parametrize(("proxies", "trusted"), [("127.0.0.0/8", True), ("10.0.0.0/8, ::1", False)])
def test_what_a_trusted_proxy_says_counts(start_server: StartServer, lane: str, proxies: str, trusted: bool) -> None:
    server = start_server(lane=lane, trusted_proxies=proxies, allowed_hosts="streams.example")
    client = StreamsClient(server.url)
    response = client.request("PUT", "one", headers=FORWARDED)
    assert response.headers["location"] == f"{'https://streams.example' if trusted else client.url}/v1/stream/one"
    # Its word on the host is held against the allowed hosts, too.
    evil = {**FORWARDED, "x-forwarded-host": "evil.example"}
    for method in ("GET", "PUT"):
        assert client.request(method, "one", headers=evil).status_code == (403 if trusted else 200)
    client.close()


def test_without_a_content_type_it_holds_bytes(streams: StreamsClient, name: str) -> None:
    assert streams.create(name, None).headers["content-type"] == "application/octet-stream"
    assert streams.request("PUT", name).status_code == 200
    assert streams.request("PUT", name, headers={"content-type": "application/octet-stream"}).status_code == 200


@pytest.mark.parametrize("content_type", ["json", "text/", "/plain", "text plain"])
def test_what_is_no_content_type_is_refused(streams: StreamsClient, name: str, content_type: str) -> None:
    streams.refused(400, "PUT", name, headers={"content-type": content_type}, code="bad_request")
    assert streams.request("HEAD", name).status_code == 404


def test_first_records_come_with_the_stream(streams: StreamsClient, name: str) -> None:
    response = streams.create(name, JSON, [{"a": 1}, [2], "3"], stream_key="k")
    assert response.headers["stream-next-offset"] == streams.read(name).headers["stream-next-offset"]
    assert streams.values(name) == [{"a": 1}, [2], "3"]
    assert streams.values(name, key="k") == [{"a": 1}, [2], "3"]
    assert streams.values(name, key="l") == []


def test_an_empty_array_makes_an_empty_stream(streams: StreamsClient, name: str) -> None:
    assert streams.create(name, JSON, []).headers["stream-next-offset"] == START
    assert streams.values(name) == []


def test_the_same_again_is_fine_and_its_body_counts_for_nothing(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "one", stream_ttl="3600")
    headers = {"content-type": "TEXT/plain;charset=utf-8", "stream-ttl": "60m"}
    response = streams.request("PUT", name, "two", headers=headers)
    assert response.status_code == 200
    assert response.headers["content-type"] == TEXT
    assert response.headers["stream-next-offset"] == SECOND
    assert response.headers["stream-ttl"] == "3600"
    assert "location" not in response.headers
    assert streams.read(name).text == "one"


@pytest.mark.parametrize(
    "other",
    [
        {"content-type": JSON, "stream-ttl": "60"},
        {"content-type": TEXT},
        {"content-type": TEXT, "stream-ttl": "61"},
        {"content-type": TEXT, "stream-expires-at": "2099-01-01T00:00:00Z"},
        {"content-type": TEXT, "stream-ttl": "60", "stream-closed": "true"},
    ],
)
def test_another_stream_of_the_name_is_a_conflict(streams: StreamsClient, name: str, other: dict[str, str]) -> None:
    streams.create(name, TEXT, stream_ttl="60")
    streams.refused(409, "PUT", name, headers=other, code="conflict")


def test_expiry_is_the_same_if_the_instant_is(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, stream_expires_at="2099-01-01T00:00:00Z")
    for same in ("2099-01-01T01:00:00+01:00", "2099-01-01T00:00:00.000Z", "4070908800000000000"):
        headers = {"content-type": TEXT, "stream-expires-at": same}
        assert streams.request("PUT", name, headers=headers).status_code == 200
    headers = {"content-type": TEXT, "stream-expires-at": "2099-01-01T00:00:00.001Z"}
    streams.refused(409, "PUT", name, headers=headers)


def test_closed_and_open_are_not_the_same(streams: StreamsClient, name: str) -> None:
    response = streams.create(name, TEXT, "all", stream_closed="TRUE")
    assert response.headers["stream-closed"] == "true"
    again = streams.request("PUT", name, headers={"content-type": TEXT, "stream-closed": "true"})
    assert (again.status_code, again.headers["stream-closed"]) == (200, "true")
    streams.refused(409, "PUT", name, headers={"content-type": TEXT})
    # Any other value is as if there were none.
    streams.refused(409, "PUT", name, headers={"content-type": TEXT, "stream-closed": "yes"})
    assert streams.read(name).headers["stream-closed"] == "true"


def test_a_stream_that_another_value_than_true_is_said_of_is_open(streams: StreamsClient, name: str) -> None:
    assert "stream-closed" not in streams.create(name, TEXT, stream_closed="1").headers
    streams.append(name, "more", TEXT)


@pytest.mark.parametrize(
    "headers",
    [
        {"stream-ttl": "60", "stream-expires-at": "2099-01-01T00:00:00Z"},
        {"stream-ttl": "1.5"},
        {"stream-ttl": "1500ms"},
        {"stream-ttl": ""},
        {"stream-expires-at": "tomorrow"},
        {"stream-expires-at": ""},
        {"stream-fork-offset": START},
        {"stream-fork-sub-offset": "0"},
        {"stream-key": "k" * 1025},
    ],
)
def test_a_bad_header_is_refused_and_makes_nothing(streams: StreamsClient, name: str, headers: dict[str, str]) -> None:
    streams.refused(400, "PUT", name, "[]", headers={"content-type": JSON, **headers}, code="bad_request")
    assert streams.request("HEAD", name).status_code == 404


def test_a_bad_header_comes_before_a_conflict(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT)
    streams.refused(400, "PUT", name, headers={"content-type": JSON, "stream-ttl": "x"})


def test_a_time_that_has_passed_makes_a_stream_that_is_gone(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "x", stream_expires_at="2001-01-01T00:00:00Z")
    assert streams.request("HEAD", name).status_code == 404
    streams.create(name, JSON, stream_ttl="0")
    assert streams.request("GET", name).status_code == 404
    streams.create(name, TEXT)


def test_a_stream_that_was_deleted_is_made_anew(streams: StreamsClient, name: str) -> None:
    streams.create(name, TEXT, "old")
    streams.append(name, "older", TEXT, stream_seq="9", producer_id="p", producer_epoch="4", producer_seq="0")
    assert streams.request("DELETE", name).status_code == 204
    assert streams.create(name, JSON, [1]).headers["stream-next-offset"] == SECOND
    assert streams.values(name) == [1]
    # Nothing of the old one is remembered: neither sequences nor producers.
    streams.append(name, 2, stream_seq="1")
    headers = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
    assert streams.append(name, 3, **headers).status_code == 200
    assert streams.values(name) == [1, 2, 3]


def test_streams_of_the_server_cannot_be_made(streams: StreamsClient) -> None:
    streams.refused(400, "PUT", "_mine", code="bad_request")
    streams.refused(403, "PUT", "__stream_metrics__", code="forbidden")


# --- DELETE -----------------------------------------------------------------------------------------------------------


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
