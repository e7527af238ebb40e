"""GET _routing_keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.streams_client import StreamsClient
from support.streams_handlers import Stand, at_stand, body_of

from strandline.schema.registry import Registry
from strandline.schema.routing import RoutingKey

JSON_TYPE = {"content-type": "application/json"}


@pytest.fixture
def stream(streams: StreamsClient, name: str) -> str:
    streams.create(name)
    routing = {"routingKey": {"jsonPointer": "/user", "required": False}}
    assert streams.request("POST", f"{name}/_schema", routing, headers=JSON_TYPE).status_code == 200
    return name


def keys(streams: StreamsClient, name: str, **query: Any) -> dict[str, Any]:
    response = streams.request("GET", f"{name}/_routing_keys", params=query)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    found: dict[str, Any] = response.json()
    return found


def test_the_whole_answer(streams: StreamsClient, stream: str) -> None:
    streams.append(stream, [{"user": "b"}, {"user": "a"}, {"user": "b"}, {"other": 1}])
    found = keys(streams, stream)
    assert found.pop("took_ms") >= 0
    timing = found.pop("timing")
    assert list(timing) == [
        "lexicon_run_get_ms", "lexicon_decode_ms", "lexicon_enumerate_ms", "lexicon_merge_ms", "fallback_scan_ms",
        "fallback_segment_get_ms", "fallback_wal_scan_ms", "lexicon_runs_loaded",
    ]  # fmt: skip
    assert all(value >= 0 for value in timing.values())
    assert found == {
        "stream": stream,
        "source": {"kind": "routing_key", "name": ""},
        "coverage": {
            "complete": True,
            "indexed_segments": 0,
            "scanned_uploaded_segments": 0,
            "scanned_local_segments": 0,
            "scanned_wal_rows": 4,
            "possible_missing_uploaded_segments": 0,
            "possible_missing_local_segments": 0,
        },
        "keys": ["a", "b"],
        "next_after": None,
    }


def test_pages_have_every_key_once_and_the_last_says_so(streams: StreamsClient, stream: str) -> None:
    streams.append(stream, [{"user": f"{number % 7}"} for number in range(50)])
    seen: list[str] = []
    after: dict[str, Any] = {}
    while True:
        page = keys(streams, stream, limit=3, **after)
        seen += page["keys"]
        if page["next_after"] is None:
            break
        assert page["next_after"] == page["keys"][-1]
        after = {"after": page["next_after"]}
    assert seen == [str(number) for number in range(7)]
    assert keys(streams, stream, after="9")["next_after"] is None


def test_a_stream_without_a_routing_key_has_no_list_of_them(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    message = streams.refused(400, "GET", f"{name}/_routing_keys", code="bad_request")
    assert message == "routing key not configured"


@pytest.mark.parametrize("limit", ["0", "501", "-1", "x", "1.5", ""])
def test_a_limit_out_of_range_is_refused(streams: StreamsClient, stream: str, limit: str) -> None:
    assert "limit" in streams.refused(400, "GET", f"{stream}/_routing_keys?limit={limit}", code="bad_request")


def test_a_stream_that_is_not_there_is_not_found(streams: StreamsClient, name: str) -> None:
    streams.refused(404, "GET", f"{name}/_routing_keys", code="not_found")


def test_sealed_keys_come_from_the_index_of_their_segment(tmp_path: Path) -> None:
    async def test(stand: Stand) -> None:
        stream = stand.create("a")
        registry = Registry.installed("a", {"type": "object"}, routing_key=RoutingKey("/user", False))
        stream.log.note({"registry": registry.stored()}).wait()
        stand.append(stream, {"user": "x"}, key="x")
        stand.engine.seal()
        stand.append(stream, {"user": "w"}, key="w")
        found = body_of(await stand.face.routing_keys.get(stand.call(name="a")))
        assert found["keys"] == ["w", "x"]
        assert found["coverage"]["indexed_segments"] == 1
        assert found["coverage"]["scanned_wal_rows"] == 1
        assert found["timing"]["lexicon_runs_loaded"] == 1

    at_stand(tmp_path, test)
