"""The streams face without a server around it: an engine without threads, a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from strandline.delivery.hub import Hub
from strandline.engine import Batch, Engine, ManualClock, Options
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.routes import StreamsProtocol
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.streams.stream import Stream, StreamTraits
from strandline.service.access import FULL_ACCESS, Access
from strandline.service.http import Answer, Call, Head, Later, Reply
from strandline.service.kernel import Kernel
from strandline.service.limits import Slots

NOW = 1_700_000_000_000


class Stand:
    def __init__(self, engine: Engine, clock: ManualClock, settings: StreamsSettings) -> None:
        self.engine = engine
        self.clock = clock
        self.hub = Hub(clock.now)
        self.answered: dict[tuple[str, int], int] = {}
        self.context = StreamsContext(Kernel.for_tests(engine, self.hub, Slots()), settings)
        self.face = StreamsProtocol(self.context, lambda: self.answered)

    def create(self, name: str, *data: object, **traits: Any) -> Stream:
        made = StreamTraits(**traits)
        stream, commit = self.context.streams.create(name, made, durability="memory")
        commit.wait()
        self.append(stream, *data)
        return stream

    def append(self, stream: Stream, *data: object, key: str | None = None) -> None:
        if data:
            values = [json.dumps(each).encode() for each in data]
            stream.log.append(Batch(values, None if key is None else [key] * len(values))).wait()

    def fork(self, name: str, source: Stream, through: int) -> Stream:
        traits = StreamTraits()
        stream, commit = self.context.streams.create(name, traits, source=(source.log, through), durability="memory")
        commit.wait()
        return stream

    def call(self, query: str = "", *, access: Access = FULL_ACCESS, **params: str) -> Call:
        """``if_none_match`` is a header, every other parameter one of the path."""
        tag = params.pop("if_none_match", None)
        head = Head("GET", "/", query, {} if tag is None else {b"if-none-match": tag.encode()})
        head.params = params
        head.access = access
        return Call(head, b"", perf_counter())

    async def settle(self) -> None:
        """Let everything that was posted to the loop happen."""
        for _ in range(3):
            await asyncio.sleep(0)


async def reply_of(answer: Answer | Later | Awaitable[Answer]) -> Reply:
    reply = answer if isinstance(answer, Reply) else await answer  # type: ignore[misc]
    assert isinstance(reply, Reply)
    return reply


def body_of(reply: Reply) -> Any:
    return json.loads(reply.body)


def header(reply: Reply, name: bytes) -> str:
    return dict(reply.headers)[name].decode()


@contextmanager
def _engine(path: Path, clock: ManualClock, options: Options) -> Iterator[Engine]:
    with Engine.open(path, options, clock=clock, background=False) as engine:
        yield engine


def at_stand(
    path: Path,
    test: Callable[[Stand], Awaitable[None]],
    *,
    options: Options | None = None,
    clock: ManualClock | None = None,
    **settings: Any,
) -> None:
    """Run a test that awaits things. ``options`` are the engine's, ``settings`` the face's."""
    turned = clock or ManualClock(NOW)

    async def run() -> None:
        with _engine(path, turned, options or Options()) as engine:
            stand = Stand(engine, turned, StreamsSettings(**settings))
            try:
                await test(stand)
            finally:
                stand.face.drain()
                stand.context.live.close()

    asyncio.run(run())
