"""Watching and tailing topics, over whatever happens to connections and servers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from support.cutting_proxy import CuttingProxy
from support.either_client import Run
from support.server_process import ServerProcess

from strandline.client import (
    Arrived,
    CaughtUp,
    Deleted,
    Draft,
    Lost,
    NotFound,
    Patience,
    RecordsLost,
    Start,
    Tombstone,
    Unreachable,
)

#: Long enough for any test, and quick.
PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)


async def take(events: Any, number: int) -> list[Any]:
    return [await events.__anext__() for _ in range(number)]


def test_a_tail_has_what_is_there_and_what_comes(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many([1, 2])
        async with topic.tail(0) as tail:
            assert [record.data for record in await take(tail, 2)] == [1, 2]
            await topic.write(3, tag="late")
            (record,) = await take(tail, 1)
            assert (record.seq, record.data, record.tag) == (3, 3, "late")

    run(scenario)


def test_a_tail_may_begin_with_what_is_written_from_now_on(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write("before")
        async with client.watch({name: None}) as watch:
            assert await take(watch, 1) == [CaughtUp(name, 1)]
            await topic.write("after")
            (event,) = await take(watch, 1)
            assert [record.data for record in event.records] == ["after"]
            assert watch.positions == {name: 2}

    run(scenario)


def test_a_watch_tells_of_several_topics_by_name_and_by_pattern(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        await client.topic(name).write(1)
        async with client.watch({name: 0, f"{name}:*": None}) as watch:
            seen: list[Any] = await take(watch, 2)
            await client.topic(f"{name}:new").write("made later")
            while not any(isinstance(event, Arrived) and event.topic == f"{name}:new" for event in seen):
                seen += await take(watch, 1)
        assert [record.data for event in seen if isinstance(event, Arrived) for record in event.records] == [
            1,
            "made later",
        ]

    run(scenario)


def test_a_watch_can_be_narrowed(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many([Draft(1, tag="a"), Draft(2, tag="b"), Draft(3, tag="a", node="me")])
        async with topic.tail(0, match="a", without_nodes="me", strong=True) as tail:
            assert [record.data for record in await take(tail, 1)] == [1]
            await topic.write(4, tag="a")
            assert [record.data for record in await take(tail, 1)] == [4]
        async with client.watch({name: Start(1, match="b")}) as watch:
            (event,) = await take(watch, 1)
            assert [record.data for record in event.records] == [2]

    run(scenario)


def test_losses_are_events_of_a_watch(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.configure(cap_records=2)
        await topic.write_many(range(1, 6))
        async with client.watch({name: 0}) as watch:
            lost, arrived = await take(watch, 2)
            assert isinstance(lost, Lost)
            assert (lost.tombstone.gap_from, lost.tombstone.gap_to) == (1, 3)
            assert isinstance(arrived, Arrived)
            assert [record.data for record in arrived.records] == [4, 5]
        async with topic.tail(0) as tail:
            with pytest.raises(RecordsLost):
                await take(tail, 1)
        told: list[Tombstone] = []
        async with topic.tail(0, on_loss=told.append) as tail:
            assert [record.data for record in await take(tail, 2)] == [4, 5]
        assert len(told) == 1

    run(scenario)


def test_a_topic_that_is_deleted_ends_its_watch(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write(1)
        async with client.watch({name: 1}) as watch, topic.tail(1) as tail:
            assert await take(watch, 1) == [CaughtUp(name, 1)]
            waiting = asyncio.ensure_future(take(tail, 1))
            await topic.delete()
            assert await take(watch, 1) == [Deleted(name, 1)]
            with pytest.raises(StopAsyncIteration):
                await take(watch, 1)
            with pytest.raises(NotFound):
                await waiting

    run(scenario)


def test_there_is_nothing_to_watch(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        async with client.topic(name).tail(0) as tail:
            with pytest.raises(NotFound):
                await take(tail, 1)

    run(scenario)


def test_a_watch_goes_on_over_a_restart_without_loss_or_repetition(run: Run, mortal: ServerProcess, name: str) -> None:

    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many([1, 2])
        async with client.watch({name: 0, f"{name}:*": None}) as watch:
            seen: list[Any] = await take(watch, 2)
            mortal.kill()
            restart = asyncio.ensure_future(asyncio.to_thread(mortal.start, mortal.port))
            waiting = asyncio.ensure_future(take(watch, 1))
            await restart
            # A topic that was made while the watch was not connected is told from its beginning.
            await client.topic(f"{name}:web").write("new")
            await topic.write(3)
            seen += await waiting
            told: list[Any] = []
            while len(told) < 4:
                told = [
                    (event.topic, record.data)
                    for event in seen
                    if isinstance(event, Arrived)
                    for record in event.records
                ]
                if len(told) < 4:
                    seen += await take(watch, 1)
        assert sorted(told, key=str) == [(name, 1), (name, 2), (name, 3), (f"{name}:web", "new")]

    run(scenario, mortal.url, patience=PATIENCE)


def test_what_was_deleted_while_nobody_was_connected_is_told(run: Run, mortal: ServerProcess, name: str) -> None:

    async def scenario(client: Any) -> None:
        await client.topic(f"{name}:a").write(1)
        await client.topic(f"{name}:b").write(1)
        async with client.watch({f"{name}:a": 1, f"{name}:b": 1}) as watch:
            assert {event.topic for event in await take(watch, 2)} == {f"{name}:a", f"{name}:b"}
            mortal.stop()
            await asyncio.to_thread(mortal.start, mortal.port)
            await client.topic(f"{name}:a").delete()
            assert Deleted(f"{name}:a", 1) in await take(watch, 2)

    run(scenario, mortal.url, patience=PATIENCE)


@pytest.mark.parametrize("seed", range(4))
def test_a_tail_misses_and_repeats_nothing_wherever_its_connections_are_cut(
    run: Run, server: ServerProcess, name: str, seed: int
) -> None:
    chance = random.Random(seed)
    proxy = CuttingProxy(server.url, *(chance.randrange(3000) for _ in range(25)))

    async def fill(client: Any) -> None:
        await client.topic(name).write_many(Draft(number, tag="x" * (number % 7)) for number in range(300))

    async def scenario(client: Any) -> None:
        async with client.topic(name).tail(0) as tail:
            assert [record.data for record in await take(tail, 300)] == list(range(300))

    run(fill)
    run(scenario, proxy.url, patience=PATIENCE)
    assert proxy.connections > 3
    proxy.close()


def test_a_server_that_stays_away_is_told_and_the_watch_can_be_taken_up_again(
    run: Run, mortal: ServerProcess, name: str
) -> None:

    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write(1)
        async with topic.tail(0) as tail:
            assert (await take(tail, 1))[0].data == 1
            mortal.kill()
            with pytest.raises(Unreachable):
                await take(tail, 1)
            await asyncio.to_thread(mortal.start, mortal.port)
            await topic.write(2)
            assert (await take(tail, 1))[0].data == 2

    run(scenario, mortal.url, patience=Patience(0.05, 0.01, 0.02))
