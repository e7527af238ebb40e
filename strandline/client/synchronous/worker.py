# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Doing the jobs of a queue: so many at a time, with heartbeats, until told to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from strandline.client import queue_calls as calls
from strandline.client import topic_calls
from strandline.client.calls import get
from strandline.client.concurrency import SyncCrew, SyncFlag, sync_check, sync_told_to_stop
from strandline.client.errors import StrandlineError
from strandline.client.queue_types import Job
from strandline.client.synchronous.transport import Transport
from strandline.client.worker_settings import HEARTBEATS_PER_LEASE, WorkerSettings, is_passing, usual_delay_ms

T = TypeVar("T")
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
