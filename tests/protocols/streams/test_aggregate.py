"""_aggregate over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from support.streams_client import StreamsClient

JSON_TYPE = {"content-type": "application/json"}


def field(kind: str, pointer: str, **flags: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": pointer}], **flags}


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "fields": {
        "at": field("date", "/at", column=True, exact=True),
        "service": field("keyword", "/service", normalizer="lowercase_v1", exact=True),
        "status": field("integer", "/status", exact=True, column=True),
        "took": field("float", "/took", column=True, aggregatable=True),
    },
    "rollups": {
        "requests": {
            "dimensions": ["service"],
            "intervals": ["1m", "5m"],
            "measures": {
                "requests": {"kind": "count"},
                "errors": {"kind": "count", "include": "status:>=500"},
                "latency": {"kind": "summary", "field": "took", "histogram": "log2_v1"},
            },
        }
    },
}
BODY: dict[str, Any] = {
    "rollup": "requests", "from": "2026-03-25T10:00:30Z", "to": "2026-03-25T10:02:30Z", "interval": "1m",
}  # fmt: skip


def entry(time: str, service: str, status: int, took: float) -> dict[str, Any]:
    return {"at": f"2026-03-25T{time}Z", "service": service, "status": status, "took": took}


@pytest.fixture
def stream(streams: StreamsClient, name: str) -> str:
    streams.create(name)
    response = streams.request("POST", f"{name}/_schema", {"schema": {}, "search": SEARCH}, headers=JSON_TYPE)
    assert response.status_code == 200, response.text
    entries = [
        entry("10:00:29", "api", 200, 1), entry("10:00:30", "API", 200, 120), entry("10:01:59", "web", 503, 3.5),
        entry("10:02:29.999", "api", 500, 64), entry("10:02:30", "api", 200, 1), {"at": "2026-03-25T10:01:00Z"}, 5,
    ]  # fmt: skip
    streams.append(name, entries)
    return name


def aggregate(streams: StreamsClient, name: str, **body: Any) -> dict[str, Any]:
    response = streams.request("POST", f"{name}/_aggregate", {**BODY, **body}, headers=JSON_TYPE)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_the_response_has_every_field(streams: StreamsClient, stream: str) -> None:
    end = streams.request("HEAD", stream).headers["stream-next-offset"]
    answer = aggregate(streams, stream, group_by=["service"])
    coverage = answer.pop("coverage")
    buckets = answer.pop("buckets")
    assert answer == {
        "stream": stream,
        "rollup": "requests",
        "from": "2026-03-25T10:00:30.000Z",
        "to": "2026-03-25T10:02:30.000Z",
        "interval": "1m",
    }
    assert coverage == {
        "mode": "complete",
        "complete": True,
        "stream_head_offset": end,
        "visible_through_offset": end,
        "visible_through_primary_timestamp_max": "2026-03-25T10:02:30.000Z",
        "oldest_omitted_append_at": None,
        "possible_missing_events_upper_bound": 0,
        "possible_missing_uploaded_segments": 0,
        "possible_missing_sealed_rows": 0,
        "possible_missing_wal_rows": 0,
        "used_rollups": False,
        "indexed_segments": 1,
        "scanned_segments": 0,
        "scanned_tail_docs": 7,
        "index_families_used": ["col"],
    }
    assert [bucket["start"] for bucket in buckets] == [f"2026-03-25T10:0{minute}:00.000Z" for minute in range(3)]
    assert [bucket["end"] for bucket in buckets] == [f"2026-03-25T10:0{minute}:00.000Z" for minute in range(1, 4)]
    assert buckets[0]["groups"] == [
        {
            "key": {"service": "api"},
            "measures": {
                "errors": {"count": 0},
                "latency": {
                    "count": 1, "sum": 120, "min": 120, "max": 120, "avg": 120, "p50": 64, "p95": 64, "p99": 64,
                    "histogram": {"64": 1},
                },
                "requests": {"count": 1},
            },
        }
    ]  # fmt: skip
    assert buckets[1]["groups"][0]["measures"]["errors"] == {"count": 1}


def test_groups_measures_and_queries_narrow_it_down(streams: StreamsClient, stream: str) -> None:
    buckets = aggregate(streams, stream, q="service:api", measures=["requests"], interval="5m")["buckets"]
    assert buckets == [
        {
            "start": "2026-03-25T10:00:00.000Z",
            "end": "2026-03-25T10:05:00.000Z",
            "groups": [{"key": {}, "measures": {"requests": {"count": 2}}}],
        }
    ]
    assert aggregate(streams, stream, q="status:404")["buckets"] == []


def test_what_is_appended_counts_at_once(streams: StreamsClient, stream: str) -> None:
    streams.append(stream, [entry("10:01:00", "new", 200, 1)])
    groups = aggregate(streams, stream, group_by=["service"], measures=["requests"])["buckets"][1]["groups"]
    assert [group["key"] for group in groups] == [{"service": "new"}, {"service": "web"}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rollup": "none"}, "unknown rollup none"),
        ({"from": "noon"}, "from must be a valid timestamp"),
        ({"to": BODY["from"]}, "to must be greater than from"),
        ({"interval": "60s"}, "interval 60s is not configured for rollup requests"),
        ({"group_by": ["status"]}, "group_by field status is not configured on rollup requests"),
        ({"measures": []}, "measures must be a non-empty array of strings"),
        ({"q": "("}, None),
    ],
)
def test_bad_requests_say_what_is_wrong(
    streams: StreamsClient, stream: str, change: dict[str, Any], message: str | None
) -> None:
    refused = streams.refused(400, "POST", f"{stream}/_aggregate", {**BODY, **change}, headers=JSON_TYPE)
    assert message is None or refused == message


def test_a_stream_without_search_or_without_existence_is_refused(streams: StreamsClient, name: str) -> None:
    streams.refused(404, "POST", f"{name}/_aggregate", BODY, headers=JSON_TYPE)
    streams.create(name)
    message = streams.refused(400, "POST", f"{name}/_aggregate", BODY, headers=JSON_TYPE)
    assert message == "search is not configured for this stream"
    message = streams.refused(400, "POST", f"{name}/_aggregate", b"{", headers=JSON_TYPE)
    assert message == "aggregate request must be valid JSON"
