"""The streams face behind a real gate, without sockets, threads or time: both clocks are turned by hand, and nothing
reaches the disk before the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from strandline.delivery.hub import Hub
from strandline.engine import Engine, ManualClock, Options
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.routes import StreamsProtocol
from strandline.protocols.streams.settings import StreamsSettings
from strandline.server.gate import Gate, Status
from strandline.service.http import Call, Head, Later, Reply, StreamedAnswer
from strandline.service.kernel import Kernel
from strandline.service.limits import Limits
from strandline.service.workers import Workers
from support.gate_calls import ask_gate
from support.streams_client import JSON

NOW = 1_700_000_000_000


class HandLoop(asyncio.SelectorEventLoop):
    """A loop whose time can be put forward: timers that are due by then ring in the next turn."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Asked:
    """A request, and what came of it: a reply, once there is one, or an event stream."""

    def __init__(self, answered: Later) -> None:
        self.reply: Reply | None = None
        self.stream: StreamedAnswer | None = None
        self.written = b""
        self.closed = False
        answered.then(lambda later: self._take(later.result()))

    def _take(self, answer: Reply | StreamedAnswer) -> None:
        if isinstance(answer, Reply):
            self.reply = answer
        else:
            self.stream = answer
            answer.opened(self)

    # --- as the sink of an event stream ----------------------------------------------------------------------------

    def write(self, data: bytes) -> bool:
        self.written += data
        return True

    def close(self) -> None:
        self.closed = True
        assert self.stream is not None
        self.stream.closed()

    abort = close
    unread_bytes = 0

    # --- what came ---------------------------------------------------------------------------------------------------

    @property
    def status(self) -> int | None:
        """None: the answer is not there yet."""
        return None if self.reply is None else self.reply.status

    @property
    def headers(self) -> dict[str, str]:
        assert self.reply is not None
        return {name.decode(): value.decode() for name, value in self.reply.headers}

    @property
    def code(self) -> str:
        """Of an error."""
        assert self.reply is not None
        code: str = msgspec.json.decode(self.reply.body)["error"]["code"]
        return code

    @property
    def body(self) -> bytes:
        assert self.reply is not None
        return self.reply.body


class HandServer:
    def __init__(self, engine: Engine, clock: ManualClock, loop: HandLoop, settings: StreamsSettings) -> None:
        self.engine = engine
        # Without a thread the engine would flush for whoever waits, at once.
        engine.flushing.flush_soon = lambda: None  # type: ignore[method-assign]
        self.clock = clock
        self._loop = loop
        self.hub = Hub(clock.now, loop)
        limits = Limits(max_inflight_per_key=0, max_sse_connections=0, max_sse_connections_per_key=0)
        workers = Workers()
        self.context = StreamsContext(Kernel.for_tests(engine, self.hub, limits.streams, workers), settings)
        self.streams = self.context.streams
        self.face = StreamsProtocol(self.context)
        self.gate = Gate(
            self.face.routes(),
            keys=None,
            limits=limits,
            status=Status(ready=True),
            workers=workers,
            max_body_bytes=64 << 20,
        )

    def ask(self, method: str, path: str, body: bytes = b"", content_type: str = JSON, **headers: str) -> Asked:
        """``path`` is the stream's name, perhaps with a query; headers have underscores in their names."""
        url, _, query = f"/v1/stream/{path}".partition("?")
        sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        if content_type and method in ("PUT", "POST"):
            sent[b"content-type"] = content_type.encode()
        sent[b"content-length"] = b"%d" % len(body)
        call = Call(Head(method, url, query, sent), body, perf_counter())
        return Asked(ask_gate(self.gate, call))

    async def settled(self, asked: Asked) -> Asked:
        """The same, once it is answered; everything is flushed meanwhile."""
        for _ in range(200):
            await self.flush()
            if asked.reply is not None:
                return asked
            await asyncio.sleep(0.001)
        raise AssertionError("there is no answer")

    async def done(self, method: str, path: str, body: bytes = b"", content_type: str = JSON, **headers: str) -> Asked:
        return await self.settled(self.ask(method, path, body, content_type, **headers))

    async def flush(self) -> None:
        """Let everything that is journaled get to the disk, and everybody learn of it."""
        self.engine.flush()
        await self.turns()

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def later(self, seconds: float) -> None:
        """Turn both clocks."""
        self.clock.advance(round(seconds * 1000))
        self._loop.ahead += seconds
        # Timers are looked at once per turn, and some set the next one.
        await self.turns()


def by_hand(
    path: Path,
    *tests: Callable[[HandServer], Awaitable[None]],
    clock: ManualClock | None = None,
    options: Options | None = None,
    **settings: Any,
) -> None:
    """Run a test, or several one after the other, each in another life of a server on the same directory."""
    turned = clock or ManualClock(NOW)

    async def run(test: Callable[[HandServer], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HandLoop)
        with Engine.open(path, options or Options(), clock=turned, background=False) as engine:
            server = HandServer(engine, turned, loop, StreamsSettings(metrics_flush_ms=0, **settings))
            try:
                await test(server)
            finally:
                server.face.drain()
                server.context.live.close()

    for test in tests:
        with asyncio.Runner(loop_factory=HandLoop) as runner:
            runner.run(run(test))
