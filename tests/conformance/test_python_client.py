"""The published client for Python, used as its users use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import httpx
import pytest
from support.prerequisites import unavailable
from support.server_process import ServerProcess

JSON_TYPE = "application/json"
#: More than a page has.
PAGES = 3500
#: More than an answer has.
ANSWERS = 60_000
#: A request has at most this many.
BATCH = 20_000


@pytest.fixture(scope="module")
def published() -> ModuleType:
    try:
        return import_module("durable_streams")
    except ImportError as error:
        unavailable(f"the published client for Python: {error}")


@pytest.fixture(scope="module", params=["fast", "asgi"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = ServerProcess(tmp_path_factory.mktemp("published") / "data", fast_lane=request.param == "fast")
    try:
        yield f"{process.start().url}/v1/stream/python"
    finally:
        process.end()


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=60) as http:
        yield http


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"number": number, "text": "ünï"} for number in range(count)]


def fill(http: httpx.Client, url: str, items: list[dict[str, Any]]) -> None:
    for first in range(0, len(items), BATCH):
        body = json.dumps(items[first : first + BATCH])
        assert http.post(url, content=body, headers={"content-type": JSON_TYPE}).is_success


def test_a_read_that_is_not_live_has_all_records(published: ModuleType, url: str, http: httpx.Client) -> None:
    url, items = f"{url}/all", numbered(PAGES)
    published.DurableStream.create(url, content_type=JSON_TYPE, client=http)
    fill(http, url, items)
    with published.stream(url, live=False, client=http) as response:
        assert response.read_json() == items
        assert response.up_to_date
    with published.stream(url, live=False, client=http) as response:
        assert list(response.iter_json()) == items

    async def read() -> Any:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            response = await published.astream(url, live=False, client=client)
            return await response.read_json()

    assert asyncio.run(read()) == items


def test_the_client_continues_where_an_answer_ended(published: ModuleType, url: str, http: httpx.Client) -> None:
    url, items = f"{url}/long", numbered(ANSWERS)
    published.DurableStream.create(url, content_type=JSON_TYPE, client=http)
    fill(http, url, items)
    found: list[dict[str, Any]] = []
    offset, answers = "-1", 0
    while True:
        with published.stream(url, offset=offset, live=False, client=http) as response:
            found += response.read_json()
            offset, answers = response.offset, answers + 1
            if response.up_to_date:
                break
    assert (found == items, answers) == (True, 2)


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_live_read_goes_on_where_a_writer_appends(
    published: ModuleType, url: str, http: httpx.Client, live: str
) -> None:
    handle = published.DurableStream.create(f"{url}/{live}", content_type=JSON_TYPE, client=http)
    items = numbered(6)
    for item in items[:3]:
        handle.append(item)
    found = []
    with published.stream(f"{url}/{live}", offset="-1", live=live, client=http) as response:
        for item in response.iter_json():
            found.append(item)
            if len(found) == len(items):
                break
            if len(found) >= 3:
                handle.append(items[len(found)])
    assert found == items


def test_bytes_come_as_they_were_appended(published: ModuleType, url: str, http: httpx.Client) -> None:
    handle = published.DurableStream.create(f"{url}/bytes", content_type="application/octet-stream", client=http)
    pieces = [bytes(range(256)) * size for size in (1, 40, 400)]
    for piece in pieces:
        handle.append(piece)
    with published.stream(f"{url}/bytes", live=False, client=http) as response:
        assert response.read_bytes() == b"".join(pieces)
    assert handle.head().offset
    handle.delete()
    with pytest.raises(published.StreamNotFoundError):
        published.stream(f"{url}/bytes", live=False, client=http)
