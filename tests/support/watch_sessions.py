"""Watching without a network: sessions and streams whose sinks and clocks are in the hands of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from strandline.delivery.hub import Hub
from strandline.engine import Batch, Engine, ManualClock
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.sessions import SessionStream
from strandline.protocols.topics.settings import TopicsSettings
from strandline.protocols.topics.topics import Topic, new_topic
from strandline.protocols.topics.watch import TopicWatches
from strandline.service.access import FULL_ACCESS, Access
from strandline.service.http import Call, Head
from strandline.service.kernel import Kernel
from strandline.service.limits import Slots
from strandline.service.log_config import TopicConfig
from strandline.service.settings import DeliverySettings, LimitSettings
from support.topics_client import Event, parse_block

NOW = 1_700_000_000_000


class ListSink:
    """Keeps what is written. ``full``: the reader takes nothing more."""

    def __init__(self) -> None:
        self.data = b""
        self.full = False
        self.is_closed = False
        self.aborted = False

    @property
    def unread_bytes(self) -> int:
        return len(self.data)

    def write(self, data: bytes) -> bool:
        self.data += data
        return not self.full

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.aborted = True

    def blocks(self) -> list[Event]:
        """Everything that came since the last look."""
        blocks = [parse_block(block) for block in self.data.decode().split("\n\n")[:-1]]
        self.data = b""
        return blocks

    def events(self) -> list[tuple[str, Any]]:
        return [(block.event or "", block.json) for block in self.blocks() if block.data is not None]


class Connection:
    def __init__(self, stream: SessionStream) -> None:
        self.stream = stream
        self.sink = ListSink()
        stream.opened(self.sink)

    def close(self) -> None:
        self.stream.closed()

    def resume(self) -> None:
        self.sink.full = False
        self.stream.resumed()


class WatchStand:
    def __init__(self, engine: Engine, clock: ManualClock, settings: dict[str, Any]) -> None:
        self.clock = clock
        self.hub = Hub(clock.now)
        self.slots = Slots(total=2)
        kernel = Kernel.for_tests(engine, self.hub, self.slots)
        self.pressure, self.live = kernel.pressure, kernel.live
        sections = [
            section(**{name: settings.pop(name) for name in section.__struct_fields__ if name in settings})
            for section in (TopicsSettings, LimitSettings, DeliverySettings)
        ]
        assert not settings, "unknown settings"
        self.context = Context(kernel, *sections)
        self.watching = TopicWatches(self.context)

    def topic(self, name: str, **config: Any) -> Topic:
        topic, _ = self.context.topics.create(name, new_topic(name, TopicConfig(**config)))
        return topic

    def watch(self, access: Access = FULL_ACCESS, **body: Any) -> str:
        """Make a session; returns its wid."""
        reply = self.watching.create(_call("POST", "/v0/watch", access, body=msgspec.json.encode(body)))
        wid: str = msgspec.json.decode(reply.body)["wid"]
        return wid

    def open(self, wid: str, access: Access = FULL_ACCESS, **headers: str) -> Connection:
        call = _call("GET", f"/v0/watch/{wid}", access, headers=headers)
        call.head.params = {"wid": wid}
        return Connection(self.watching.open(call))

    def pass_time(self, seconds: float) -> None:
        """As far as the alarms know, and no further."""
        self.live.alarms.ring(self.hub.loop.time() + seconds)


def _call(method: str, path: str, access: Access, body: bytes = b"", headers: dict[str, str] | None = None) -> Call:
    raw = {name.replace("_", "-").encode(): value.encode() for name, value in (headers or {}).items()}
    head = Head(method, path, "", raw)
    head.access = access
    return Call(head, body, 0.0)


def write(topic: Topic, *data: Any) -> None:
    for value in data:
        topic.log.append(Batch.of(msgspec.json.encode(value))).wait()


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def on_a_stand(path: Path, scenario: Callable[[WatchStand], Awaitable[None]], **settings: Any) -> None:
    clock = ManualClock(NOW)
    engine = Engine.open(path, clock=clock, background=False)

    async def run() -> None:
        stand = WatchStand(engine, clock, settings)
        await scenario(stand)
        stand.live.close()

    try:
        asyncio.run(run())
    finally:
        engine.close()
