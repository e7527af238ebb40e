"""Nobody is told what a power cut could take back: the face behind a real gate, with nothing flushed before the test
says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from support.arrow_client import ArrowClient, table
from support.gate_calls import ask_gate

from strandline.delivery.hub import Hub
from strandline.engine import Batch, Config, Engine, ManualClock
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.routes import ArrowProtocol
from strandline.protocols.topics.settings import TopicsSettings
from strandline.server.gate import Gate, Status
from strandline.service.http import Call, Head, Later, Reply
from strandline.service.kernel import Kernel
from strandline.service.limits import Limits

NOW = 1_700_000_000_000
#: Whoever would answer too early does so within so many turns of the loop. Whoever should answer gets many.
TURNS = 100
MANY_TURNS = 20_000


class Hand:
    def __init__(self, engine: Engine) -> None:
        # Without a thread the engine would flush for whoever waits, at once.
        engine.flushing.flush_soon = lambda: None  # type: ignore[method-assign]
        self.engine = engine
        hub, limits = Hub(lambda: NOW), Limits()
        kernel = Kernel.for_tests(engine, hub, limits.streams)
        self.workers = kernel.workers
        self.face = ArrowProtocol(ArrowContext(kernel, TopicsSettings()), 1 << 20)
        self.gate = Gate(
            self.face.routes(),
            keys=None,
            limits=limits,
            status=Status(ready=True),
            workers=kernel.workers,
            max_body_bytes=1 << 20,
        )

    def ask(self, method: str, path: str, query: str = "", **sent: Any) -> Asked:
        headers = {name.encode(): value.encode() for name, value in sent.get("headers", {}).items()}
        call = Call(Head(method, f"/arrow/{path}", query, headers), sent.get("content", b""), perf_counter())
        return Asked(ask_gate(self.gate, call))

    async def flush(self, *asked: Asked) -> None:
        """Let everything that is journaled get to the disk, and these be answered."""
        self.engine.flush()
        await until(lambda: all(each.answer is not None for each in asked))


class Asked:
    def __init__(self, answered: Later) -> None:
        self._answered = answered

    @property
    def answer(self) -> Any:
        return self._answered.answer

    @property
    def json(self) -> Any:
        assert isinstance(self.answer, Reply)
        return json.loads(self.answer.body)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(MANY_TURNS):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the condition never came true")


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0.001)


def by_hand(path: Path, test: Callable[[Hand], Awaitable[None]]) -> None:
    async def run() -> None:
        with Engine.open(path, clock=ManualClock(NOW), background=False) as engine:
            hand = Hand(engine)
            try:
                await test(hand)
            finally:
                hand.workers.close()

    asyncio.run(run())


def test_a_writer_learns_of_its_progress_once_it_is_durable(tmp_path: Path) -> None:
    async def test(hand: Hand) -> None:
        log = hand.engine.create("log", Config(durability="fsync")).wait()
        first = ArrowClient.sending(table(1), {"a": 1})
        appended = hand.ask("POST", "records/log", "writer=w", **first)
        # A worker thread decodes the records. Once they are journaled, a flush is pending.
        await until(lambda: not log.sync().done)
        await turns()
        assert appended.answer is None
        # The answer is lost; the writer asks, and sends it again.
        asked = hand.ask("GET", "logs/log", "writer=w")
        again = hand.ask("POST", "records/log", "writer=w", **first)
        await turns()
        assert asked.answer is None
        assert again.answer is None
        await hand.flush(appended, asked, again)
        assert appended.json["progress"] == {"a": 1}
        assert asked.json["progress"] == {"a": 1}
        assert again.answer.status == 409
        assert again.json["error"]["detail"]["progress"] == {"a": 1}

    by_hand(tmp_path, test)


def test_records_are_read_once_they_are_durable(tmp_path: Path) -> None:
    async def test(hand: Hand) -> None:
        log = hand.engine.create("log", Config(durability="disk")).wait()
        log.append(Batch([b"1"]))
        await hand.flush()
        log.append(Batch([b"2"]))
        reading = hand.ask("GET", "records/log")
        await turns()
        assert reading.answer is None
        # What comes meanwhile is not part of it.
        log.append(Batch([b"3"]))
        await hand.flush(reading)
        assert dict(reading.answer.headers)[b"strandline-through"] == b"2"

    by_hand(tmp_path, test)


def test_readers_of_erasures_get_the_event_of_a_change_that_shows_already(tmp_path: Path) -> None:
    async def test(hand: Hand) -> None:
        log = hand.engine.create("log", Config(durability="disk")).wait()
        log.append(Batch([b"1", b"2"]))
        await hand.flush()
        log.delete(before=2)
        assert log.state().earliest == 2
        asked = hand.ask("GET", "logs/__erasures__")
        await turns()
        assert asked.answer is None
        await hand.flush(asked)
        assert asked.json["head"] == 1

    by_hand(tmp_path, test)
