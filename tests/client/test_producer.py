"""Producers: whatever they append is there once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cutting_proxy import CuttingProxy
from support.either_client import Run
from support.server_process import ServerProcess

from strandline.client import BadRequest, Closed, Conflict, Fenced, Patience, Unreachable

PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)
CUTS = (0, 20, 100, 0, 0)


async def listed(values: Any) -> list[Any]:
    return [value async for value in values]


def test_appends_are_numbered(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        producer = stream.producer()
        assert not (await producer.append(1)).duplicate
        await producer.append_many([2, 3], key="k")
        assert (producer.epoch, producer.seq) == (0, 2)
        assert await listed(stream.read()) == [1, 2, 3]
        assert await listed(stream.read(key="k")) == [2, 3]

    run(scenario)


@pytest.mark.parametrize("id", [None, "till-1"])
def test_an_append_whose_answer_is_lost_is_made_once(
    run: Run, server: ServerProcess, name: str, id: str | None
) -> None:
    proxy = CuttingProxy(server.url, *CUTS)

    async def make(client: Any) -> None:
        await client.stream(name).create()

    async def scenario(client: Any) -> None:
        producer = client.stream(name).producer(id)
        for number in range(10):
            await producer.append(number)
        assert await listed(client.stream(name).read()) == list(range(10))

    run(make)
    run(scenario, proxy.url, patience=PATIENCE)
    assert proxy.connections > len(CUTS)
    proxy.close()


def test_several_at_a_time_share_a_producer(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        producer = stream.producer("shared")
        await asyncio.gather(*(producer.append(number) for number in range(20)))
        assert sorted(await listed(stream.read())) == list(range(20))

    run(scenario)


def test_a_producer_that_was_replaced_is_fenced_off(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        old, new = stream.producer("till-1"), stream.producer("till-1")
        await old.append("old")
        await new.append("new")
        assert new.epoch > old.epoch
        for _ in range(2):
            with pytest.raises(Fenced) as caught:
                await old.append("too late")
        assert caught.value.code == "stale_epoch"
        await new.append("newer")
        assert await listed(stream.read()) == ["old", "new", "newer"]

    run(scenario)


def test_a_producer_takes_over_from_one_that_kept_its_epoch_at_nought(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        await stream.producer("till-1", epoch=0).append("first")
        assert not (await stream.producer("till-1").append("second")).duplicate
        assert await listed(stream.read()) == ["first", "second"]

    run(scenario)


def test_who_keeps_count_sees_what_was_there_already(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        await stream.producer("importer", epoch=3).append_many([1, 2])
        again = stream.producer("importer", epoch=3)
        assert (await again.append_many([1, 2])).duplicate
        assert not (await again.append(3)).duplicate
        with pytest.raises(Conflict):
            await stream.producer("importer", epoch=3, seq=7).append("a gap")
        with pytest.raises(ValueError, match="id"):
            stream.producer(epoch=1)
        assert await listed(stream.read()) == [1, 2, 3]

    run(scenario)


def test_a_refused_append_uses_up_no_number(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        await stream.set_schema({"schema": {"type": "integer"}})
        producer = stream.producer()
        await producer.append(1)
        with pytest.raises(BadRequest):
            await producer.append("no number")
        assert not (await producer.append(2)).duplicate
        assert await listed(stream.read()) == [1, 2]

    run(scenario)


def test_after_an_append_of_which_nobody_knows_the_next_one_is_not_taken_for_it(
    run: Run, server: ServerProcess, name: str
) -> None:
    proxy = CuttingProxy(server.url, 0)

    async def make(client: Any) -> None:
        await client.stream(name).create()

    async def scenario(client: Any) -> None:
        producer = client.stream(name).producer()
        with pytest.raises(Unreachable):
            await producer.append("who knows")
        assert not (await producer.append(2)).duplicate
        assert await listed(client.stream(name).read()) == ["who knows", 2]

    run(make)
    run(scenario, proxy.url, patience=0)
    proxy.close()


def test_closing_is_done_once_too(run: Run, server: ServerProcess, name: str) -> None:
    proxy = CuttingProxy(server.url, 0, 0)

    async def make(client: Any) -> None:
        await client.stream(name).create()

    async def scenario(client: Any) -> None:
        producer = client.stream(name).producer()
        assert (await producer.close("last")).closed
        assert await listed(client.stream(name).read()) == ["last"]
        with pytest.raises(Closed):
            await producer.append("more")

    run(make)
    run(scenario, proxy.url, patience=PATIENCE)
    proxy.close()


def test_a_producer_goes_on_over_a_restart(run: Run, mortal: ServerProcess, name: str) -> None:

    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        await stream.create()
        producer = stream.producer("till-1")
        await producer.append(1)
        mortal.kill()
        restart = asyncio.ensure_future(asyncio.to_thread(mortal.start, mortal.port))
        await producer.append(2)
        await restart
        assert await listed(stream.read()) == [1, 2]

    run(scenario, mortal.url, patience=PATIENCE)
