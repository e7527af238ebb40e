# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Queues: jobs in, jobs out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic, TypeVar, Unpack

import msgspec

from strandline.client import queue_calls as calls
from strandline.client import topic_calls
from strandline.client.calls import get
from strandline.client.concurrency import SyncCrew, SyncFlag, sync_check, sync_told_to_stop
from strandline.client.errors import NotFound, StrandlineError
from strandline.client.queue_calls import (
    HEARTBEATS_PER_LEASE,
    Acked,
    Extended,
    Job,
    Nacked,
    Redriven,
    WorkerSettings,
    is_passing,
    usual_delay_ms,
)
from strandline.client.synchronous.topics import Topic
from strandline.client.synchronous.transport import Transport
from strandline.client.topic_calls import Match
from strandline.client.topic_types import Configured, Draft, QueueConfigArguments, QueueCounters, Written

T = TypeVar("T")


class Queue(Generic[T]):
    """One queue: a topic whose records are jobs. ``node`` is who this program is to it."""

    def __init__(self, transport: Transport, name: str, kind: Any = Any, node: str | None = None) -> None:
        self._transport = transport
        self.name = name
        self.node = node or calls.new_node()
        self._path = topic_calls.path_of(name)
        self._kind = kind
        self._claimed = calls.claim_reading(kind)
        #: The same as a topic, for looking and deleting.
        self.topic: Topic[T] = Topic(transport, name, kind)

    def configure(self, **config: Unpack[QueueConfigArguments]) -> Configured:
        """Create the queue, or replace its whole configuration: a member that is not given gets its default. Members
        for queues are ``lease_ms``, ``max_deliveries``, ``dead_letter``, ``claim_jitter_ms`` and ``leases_durable``."""
        return self.topic.configure(type="queue", **config)

    def update(self, **changes: Unpack[QueueConfigArguments]) -> Configured:
        """Change members of the configuration and keep the others, as with a topic: a change that another client
        makes at the same time can be lost."""
        return self.topic.update(**changes)

    # --- jobs in ---------------------------------------------------------------------------------------------------

    def enqueue(
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
        return self.enqueue_many([draft], idempotency_key=idempotency_key)

    def enqueue_many(self, jobs: Iterable[T | Draft[T]], *, idempotency_key: str | None = None) -> Written:
        """Add jobs: all of them or none. A queue that is not there is made, which takes a key that may configure."""
        return self.topic.write_many(jobs, idempotency_key=idempotency_key, config={"type": "queue"})

    # --- jobs out --------------------------------------------------------------------------------------------------

    def claim(self, max: int = 1, *, lease_ms: int | None = None) -> list[Job[T]]:
        """Up to so many jobs, or none. Each is this node's until its deadline."""
        request = calls.claim(self._path, self.node, max, lease_ms)
        return (self._transport.ask(request, self._claimed)).claimed

    def ack(self, *jobs: Job[T]) -> Acked:
        """They are done, and deleted."""
        return self._transport.ask(calls.ack(self._path, self.node, jobs), calls.ACKED)

    def nack(self, *jobs: Job[T], delay_ms: int = 0) -> Nacked:
        """Give them back, for anybody, after a while if you like."""
        return self._transport.ask(calls.nack(self._path, self.node, jobs, delay_ms), calls.NACKED)

    def extend(self, *jobs: Job[T], lease_ms: int) -> Extended:
        """Hold them for so long from now on. The deadlines of the jobs are brought up to date."""
        extended = self._transport.ask(calls.extend(self._path, self.node, jobs, lease_ms), calls.EXTENDED)
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
    ) -> Worker[T]:
        """A worker that does the jobs of this queue: see ``AsyncWorker``."""
        settings = WorkerSettings(concurrency, lease_ms, heartbeat_seconds, poll_seconds)
        return Worker(self._transport, self._path, self.node, self._kind, settings, handler, delay_ms)

    # --- how it is doing -------------------------------------------------------------------------------------------

    def counters(self) -> QueueCounters:
        """How many jobs are ready, in hands, kept back, and were given up."""
        counters = (self.topic.state(touch=False)).queue
        assert counters is not None, f"{self.name} is no queue"
        return counters

    def redrive(self, *, limit: int = 0, match: Match | None = None) -> Redriven:
        """Move dead letters back to the queues that they came from."""
        dead = (self.topic.state(touch=False)).config.dead_letter
        if dead is None:
            raise NotFound(404, "topic_not_found", f"the queue {self.name!r} has no dead letters", {"topic": self.name})
        return self._transport.ask(calls.redrive(topic_calls.path_of(dead), None, limit, match), calls.REDRIVEN)

    def delete(self, *, if_empty: bool = False) -> bool:
        """Delete the queue with all its jobs; whether there was one."""
        return (self.topic.delete(if_empty=if_empty)).deleted


# --- workers --------------------------------------------------------------------------------------------------------

Handler = Callable[[Job[T]], Any]

log = logging.getLogger("strandline.client.worker")


