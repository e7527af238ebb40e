"""What the handlers of this face share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from strandline.engine import Log
from strandline.engine.errors import JournalFailed
from strandline.engine.operations.erasures import NAME as ERASURES
from strandline.protocols.access import Access
from strandline.protocols.arrow.errors import log_not_found
from strandline.protocols.http import Refusal
from strandline.protocols.ownership import is_hidden
from strandline.protocols.streams.streams import SYSTEM, Streams
from strandline.protocols.topics.context import Context

#: Reading and writing in bulk is to leave the machine to those who live in the present.
THREADS = 2

#: The server's own logs that everybody may read who may read everything: others have to follow what is erased.
_OPEN = SYSTEM | {ERASURES}

T = TypeVar("T")


def is_internal(name: str) -> bool:
    """Whether it is one of the server's own logs."""
    return name.startswith("_")


class ArrowContext:
    """Made on the loop's thread, once the engine is open.

    New logs are made as topics, and whether a log is there is asked of the streams: they know which have expired.
    """

    def __init__(self, topics: Context, streams: Streams) -> None:
        self.engine = topics.engine
        self.hub = topics.hub
        self.topics = topics
        self.streams = streams
        #: What every open stream takes one of.
        self.slots = topics.streams
        self._threads = ThreadPoolExecutor(THREADS, "bulk")

    @property
    def directory(self) -> str:
        """Which data directory this is."""
        return self.engine.maintenance.manifest.id

    def log(self, name: str, access: Access) -> Log:
        """The log, for somebody who wants to read it."""
        if is_internal(name):
            log = self.engine.find(name)
            if log is None:
                raise log_not_found(name)
            if not self.may_see(log, access):
                raise Refusal(403, "forbidden", f"{name!r} is one of the server's own logs: the admin scope is needed")
            return log
        stream = self.streams.find(name)
        if stream is None or not self.may_see(stream.log, access):
            raise log_not_found(name)
        stream.use(self.hub.now())
        return stream.log

    @staticmethod
    def may_see(log: Log, access: Access) -> bool:
        """Whether the log exists for the holder of a key. What is kept on the side is for those who run the server."""
        if not access.may_touch(log.name):
            return False
        kept_aside = is_hidden(log) or (is_internal(log.name) and log.name not in _OPEN)
        return not kept_aside or access.may("admin")

    async def settled(self, log: Log) -> None:
        """Wait until everything that somebody may learn of the log now is durable: who concludes something from it, or
        keeps a copy, must not know more than the log itself after a power cut."""
        try:
            commit = log.sync()
            if not commit.done:
                await self.hub.when_done(commit, lambda _: None)
        except JournalFailed:
            pass  # what can be read is still to be read

    def work(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What ``work`` gives, which takes too long for the loop."""
        return asyncio.wrap_future(self.submit(work), loop=self.hub.loop)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._threads.submit(work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
