"""The console behind a real gate, without sockets or time: the clock is turned by hand, and samples are taken when the
test says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar

from strandline.collections import Collection, Collections, Namespace
from strandline.delivery.hub import Hub
from strandline.engine import Batch, Config, Engine, Log, ManualClock, Options
from strandline.protocols.console.catalogue import SMALL
from strandline.protocols.console.context import ConsoleContext, Surroundings
from strandline.protocols.console.routes import ConsoleProtocol
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.routes import StreamsProtocol
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.routes import TopicsProtocol
from strandline.protocols.topics.settings import TopicsSettings
from strandline.server.gate import Gate, Status
from strandline.service.access import Keys
from strandline.service.http import Call, Head, Reply, StreamedAnswer
from strandline.service.kernel import Kernel
from strandline.service.limits import Limits
from strandline.service.request_meter import RequestMeter, RequestTotals
from strandline.tables import TableDeclaration, Tables
from support.gate_calls import ask_gate
from support.watch_sessions import ListSink

NOW = 1_714_000_000_000
API = "/console/api"

T = TypeVar("T")


class Answered:
    """An answer, as a client sees it."""

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.body = reply.body
        self.content_type = reply.content_type.decode()
        self.headers = {name.decode(): value.decode() for name, value in reply.headers}

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        return self.status, self.json["error"]["code"]

    def __repr__(self) -> str:
        return f"<{self.status} {self.body!r}>"


class Opened:
    """An open event stream."""

    def __init__(self, stand: ConsoleStand, stream: StreamedAnswer) -> None:
        self._stand = stand
        self.stream = stream
        self.sink = ListSink()
        stand.do(lambda: stream.opened(self.sink))

    def events(self) -> list[tuple[str, Any]]:
        """What came since the last look."""
        self._stand.settle()
        return self.sink.events()

    def resume(self) -> None:
        self.sink.full = False
        self._stand.do(self.stream.resumed)

    def close(self) -> None:
        self._stand.do(self.stream.closed)


class ConsoleStand:
    """One life of a server on a directory. ``keys`` as an operator writes them down."""

    def __init__(
        self,
        path: Path,
        keys: str = "",
        *,
        streams: int = 0,
        small: int = SMALL,
        tables: Sequence[TableDeclaration] = (),
        collections: Sequence[Collection | Namespace] = (),
        **options: Any,
    ) -> None:
        self.clock = ManualClock(NOW)
        self.path = path
        self.engine = Engine.open(path, Options(**options), clock=self.clock, background=False)
        self._loop = asyncio.new_event_loop()
        self.tables = Tables(self.engine, tables)
        self.collections = Collections(self.engine, collections)
        self._keys = Keys.parse(keys) if keys else None
        self._loop.run_until_complete(self._open(streams, small))

    async def _open(self, streams: int, small: int) -> None:
        hub, limits = Hub(self.clock.now), Limits(max_sse_connections=streams)
        kernel = Kernel.for_tests(self.engine, hub, limits.streams)
        self.live = kernel.live
        self.topics = Context(kernel, TopicsSettings())
        self.streams = StreamsContext(kernel, StreamsSettings(metrics_flush_ms=0))
        around = Surroundings(
            self._keys is not None,
            lambda: False,
            lambda: True,
            lambda: 1_000,
            lambda: 7,
            self._totals,
            str,
            lambda: self.streams_face.subscribing.subscriptions,
            self.path,
            self.path / "lake",
        )
        self.face = ConsoleProtocol(ConsoleContext(kernel, around, self.tables, self.collections))
        self.catalogue = self.face.catalogue
        self.catalogue._small = small
        self.streams_face = StreamsProtocol(self.streams)
        routes = [*self.face.routes(), *TopicsProtocol(self.topics).routes(), *self.streams_face.routes()]
        self.limits = limits
        self.gate = Gate(
            routes,
            keys=self._keys,
            limits=limits,
            status=Status(ready=True),
            workers=kernel.workers,
            max_body_bytes=1 << 20,
        )

    def _totals(self) -> RequestTotals:
        return RequestMeter.totals(self.gate.meters())

    def __enter__(self) -> ConsoleStand:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.do(self.live.drain)
        self.do(self.streams_face.drain)
        self.face.close()
        self.tables.close()
        self.topics.workers.close()
        self.engine.close()
        self._loop.close()

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return self._loop.run_until_complete(wait())

    def do(self, act: Callable[[], T]) -> T:
        async def run() -> T:
            return act()

        return self._loop.run_until_complete(run())

    def settle(self) -> None:
        """Let everything happen that is on its way on the loop."""

        async def turns() -> None:
            for _ in range(50):
                await asyncio.sleep(0)

        self._loop.run_until_complete(turns())

    def sample(self, milliseconds: int = 1_000) -> None:
        """Let time pass, and take a sample."""
        self.clock.advance(milliseconds)
        self.run(self.face.overview.sample())

    # --- asking ----------------------------------------------------------------------------------------------------

    def _call(self, method: str, target: str, body: Any, headers: dict[str, str]) -> Call:
        path, _, query = target.partition("?")
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        if body is not None:
            sent = {b"content-type": b"application/json", b"content-length": b"%d" % len(content)} | sent
        return Call(Head(method, path, query, sent), content, perf_counter())

    def ask(self, method: str, target: str, body: Any = None, *, key: str = "", **headers: str) -> Answered:
        if key:
            headers["authorization"] = f"Bearer {key}"
        call = self._call(method, target, body, headers)

        async def answered() -> Reply:
            answer = await ask_gate(self.gate, call)
            assert isinstance(answer, Reply)
            return answer

        return Answered(self._loop.run_until_complete(answered()))

    def get(self, target: str, **options: Any) -> Any:
        """The JSON of an answer that is no refusal, of a path below the API."""
        answered = self.ask("GET", API + target, **options)
        assert answered.status == 200, answered
        return answered.json

    def refused(self, target: str, **options: Any) -> tuple[int, str]:
        return self.ask("GET", API + target, **options).error

    def open(self, target: str, *, key: str = "", **headers: str) -> Opened | Answered:
        """An event stream, or why there is none."""
        if key:
            headers["authorization"] = f"Bearer {key}"
        call = self._call("GET", API + target, None, headers)
        answer = self.do(lambda: ask_gate(self.gate, call)).answer
        if isinstance(answer, Reply):
            return Answered(answer)
        assert isinstance(answer, StreamedAnswer)
        return Opened(self, answer)

    def tail(self, target: str, **options: Any) -> Opened:
        opened = self.open(target, **options)
        assert isinstance(opened, Opened), opened
        return opened

    # --- logs ------------------------------------------------------------------------------------------------------

    def log(self, name: str, *data: Any, keys: Sequence[str | None] | None = None, **config: Any) -> Log:
        """A log with records, appended one by one: bytes as they are, anything else as JSON."""
        log = self.engine.find(name) or self.engine.create(name, Config(**config)).wait()
        for at, each in enumerate(data):
            content = each if isinstance(each, bytes) else json.dumps(each).encode()
            log.append(Batch.of(content, None if keys is None else keys[at])).wait()
        return log

    def put(self, name: str, **config: Any) -> None:
        """A topic."""
        answered = self.ask("PUT", f"/v0/topics/{name}", config)
        assert answered.status in (200, 201), answered

    def stream(self, name: str, media_type: str, *bodies: bytes) -> None:
        answered = self.ask("PUT", f"/v1/stream/{name}", b"", content_type=media_type)
        assert answered.status in (200, 201), answered
        for body in bodies:
            answered = self.ask("POST", f"/v1/stream/{name}", body, content_type=media_type)
            assert answered.status in (200, 204), answered
