"""Several URLs: a client continues with the server that answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cutting_proxy import CuttingProxy
from support.document_tables import ROOT
from support.either_client import Run
from support.server_process import ServerProcess
from support.standby_server import StandbyServer

from strandline.client import (
    START,
    AsyncClient,
    Busy,
    Client,
    OwnIdentity,
    Patience,
    Refused,
    ServerFault,
    StrandlineError,
    Unreachable,
    Write,
)
from strandline.client.connection import Servers
from strandline.client.table_types import Ready
from strandline.history.remote import ServerHistory
from strandline.service.problems import NOT_READY, READ_ONLY
from strandline.signing.keys import KemKey, Signer

PATIENCE = Patience(30, first_wait=0.001, longest_wait=0.02)
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def standby() -> Iterator[StandbyServer]:
    server = StandbyServer()
    yield server
    server.close()


@pytest.fixture
def proxy(server: ServerProcess) -> CuttingProxy:
    return CuttingProxy(server.url)


def with_numbers(url: str, name: str, count: int) -> None:
    with Client(url) as client:
        client.topic(name).write_many(range(1, count + 1))


# --- which server --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_list", [False, True])
def test_a_client_stays_with_the_server_that_answers(
    run: Run, server: ServerProcess, standby: StandbyServer, name: str, as_list: bool
) -> None:
    async def scenario(client: Any) -> None:
        assert await client.ready()
        for number in range(3):
            await client.topic(name).write(number)
        assert standby.requests == 1
        assert client.url == server.url

    urls = [standby.url, NOBODY, f"{server.url}/"]
    run(scenario, urls if as_list else " , ".join(urls), patience=0)


def test_a_server_that_cannot_write_is_left(run: Run, server: ServerProcess, name: str) -> None:
    old = StandbyServer(READ_ONLY)

    async def unkeyed(client: Any) -> None:
        # The answer of such a server does not say whether an append was made, so it is not sent to the other one.
        with pytest.raises(Busy, match="read_only"):
            await client.stream(name).append(2)
        await client.stream(name).create()
        assert client.url == server.url

    run(unkeyed, f"{old.url},{server.url}", patience=PATIENCE)
    run(lambda client: client.topic(f"{name}:t").write(1), [old.url, server.url], patience=PATIENCE)
    old.close()


def test_a_server_that_starts_is_waited_for(run: Run, standby: StandbyServer) -> None:
    starting = StandbyServer(NOT_READY)

    async def scenario(client: Any) -> None:
        with pytest.raises(Busy) as caught:
            await client.topic("orders").state()
        assert caught.value.code == "not_ready"
        assert f"{standby.url}: " in str(caught.value)

    run(scenario, [standby.url, starting.url], patience=Patience(0.2, first_wait=0.01, longest_wait=0.01))
    assert starting.requests > standby.requests == 1
    starting.close()


def test_an_error_names_all_servers(run: Run, standby: StandbyServer) -> None:
    other = "http://127.0.0.1:2"

    async def scenario(client: Any) -> None:
        with pytest.raises(Unreachable) as caught:
            await client.topic("orders").write(1)
        assert all(url in str(caught.value) for url in (NOBODY, other, standby.url))
        assert "standby" in str(caught.value)
        assert not caught.value.sent
        assert not await client.ready()

    run(scenario, [NOBODY, standby.url, other], patience=Patience(0.2, first_wait=0.01, longest_wait=0.01))
    run(scenario, [NOBODY, standby.url, other], patience=0)


def test_the_leader_that_a_standby_names_is_asked_next(run: Run, server: ServerProcess, standby: StandbyServer) -> None:
    knowing = StandbyServer(leader=server.url.removeprefix("http://"))

    async def scenario(client: Any) -> None:
        assert await client.ready()
        assert (knowing.requests, standby.requests) == (1, 0)
        assert client.url == server.url

    run(scenario, [knowing.url, standby.url, server.url], patience=0)
    knowing.close()


def test_a_leader_that_is_lost_does_not_keep_a_client_from_the_others() -> None:
    servers = Servers("http://a:1,http://b:1,http://c:1")
    a, b, c = servers.addresses
    named = Busy(503, "standby", "", {"leader": "a:1"})
    for address, error, following in (
        (a, Unreachable("", sent=False), b),
        (b, named, c),
        (c, named, a),
        # It answers again, and another one names it: it may have taken over since.
        (a, Busy(503, "standby", ""), b),
        (b, named, a),
        # Not one of the servers.
        (a, Busy(503, "standby", "", {"leader": "d:1"}), b),
    ):
        assert servers.current is address
        servers.failed(address, error)
        assert servers.current is following


@pytest.mark.parametrize(
    ("error", "moves"),
    [
        (Busy(503, "standby", ""), True),
        (Busy(503, "STANDBY", ""), True),
        (Busy(503, "read_only", ""), True),
        # A server that does not reach the replica may have been replaced, and cannot know.
        (Busy(503, "replica_away", ""), True),
        (Busy(503, "replica_behind", ""), True),
        (Busy(503, "", "from a proxy"), True),
        (ServerFault(502, "", "from a proxy"), True),
        (Unreachable("", sent=True), True),
        (Busy(503, "not_ready", ""), False),
        (Busy(429, "throttled", ""), False),
        (ServerFault(500, "internal", ""), False),
        (Refused(409, "no_replica", ""), False),
    ],
)
def test_which_errors_lead_to_the_next_server(error: StrandlineError, moves: bool) -> None:
    servers = Servers("http://a,http://b")
    first, second = servers.addresses
    assert servers.failed(first, error).server == (first.url if moves else None)
    assert servers.current is (second if moves else first)
    # The same failure of another request.
    servers.failed(first, error)
    assert servers.current is (second if moves else first)


def test_each_url_must_be_one() -> None:
    for urls in ("http://a:4000,b:4000", "http://a:4000,", ["http://a:4000", ""], []):
        with pytest.raises(ValueError, match=r"expected http|empty"):
            Client(urls)
    servers = Servers("http://a,http://b/, http://a")
    assert [address.url for address in servers.addresses] == ["http://a", "http://b"]


# --- writes --------------------------------------------------------------------------------------------------------


def test_writes_continue_at_the_other_server_when_one_is_killed(
    run: Run, server: ServerProcess, mortal: ServerProcess, name: str
) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        for number in range(5):
            await topic.write(number)
        assert client.url == mortal.url
        mortal.kill()
        for number in range(5, 10):
            await topic.write(number)
        assert [record.data async for record in topic.read()] == [5, 6, 7, 8, 9]
        assert client.url == server.url

    run(scenario, [mortal.url, server.url], patience=PATIENCE)


@pytest.mark.parametrize("cut", [0, 10, 150])
def test_a_write_whose_answer_is_lost_is_made_once(run: Run, server: ServerProcess, name: str, cut: int) -> None:
    async def scenario(client: Any) -> None:
        proxies = [CuttingProxy(server.url, cut) for _ in range(2)]
        async with AsyncClient([*(proxy.url for proxy in proxies), server.url], patience=PATIENCE) as several:
            for number in range(3):
                await several.topic(name).write(number)
            await several.write([Write(name, [3])])
            assert several.url == server.url
        assert [record.data async for record in client.topic(name).read()] == [0, 1, 2, 3]
        for proxy in proxies:
            proxy.vanish()

    run(scenario)


def test_a_producer_continues_at_the_other_server(
    run: Run, server: ServerProcess, proxy: CuttingProxy, name: str
) -> None:
    async def scenario(client: Any) -> None:
        topic, stream = client.topic(name), client.stream(f"{name}:s")
        await stream.create()
        async with topic.producer() as producer:
            appender = stream.producer()
            for number in range(300):
                await producer.produce(number)
                if number % 100 == 0:
                    await appender.append(number)
                if number == 150:
                    proxy.vanish()
        assert producer.written == 300
        assert [record.data async for record in topic.read()] == list(range(300))
        assert [value async for value in stream.read()] == [0, 100, 200]
        assert client.url == server.url

    run(scenario, [proxy.url, server.url], patience=PATIENCE)


def test_a_worker_continues_at_the_other_server(
    run: Run, server: ServerProcess, proxy: CuttingProxy, name: str
) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.enqueue_many(range(20))
        done: list[int] = []

        def process(job: Any) -> None:
            done.append(job.data)
            if len(done) == 5:
                proxy.vanish()

        worker = queue.worker(process, poll_seconds=0.01, lease_ms=10_000)
        await worker.run(until_empty=True)
        # A job whose lease ends because the machine is busy is delivered twice.
        assert sorted(set(done)) == list(range(20))
        assert (await queue.counters()).ready == 0

    run(scenario, [proxy.url, server.url], patience=PATIENCE)


def test_signatures_are_for_the_server_that_gets_them(
    run: Run, tmp_path: Path, standby: StandbyServer, name: str
) -> None:
    process = ServerProcess(tmp_path / "data", config=ROOT / "tests" / "clients" / "starfish" / "collections.toml")
    alice = OwnIdentity(Signer("01" * 32), KemKey("41" * 32))

    async def scenario(client: Any) -> None:
        document = client.collections(alice).document(f"notes/{name}", verify=alice.signer.public)
        assert (await document.append({"n": 1}, ts=1000)).timestamp == 1000
        assert [element.ts for element in (await document.pull(full=True)).elements] == [1000]

    try:
        run(scenario, [standby.url, process.start().url], patience=PATIENCE)
    finally:
        process.end()


# --- live responses ------------------------------------------------------------------------------------------------


def test_live_readers_continue_at_the_other_server(run: Run, mortal: ServerProcess, name: str) -> None:
    proxy = CuttingProxy(mortal.url)

    async def scenario(client: Any) -> None:
        topic, stream, votes = client.topic(name), client.stream(f"{name}:s"), client.table("note")
        await topic.write(1)
        await stream.create([1])
        await votes.append(name, {"n": 1})
        async with topic.tail(0) as tail, stream.tail(START) as pages, votes.live(name) as rows:
            assert (await tail.__anext__()).data == 1
            assert (await pages.__anext__()).values == [1]
            assert (await rows.__anext__()).row.payload == {"n": 1}
            assert isinstance(await rows.__anext__(), Ready)
            proxy.vanish()
            await topic.write(2)
            await stream.append(2)
            await votes.append(name, {"n": 2})
            assert (await tail.__anext__()).data == 2
            assert (await pages.__anext__()).values == [2]
            assert (await rows.__anext__()).row.payload == {"n": 2}
        assert client.url == mortal.url

    run(scenario, [proxy.url, mortal.url], patience=PATIENCE, user="ann")


# --- other users of the transport ----------------------------------------------------------------------------------


def test_history_is_read_from_the_server_that_answers(server: ServerProcess, proxy: CuttingProxy, name: str) -> None:
    with_numbers(server.url, name, 1000)
    history = ServerHistory(f"{NOBODY},{proxy.url},{server.url}", patience=PATIENCE)
    log = history.log(name)
    [piece] = history.pieces(log, 0, log.head, 10_000)
    batches = piece.read(batch_rows=10)
    rows = next(batches).num_rows
    proxy.vanish()
    assert rows + sum(batch.num_rows for batch in batches) == 1000
