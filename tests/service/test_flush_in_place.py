"""When a request flushes on the event loop: only if the server has nothing else to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.delivery.hub import Hub
from strandline.engine import Batch, Commit, Config, Engine, Log
from strandline.service.admission import Admission, Pressure
from strandline.service.flush_in_place import MAX_FLUSH_US, FlushInPlace
from strandline.service.http import Later, Reply


class Server:
    """An engine, and the requests that have arrived."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests = self.in_a_row = 0
        self.in_place = FlushInPlace(engine, lambda: self.requests, lambda: self.in_a_row)
        engine.create("log", Config(durability="fsync")).wait()
        engine.flushing.times.last = 100.0

    @property
    def log(self) -> Log:
        return self.engine.log("log")

    def append(self, *, other_connection: bool = False) -> Commit[object]:
        """A request that appends a record."""
        self.requests += 1
        self.in_a_row = 0 if other_connection else self.in_a_row + 1
        return self.log.append(Batch([b"1"]))

    def is_best(self, *, other_connection: bool = False) -> bool:
        """Whether an append is flushed where it was made. Then it is on the disk."""
        self.append(other_connection=other_connection)
        best = self.in_place.is_best()
        self.engine.flush()
        self.engine.flushing.times.last = 100.0
        return best


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Engine.open(tmp_path / "data", background=False) as engine:
        yield Server(engine)


def test_a_client_that_is_alone_does_not_wait_for_a_thread(server: Server) -> None:
    assert all(server.is_best() for _ in range(3))


def test_clients_that_take_turns_share_the_flushes_of_the_thread(server: Server) -> None:
    assert not any(server.is_best(other_connection=True) for _ in range(3))
    assert server.is_best()


def test_another_request_in_between_means_that_the_server_has_other_work(server: Server) -> None:
    assert server.is_best()
    server.requests += 1
    assert not server.is_best()
    assert server.is_best()


def test_the_loop_does_not_flush_while_others_wait_for_the_disk(server: Server) -> None:
    server.log.append(Batch([b"0"]))
    assert not server.is_best()


def test_a_slow_disk_does_not_block_the_loop(server: Server) -> None:
    server.engine.flushing.times.last = MAX_FLUSH_US + 1
    assert not server.is_best()


def test_the_loop_does_not_wait_for_a_flush_in_progress(server: Server) -> None:
    server.append()
    with server.engine.flushing.turns:
        assert not server.in_place.is_best()


@pytest.mark.parametrize("in_place", [True, False])
def test_a_reply_is_made_in_place_or_when_the_thread_has_flushed(tmp_path: Path, in_place: bool) -> None:
    async def scenario() -> None:
        with Engine.open(tmp_path / "data") as engine:
            engine.create("log", Config(durability="fsync")).wait()
            hub = Hub(engine.now)
            admission = Admission(hub, Pressure(hub.scheduler))
            admission.flushes_in_place = lambda: in_place
            commit = engine.log("log").append(Batch([b"1"]))
            answer = admission.after(commit, lambda done: Reply(b"%d" % done.last))
            assert isinstance(answer, Reply) if in_place else isinstance(answer, Later)
            reply = answer if isinstance(answer, Reply) else await answer
            assert isinstance(reply, Reply)
            assert reply.body == b"1"
            assert engine.stats().pending == 0

    asyncio.run(scenario())
