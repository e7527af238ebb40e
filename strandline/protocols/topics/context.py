"""The state that the handlers of the topics protocol share."""

from __future__ import annotations

from typing import Any

from strandline.delivery.queues import Queue
from strandline.engine.commit import Commit
from strandline.protocols.topics.settings import TopicsSettings
from strandline.protocols.topics.topics import Topic, Topics
from strandline.protocols.topics.wire import Performance
from strandline.service.http import Call
from strandline.service.kernel import Kernel
from strandline.service.settings import DeliverySettings, LimitSettings


class Context:
    """The kernel, as the handlers of this protocol use it. Created on the event loop's thread, after the engine is
    opened."""

    def __init__(
        self,
        kernel: Kernel,
        settings: TopicsSettings,
        limits: LimitSettings | None = None,
        delivery: DeliverySettings | None = None,
    ) -> None:
        self.kernel = kernel
        self.settings = settings
        self.limits = limits or LimitSettings()
        self.delivery = delivery or DeliverySettings()
        self.engine = kernel.engine
        self.hub = kernel.hub
        self.admission = kernel.admission
        self.workers = kernel.workers
        self.live = kernel.live
        self.queues = kernel.queues
        self.dispatchers = kernel.dispatchers
        self.routers = kernel.routers
        self.topics = Topics(kernel.catalog)

    def queue(self, topic: Topic) -> Queue:
        return self.kernel.queue(topic.log, topic.traits)

    def unmake(self, topic: Topic) -> None:
        """Remove a topic that was created for a write which then failed."""
        self.kernel.catalog.unmake(topic.log)

    def catch_up(self, topic: Topic) -> Commit[Any] | None:
        """Forward all records that are on their way into the topic, so that a reader sees all earlier writes.

        Returns a commit if some of them wait for the disk; wait for it with ``caught_up``.
        """
        return self.routers.catch_up(topic.log)

    async def caught_up(self, topic: Topic, unfinished: Commit[Any] | None) -> None:
        """Wait for pending records, and for those that follow from them, within a limit."""
        await self.kernel.arrive(topic.log, unfinished)

    def consumed(self, topic: Topic) -> None:
        """The topic is read, which makes it more urgent for a while."""
        topic.consumed_at = self.hub.now()


def performance(call: Call) -> Performance:
    return Performance(round(call.elapsed_ms(), 3))
