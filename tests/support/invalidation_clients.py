"""What the tests of live invalidation share: a log, a clock turned by hand, and clients that note what they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from strandline.delivery.invalidation.keys import ENCODINGS, ID_MASK, NUL, RowKeys, in_order, template_id
from strandline.delivery.invalidation.request import WaitRequest
from strandline.delivery.invalidation.runtime import Runtime
from strandline.delivery.invalidation.templates import Activation, Declaration, TemplateField
from strandline.delivery.invalidation.waiters import TouchAnswer
from strandline.engine import Batch, Engine, ManualClock
from strandline.schema.profiles.touch_settings import TouchSettings

NOW = 1_700_000_000_000
EPOCH = 0x0123456789ABCDEF


def declare(entity: str, *names: str, encoding: str = "string") -> Declaration:
    return Declaration(entity, tuple(TemplateField(name, encoding) for name in names))


def row_keys(entity: str, **arguments: Any) -> tuple[int, RowKeys, bytes]:
    """The template's id, its keys, and the arguments as they are encoded."""
    identifier = template_id(entity, arguments)
    encoded = NUL.join(ENCODINGS["string"](arguments[name]) or b"" for name in in_order(arguments))
    return identifier, RowKeys(identifier), encoded


def watch_key(entity: str, **arguments: Any) -> int:
    _, keys, encoded = row_keys(entity, **arguments)
    return keys.watch(encoded)


def membership_key(entity: str, **arguments: Any) -> int:
    _, keys, encoded = row_keys(entity, **arguments)
    return keys.membership(encoded)


def field_key(entity: str, name: str, **arguments: Any) -> int:
    _, keys, encoded = row_keys(entity, **arguments)
    return keys.field(name, encoded)


def change(
    entity: str, operation: str, value: dict[str, Any] | None = None, old: dict[str, Any] | None = None
) -> bytes:
    message: dict[str, Any] = {"type": entity, "key": "1", "headers": {"operation": operation}}
    if value is not None:
        message["value"] = value
    if old is not None:
        message["old_value"] = old
    return msgspec.json.encode(message)


class Client:
    """Somebody who waits; ``answer`` is None as long as they do."""

    def __init__(self) -> None:
        self.answer: TouchAnswer | None = None
        self.told = 0

    def tell(self, answer: TouchAnswer) -> None:
        self.answer = answer
        self.told += 1

    @property
    def verdict(self) -> str | None:
        return None if self.answer is None else self.answer.verdict


class Stand:
    def __init__(self, engine: Engine, settings: TouchSettings, stored: object = None) -> None:
        self.clock = ManualClock(0)
        self.log = engine.find("changes") or engine.create("changes").wait()
        self.persisted: list[object] = []
        self.runtime = Runtime(
            self.log,
            settings,
            epoch=EPOCH,
            clock=lambda: float(self.clock.now()),
            wall=lambda: NOW + self.clock.now(),
            stored=stored,
            persist=self.persisted.append,
        )
        # The first change is not one that follows closely upon another.
        self.clock.advance(200)

    def append(self, *records: bytes) -> None:
        self.log.append(Batch(list(records))).wait()

    def run(self) -> None:
        """Do everything that there is to do now."""
        self.runtime.tick()
        while self.runtime.busy:
            assert self.runtime.step(perf_counter() + 60)
        self.runtime.tick()
        self.runtime.step(perf_counter() + 60)

    def pass_time(self, milliseconds: int) -> None:
        """Let the time pass, with everything done when it is time for it."""
        until = self.clock.now() + milliseconds
        self.run()
        while (due := self.runtime.next_due()) is not None and due <= until:
            self.clock.set(max(self.clock.now(), int(-(-due // 1))))
            self.run()
        self.clock.set(until)
        self.run()

    def activate(self, *declarations: Declaration, ttl_ms: int | None = None) -> Activation:
        return self.runtime.activate(declarations, ttl_ms)

    @property
    def generation(self) -> int:
        return self.runtime.journal.generation

    def wait(
        self,
        *keys: int,
        since: int | None = None,
        timeout_ms: int = 30_000,
        templates: tuple[int, ...] | None = None,
        coarse: bool = False,
        exact: bool = False,
        epoch: str | None = None,
        tell: Callable[[TouchAnswer], None] | None = None,
    ) -> Client:
        """Wait on whole keys; ``since`` is a generation, None: from now on."""
        client = Client()
        request = WaitRequest(
            frozenset(key & ID_MASK for key in keys),
            timeout_ms,
            coarse=coarse,
            keys=frozenset(keys) if exact else None,
            templates=templates,
        )
        client.answer = self.runtime.wait(request, epoch or self.runtime.epoch, since, tell or client.tell)
        return client


@contextmanager
def touching(path: Path, settings: TouchSettings | None = None) -> Iterator[Stand]:
    engine = Engine.open(path, clock=ManualClock(NOW), background=False)
    try:
        yield Stand(engine, settings or TouchSettings())
    finally:
        engine.close()
