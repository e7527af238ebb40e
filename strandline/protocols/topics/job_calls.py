"""Claims and acknowledgements: those that arrive in one turn of the event loop are served together.

All acknowledgements of a turn become one deletion of jobs, and all claims one selection of jobs and one event in the
lease log. So a turn costs two frames and two system calls, however many workers it serves. Each request still gets the
answer that it would get alone.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter

from msgspec import UNSET

from strandline.delivery.queues import Acked, AckRequest, Claimed, ClaimRequest, Queue, QueueCounters
from strandline.engine import Commit
from strandline.protocols.topics.context import Context
from strandline.protocols.topics.shown_jobs import shown_jobs
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import AckAnswer, AckPerformance, ClaimAnswer, ClaimPerformance
from strandline.service.http import Call, Later, LaterCommitted, Reply, json_reply
from strandline.spans import READ

#: A group whose claims ask for this many jobs is served at once.
MAX_GATHERED_JOBS = 1024


class JobCall(LaterCommitted):
    """A request that acknowledges jobs, claims jobs, or first acknowledges and then claims."""

    __slots__ = ("ack", "acked", "call", "claim", "fsync_ms", "waited_ms")

    def __init__(self, call: Call, ack: AckRequest | None, claim: ClaimRequest | None, waited_ms: float = 0.0) -> None:
        # Like in Later, without another call.
        self.answer = self._error = self._waiting = None
        self.call = call
        self.ack = ack
        self.claim = claim
        self.waited_ms = waited_ms
        self.acked: Acked | None = None
        self.fsync_ms = 0.0

    def finish(self, topic: Topic, counters: QueueCounters, jobs: list[Claimed] | None = None) -> None:
        """Answer. ``counters`` are those of the queue now."""
        try:
            reply = self._reply(topic, counters, jobs)
        except Exception as error:
            self.fail(error)
        else:
            self.settle(reply)

    def _reply(self, topic: Topic, counters: QueueCounters, jobs: list[Claimed] | None) -> Reply:
        acked, total_ms = self.acked, round(self.call.elapsed_ms(), 3)
        if acked is None:
            assert jobs is not None
            performance = ClaimPerformance(total_ms, round(self.waited_ms, 3))
            return json_reply(ClaimAnswer(topic.name, shown_jobs(jobs), len(jobs), counters.ready, performance))
        return json_reply(
            AckAnswer(
                topic=topic.name,
                acked=len(acked.acked),
                skipped=acked.skipped,
                ready=counters.ready,
                in_flight=counters.in_flight,
                performance=AckPerformance(total_ms, round(self.fsync_ms, 3) or UNSET),
                claimed=UNSET if jobs is None else shown_jobs(jobs),
            )
        )


class JobCalls:
    """Used on the event loop only."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._gathered: dict[Topic, list[JobCall]] = {}
        self._wishes = 0
        self._calls_of_turn = 0
        #: Whether the last turn had only one request.
        self._alone = True
        #: Claims of jobs that are read from the disk first.
        self._fetching: set[asyncio.Future[None]] = set()

    def serve(self, topic: Topic, job_call: JobCall) -> Later:
        """Serve the request at the end of this turn. The first one of a turn does not wait if the last turn had only
        one: then it is likely to be alone again."""
        self._calls_of_turn += 1
        if self._calls_of_turn == 1:
            self._context.hub.loop.call_soon(self._end_turn)
            if self._alone:
                self._serve(topic, [job_call])
                return job_call
        group = self._gathered.get(topic)
        if group is None:
            group = self._gathered[topic] = []
        group.append(job_call)
        if job_call.claim is not None:
            self._wishes += job_call.claim.max
            if self._wishes > MAX_GATHERED_JOBS:
                self._serve_gathered()
        return job_call

    def _end_turn(self) -> None:
        self._alone = self._calls_of_turn == 1
        self._calls_of_turn = 0
        self._serve_gathered()

    def _serve_gathered(self) -> None:
        self._wishes = 0
        gathered, self._gathered = self._gathered, {}
        for topic, group in gathered.items():
            self._serve(topic, group)

    def _serve(self, topic: Topic, group: list[JobCall]) -> None:
        try:
            queue = self._context.queue(topic)
        except Exception as error:
            _fail(group, error)
            return
        acks = [(each, each.ack) for each in group if each.ack is not None]
        claiming = [each for each in group if each.ack is None]
        if acks:
            claiming += self._acknowledge(topic, queue, acks)
        if claiming:
            self._claim(topic, queue, claiming)

    # --- acknowledging -----------------------------------------------------------------------------------------------

    def _acknowledge(self, topic: Topic, queue: Queue, acks: list[tuple[JobCall, AckRequest]]) -> list[JobCall]:
        """Returns the requests that claim next. Those that wait for the disk first are not among them."""
        group = [each for each, _ in acks]
        try:
            commit = queue.ack_each([request for _, request in acks])
        except Exception as error:
            _fail(group, error)
            return []
        if commit.done:
            return self._acknowledged(topic, queue, group, commit)
        since = perf_counter()
        if self._context.admission.flushes_in_place():
            return self._acknowledged(topic, queue, group, commit, since)

        def flushed() -> None:
            claiming = self._acknowledged(topic, queue, group, commit, since)
            if claiming:
                self._claim(topic, queue, claiming)

        self._context.hub.on_done(commit, flushed)
        return []

    def _acknowledged(
        self, topic: Topic, queue: Queue, group: list[JobCall], commit: Commit[list[Acked]], since: float = 0.0
    ) -> list[JobCall]:
        """Answer the requests that claim nothing, and return the others. The commit has waited for the disk ``since``
        this time."""
        try:
            results = commit.wait()
            fsync_ms = (perf_counter() - since) * 1000 if since else 0.0
            counters = queue.counters()
            dispatcher = self._context.dispatchers.find(queue)
            if dispatcher is not None:
                dispatcher.done_with([seq for acked in results for seq in acked.acked])
        except Exception as error:
            _fail(group, error)
            return []
        claiming = []
        for each, acked in zip(group, results, strict=True):
            each.acked = acked
            each.fsync_ms = fsync_ms
            if each.claim is None:
                each.finish(topic, counters)
            else:
                claiming.append(each)
        return claiming

    # --- claiming ----------------------------------------------------------------------------------------------------

    def _claim(self, topic: Topic, queue: Queue, group: list[JobCall]) -> None:
        requests = [each.claim for each in group if each.claim is not None]
        try:
            if queue.settings.claim_jitter_ms:
                self._claim_in_cohort(topic, queue, group, requests)
            elif queue.has_resident(sum([request.max for request in requests])):
                self._await_jobs(topic, queue, group, queue.claim_each(requests))
            else:
                fetching = asyncio.ensure_future(self._claim_from_disk(topic, queue, group, requests))
                self._fetching.add(fetching)
                fetching.add_done_callback(self._fetching.discard)
        except Exception as error:
            _fail(group, error)

    def _claim_in_cohort(self, topic: Topic, queue: Queue, group: list[JobCall], requests: list[ClaimRequest]) -> None:
        def done(each: JobCall, outcome: list[Claimed] | Exception) -> None:
            if isinstance(outcome, Exception):
                each.fail(outcome)
            else:
                each.finish(topic, queue.counters(), outcome)

        dispatcher = self._context.dispatchers.at(queue, topic.priority)
        for each, request in zip(group, requests, strict=True):
            dispatcher.claim(request, partial(done, each))

    async def _claim_from_disk(
        self, topic: Topic, queue: Queue, group: list[JobCall], requests: list[ClaimRequest]
    ) -> None:
        try:
            await self._context.workers.normal.run(queue.bring, sum([request.max for request in requests]), part=READ)
            self._await_jobs(topic, queue, group, queue.claim_each(requests))
        except Exception as error:
            _fail(group, error)

    def _await_jobs(
        self, topic: Topic, queue: Queue, group: list[JobCall], commit: Commit[list[list[Claimed]]]
    ) -> None:
        def done() -> None:
            try:
                granted = commit.wait()
                counters = queue.counters()
            except Exception as error:
                _fail(group, error)
                return
            for each, jobs in zip(group, granted, strict=True):
                each.finish(topic, counters, jobs)

        if commit.done:
            done()
        else:
            self._context.hub.on_done(commit, done)


def _fail(group: list[JobCall], error: Exception) -> None:
    for each in group:
        each.fail(error)