class Worker(Generic[T]):
    """Does jobs with a function, up to ``concurrency`` at a time. Runs once::

        worker = client.queue("emails").worker(concurrency=4)

        @worker.handler
        def send(job): ...

    A job is acknowledged when the function returns. If it raises, the job is given back, to be tried again after
    ``delay_ms(job, error)``; the queue's ``max_deliveries`` decides when it becomes a dead letter. While the function
    runs, heartbeats keep the job. A job can come twice (a worker that is cut off loses its jobs to others), so the
    function should be able to bear that.

    ``run`` goes on until ``stop`` is called or the process gets SIGTERM or SIGINT: then no job is taken any more, those
    under way are finished, and those that came too late are given back.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        node: str,
        kind: Any,
        settings: WorkerSettings,
        handler: Handler[T] | None,
        delay_ms: Callable[[Job[T], Exception], int] | None,
    ) -> None:
        self._transport = transport
        self._path = path
        self.node = node
        # Each job is read by itself: one that is not of the type is that job's failure, and nobody else's.
        self._claimed = calls.claim_reading(msgspec.Raw)
        self._data: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._settings = settings
        self._delay_ms = delay_ms or usual_delay_ms
        self._handler: Handler[T] | None = None
        self._stopping = SyncFlag()
        #: Raised when there may be room for another job, or none is wanted any more.
        self._changed = SyncFlag()
        self._finished = SyncFlag()
        self._running: dict[str, Job[T]] = {}
        self._lease_ms = 0
        #: How far the queue had got when it was last looked at.
        self._seen = 0
        self.done = 0
        self.failed = 0
        if handler is not None:
            self.handler(handler)

    def handler(self, function: Handler[T]) -> Handler[T]:
        """The function that does a job; a decorator."""
        sync_check(function)
        self._handler = function
        return function

    def stop(self) -> None:
        """Take no job any more. Does not wait."""
        self._stopping.put_up()
        self._changed.put_up()

    def run(self, *, until_empty: bool = False) -> None:
        """Work until told to stop, or ``until_empty`` until there is no job in the queue, in anybody's hands. Refusals
        that will not pass (no such queue, a key that is not enough) are raised; what passes is waited for."""
        if self._handler is None:
            raise ValueError("the worker has no function: give it one with @worker.handler")
        jobs, heart = SyncCrew(self._settings.concurrency), SyncCrew(1)
        with sync_told_to_stop(self.stop):
            try:
                self._look()
                heart.start(self._beat)
                self._take(jobs, until_empty)
            finally:
                self.stop()
                jobs.join()
                self._finished.put_up()
                heart.join()

    # --- taking jobs -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """What must be known before the first job is taken."""
        state = self._transport.ask(get(self._path, {"touch": False}), topic_calls.STATE)
        self._seen = state.head_seq
        self._lease_ms = self._settings.lease_ms or state.config.lease_ms

    def _take(self, jobs: SyncCrew, until_empty: bool) -> None:
        while not self._stopping.raised:
            self._changed.take_down()
            room = self._settings.concurrency - len(self._running)
            if room <= 0:
                if not self._stopping.raised:
                    self._changed.wait()
                continue
            try:
                claimed = self._claim(room)
                if not claimed and not self._stopping.raised:
                    if until_empty and self._is_empty():
                        return
                    self._wait_for_news()
            except StrandlineError as error:
                if not is_passing(error):
                    raise
                log.warning("%s has no jobs to work on for now: %s", self.node, error)
                self._stopping.wait(self._settings.poll_seconds)
                continue
            for job in claimed:
                self._running[job.lease_id] = job
                jobs.start(self._work, jobs, job)

    def _claim(self, room: int) -> list[Job[T]]:
        request = calls.claim(self._path, self.node, room, self._lease_ms)
        claimed = (self._transport.ask(request, self._claimed)).claimed
        if claimed and self._stopping.raised:
            self._transport.call(calls.nack(self._path, self.node, claimed, 0))
            return []
        return claimed

    def _wait_for_news(self) -> None:
        """Until something is appended to the queue, or it is time to look for jobs that have become due."""
        wait_ms = max(1, round(self._settings.poll_seconds * 1000))
        request = topic_calls.diff(self._path, from_seq=self._seen, limit=1, include_meta=False, wait_ms=wait_ms)
        self._seen = (self._transport.ask(request, topic_calls.page_reading(Any))).head_seq

    def _is_empty(self) -> bool:
        state = self._transport.ask(get(self._path, {"touch": False}), topic_calls.STATE)
        return not state.count

    # --- doing them ------------------------------------------------------------------------------------------------

    def _work(self, jobs: SyncCrew, job: Job[T]) -> None:
        assert self._handler is not None
        raw: Any = job.data
        try:
            try:
                job.data = self._data.decode(raw)
                jobs.call(self._handler, job)
            except Exception as error:
                log.warning("job %s failed at delivery %s: %r", job.seq, job.deliveries, error, exc_info=error)
                self.failed += 1
                self._give_back(job, self._delay_ms(job, error))
            else:
                self._acknowledge(job)
        except Exception as error:
            # It is not lost: its lease ends, and somebody gets it again.
            log.error("job %s cannot be reported: %r", job.seq, error)
        finally:
            self._running.pop(job.lease_id, None)
            self._changed.put_up()

    def _acknowledge(self, job: Job[T]) -> None:
        self._transport.call(calls.ack(self._path, self.node, [job]))
        self.done += 1

    def _give_back(self, job: Job[T], delay_ms: int) -> None:
        self._transport.call(calls.nack(self._path, self.node, [job], delay_ms))

    # --- keeping them ----------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Put the deadlines of the jobs under way off, again and again."""
        seconds = self._settings.heartbeat_seconds or self._lease_ms / 1000 / HEARTBEATS_PER_LEASE
        while not self._finished.wait(seconds):
            held = list(self._running.values())
            if held:
                try:
                    self._extend(held)
                except StrandlineError as error:
                    log.warning("the leases of %s jobs could not be extended: %s", len(held), error)

    def _extend(self, held: list[Job[T]]) -> None:
        answer = self._transport.once(calls.extend(self._path, self.node, held, self._lease_ms))
        extended = calls.EXTENDED(answer)
        for job in held:
            job.deadline = extended.deadlines.get(job.seq, job.deadline)
            if job.seq in extended.skipped and job.lease_id in self._running:
                log.warning("job %s is not this worker's any more: it may be done twice", job.seq)
