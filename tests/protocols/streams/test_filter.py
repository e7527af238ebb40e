"""GET with filter=: what passes, how far a read looks, and what can be combined with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.server_process import ServerProcess
from support.streams_client import JSON, TEXT, StreamsClient
from support.topics_client import Client, Waiting

from strandline.protocols.streams.offsets import encode

FIELDS = {
    "kind": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/kind"}], "exact": True, "exists": True},
    "size": {"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/size"}], "column": True},
}
SEARCH = {"primaryTimestampField": "at", "fields": FIELDS | {
    "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True},
}}  # fmt: skip


def declare(streams: StreamsClient, name: str) -> None:
    streams.create(name)
    response = streams.request("POST", f"{name}/_schema", {"schema": {"type": "object"}, "search": SEARCH})
    assert response.status_code == 200, response.text


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"n": number, "kind": "ab"[number % 2], "size": number, **fields}


def numbers(values: list[Any]) -> list[int]:
    return [value["n"] for value in values]


@pytest.fixture
def filled(streams: StreamsClient, name: str) -> str:
    declare(streams, name)
    streams.append(name, [row(number) for number in range(10)], stream_key="k")
    streams.append(name, [row(10), {"n": 11}, {"n": 12, "kind": None}])
    return name


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ("kind:a", [0, 2, 4, 6, 8, 10]),
        ("kind:a size:>4", [6, 8, 10]),
        ("size:>=3 AND size:<5", [3, 4]),
        ("kind:b OR size:10", [1, 3, 5, 7, 9, 10]),
        ("NOT has:kind", [11, 12]),
        ("-kind:a has:kind", [1, 3, 5, 7, 9]),
        ("kind:none", []),
    ],
)
def test_only_what_passes_is_read(streams: StreamsClient, filled: str, filter: str, found: list[int]) -> None:
    response = streams.read(filled, filter=filter)
    assert numbers(response.json()) == found
    assert response.headers["stream-next-offset"] == encode(13)
    assert response.headers["stream-up-to-date"] == "true"
    assert "stream-filter-scan-limit-reached" not in response.headers


def test_a_filter_goes_with_key_time_and_place(streams: StreamsClient, filled: str) -> None:
    assert numbers(streams.values(filled, filter="kind:a", key="k")) == [0, 2, 4, 6, 8]
    assert numbers(streams.values(filled, filter="kind:a", offset=encode(7))) == [8, 10]
    assert numbers(streams.values(filled, filter="size:>8", since="2001-01-01T00:00:00Z")) == [9, 10]
    assert streams.values(filled, filter="kind:a", since="2099-01-01T00:00:00Z") == []
    assert streams.read(filled, filter="size:1", format="raw").json()["n"] == 1
    assert numbers(streams.read(f"{filled}/pk/k", filter="size:3").json()) == [3]
    assert numbers(streams.read(f"{filled}/pk/other", filter="size:3").json()) == []


@pytest.mark.parametrize("filter", ["", " ", "kind", "unknown:1", "kind:>a", "has:nothing", '"', "kind:a:b", "(kind:a"])
def test_a_filter_that_cannot_be_is_refused(streams: StreamsClient, filled: str, filter: str) -> None:
    streams.refused(400, "GET", filled, params={"filter": filter}, code="bad_request")


def test_without_a_declaration_nothing_can_be_asked_for(streams: StreamsClient, name: str) -> None:
    streams.create(name, JSON, [{"kind": "a"}])
    assert "kind" in streams.refused(400, "GET", name, params={"filter": "kind:a"})


def test_only_json_can_be_filtered_and_not_event_streams(streams: StreamsClient, name: str, filled: str) -> None:
    streams.create(f"{name}-text", TEXT)
    message = streams.refused(400, "GET", f"{name}-text", params={"filter": "kind:a"})
    assert message == "filter requires application/json stream content-type"
    streams.refused(400, "GET", filled, params={"filter": "kind:a", "live": "sse", "offset": "-1"})


def test_etags_of_different_filters_differ(streams: StreamsClient, filled: str) -> None:
    one = streams.read(filled, filter="kind:a").headers["etag"]
    other = streams.read(filled, filter="kind:b").headers["etag"]
    assert one != other
    again = streams.request("GET", filled, params={"filter": "kind:a"}, headers={"if-none-match": one})
    assert (again.status_code, again.content) == (304, b"")


# --- how far a read looks ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp(f"small-{lane}") / "data"
    process = ServerProcess(data, fast_lane=lane == "fast", settings={"filter_scan_bytes": 1000, "read_max_records": 3})
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def capped(small: ServerProcess) -> Iterator[StreamsClient]:
    client = StreamsClient(small.url)
    yield client
    client.close()


def test_a_read_looks_at_so_many_bytes_and_no_further(capped: StreamsClient, name: str) -> None:
    declare(capped, name)
    rows = [row(number, pad="x" * 80) for number in range(100)]
    capped.append(name, rows)
    size = len(json.dumps(rows[0]))
    offset, reads, found = "-1", 0, list[Any]()
    while True:
        response = capped.read(name, filter="size:>=99", offset=offset)
        found += response.json()
        reads += 1
        assert response.headers["stream-next-offset"] > offset
        offset = response.headers["stream-next-offset"]
        if "stream-up-to-date" in response.headers:
            assert "stream-filter-scan-limit-reached" not in response.headers
            break
        assert response.headers["stream-filter-scan-limit-reached"] == "true"
        assert response.headers["stream-filter-scan-limit-bytes"] == "1000"
        assert 1000 <= int(response.headers["stream-filter-scanned-bytes"]) < 1000 + 2 * size
    assert numbers(found) == [99]
    assert reads >= 8


def test_a_page_that_is_full_goes_on_where_it_ended(capped: StreamsClient, name: str) -> None:
    declare(capped, name)
    capped.append(name, [row(number) for number in range(20)])
    page = capped.read(name, filter="kind:a")
    assert numbers(page.json()) == [0, 2, 4]
    assert page.headers["stream-next-offset"] == encode(6)
    assert numbers(capped.values(name, filter="kind:a")) == list(range(0, 20, 2))


def test_a_record_larger_than_the_bound_is_looked_at(capped: StreamsClient, name: str) -> None:
    declare(capped, name)
    capped.append(name, [row(0, pad="x" * 5000), row(1, pad="x" * 5000)])
    assert numbers(capped.values(name, filter="size:1")) == [1]


def test_a_wait_ends_when_the_bound_is_reached(capped: StreamsClient, name: str) -> None:
    declare(capped, name)
    capped.append(name, [row(number, pad="x" * 80) for number in range(50)])
    query = {"filter": "size:1000", "offset": "-1", "live": "long-poll"}
    response = capped.read(name, **query)
    assert response.json() == []
    assert response.headers["stream-filter-scan-limit-reached"] == "true"
    assert response.headers["stream-next-offset"] > encode(0)


def test_a_wait_passes_over_what_does_not_match(streams: StreamsClient, filled: str) -> None:
    path = f"/v1/stream/{filled}?filter=kind%3Aa&live=long-poll&timeout=5s&offset={encode(13)}"
    waiting = Waiting(Client(streams.url), lambda client: client.http.get(path))
    for number in (21, 23, 25):
        streams.append(filled, [row(number)])
    streams.append(filled, [row(30)])
    response = waiting.answer()
    assert (response.status_code, numbers(response.json())) == (200, [30])
    assert response.headers["stream-next-offset"] == encode(17)
    assert response.headers["cache-control"] == "no-store"
