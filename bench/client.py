"""The Python client next to plain httpx with the same requests: the cost of retries, types and idempotency keys. And
producers next to what the server takes over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec

from bench.measure import Effort, Rounds, Row, Sample, Target, in_rounds, repeated, timed
from bench.topics_server import serving
from bench.workload import directory
from strandline.client import AsyncClient, Client

GROUP = "client"
PLAIN = "an httpx client, with json= and .json()"
#: The target: at least the rate of plain httpx, which has neither retries nor types.
AIM = 1.0
PAGE = 100
HEADERS = {"content-type": "application/json"}
#: Records that a producer writes in one turn, and in one batch.
PRODUCED = 200_000
BATCH = 5000
BATCHES = "batches of 5,000 records, encoded in advance, one after the other with httpx"
PRODUCED_TARGET = Target(200_000, "records/s")
#: The maximum number of calls in a turn, which none reaches.
MANY = 1_000_000


class Order(msgspec.Struct):
    item: str
    cents: int


ORDER = {"item": "book", "cents": 1250}


def run(root: Path, effort: Effort) -> Iterator[Row]:
    with directory(root, "client") as path, serving(path / "data") as server:
        yield from _with_threads(server.url, effort)
        yield from asyncio.run(_with_a_loop(server.url, effort))
        yield from _producers(server.url, effort)


def _with_threads(url: str, effort: Effort) -> Iterator[Row]:
    with Client(url) as client, httpx.Client(base_url=url, trust_env=False) as plain:
        topic = client.topic("orders", Order)
        topic.write_many([Order("book", 1250)] * PAGE)
        calls: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
            ("write one record", lambda: topic.write(Order("book", 1250)), lambda: _write(plain)),
            ("read a page of 100 records", lambda: topic.diff(0, limit=PAGE), lambda: _read(plain)),
        ]
        for name, mine, other in calls:
            rounds = in_rounds(partial(_turn, mine, effort), partial(_turn, other, effort), effort.rounds)
            yield rounds.beside_peer(GROUP, f"{name}, a thread", "calls/s", PLAIN, AIM)


def _turn(call: Callable[[], object], effort: Effort) -> Sample:
    call()
    return repeated(call, 1, effort.turn, MANY)


def _write(plain: httpx.Client) -> Any:
    return plain.post("/v0/topics/orders", json={"records": [{"data": ORDER}]}).json()


def _read(plain: httpx.Client) -> Any:
    return plain.post("/v0/topics/orders/diff", json={"from_seq": 0, "limit": PAGE}).json()


async def _with_a_loop(url: str, effort: Effort) -> list[Row]:
    async with AsyncClient(url) as client, httpx.AsyncClient(base_url=url, trust_env=False) as plain:
        topic = client.topic("orders", Order)

        async def write() -> Any:
            return (await plain.post("/v0/topics/orders", json={"records": [{"data": ORDER}]})).json()

        async def read() -> Any:
            return (await plain.post("/v0/topics/orders/diff", json={"from_seq": 0, "limit": PAGE})).json()

        return [
            await _row("write one record", lambda: topic.write(Order("book", 1250)), write, effort),
            await _row("read a page of 100 records", lambda: topic.diff(0, limit=PAGE), read, effort),
        ]


async def _row(
    name: str, mine: Callable[[], Awaitable[Any]], other: Callable[[], Awaitable[Any]], effort: Effort
) -> Row:
    samples: dict[int, list[Sample]] = {0: [], 1: []}
    for number in range(effort.rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            samples[side].append(await _awaited((mine, other)[side], effort.turn))
    return Rounds(samples[0], samples[1]).beside_peer(GROUP, f"{name}, an event loop", "calls/s", PLAIN, AIM)


async def _awaited(call: Callable[[], Awaitable[Any]], seconds: float) -> Sample:
    """Repeat the call, one after the other, until the time is up."""
    await call()
    clock = asyncio.get_running_loop().time
    start = now = clock()
    times = 0
    while now - start < seconds:
        await call()
        times += 1
        now = clock()
    return Sample(times, now - start)


# --- producers ------------------------------------------------------------------------------------------------------


def _producers(url: str, effort: Effort) -> Iterator[Row]:
    count = effort.scaled(PRODUCED)
    body = msgspec.json.encode({"records": [{"data": ORDER}] * BATCH})

    with Client(url) as client, httpx.Client(base_url=url, trust_env=False) as plain:

        def post() -> None:
            answer = plain.post("/v0/topics/produced?return_seqs=false", content=body, headers=HEADERS)
            answer.raise_for_status()

        def produce() -> None:
            with client.topic("produced").producer(batch_records=BATCH) as producer:
                for _ in range(count):
                    producer.produce(ORDER)

        def produce_on_a_loop() -> None:
            async def main() -> None:
                async with (
                    AsyncClient(url) as loop_client,
                    loop_client.topic("produced").producer(batch_records=BATCH) as producer,
                ):
                    for _ in range(count):
                        await producer.produce(ORDER)

            asyncio.run(main())

        post()
        for kind, action in (("a thread", produce), ("an event loop", produce_on_a_loop)):
            action()
            rounds = in_rounds(
                partial(timed, count, action), partial(repeated, post, BATCH, effort.turn, MANY), effort.rounds
            )
            yield rounds.row(GROUP, f"produce records one by one, {kind}", "records/s", BATCHES, target=PRODUCED_TARGET)
