"""Collections behind a real gate, without sockets, threads or time: the clock is turned by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from strandline.collections import AppendOnly, Collection, DeclaredCollections, RateLimit, Roles
from strandline.collections.config import CollectionsConfig
from strandline.collections.config_check import check
from strandline.collections.settings import CollectionsSettings
from strandline.delivery.hub import Hub
from strandline.engine import Engine, ManualClock, Options
from strandline.engine.disk import Disk
from strandline.protocols.collections.authorization import open_authorizer
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.routes import CollectionsProtocol
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.routes import TopicsProtocol
from strandline.protocols.topics.settings import TopicsSettings
from strandline.server.gate import Gate, Status
from strandline.service.http import Reply, StreamedAnswer
from strandline.service.kernel import Kernel
from strandline.service.limits import Limits
from strandline.signing.author_proofs import sign
from strandline.signing.keys import Signer
from support.gate_calls import ask_gate
from support.signed_calls import headers_of, plain
from support.topics_client import Event
from support.watch_sessions import ListSink

#: What :mod:`signed_calls` signs at.
NOW = 1_714_000_000_000

Cap = tuple[dict[str, Any], Signer]
#: What the fixture ``stand`` gives.
MakeStand = Callable[..., "Stand"]


def opened(name: str = "events", path: str = "events", **options: Any) -> Collection:
    """A collection that everybody may read and write, without proofs of authors. Options of ``append_only`` by their
    names, too."""
    rules = {key: options.pop(key) for key in AppendOnly.__struct_fields__ if key in options}
    rules.setdefault("require_author_signature", False)
    roles = {"read_roles": ("public",), "write_roles": ("public",)}
    return Collection(**{**roles, **options, "name": name, "storage_path": path, "append_only": AppendOnly(**rules)})


class Answered:
    """An answer, as a client sees it."""

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.body = reply.body
        self.headers = {name.decode(): value.decode() for name, value in reply.headers}

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        return self.status, self.json["error"]

    @property
    def items(self) -> list[Any]:
        """The elements of a pull."""
        assert self.status == 200, self
        items: list[Any] = self.json["data"]["items"]
        return items

    def __repr__(self) -> str:
        return f"<{self.status} {self.body!r}>"


class Tail:
    """An open live response."""

    def __init__(self, stand: Stand, stream: StreamedAnswer) -> None:
        self._stand = stand
        self.stream = stream
        self.sink = ListSink()
        stream.opened(self.sink)

    def events(self) -> list[Event]:
        """The events since the last look."""
        self._stand.settle()
        return [block for block in self.sink.blocks() if block.data is not None]

    def elements(self) -> list[Any]:
        """The data of the elements since the last look."""
        events = self.events()
        assert all(event.event == "element" for event in events), events
        assert all(event.id == str(event.json["ts"]) for event in events)
        return [event.json["data"] for event in events]


class Stand:
    """One life of a server on a directory."""

    def __init__(
        self,
        path: Path | Disk,
        *collections: Collection,
        namespaces: Mapping[str, tuple[Collection, ...]] | None = None,
        rate_limit: RateLimit | None = None,
        roles: Roles | None = None,
        clock: ManualClock | None = None,
        options: Options | None = None,
        streams: int = 0,
        **settings: Any,
    ) -> None:
        self._streams = streams
        self.clock = clock or ManualClock(NOW)
        self.engine = Engine.open(path, options or Options(), clock=self.clock, background=False)
        self._loop = asyncio.new_event_loop()
        self.config = CollectionsConfig(
            collections=collections,
            namespaces=namespaces or {},
            rate_limit=rate_limit,
            settings=CollectionsSettings(**settings),
        )
        check(self.config)
        declared = DeclaredCollections(roles=roles or Roles())
        self._loop.run_until_complete(self._open(declared))

    async def _open(self, declared: DeclaredCollections) -> None:
        hub = Hub(self.clock.now)
        limits = Limits(max_sse_connections=self._streams)
        kernel = Kernel.for_tests(self.engine, hub, limits.streams)
        self.topics = Context(kernel, TopicsSettings())
        self.responses = kernel.live
        authorizer = open_authorizer(self.config, declared, kernel.workers.callbacks.run)
        self.context = CollectionsContext(kernel, self.config, authorizer)
        self.face = CollectionsProtocol(self.context)
        routes = [*self.face.routes(), *TopicsProtocol(self.topics).routes()]
        self.gate = Gate(
            routes, keys=None, limits=limits, status=Status(ready=True), workers=kernel.workers, max_body_bytes=1 << 20
        )

    def __enter__(self) -> Stand:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.context.workers.close()
        self.engine.close()
        self._loop.close()

    def watch_revocations(self) -> None:
        """Let the server look at its revocation lists once, as it does every few seconds."""
        sleeps = iter((None,))

        async def sleep(seconds: float) -> None:
            if next(sleeps, "over") == "over":
                raise asyncio.CancelledError

        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(
                self.context.authorizer.capabilities.revocations.watch(self.context.hub.in_thread, sleep)
            )

    def ask(self, method: str, target: str, body: Any = None, **options: Any) -> Answered:
        """Send one request; the options are those of :meth:`ask_at_once`."""
        (answer,) = self.ask_at_once(1, method, target, body, **options)
        return answer

    def ask_at_once(
        self,
        count: int,
        method: str,
        target: str,
        body: Any = None,
        *,
        cap: Cap | None = None,
        peer: str = "",
        **headers: str,
    ) -> list[Answered]:
        """Send the same request ``count`` times at the same moment. ``body``: bytes as they are, anything else as JSON.
        Headers have underscores in their names."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {}
        if body is not None:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        if cap is not None:
            sent |= headers_of(*cap, method, target, content, self.clock.now())
        sent |= {name.replace("_", "-").title(): value for name, value in headers.items()}
        calls = [
            plain(method, target, content, {name: value for name, value in sent.items() if value}, peer)
            for _ in range(count)
        ]

        async def answered() -> list[Answered]:
            asked = [ask_gate(self.gate, call) for call in calls]
            answers = [await each for each in asked]
            return [Answered(answer) for answer in answers if isinstance(answer, Reply)]

        answers = self._loop.run_until_complete(answered())
        assert len(answers) == count
        return answers

    def settle(self) -> None:
        """Let everything happen that is on its way on the loop."""

        async def turns() -> None:
            for _ in range(50):
                await asyncio.sleep(0)

        self._loop.run_until_complete(turns())

    def live(self, path: str, query: str = "", *, cap: Cap | None = None, mount: str = "", **headers: str) -> Tail:
        """Open a live response."""
        target = f"{mount}/live/{path}?{query}" if query else f"{mount}/live/{path}"
        sent = {} if cap is None else headers_of(*cap, "GET", target, b"", self.clock.now())
        sent |= {name.replace("_", "-").title(): value for name, value in headers.items()}
        call = plain("GET", target, b"", sent, "")

        async def opened() -> Tail:
            answer = await ask_gate(self.gate, call)
            assert isinstance(answer, StreamedAnswer), Answered(answer)
            return Tail(self, answer)

        return self._loop.run_until_complete(opened())

    def get(self, target: str, **options: Any) -> Answered:
        return self.ask("GET", target, **options)

    def push(
        self, path: str, data: Any, ts: Any = None, *, author: Signer | None = None, cap: Cap | None = None, **more: Any
    ) -> Answered:
        """Append an element to ``path``, with the proof of an author if there is one."""
        body = {"data": data, **more}
        if ts is not None:
            body["ts"] = ts
        if author is not None:
            proof = sign(author, path, data)
            body |= {"authorPubkey": proof.public_key, "authorSignature": proof.signature}
        return self.ask("POST", f"/push/{path}", body, cap=cap)

    def pull(self, path: str, query: str = "full=true", **options: Any) -> Answered:
        return self.get(f"/pull/{path}?{query}" if query else f"/pull/{path}", **options)

    def pushed(self, path: str, *data: Any, **options: Any) -> list[int]:
        """Append elements one after the other; returns their times."""
        answers = [self.push(path, each, **options) for each in data]
        assert all(answer.status == 200 for answer in answers), answers
        return [answer.json["timestamp"] for answer in answers]

    def records(self, topic: str) -> list[Any]:
        """The data of all records of a topic."""
        log = self.engine.find(topic)
        return [] if log is None else [json.loads(record.data) for record in log.read(limit=10_000)]
