"""What pages of allowed origins may send and read. Others are refused, see ``tests/server/test_cors.py``."""

from __future__ import annotations

from support.collections_in_process import MakeStand, opened


def test_pages_of_every_origin_may_be_invited(stand: MakeStand) -> None:
    server = stand(opened(), cors=("*",))
    hash = server.push("events", {}).json["hash"]
    assert server.pull("events", origin="https://a.example").headers == {
        "etag": f'"{hash}"',
        "access-control-allow-origin": "*",
        "access-control-expose-headers": "ETag, Retry-After",
        "cross-origin-resource-policy": "cross-origin",
    }
    assert server.pull("events", "").headers["access-control-allow-origin"] == "*", "errors are to be read too"


def test_pages_of_some_origins_may_be_invited(stand: MakeStand) -> None:
    server = stand(opened(), cors=("https://a.example", "https://b.example"))
    for origin in ("https://a.example", "https://b.example"):
        headers = server.pull("events", origin=origin).headers
        assert (headers["access-control-allow-origin"], headers["vary"]) == (origin, "origin")
    for origin in ("https://c.example", "https://a.example.evil", ""):
        assert "access-control-allow-origin" not in server.pull("events", origin=origin).headers


def test_a_browser_asks_first_what_requests_need(stand: MakeStand) -> None:
    server = stand(opened(), namespaces={"ns": (opened(),)}, cors=("https://a.example",))
    paths = ("/push/events", "/pull/events", "/live/events", "/list/x", "/batch/pull", "/config", "/v1/ns/push/events")
    for path in paths:
        answer = server.ask("OPTIONS", path, origin="https://a.example")
        assert answer.status == 204
        assert answer.headers["access-control-max-age"] == "86400"
        allowed = {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
        assert allowed >= {
            "authorization", "content-type", "x-starfish-sig", "x-starfish-ts", "x-starfish-nonce", "x-starfish-pub",
            "x-requested-with", "content-encoding", "last-event-id",
        }  # fmt: skip
        stranger = server.ask("OPTIONS", path, origin="https://c.example")
        assert "access-control-allow-headers" not in stranger.headers
