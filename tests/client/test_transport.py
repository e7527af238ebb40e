"""Requests over a network that cuts connections, and a server that comes and goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cutting_proxy import CuttingProxy
from support.either_client import Run
from support.server_process import ServerProcess

from strandline.client import AsyncClient, BadRequest, Client, Patience, TimedOut, Unreachable, Write

PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)
#: Cut before anything comes back, within the head of an answer, and within its body.
CUTS = (0, 10, 150)


@pytest.fixture
def proxy(server: ServerProcess) -> Any:
    proxy = CuttingProxy(server.url, *CUTS)
    yield proxy
    proxy.close()


async def data_of(client: Any, name: str) -> list[Any]:
    return [record.data async for record in client.topic(name).read()]


def test_a_write_whose_answer_is_lost_is_made_once(run: Run, proxy: CuttingProxy, name: str) -> None:
    async def scenario(client: Any) -> None:
        for number in range(5):
            await client.topic(name).write(number)
        assert await data_of(client, name) == [0, 1, 2, 3, 4]

    run(scenario, proxy.url, patience=PATIENCE)
    assert proxy.connections > len(CUTS)


def test_a_write_to_several_topics_whose_answer_is_lost_is_made_once(run: Run, proxy: CuttingProxy, name: str) -> None:
    async def scenario(client: Any) -> None:
        for number in range(3):
            await client.write([Write(f"{name}:a", [number]), Write(f"{name}:b", [-number])])
        assert await data_of(client, f"{name}:a") == [0, 1, 2]
        assert await data_of(client, f"{name}:b") == [0, -1, -2]

    run(scenario, proxy.url, patience=PATIENCE)


def test_what_must_not_be_done_twice_is_sent_once(run: Run, proxy: CuttingProxy, name: str) -> None:
    async def scenario(client: Any) -> None:
        stream = client.stream(name)
        for number in range(len(CUTS)):
            with pytest.raises(Unreachable) as caught:
                await stream.append(number)
            assert caught.value.sent
        await stream.append("whole")
        assert [value async for value in stream.read()] == [*range(len(CUTS)), "whole"]

    async def make(client: Any) -> None:
        await client.stream(name).create()

    run(make)
    run(scenario, proxy.url, patience=PATIENCE)


def test_a_server_that_is_not_there_yet_is_waited_for(run: Run, mortal: ServerProcess, name: str) -> None:
    mortal.kill()

    async def scenario(client: Any) -> None:
        assert not await client.ready()
        restart = asyncio.ensure_future(asyncio.to_thread(mortal.start, mortal.port))
        assert (await client.topic(name).write(1)).first_seq == 1
        await restart
        assert await client.ready()

    run(scenario, mortal.url, patience=PATIENCE)


def test_without_patience_nobody_waits(run: Run, mortal: ServerProcess, name: str) -> None:
    mortal.kill()

    async def scenario(client: Any) -> None:
        with pytest.raises(Unreachable) as caught:
            await client.topic(name).write(1)
        assert not caught.value.sent

    run(scenario, mortal.url, patience=0)


def test_a_server_that_says_nothing_is_given_up(run: Run) -> None:
    async def scenario(client: Any) -> None:
        with pytest.raises(TimedOut) as caught:
            await client.stream("orders").append(1)
        assert caught.value.sent

    async def silent() -> None:
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            await asyncio.to_thread(run, scenario, f"http://127.0.0.1:{port}", timeout=0.05)

    asyncio.run(silent())


def test_an_address_must_be_one() -> None:
    with pytest.raises(ValueError, match="expected http"):
        Client("localhost:4000")


def test_a_path_before_that_of_the_protocol_is_kept(server: ServerProcess) -> None:
    with Client(f"{server.url}/nowhere", patience=0) as client, pytest.raises(Exception, match="404"):
        client.topic("orders").state()


def test_names_are_escaped(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        with pytest.raises(BadRequest) as caught:
            await client.topic("a/b?c=d#é").write(1)
        assert "a/b?c=d#é" in caught.value.message
        with pytest.raises(BadRequest, match="is not a topic name"):
            await client.topic("..").write(1)
        for each in (f"{name}/../x", f"{name}/a b?c#d%20e/é"):
            await client.stream(each).create([each])
            assert [value async for value in client.stream(each).read()] == [each]
        assert len([row async for row in client.streams(prefix=f"{name}/")]) == 2

    run(scenario)


def test_many_requests_share_the_connections(server: ServerProcess, name: str) -> None:
    async def main() -> int:
        async with AsyncClient(server.url) as client:
            topic = client.topic(name)
            await asyncio.gather(*(topic.write(number) for number in range(200)))
            return (await topic.state()).count

    assert asyncio.run(main()) == 200
