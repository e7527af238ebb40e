"""What the handlers of this face share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from strandline.delivery.watch import Alarms, Feeds
from strandline.engine import Log
from strandline.protocols.access import Access
from strandline.protocols.arrow.context import ArrowContext, is_internal
from strandline.protocols.arrow.errors import log_not_found
from strandline.protocols.arrow.request import name_of
from strandline.protocols.http import Call, Refusal
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.topics.context import Context

#: Whoever looks on is to leave the machine to those who read and write.
THREADS = 2

T = TypeVar("T")


class Surroundings(NamedTuple):
    """What the console tells of the server around it."""

    keys_required: bool
    has_pipeline: Callable[[], bool]
    is_serving: Callable[[], bool]
    uptime_ms: Callable[[], int]
    #: How many connections are open.
    connections: Callable[[], int]


class ConsoleContext:
    """Made on the loop's thread, once the engine is open."""

    def __init__(self, topics: Context, streams: StreamsContext, surroundings: Surroundings) -> None:
        self.engine = topics.engine
        self.hub = topics.hub
        self.topics = topics
        self.streams = streams
        self.surroundings = surroundings
        #: What every open stream takes one of.
        self.slots = topics.streams
        self.feeds = Feeds(topics.hub, topics.pressure)
        self.alarms = Alarms(topics.hub.loop)
        self._threads = ThreadPoolExecutor(THREADS, "console")
        #: Samples are to be taken in time, whatever somebody wants to have sorted.
        self._sampling = ThreadPoolExecutor(1, "console-samples")

    def log(self, call: Call) -> Log:
        """The log that the path names, for somebody who wants to look at it. Looking on does not count as using it."""
        name = name_of(call)
        if is_internal(name):
            log = self.engine.find(name)
        else:
            stream = self.streams.streams.find(name)
            log = None if stream is None else stream.log
        if log is None or not may_see(log, call.access):
            raise log_not_found(name)
        return log

    def work(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What ``work`` gives, which takes too long for the loop."""
        return asyncio.wrap_future(self._threads.submit(work), loop=self.hub.loop)

    def sample(self, take: Callable[[], T]) -> asyncio.Future[T]:
        """The same, for what must not wait for others."""
        return asyncio.wrap_future(self._sampling.submit(take), loop=self.hub.loop)

    def check_room(self, access: Access) -> None:
        """Refuse a stream for which there is no slot."""
        if not self.slots.room(access):
            raise Refusal(429, "throttled", "too many streams are open", retry_after=1)

    def close(self) -> None:
        self.alarms.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._sampling.shutdown(wait=False, cancel_futures=True)


def may_see(log: Log, access: Access) -> bool:
    """Whether the log exists for the holder of a key."""
    return ArrowContext.may_see(log, access)
