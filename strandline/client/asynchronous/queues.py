"""Queues: add jobs, claim jobs, run workers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, Unpack

import msgspec
from msgspec import UNSET

from strandline.client import queue_calls as calls
from strandline.client import topic_calls
from strandline.client.asynchronous.topics import AsyncTopic
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import get
from strandline.client.errors import NotFound, StrandlineError
from strandline.client.failures import JobFailed, fitting, summary_of
from strandline.client.queue_calls import (
    HEARTBEATS_PER_LEASE,
    Acked,
    DeadLetter,
    Extended,
    Job,
    Nacked,
    Redriven,
    Returned,
    WorkerSettings,
    chosen_delay_ms,
    is_passing,
    usual_delay_ms,
)
from strandline.client.task_concurrency import AsyncCall, AsyncCrew, AsyncFlag, async_check, async_told_to_stop
from strandline.client.topic_calls import Match
from strandline.client.topic_types import Configured, Draft, QueueConfigArguments, QueueState, Tombstone, Written

T = TypeVar("T")

#: Processes a job. For an ``AsyncClient``, also a coroutine function.
Handler = Callable[[Job[T]], Any]


class AsyncQueue(Generic[T]):
    """One queue: a topic whose records are jobs. ``node`` identifies this program to the queue."""

    def __init__(self, transport: AsyncTransport, name: str, kind: Any = Any, node: str | None = None) -> None:
        self._transport = transport
        self.name = name
        self.node = node or calls.new_node()
        self._path = topic_calls.path_of(name)
        self._kind = kind
        self._claimed = calls.claim_reading(kind)
        self._handler: Handler[T] | None = None
        #: The queue as a topic, for reading and deleting.
        self.topic: AsyncTopic[T] = AsyncTopic(transport, name, kind)

    async def configure(self, **config: Unpack[QueueConfigArguments]) -> Configured:
        """Create the queue, or replace its whole configuration: members you omit get their defaults. Queue-specific
        members are ``lease_ms``, ``max_deliveries``, ``dead_letter``, ``retry_delay_ms``, ``retry_backoff``,
        ``retry_max_ms``, ``retry_jitter``, ``claim_jitter_ms`` and ``leases_durable``."""
        return await self.topic.configure(type="queue", **config)

    async def update(self, **changes: Unpack[QueueConfigArguments]) -> Configured:
        """Change members of the configuration and keep the others. As with a topic, a change that another client makes
        at the same time can be lost."""
        return await self.topic.update(**changes)

    # --- adding jobs -----------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        data: T,
        *,
        priority: int = 0,
        delay: float | timedelta | None = None,
        not_before: datetime | int | None = None,
        tag: str | None = None,
        meta: Any = None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Add one job. ``priority`` is from -1000 to 1000; higher priorities are delivered first. ``delay`` (seconds or
        a timedelta, by the clock of this machine) or ``not_before`` (a datetime, or milliseconds) delays delivery."""
        draft = Draft(data, tag, None, meta, calls.due_at(delay, not_before), priority)
        return await self.enqueue_many([draft], idempotency_key=idempotency_key)

    async def enqueue_many(self, jobs: Iterable[T | Draft[T]], *, idempotency_key: str | None = None) -> Written:
        """Add jobs atomically. A missing queue is created, which requires an API key that may configure."""
        return await self.topic.write_many(jobs, idempotency_key=idempotency_key, config={"type": "queue"})

    # --- taking jobs -----------------------------------------------------------------------------------------------

    async def claim(self, max: int = 1, *, lease_ms: int | None = None) -> list[Job[T]]:
        """Claim up to ``max`` jobs. Each job is leased to this node until its deadline."""
        request = calls.claim(self._path, self.node, max, lease_ms)
        return (await self._transport.ask(request, self._claimed)).claimed

    async def ack(self, *jobs: Job[T]) -> Acked:
        """Acknowledge jobs: they are done, and the server deletes them."""
        return await self._transport.ask(calls.ack(self._path, self.node, jobs), calls.ACKED)

    async def nack(self, *jobs: Job[T], delay_ms: int | None = None, reason: Any = None) -> Nacked:
        """Return jobs to the queue for any worker, after ``delay_ms`` or the delay that the queue is configured with.
        ``reason`` says why they failed: a text, JSON or an exception, of which 4,096 bytes are kept."""
        return await self._transport.ask(calls.nack(self._path, self.node, jobs, delay_ms, reason), calls.NACKED)

    async def extend(self, *jobs: Job[T], lease_ms: int) -> Extended:
        """Extend the leases to ``lease_ms`` from now, and update the deadlines of the jobs."""
        extended = await self._transport.ask(calls.extend(self._path, self.node, jobs, lease_ms), calls.EXTENDED)
        for job in jobs:
            job.deadline = extended.deadlines.get(job.seq, job.deadline)
        return extended

    def handler(self, function: Handler[T]) -> Handler[T]:
        """Set the function that workers of this object process jobs with. Use it as a decorator."""
        async_check(function)
        self._handler = function
        return function

    def worker(
        self,
        handler: Callable[[Job[T]], Any] | None = None,
        *,
        concurrency: int = 1,
        lease_ms: int | None = None,
        heartbeat_seconds: float | None = None,
        poll_seconds: float = 1.0,
        timeout: float | None = None,
        delay_ms: Callable[[Job[T], Exception], int | None] | None = None,
    ) -> AsyncWorker[T]:
        """A worker that processes the jobs of this queue with ``handler``, or with the handler of the queue. It is
        documented at its class."""
        settings = WorkerSettings(concurrency, lease_ms, heartbeat_seconds, poll_seconds, timeout)
        handler = handler or self._handler
        return AsyncWorker(self._transport, self._path, self.node, self._kind, settings, handler, delay_ms)

    # --- state -----------------------------------------------------------------------------------------------------

    async def counters(self) -> QueueState:
        """The number of jobs in each state, the age of the oldest ready job, and the rates of the last minute."""
        counters = (await self.topic.state(touch=False)).queue
        assert counters is not None, f"{self.name} is not a queue"
        return counters

    async def dead_letters(
        self, after: int = 0, *, on_loss: Callable[[Tombstone], None] | None = None
    ) -> AsyncIterator[DeadLetter]:
        """The records of the dead-letter topic after a seq, oldest first, with the reasons why the jobs failed. If
        several queues share the topic, the dead letters of all of them. ``on_loss`` is documented at ``Topic.read``."""
        topic: AsyncTopic[Any] = AsyncTopic(self._transport, await self._dead_letter_topic())
        try:
            async for record in topic.read(after, on_loss=on_loss):
                yield calls.dead_letter(record)
        except NotFound as error:
            # The first dead letter creates the topic.
            if error.code != "topic_not_found":
                raise

    async def redrive(
        self, *, limit: int = 0, match: Match | None = None, seq: int | None = None, data: Any = UNSET
    ) -> Redriven:
        """Move dead letters back to the queues they came from; with ``seq``, only the one with this seq in the
        dead-letter topic, and with ``data``, with this data in place of its own."""
        path = topic_calls.path_of(await self._dead_letter_topic())
        return await self._transport.ask(calls.redrive(path, None, limit, match, seq, data), calls.REDRIVEN)

    async def _dead_letter_topic(self) -> str:
        dead = (await self.topic.state(touch=False)).config.dead_letter
        if dead is None:
            raise NotFound(
                404, "topic_not_found", f"queue {self.name!r} has no dead-letter topic", {"topic": self.name}
            )
        return dead

    async def delete(self, *, if_empty: bool = False) -> bool:
        """Delete the queue with all its jobs. Returns whether it existed."""
        return (await self.topic.delete(if_empty=if_empty)).deleted


