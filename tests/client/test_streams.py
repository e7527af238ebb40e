"""Streams by way of the client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.either_client import Run

from strandline.client import (
    NOW,
    START,
    BadRequest,
    Closed,
    Conflict,
    Gone,
    IndexProgress,
    NotFound,
    SearchConfig,
)
from strandline.client import stream_calls as calls


class Visit(msgspec.Struct):
    page: str
    ms: int
    at: int = 0


async def listed(values: Any) -> list[Any]:
    return [value async for value in values]


def test_what_is_appended_is_read(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        made = await stream.create()
        assert (made.created, made.content_type, made.closed) == (True, "application/json", False)
        assert not (await stream.create()).created
        one = await stream.append({"item": "book"})
        await stream.append([1, 2])
        await stream.append_many(["a", None])
        assert await listed(stream.read()) == [{"item": "book"}, [1, 2], "a", None]
        assert await listed(stream.read(one.next_offset)) == [[1, 2], "a", None]
        page = await stream.page(NOW)
        assert (page.values, page.up_to_date, page.next_offset) == ([], True, (await stream.head()).next_offset)
        assert [row.name async for row in client.streams(prefix=name)] == [name]

    run(scenario)


def test_a_stream_may_begin_with_records_and_end_after_a_while(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(f"{name}/with a space", Visit)
        made = await stream.create([Visit("/", 1), Visit("/pay", 2)], ttl="30m", compact=True, key="k")
        assert (made.ttl_seconds, made.compact) == (1800, True)
        assert await listed(stream.read()) == [Visit("/", 1), Visit("/pay", 2)]
        fixed = client.stream(f"{name}/fixed")
        assert (
            await fixed.create(expires_at=datetime(2100, 1, 1, tzinfo=UTC))
        ).expires_at == "2100-01-01T00:00:00.000Z"

    run(scenario)


def test_pages_follow_one_another_to_the_end(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create(range(30_000))
        await stream.append_many(range(30_000, 60_000))
        pages = await listed(stream.pages())
        assert [len(page.values) for page in pages] == [50_000, 10_000]
        assert [page.up_to_date for page in pages] == [False, True]
        assert await listed(stream.read()) == list(range(60_000))
        beyond = pages[-1].next_offset.replace("000000", "Z00000")
        assert await listed(stream.read(beyond)) == []

    run(scenario)


def test_bytes_are_kept_as_they_are(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name, content_type="text/plain")
        await stream.create(["started\r\n"])
        await stream.append(b"caf\xc3\xa9\n")
        await stream.append("ready\n")
        assert await stream.read_bytes() == "started\r\ncafé\nready\n".encode()
        with pytest.raises(TypeError, match="bytes or text"):
            await stream.append({"no": 1})
        async with stream.tail(START) as tail:
            assert (await tail.__anext__()).data == "started\r\ncafé\nready\n".encode()
            await stream.append("more")
            assert (await tail.__anext__()).data == b"more"

    run(scenario)


def test_keys_and_times(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        await stream.append(19, key="kitchen", timestamp=datetime(2026, 11, 1, 8, tzinfo=UTC))
        await stream.append(4, key="garden", timestamp="2026-11-01T09:00:00Z")
        await stream.append(21, key="kitchen", timestamp="2026-11-01T10:00:00Z")
        assert await listed(stream.read(key="kitchen")) == [19, 21]
        assert await listed(stream.read(since=datetime(2026, 11, 1, 9, tzinfo=UTC))) == [4, 21]
        assert await listed(stream.read(latest=True)) == [4, 21]
        await stream.append(1, stream_seq="b")
        with pytest.raises(Conflict):
            await stream.append(2, stream_seq="a")

    run(scenario)


def test_a_closed_stream_takes_nothing_more(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create([1])
        assert (await stream.close("last")).closed
        assert (await stream.close()).closed
        assert (await stream.head()).closed
        with pytest.raises(Closed) as caught:
            await stream.append(2)
        assert caught.value.code == "conflict"
        async with stream.tail(START) as tail:
            assert await listed(tail.values()) == [1, "last"]

    run(scenario)


def test_a_fork_goes_its_own_way(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        one = await stream.append(1)
        await stream.append(2)
        fork = await stream.fork(f"{name}-fork", offset=one.next_offset)
        await fork.append("other")
        assert await listed(fork.read()) == [1, "other"]
        await stream.delete()
        with pytest.raises(Gone):
            await listed(stream.read())
        await fork.delete()
        with pytest.raises(NotFound):
            await listed(stream.read())

    run(scenario)


def test_a_schema_makes_a_stream_searchable(run: Run, name: str) -> None:
    registry = {
        "schema": {"type": "object", "properties": {"ms": {"type": "integer"}}},
        "search": {
            "primaryTimestampField": "at",
            "fields": {
                field: {"kind": kind, **flags, "bindings": [{"version": 1, "jsonPointer": f"/{field}"}]}
                for field, kind, flags in (
                    ("at", "date", {"column": True}),
                    ("page", "keyword", {"exact": True, "sortable": True}),
                    ("ms", "integer", {"column": True, "sortable": True, "aggregatable": True}),
                )
            },
            "rollups": {
                "visits": {
                    "dimensions": ["page"],
                    "intervals": ["1h"],
                    "measures": {"visits": {"kind": "count"}, "ms": {"kind": "summary", "field": "ms"}},
                }
            },
        },
    }
    hour = 1_794_736_800_000

    async def scenario(client: Any) -> None:
        stream = client.stream(name, Visit)
        await stream.create()
        assert (await stream.set_schema(registry))["currentVersion"] == 1
        assert (await stream.schema())["currentVersion"] == 1
        with pytest.raises(BadRequest, match="integer"):
            await client.stream(name).append({"page": "/", "ms": "slow"})
        visits = [Visit("/", 12, hour), Visit("/pay", 250, hour), Visit("/pay", 350, hour + 1000)]
        await stream.append_many(visits)
        found = await stream.search("page:/pay", sort=["ms:desc"], size=10)
        assert [hit.source for hit in found.hits] == [visits[2], visits[1]]
        assert (found.total.value, found.total.relation, found.coverage.complete) == (2, "eq", True)
        assert [hit.source.ms async for hit in stream.hits("has:ms", sort=["ms:asc"], size=1)] == [12, 250, 350]
        assert await listed(stream.read(filter="ms:>100")) == visits[1:]
        summed = await stream.aggregate("visits", start=hour, end=hour + 3_600_000, interval="1h", group_by=["page"])
        (bucket,) = summed.buckets
        assert {group.key["page"]: group.measures["ms"].sum for group in bucket.groups} == {"/": 12, "/pay": 600}
        assert (await stream.profile())["profile"] == {"kind": "generic"}
        assert (await stream.details())["stream"]["name"] == name

    run(scenario)


def test_a_log_with_records_becomes_searchable(run: Run, name: str) -> None:
    config: SearchConfig = {
        "fields": {
            "page": {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/page"}]},
        }
    }

    async def scenario(client: Any) -> None:
        await client.topic(name).write({"page": "/pay"})
        stream = client.stream(name)
        assert await stream.search_config() is None
        assert await stream.set_search_config(config) == config
        assert await stream.search_config() == config
        assert [hit.source async for hit in stream.hits("page:/pay")] == [{"page": "/pay"}]
        with pytest.raises(BadRequest, match=r"search\.fields must be a non-empty object"):
            await stream.set_search_config({"fields": {}})
        assert await stream.set_search_config(None) is None
        assert await stream.search_config() is None

    run(scenario)


def test_the_progress_of_an_index_is_read() -> None:
    def read(body: bytes) -> IndexProgress | None:
        return calls.INDEX_STATUS(body).progress

    progress = b'{"indexed_records":5,"records":9,"records_per_second":2.5,"remaining_ms":1600,"complete":false}'
    assert read(b'{"stream":"s","progress":' + progress + b"}") == IndexProgress(
        indexed_records=5, records=9, records_per_second=2.5, remaining_ms=1600, complete=False
    )
    assert read(b'{"stream":"s"}') is None


def test_a_profile_is_set(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        await stream.set_profile({"kind": "evlog"})
        assert (await stream.profile())["profile"]["kind"] == "evlog"

    run(scenario)
