"""What browsers need: CORS, preflights, and headers on every answer."""

from __future__ import annotations

import httpx
import pytest
from support.server_process import StartServer
from support.streams_client import JSON, TEXT, StreamsClient

KEY = "a-long-secret"
#: A page of this machine, which may use a server on this machine.
PAGE = "http://localhost:5173"
#: A page of another one, which may not.
STRANGER = "https://app.example"
PREFLIGHT = {"origin": PAGE, "access-control-request-method": "PUT"}


def check(response: httpx.Response) -> None:
    headers = response.headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["access-control-allow-origin"] == PAGE
    assert "origin" in headers.get_list("vary")
    assert headers["cross-origin-resource-policy"] == "same-origin"
    exposed = {name.strip().lower() for name in headers["access-control-expose-headers"].split(",")}
    assert {"stream-next-offset", "stream-cursor", "stream-up-to-date", "stream-closed", "etag"} <= exposed
    told = {name for name in headers if name.startswith(("stream-", "producer-"))}
    assert told <= exposed, "a header that no page can read"


def test_every_answer_can_be_read_by_an_allowed_page(streams: StreamsClient, name: str) -> None:
    streams = StreamsClient(streams.url)
    streams.http.headers["origin"] = PAGE
    check(streams.create(name, TEXT, "x", stream_ttl="1h"))
    check(streams.request("PUT", name, headers={"content-type": TEXT, "stream-ttl": "1h"}))
    producer = {"producer_id": "p", "producer_epoch": "1", "producer_seq": "0"}
    check(streams.append(name, "y", TEXT, stream_seq="5", **producer))
    for headers in ({"stream-seq": "1"}, {"producer-id": "p", "producer-epoch": "1", "producer-seq": "9"}, {}):
        check(streams.request("POST", name, "y", headers={"content-type": TEXT, **headers}))
    read = streams.read(name)
    check(read)
    check(streams.request("GET", name, headers={"if-none-match": read.headers["etag"]}))
    check(streams.request("HEAD", name))
    check(streams.request("GET", name, params={"live": "long-poll", "offset": "now", "timeout": "1"}))
    check(streams.request("GET", name, params={"offset": "bad"}))
    check(streams.request("POST", name, headers={"stream-closed": "true"}))
    check(streams.request("POST", name, "x", headers={"content-type": TEXT}))
    check(streams.request("GET", f"{name}/_schema"))
    with streams.http.stream("GET", f"/v1/stream/{name}?live=sse&offset=-1") as response:
        check(response)
    check(streams.request("DELETE", name))
    check(streams.request("GET", name))
    streams.close()


@pytest.mark.parametrize("path", ["", "/pk/k", "/_schema", "/_search", "/_profile", "/_otlp/v1/traces"])
def test_a_preflight_says_what_may_be_sent(streams: StreamsClient, name: str, path: str) -> None:
    response = streams.request("OPTIONS", name + path, headers=PREFLIGHT)
    assert (response.status_code, response.content) == (204, b"")
    check(response)
    methods = {method.strip() for method in response.headers["access-control-allow-methods"].split(",")}
    assert {"GET", "POST", "PUT", "DELETE", "HEAD"} <= methods
    allowed = {name.strip().lower() for name in response.headers["access-control-allow-headers"].split(",")}
    assert allowed >= {
        "content-type", "authorization", "if-none-match", "stream-seq", "stream-ttl", "stream-expires-at",
        "stream-closed", "stream-compact", "stream-key", "stream-timestamp", "producer-id", "producer-epoch",
        "producer-seq", "stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset",
    }  # fmt: skip
    assert int(response.headers["access-control-max-age"]) > 0


def test_a_preflight_needs_no_key_and_an_allowed_origin(start_server: StartServer, lane: str) -> None:
    server = start_server(lane=lane, keys=f"{KEY}:rw")
    stranger = StreamsClient(server.url)
    response = stranger.request("OPTIONS", "s", headers=PREFLIGHT)
    assert response.status_code == 204
    check(response)
    response = stranger.request("OPTIONS", "s", headers={**PREFLIGHT, "origin": STRANGER})
    assert response.status_code == 204
    assert not [name for name in response.headers if name.startswith("access-control-")]
    # A browser may ask without a key, and do nothing without one.
    for method in ("PUT", "POST", "GET", "HEAD", "DELETE"):
        assert stranger.request(method, "s", headers={"content-type": JSON}).status_code == 401
    check(stranger.request("GET", "s", headers={"origin": PAGE}))
    stranger.close()


@pytest.mark.parametrize(
    ("content_type", "saved"),
    [
        ("text/html", True), ("TEXT/HTML; charset=utf-8", True), ("image/svg+xml", True), ("application/xml", True),
        ("application/xhtml+xml", True), ("text/javascript", True), ("application/pdf", True),
        ("text/plain", False), ("image/png", False), (JSON, False),
    ],
)  # fmt: skip
def test_a_stored_page_cannot_run_scripts(streams: StreamsClient, name: str, content_type: str, saved: bool) -> None:
    streams.create(name, content_type, "1")
    for params in ({}, {"offset": "now"}, {"offset": "-1", "live": "long-poll"}, {"offset": "bad"}):
        response = streams.request("GET", name, params=params)
        policy = response.headers["content-security-policy"]
        assert policy == "default-src 'none'; sandbox; frame-ancestors 'none'"
        assert response.headers["x-content-type-options"] == "nosniff"
        if response.is_success and response.content.strip(b"[]"):
            assert response.headers.get("content-disposition") == ("attachment" if saved else None)
    with streams.http.stream("GET", f"/v1/stream/{name}?live=sse&offset=-1") as response:
        assert "sandbox" in response.headers["content-security-policy"]