# --- workers --------------------------------------------------------------------------------------------------------

log = logging.getLogger("strandline.client.worker")


class AsyncWorker(Generic[T]):
    """Processes jobs with a function, up to ``concurrency`` at a time. A worker runs once::

        worker = client.queue("emails").worker(concurrency=4)

        @worker.handler
        def send(job): ...

    A job is acknowledged when the function returns. If the function raises (also ``SystemExit``), the job returns to
    the queue with the exception as its reason and is delivered again: after ``delay_ms(job, error)`` if you give that
    function and it returns a number, otherwise after the delay that the queue is configured with (``retry_delay_ms``),
    otherwise after one second, doubled with every delivery. The queue's ``max_deliveries`` decides when the job becomes
    a dead letter. The function can also call ``job.fail(reason)`` or ``job.retry(after=seconds)``, and then return.

    With a ``timeout``, a job whose function takes longer (in seconds) fails with a TimeoutError, and its lease is no
    longer extended. A coroutine function is cancelled. A function on a thread cannot be stopped: it occupies its place
    until it returns, and another worker may process the job meanwhile.

    Heartbeats extend the lease while the function runs. A job can be delivered twice, because a worker that loses its
    connection loses its leases to other workers. Write the function so that a second run does no harm.

    ``run`` returns after ``stop`` is called or the process receives SIGTERM or SIGINT. The worker then claims no more
    jobs and finishes those that it has claimed.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        path: str,
        node: str,
        kind: Any,
        settings: WorkerSettings,
        handler: Handler[T] | None,
        delay_ms: Callable[[Job[T], Exception], int | None] | None,
    ) -> None:
        self._transport = transport
        self._path = path
        self.node = node
        # Each job is decoded separately, so that data of the wrong type fails only its own job.
        self._claimed = calls.claim_reading(msgspec.Raw)
        self._data: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._settings = settings
        self._delay_ms = delay_ms
        #: Whether the queue decides about the delay of failed jobs.
        self._queue_delays = False
        self._claims_with_acks = False
        self._handler: Handler[T] | None = None
        self._stopping = AsyncFlag()
        #: Set when there may be room for another job, or when the worker stops.
        self._changed = AsyncFlag()
        self._finished = AsyncFlag()
        #: The jobs whose leases this worker extends, and the leases of those whose function has not ended.
        self._running: dict[str, Job[T]] = {}
        self._places: set[str] = set()
        self._lease_ms = 0
        #: The head of the queue when the worker last looked.
        self._seen = 0
        self.done = 0
        self.failed = 0
        self.retried = 0
        if handler is not None:
            self.handler(handler)

    def handler(self, function: Handler[T]) -> Handler[T]:
        """Set the function that processes a job. Use it as a decorator."""
        async_check(function)
        self._handler = function
        return function

    def stop(self) -> None:
        """Claim no more jobs. Does not wait for jobs in progress."""
        self._stopping.put_up()
        self._changed.put_up()

    async def run(self, *, until_empty: bool = False) -> None:
        """Process jobs until stopped. With ``until_empty``, return when the queue is empty and no worker holds a job.
        Permanent errors (an unknown queue, an API key without the permission) are raised; the worker waits for
        temporary ones to pass."""
        if self._handler is None:
            raise ValueError("the worker has no handler: set one with @queue.handler or @worker.handler")
        jobs, heart = AsyncCrew(self._settings.concurrency), AsyncCrew(1)
        async with async_told_to_stop(self.stop):
            try:
                await self._look()
                heart.start(self._beat)
                await self._take(jobs, until_empty)
            finally:
                self.stop()
                await jobs.join()
                self._finished.put_up()
                await heart.join()

    # --- claiming --------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Read the head and the configuration before the first claim."""
        state = await self._transport.ask(get(self._path, {"touch": False}), topic_calls.STATE)
        self._seen = state.head_seq
        self._lease_ms = self._settings.lease_ms or state.config.lease_ms
        self._queue_delays = state.config.retry_delay_ms > 0
        # Such a claim waits, and the ack must not.
        self._claims_with_acks = not state.config.claim_jitter_ms

    async def _take(self, jobs: AsyncCrew, until_empty: bool) -> None:
        while not self._stopping.raised:
            self._changed.take_down()
            room = self._settings.concurrency - len(self._places)
            if room <= 0:
                if not self._stopping.raised:
                    await self._changed.wait()
                continue
            try:
                claimed = await self._claim(room)
                if not claimed and not self._stopping.raised:
                    if until_empty and await self._is_empty():
                        return
                    await self._wait_for_news()
            except StrandlineError as error:
                if not is_passing(error):
                    raise
                log.warning("worker %s cannot claim jobs, and retries: %s", self.node, error)
                await self._stopping.wait(self._settings.poll_seconds)
                continue
            for job in claimed:
                self._hold(job)
                jobs.start(self._work, jobs, job)

    async def _claim(self, room: int) -> list[Job[T]]:
        request = calls.claim(self._path, self.node, room, self._lease_ms)
        # If the worker was stopped meanwhile, it processes these jobs all the same: to return them would count as a
        # delivery, and the last delivery makes a dead letter.
        return (await self._transport.ask(request, self._claimed)).claimed

    async def _wait_for_news(self) -> None:
        """Wait until something is appended to the queue, or until it is time to poll for jobs that became due."""
        wait_ms = max(1, round(self._settings.poll_seconds * 1000))
        request = topic_calls.diff(self._path, from_seq=self._seen, limit=1, include_meta=False, wait_ms=wait_ms)
        self._seen = (await self._transport.ask(request, topic_calls.page_reading(Any))).head_seq

    async def _is_empty(self) -> bool:
        state = await self._transport.ask(get(self._path, {"touch": False}), topic_calls.STATE)
        return not state.count

    # --- processing ------------------------------------------------------------------------------------------------

    async def _work(self, jobs: AsyncCrew, job: Job[T]) -> None:
        """Process the job, and then those that its acknowledgement and the following ones claim."""
        following: Job[T] | None = job
        while following is not None:
            following = await self._process(jobs, following)

    async def _process(self, jobs: AsyncCrew, job: Job[T]) -> Job[T] | None:
        """Process the job and report its outcome. Returns the job that was claimed with that, if any."""
        following: Job[T] | None = None
        returned = job._returned = Returned()
        error: Exception | SystemExit | None = None
        call: AsyncCall | None = None
        try:
            try:
                assert self._handler is not None
                raw: Any = job.data
                job.data = self._data.decode(raw)
                call = jobs.begin(self._handler, job, self._settings.timeout)
                if not await call.finished():
                    error = TimeoutError(f"the function took longer than {self._settings.timeout:g} s")
            except (Exception, SystemExit) as raised:
                error = raised
            # From now on, calls of the job's methods are refused.
            returned, job._returned = job._returned, None
            if error is not None or returned.by_call:
                await self._give_back(job, returned, error)
            else:
                following = await self._acknowledge(job)
        except Exception as problem:
            # The job is not lost: its lease expires, and the queue delivers it again.
            log.error("the outcome of job %s could not be reported: %r", job.seq, problem)
        finally:
            self._running.pop(job.lease_id, None)
            if call is not None:
                # A function that took too long occupies its place until it ends.
                await call.end()
            self._places.discard(job.lease_id)
            self._changed.put_up()
        return following

    async def _acknowledge(self, job: Job[T]) -> Job[T] | None:
        """Acknowledge the job and, unless the worker stops, claim the next one in the same request. Returns that
        job."""
        if self._claims_with_acks and not self._stopping.raised:
            try:
                request = calls.ack_and_claim(self._path, self.node, job, self._lease_ms)
                claimed = (await self._transport.ask(request, calls.NEXT_CLAIMED)).claimed
            except StrandlineError:
                pass  # The ack alone can be repeated until it succeeds. The worker claims the next job by itself.
            else:
                self.done += 1
                if not claimed:
                    return None
                self._hold(claimed[0])
                return claimed[0]
        await self._transport.call(calls.ack(self._path, self.node, [job]))
        self.done += 1
        return None

    def _hold(self, job: Job[T]) -> None:
        self._running[job.lease_id] = job
        self._places.add(job.lease_id)

    async def _give_back(self, job: Job[T], returned: Returned, error: Exception | SystemExit | None) -> None:
        reason = fitting(error) if returned.reason is None else returned.reason
        delay_ms = returned.delay_ms
        if delay_ms is None:
            self.failed += 1
            why = "no reason given" if reason is None else summary_of(reason)
            log.warning("job %s failed at delivery %s: %s", job.seq, job.deliveries, why, exc_info=error)
            delay_ms = self._delay_after(job, error if isinstance(error, Exception) else JobFailed(reason))
        else:
            self.retried += 1
            log.info("job %s is delivered again in %s ms", job.seq, delay_ms, exc_info=error)
        await self._transport.call(calls.nack(self._path, self.node, [job], delay_ms, reason))

    def _delay_after(self, job: Job[T], error: Exception) -> int | None:
        """The delay before the next delivery; None if the queue decides."""
        delay_ms = None
        if self._delay_ms is not None:
            try:
                delay_ms = chosen_delay_ms(self._delay_ms(job, error))
            except Exception as problem:
                # The job returns to the queue all the same, with the reason why it failed.
                log.error("the usual delay applies to job %s, because delay_ms failed: %r", job.seq, problem)
        return usual_delay_ms(job) if delay_ms is None and not self._queue_delays else delay_ms

    # --- heartbeats ------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Extend the leases of the jobs in progress, periodically."""
        seconds = self._settings.heartbeat_seconds or self._lease_ms / 1000 / HEARTBEATS_PER_LEASE
        while not await self._finished.wait(seconds):
            held = list(self._running.values())
            if held:
                try:
                    await self._extend(held)
                except StrandlineError as error:
                    log.warning("could not extend the leases of %s jobs: %s", len(held), error)

    async def _extend(self, held: list[Job[T]]) -> None:
        answer = await self._transport.once(calls.extend(self._path, self.node, held, self._lease_ms))
        extended = calls.EXTENDED(answer)
        for job in held:
            job.deadline = extended.deadlines.get(job.seq, job.deadline)
            if job.seq in extended.skipped and job.lease_id in self._running:
                log.warning("job %s is no longer leased to this worker: it may be processed twice", job.seq)
