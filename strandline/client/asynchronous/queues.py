"""Queues: jobs in, jobs out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic, TypeVar

from strandline.client import queue_calls as calls
from strandline.client import topic_calls
from strandline.client.asynchronous.topics import AsyncTopic
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.asynchronous.worker import AsyncWorker
from strandline.client.errors import NotFound
from strandline.client.queue_types import Acked, Extended, Job, Nacked, Redriven
from strandline.client.topic_calls import Match
from strandline.client.topic_types import Configured, Draft, QueueCounters, Written
from strandline.client.worker_settings import WorkerSettings

T = TypeVar("T")


class AsyncQueue(Generic[T]):
    """One queue: a topic whose records are jobs. ``node`` is who this program is to it."""

    def __init__(self, transport: AsyncTransport, name: str, kind: Any = Any, node: str | None = None) -> None:
        self._transport = transport
        self.name = name
        self.node = node or calls.new_node()
        self._path = topic_calls.path_of(name)
        self._kind = kind
        self._claimed = calls.claim_reading(kind)
        #: The same as a topic, for looking and deleting.
        self.topic: AsyncTopic[T] = AsyncTopic(transport, name, kind)

    async def configure(self, **config: Any) -> Configured:
        """Make the queue, or replace its whole configuration: ``lease_ms``, ``max_deliveries``, ``dead_letter`` …"""
        return await self.topic.configure(type="queue", **config)

    # --- jobs in ---------------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        data: T,
        *,
        priority: int = 0,
        not_before: datetime | int | None = None,
        tag: str | None = None,
        meta: Any = None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Add one job. ``priority`` is from -1000 to 1000, the highest first; ``not_before`` keeps it back until then
        (a datetime, or milliseconds)."""
        draft = Draft(data, tag, None, meta, calls.milliseconds(not_before), priority)
        return await self.enqueue_many([draft], idempotency_key=idempotency_key)

    async def enqueue_many(self, jobs: Iterable[T | Draft[T]], *, idempotency_key: str | None = None) -> Written:
        """Add jobs: all of them or none. A queue that is not there is made, which takes a key that may configure."""
        return await self.topic.write_many(jobs, idempotency_key=idempotency_key, config={"type": "queue"})

    # --- jobs out --------------------------------------------------------------------------------------------------

    async def claim(self, max: int = 1, *, lease_ms: int | None = None) -> list[Job[T]]:
        """Up to so many jobs, or none. Each is this node's until its deadline."""
        request = calls.claim(self._path, self.node, max, lease_ms)
        return (await self._transport.ask(request, self._claimed)).claimed

    async def ack(self, *jobs: Job[T]) -> Acked:
        """They are done, and deleted."""
        return await self._transport.ask(calls.ack(self._path, self.node, jobs), calls.ACKED)

    async def nack(self, *jobs: Job[T], delay_ms: int = 0) -> Nacked:
        """Give them back, for anybody, after a while if you like."""
        return await self._transport.ask(calls.nack(self._path, self.node, jobs, delay_ms), calls.NACKED)

    async def extend(self, *jobs: Job[T], lease_ms: int) -> Extended:
        """Hold them for so long from now on. The deadlines of the jobs are brought up to date."""
        extended = await self._transport.ask(calls.extend(self._path, self.node, jobs, lease_ms), calls.EXTENDED)
        for job in jobs:
            job.deadline = extended.deadlines.get(job.seq, job.deadline)
        return extended

    def worker(
        self,
        handler: Callable[[Job[T]], Any] | None = None,
        *,
        concurrency: int = 1,
        lease_ms: int | None = None,
        heartbeat_seconds: float | None = None,
        poll_seconds: float = 1.0,
        delay_ms: Callable[[Job[T], Exception], int] | None = None,
    ) -> AsyncWorker[T]:
        """A worker that does the jobs of this queue: see ``AsyncWorker``."""
        settings = WorkerSettings(concurrency, lease_ms, heartbeat_seconds, poll_seconds)
        return AsyncWorker(self._transport, self._path, self.node, self._kind, settings, handler, delay_ms)

    # --- how it is doing -------------------------------------------------------------------------------------------

    async def counters(self) -> QueueCounters:
        """How many jobs are ready, in hands, kept back, and were given up."""
        counters = (await self.topic.state(touch=False)).queue
        assert counters is not None, f"{self.name} is no queue"
        return counters

    async def redrive(self, *, limit: int = 0, match: Match | None = None) -> Redriven:
        """Move dead letters back to the queues that they came from."""
        dead = (await self.topic.state(touch=False)).config.dead_letter
        if dead is None:
            raise NotFound(404, "topic_not_found", f"the queue {self.name!r} has no dead letters", {"topic": self.name})
        return await self._transport.ask(calls.redrive(topic_calls.path_of(dead), None, limit, match), calls.REDRIVEN)

    async def delete(self, *, if_empty: bool = False) -> bool:
        """Delete the queue with all its jobs; whether there was one."""
        return (await self.topic.delete(if_empty=if_empty)).deleted
