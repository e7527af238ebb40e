"""The tail of a stream, over whatever happens to connections and servers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from support.cutting_proxy import CuttingProxy
from support.either_client import Run
from support.server_process import ServerProcess

from strandline.client import NOW, START, AsyncClient, Gone, NotFound, Patience

PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)


async def take(tail: Any, number: int) -> list[Any]:
    """So many values, in whatever pages they come."""
    values: list[Any] = []
    while len(values) < number:
        values += (await tail.__anext__()).values
    return values


def test_a_tail_has_what_is_there_and_what_comes(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create([1, 2])
        async with stream.tail(START) as tail:
            assert await take(tail, 2) == [1, 2]
            await stream.append(3, key="k")
            assert await take(tail, 1) == [3]
            assert tail.offset == (await stream.head()).next_offset
        async with stream.tail(START, key="k") as tail:
            assert await take(tail, 1) == [3]

    run(scenario)


def test_a_tail_begins_at_the_end(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create(["before"])
        async with stream.tail() as tail:
            waiting = asyncio.ensure_future(take(tail, 1))
            while tail.offset == NOW:
                await asyncio.sleep(0)
            await stream.append("after")
            assert await waiting == ["after"]

    run(scenario)


def test_a_filtered_tail(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        field = {"kind": "integer", "column": True, "bindings": [{"version": 1, "jsonPointer": "/ms"}]}
        at = {"kind": "date", "column": True, "bindings": [{"version": 1, "jsonPointer": "/at"}]}
        search = {"primaryTimestampField": "at", "fields": {"ms": field, "at": at}}
        await stream.set_schema({"schema": {"type": "object"}, "search": search})
        await stream.append_many([{"ms": 1}, {"ms": 200}])
        async with stream.tail(START, filter="ms:>100") as tail:
            assert await take(tail, 1) == [{"ms": 200}]
            await stream.append_many([{"ms": 2}, {"ms": 300}])
            assert await take(tail, 1) == [{"ms": 300}]

    run(scenario)


def test_closing_ends_a_tail(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create([1])
        async with stream.tail(START) as tail:
            assert await take(tail, 1) == [1]
            await stream.close(2)
            assert await take(tail, 1) == [2]
            with pytest.raises(StopAsyncIteration):
                await tail.__anext__()

    run(scenario)


def test_deleting_is_told(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create([1])
        async with stream.tail(START) as tail:
            assert await take(tail, 1) == [1]
            await stream.delete()
            with pytest.raises(NotFound):
                await take(tail, 1)

    run(scenario)


def test_lost_records_are_told(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create([1])
        offset = (await stream.append(2)).next_offset
        await stream.append_many([3, 4, 5])
        await client.topic(name).configure(cap_records=1)
        async with stream.tail(offset) as tail:
            with pytest.raises(Gone):
                await take(tail, 1)

    run(scenario)


def test_a_tail_goes_on_over_a_restart_without_loss_or_repetition(run: Run, mortal: ServerProcess, name: str) -> None:

    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create([1, 2])
        async with stream.tail(START) as tail:
            assert await take(tail, 2) == [1, 2]
            mortal.kill()
            waiting = asyncio.ensure_future(take(tail, 1))
            await asyncio.to_thread(mortal.start, mortal.port)
            await stream.append(3)
            assert await waiting == [3]

    run(scenario, mortal.url, patience=PATIENCE)


@pytest.mark.parametrize("seed", range(4))
def test_a_tail_misses_and_repeats_nothing_wherever_its_connections_are_cut(
    run: Run, server: ServerProcess, name: str, seed: int
) -> None:
    chance = random.Random(seed)
    proxy = CuttingProxy(server.url, *(chance.randrange(900, 2000) for _ in range(10)))

    async def make(client: Any) -> None:
        await client.stream(name).create()

    async def scenario(client: Any) -> None:
        async with client.stream(name).tail(START) as tail:
            waiting = asyncio.ensure_future(take(tail, 300))
            async with AsyncClient(server.url) as writer:
                for number in range(300):
                    await writer.stream(name).append(number)
            assert await waiting == list(range(300))

    run(make)
    run(scenario, proxy.url, patience=PATIENCE)
    assert proxy.connections > 3
    proxy.close()
