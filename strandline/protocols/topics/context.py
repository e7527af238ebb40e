"""What the handlers of this face share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from strandline.delivery.hub import Hub
from strandline.delivery.pressure import Pressure, Throttled
from strandline.delivery.queues import Queue, Queues, QueueSettings
from strandline.delivery.queues.dispatcher import Desks
from strandline.delivery.routers import Routers
from strandline.engine import Batch, Engine, Log
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError
from strandline.protocols.access import Access
from strandline.protocols.http import Call, Later, Refusal, Reply, Slots
from strandline.protocols.topics.batches import size_of
from strandline.protocols.topics.config import TopicConfig, engine_config, kind_of
from strandline.protocols.topics.errors import capped
from strandline.protocols.topics.settings import TopicsSettings
from strandline.protocols.topics.topics import Topic, Topics
from strandline.protocols.turns import Replying, Turns, after

T = TypeVar("T")

log = logging.getLogger(__name__)


class Context:
    """Made on the loop's thread, once the engine is open."""

    def __init__(self, engine: Engine, hub: Hub, pressure: Pressure, settings: TopicsSettings, streams: Slots) -> None:
        self.engine = engine
        #: What every open event stream and WebSocket takes one of.
        self.streams = streams
        self.hub = hub
        self.pressure = pressure
        self._turns = Turns(pressure)
        self.settings = settings
        self.topics = Topics(engine, settings)
        self.queues = Queues(engine, hub.now, self._dead_letter_log)
        self.desks = Desks(hub, self._hold_back)
        self.routers = Routers(engine, hub)

    def queue(self, topic: Topic) -> Queue:
        return self.queues.open(topic.log, _queue_settings(topic))

    def known_queue(self, topic: Topic) -> Queue | None:
        """For looking on: None if none of its jobs was ever handed out. May read from the disk."""
        return self.queues.known(topic.log, _queue_settings(topic))

    def check_removable(self, log: Log, access: Access) -> None:
        """Refuse to remove a log if that would remove a router that the key may not touch."""
        for router in self.routers.touching(log):
            if not access.may_touch_all(router.name, router.source.name, router.dest.name):
                message = f"{log.name!r} cannot be deleted: a router that the API key may not touch leads from or to it"
                raise Refusal(403, "forbidden", message, {"topic": log.name})

    def forget(self, log: Log) -> None:
        """Another protocol is about to drop a log: what belongs to it here goes with it."""
        self.routers.remove_touching(log)
        if kind_of(log.config) == "queue":
            self.queues.drop(log)
            self.topics.queues -= 1

    def unmake(self, topic: Topic) -> None:
        """Remove a topic that was made for a write which then failed."""
        try:
            if topic.traits.type == "queue":
                self.queues.drop(topic.log)
            self.topics.drop(topic)
        except EngineError as error:
            log.error("topic %r was made for a write that failed, and cannot be removed: %s", topic.name, error)

    def _dead_letter_log(self, name: str) -> Log | None:
        """Where dead letters go; made if need be, unless there may be no more topics, or it takes no writes."""
        try:
            topic = self.topics.find(name)
            if topic is None:
                topic, _ = self.topics.create(name, engine_config(name, TopicConfig(), "log"))
            topic.check_takes_writes()
        except Refusal:
            return None
        return topic.log

    def _hold_back(self, priority: int) -> int:
        """For how many milliseconds jobs of a queue of this priority are not pushed to workers."""
        if not self.pressure.level:
            return 0
        try:
            self.pressure.delay_ms(priority, False)
        except Throttled as error:
            return error.retry_after_ms
        return 0

    def catch_up(self, topic: Topic) -> Commit[Any] | None:
        """Let everything arrive that is on its way into the topic, so that a reader sees what was written before.

        A commit if some of it waits for the disk: whoever can wait, waits with ``caught_up``.
        """
        return self.routers.catch_up(topic.log)

    async def caught_up(self, topic: Topic, unfinished: Commit[Any] | None) -> None:
        """Wait for what is on its way to the disk, and then for what that sets going; not for ever."""
        for _ in range(MAX_HOPS):
            if unfinished is None:
                return
            await self.hub.when_done(unfinished, lambda _: None)
            unfinished = self.catch_up(topic)

    def consumed(self, topic: Topic) -> None:
        """Somebody looks at the topic: that makes it more urgent for a while."""
        topic.consumed_at = self.hub.now()

    def after(self, commit: Commit[T], make: Callable[[T], Reply]) -> Reply | Later:
        """The reply that is made of the commit's value: now if it is done, else when it is."""
        return after(self.hub, commit, make)

    def in_turn(self, topic: Topic | None, act: Callable[[float], Replying], *, patient: bool = False) -> Replying:
        """Do it now, or after the wait that the pressure on the server asks for; ``act`` is told how long that was.
        Refuses when the server is too busy for it. Without a topic it is about one that is to be made."""
        if not self.pressure.level:
            return act(0.0)
        return self._turns.take(self._urgency(topic), act, patient=patient)

    def write_in_turn(
        self, topic: Topic | None, act: Callable[[float], Replying], *, patient: bool = False
    ) -> Replying:
        """As ``in_turn``, for what writes records: it also waits while sealing is behind."""
        if not self.pressure.holds_writes and not patient:
            return act(0.0)
        return self._turns.take_write(self._urgency(topic), act, patient=patient)

    def _urgency(self, topic: Topic | None) -> Callable[[], int]:
        return lambda: 0 if topic is None else topic.priority(self.hub.now())

    def check_quota(self, batches: Iterable[Batch]) -> None:
        """Refuse what would bring all topics together over their quota."""
        maximum = self.settings.max_total_bytes
        if maximum and self.engine.total_size + sum(map(size_of, batches)) > maximum:
            raise capped("max_total_bytes", maximum)


#: Over so many topics in a row a reader waits for what is on its way.
MAX_HOPS = 16


def _queue_settings(topic: Topic) -> QueueSettings:
    traits = topic.traits
    return QueueSettings(
        lease_ms=traits.lease_ms,
        claim_jitter_ms=traits.claim_jitter_ms,
        max_deliveries=traits.max_deliveries,
        dead_letter=traits.dead_letter,
        leases_durable=traits.leases_durable,
    )


def performance(call: Call) -> bytes:
    return b'"performance":{"server_total_ms":%.3f}' % call.elapsed_ms()
