"""Producers of topics: batches, in order, each record once."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest
from support.cutting_proxy import CuttingProxy
from support.either_client import Run, Threaded
from support.server_process import ServerProcess

from strandline.client import AsyncClient, BadRequest, Client, Draft, Patience, Unreachable

PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)


class Sale(msgspec.Struct):
    cents: int


async def data_of(client: Any, name: str) -> list[Any]:
    return [record.data async for record in client.topic(name).read()]


def test_records_are_written_in_the_order_in_which_they_are_produced(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name, Sale)
        async with topic.producer(node="till", batch_records=7) as producer:
            for number in range(100):
                await producer.produce(Sale(number), tag=f"t{number % 3}", meta={"n": number})
            await producer.produce(Sale(100), node="other")
            await producer.flush()
            assert (producer.produced, producer.written, producer.unwritten()) == (101, 101, [])
        records = [record async for record in topic.read()]
        assert [(record.seq, record.data.cents) for record in records] == [(n + 1, n) for n in range(101)]
        assert (records[5].tag, records[5].node, records[5].meta) == ("t2", "till", {"n": 5})
        assert (records[100].tag, records[100].node) == (None, "other")
        with pytest.raises(ValueError, match="the producer is closed"):
            await producer.produce(Sale(1))

    run(scenario)


def test_a_batch_whose_answer_is_lost_is_written_once(run: Run, server: ServerProcess, name: str) -> None:
    proxy = CuttingProxy(server.url, 0, 20, 100, 0, 0)

    async def scenario(client: Any) -> None:
        async with client.topic(name).producer(batch_records=10) as producer:
            for number in range(100):
                await producer.produce(number)
        assert await data_of(client, name) == list(range(100))

    run(scenario, proxy.url, patience=PATIENCE)
    assert proxy.connections > 5
    proxy.close()


def test_records_are_written_once_over_the_death_of_the_server(run: Run, mortal: ServerProcess, name: str) -> None:
    async def scenario(client: Any) -> None:
        async with client.topic(name).producer(batch_records=20) as producer:
            for number in range(600):
                if number == 300:
                    mortal.kill()
                    starting = asyncio.ensure_future(asyncio.to_thread(mortal.start, mortal.port))
                await producer.produce(number)
            await starting
        assert await data_of(client, name) == list(range(600))

    run(scenario, mortal.url, patience=PATIENCE)


class Gate(httpx.HTTPTransport):
    """Lets a request pass when it is opened."""

    def __init__(self) -> None:
        super().__init__(verify=False)
        self.open = threading.Event()
        self.requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        assert self.open.wait(30)
        return super().handle_request(request)


def test_a_producer_waits_while_too_much_is_not_written(server: ServerProcess, name: str) -> None:
    gate = Gate()
    with Client(server.url, transport=gate) as client:
        topic = client.topic(name)
        with topic.producer(batch_records=2, pending_bytes=150) as producer, ThreadPoolExecutor(1) as pool:
            done = pool.submit(lambda: [producer.produce(number) for number in range(10)])
            while producer.produced < 3:
                assert not done.done()
            # The size of the first three records is over the limit.
            assert not done.done()
            assert (producer.produced, producer.written) == (3, 0)
            gate.open.set()
            done.result(30)
        # The first request was sent with its first record, or with two.
        assert 5 <= gate.requests <= 10
        assert [record.data for record in topic.read()] == list(range(10))


def test_a_producer_on_an_event_loop_waits_while_too_much_is_not_written(server: ServerProcess, name: str) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            async with client.topic(name).producer(batch_records=2, pending_bytes=150) as producer:
                for number in range(100):
                    await producer.produce(number)
                    assert producer.produced - producer.written <= 3
            assert await data_of(client, name) == list(range(100))

    asyncio.run(main())


def test_nothing_is_written_after_a_batch_that_is_refused(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        producer = topic.producer(batch_records=1)
        for number in range(5):
            await producer.produce(number)
        await producer.flush()
        await producer.produce("x" * (2 << 20), tag="large")
        with pytest.raises(BadRequest):
            await producer.flush()
        for _ in range(2):
            with pytest.raises(BadRequest):
                await producer.produce("later")
        assert (producer.produced, producer.written) == (6, 5)
        assert producer.unwritten() == [Draft("x" * (2 << 20), tag="large")]
        with pytest.raises(BadRequest):
            await producer.aclose()
        assert await data_of(client, name) == list(range(5))

    run(scenario)


def test_what_was_not_written_can_be_produced_again(run: Run, name: str, server: ServerProcess) -> None:
    async def scenario(client: Any) -> None:
        producer = client.topic(name, Sale).producer()
        await producer.produce(Sale(1), tag="a")
        with pytest.raises(Unreachable):
            await producer.aclose()
        assert producer.unwritten() == [Draft(Sale(1), "a")]

    # Nothing listens on this port.
    run(scenario, "http://127.0.0.1:1", patience=0)


def test_what_cannot_be_encoded_is_refused_at_once(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        async with client.topic(name).producer() as producer:
            with pytest.raises(TypeError):
                await producer.produce(object())
            await producer.produce("fine")
        assert await data_of(client, name) == ["fine"]

    run(scenario)


def test_threads_and_tasks_share_a_producer(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        async with client.topic(name).producer(batch_records=5, pending_bytes=1000) as producer:

            async def produce(worker: int) -> None:
                for number in range(50):
                    await producer.produce([worker, number])
                    if not isinstance(client, Threaded):
                        await asyncio.sleep(0)

            await asyncio.gather(*(produce(worker) for worker in range(4)))
        written = await data_of(client, name)
        for worker in range(4):
            assert [number for by, number in written if by == worker] == list(range(50))

    run(scenario)


def test_limits_are_checked(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        with pytest.raises(ValueError, match="batch_records must be at least 1, got 0"):
            client.topic(name).producer(batch_records=0)

    run(scenario)
