"""What the tests of subscriptions share: an engine and a loop that are turned by hand, and a courier that waits to be
told what became of what it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from support.manual_loop import HandTurnedLoop

from strandline.delivery.hub import Hub
from strandline.delivery.subscriptions import (
    Claim,
    Link,
    Subscription,
    SubscriptionDefinition,
    Subscriptions,
    WakeHolder,
)
from strandline.delivery.subscriptions.webhooks import WebhookAnswer, parse_url
from strandline.engine import Batch, Config, Engine, Log, ManualClock

NOW = 1_700_000_000_000
HIDDEN = "hidden"


class Sent(NamedTuple):
    """Something that was handed to the courier."""

    url: str
    body: dict[str, Any]
    raw: bytes
    headers: Mapping[str, str]
    tell: Callable[[WebhookAnswer], None]

    @property
    def holder(self) -> WakeHolder:
        return WakeHolder(self.body["token"], self.body["wake_id"], self.body["generation"])


class WaitingCourier:
    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.stopped = False

    def check(self, url: str) -> None:
        parse_url(url)

    def deliver(self, url: str, body: bytes, headers: Mapping[str, str], tell: Callable[[WebhookAnswer], None]) -> None:
        self.sent.append(Sent(url, msgspec.json.decode(body), body, headers, tell))

    def stop(self) -> None:
        self.stopped = True


class PlainDialect:
    """Says things in seqs. Logs with a note of being hidden are not there."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def visible(self, log: Log) -> bool:
        return HIDDEN not in log.notes

    def wake_log(self, name: str) -> Log | None:
        found = self._engine.find(name)
        if found is None:
            self._engine.create(name)
            found = self._engine.log(name)
        return None if "closed" in found.notes else found

    def wake_event(self, subscription: Subscription, name: str, generation: int) -> bytes:
        return msgspec.json.encode([subscription.id, name, generation])

    def notification(self, subscription: Subscription, links: Sequence[Link], token: str) -> bytes:
        told = {link.name: [link.acked, link.tail] for link in links}
        return msgspec.json.encode(
            {
                "wake_id": subscription.wake_id,
                "generation": subscription.generation,
                "token": token,
                "streams": told,
                "base_url": subscription.base_url,
            }
        )


class Stand:
    """``reopen`` is a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(NOW)
        self._open()

    def _open(self) -> None:
        self.engine = Engine.open(self.path, clock=self.clock, background=False)
        self.loop = HandTurnedLoop()
        self.hub = Hub(self.clock.now, cast(asyncio.AbstractEventLoop, self.loop))
        self.courier = WaitingCourier()
        self.subscriptions = Subscriptions(
            self.engine, self.hub, PlainDialect(self.engine), self.courier, jitter=lambda: 0.5
        )
        self.settle()

    def reopen(self) -> None:
        self.subscriptions.stop()
        self.engine.close()
        self._open()

    def settle(self) -> None:
        """Let everything happen that does not wait for the clock. New logs are told of, as a protocol does."""
        self.subscriptions.look_for_new()
        for _ in range(4):
            self.engine.flush()
            self.loop.turn()

    def advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.subscriptions.ring()
        self.settle()

    # --- logs ----------------------------------------------------------------------------------------------------

    def write(self, name: str, *data: str, settle: bool = True) -> Log:
        log = self.engine.find(name) or self.engine.create(name, Config(durability="fsync")).wait()
        if data:
            log.append(Batch([text.encode() for text in data])).wait()
        if settle:
            self.settle()
        return log

    def wakes(self, name: str = "wakes") -> list[Any]:
        return [msgspec.json.decode(record.data) for record in self.engine.log(name).read(0, 1000)]

    # --- subscriptions -------------------------------------------------------------------------------------------

    def webhook(self, id: str = "hook", **definition: Any) -> Subscription:
        return self._put(id, type="webhook", webhook_url="https://hooks.example/one", **definition)

    def pull(self, id: str = "pull", **definition: Any) -> Subscription:
        return self._put(id, type="pull-wake", wake_stream=definition.pop("wake_stream", "wakes"), **definition)

    def _put(self, id: str, **definition: Any) -> Subscription:
        definition.setdefault("lease_ttl_ms", 1000)
        subscription, new, _ = self.subscriptions.put(id, SubscriptionDefinition(**definition), "http://here")
        if new:
            for _ in self.subscriptions.link_existing(subscription):
                self.settle()
        self.settle()
        return subscription

    def get(self, id: str) -> Subscription:
        return self.subscriptions.get(id)

    def claim(self, id: str = "pull", worker: str = "worker") -> Claim:
        claim, commit = self.subscriptions.claim(self.get(id), worker)
        commit.wait()
        return claim

    def ack(self, claim: Claim, acks: Mapping[str, int | None], done: bool = True, id: str = "pull") -> bool:
        next_wake, commit = self.subscriptions.acknowledge(id, holder(claim), list(acks.items()), done)
        commit.wait()
        self.settle()
        return next_wake

    def callback(self, sent: Sent, acks: Mapping[str, int | None], done: bool = True, id: str = "hook") -> bool:
        next_wake, commit = self.subscriptions.callback(id, sent.holder, list(acks.items()), done)
        commit.wait()
        self.settle()
        return next_wake

    def answer(self, sent: Sent, delivered: bool, done: bool = False) -> None:
        sent.tell(WebhookAnswer(delivered, done))
        self.settle()

    def acked(self, id: str) -> dict[str, int]:
        return {link.name: link.acked for link in self.get(id).links}


def holder(claim: Claim) -> WakeHolder:
    return WakeHolder(claim.token, claim.wake_id, claim.generation)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    built = Stand(tmp_path / "data")
    try:
        yield built
    finally:
        built.subscriptions.stop()
        built.engine.close()
