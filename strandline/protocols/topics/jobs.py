"""Jobs of a queue: claim, ack, nack, extend."""

from __future__ import annotations

from collections.abc import Awaitable
from time import perf_counter

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

from strandline.delivery.queues import Acked, Claimed, ClaimRequest, Extended, Nacked, Queue
from strandline.nearest_name import MAX_QUOTED, member_names, nearest_name
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import BATCH_TOO_LARGE, not_a_queue
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import (
    AckAnswer,
    AckBody,
    AckPerformance,
    ClaimAnswer,
    ClaimBody,
    ClaimPerformance,
    ExtendAnswer,
    ExtendBody,
    Job,
    JobFailure,
    NackAnswer,
    NackBody,
)
from strandline.service.http import Call, Later, Reply, json_reply
from strandline.service.log_config import clamp_lease
from strandline.service.problems import Refusal, invalid

_claim_decoder = msgspec.json.Decoder(ClaimBody)
_ack_decoder = msgspec.json.Decoder(AckBody)
_nack_decoder = msgspec.json.Decoder(NackBody)
_extend_decoder = msgspec.json.Decoder(ExtendBody)
_members_decoder = msgspec.json.Decoder(dict[str, Raw])


def shown_jobs(jobs: list[Claimed], topic: str | UnsetType = UNSET) -> list[Job]:
    """Jobs as workers get them: by priority, then ascending by seq."""
    return [
        Job(
            topic=topic,
            seq=job.seq,
            lease_id=job.lease_id,
            deadline=job.deadline,
            ts=job.ts,
            tag=UNSET if job.key is None else job.key,
            deliveries=job.deliveries,
            priority=job.priority or UNSET,
            data=Raw(job.data),
            meta=UNSET if job.meta is None else Raw(job.meta),
            failures=[JobFailure(*astuple(failure)) for failure in job.failures] if job.failures else UNSET,
        )
        for job in sorted(jobs, key=lambda job: (-job.priority, job.seq))
    ]


def queue_topic(context: Context, name: str) -> Topic:
    """The topic of this name; refuses if it does not exist or is not a queue."""
    topic = context.topics.get(name)
    if topic.traits.type != "queue":
        raise not_a_queue(name)
    return topic


def check_node(context: Context, node: str) -> None:
    if not node:
        raise invalid("node is missing: send the name of the worker")
    limit = context.settings.max_node_bytes
    if len(node) * 4 > limit and len(node.encode("utf-8", "surrogatepass")) > limit:
        raise invalid(f"node has more than {limit} bytes")


class QueueJobs:
    def __init__(self, context: Context) -> None:
        self._context = context

    # --- claiming --------------------------------------------------------------------------------------------------

    def claim(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """POST /v0/topics/{topic}/claim"""
        body = _claim_decoder.decode(call.body)
        context = self._context
        topic = queue_topic(context, call.head.params["topic"])
        check_node(context, body.node)
        return context.admission.read(lambda waited_ms: self._claim(call, topic, body, waited_ms), topic)

    def _claim(self, call: Call, topic: Topic, body: ClaimBody, waited_ms: float) -> Reply | Later | Awaitable[Reply]:
        context = self._context
        context.consumed(topic)
        context.catch_up(topic)
        queue = context.queue(topic)
        count = min(body.max or 1, context.settings.max_claim)
        lease_ms = None if body.lease_ms is None else clamp_lease(body.lease_ms)
        if queue.settings.claim_jitter_ms:
            return self._claim_in_cohort(call, topic, queue, ClaimRequest(body.node, count, lease_ms), waited_ms)
        if not queue.has_resident(count):
            return self._claim_from_disk(call, topic, queue, ClaimRequest(body.node, count, lease_ms), waited_ms)
        return context.admission.after(
            queue.claim(body.node, count, lease_ms),
            lambda jobs: _claimed(call, topic, queue, jobs, waited_ms),
        )

    def _claim_in_cohort(
        self, call: Call, topic: Topic, queue: Queue, request: ClaimRequest, waited_ms: float
    ) -> Later:
        later = Later()

        def done(outcome: list[Claimed] | Exception) -> None:
            if not isinstance(outcome, Exception):
                try:
                    reply = _claimed(call, topic, queue, outcome, waited_ms)
                except Exception as error:
                    outcome = error
                else:
                    later.settle(reply)
                    return
            later.fail(outcome)

        self._context.dispatchers.at(queue, topic.priority).claim(request, done)
        return later

    async def _claim_from_disk(
        self, call: Call, topic: Topic, queue: Queue, request: ClaimRequest, waited_ms: float
    ) -> Reply:
        await self._context.workers.normal.run(queue.bring, request.max)
        jobs = await self._context.hub.when_done(queue.claim(*request), lambda jobs: jobs)
        return _claimed(call, topic, queue, jobs, waited_ms)

    # --- changes by the holder -------------------------------------------------------------------------------------

    def ack(self, call: Call) -> Reply | Later:
        """POST /v0/topics/{topic}/ack"""
        body = _ack_decoder.decode(call.body)
        topic, queue = self._held(call, body)
        commit = queue.ack(body.node, body.seqs, body.lease_ids)
        waiting_since = 0.0 if commit.done else perf_counter()

        def reply(acked: Acked) -> Reply:
            counters = queue.counters()
            dispatcher = self._context.dispatchers.find(queue)
            if dispatcher is not None:
                dispatcher.done_with(acked.acked)
            fsync_ms = round((perf_counter() - waiting_since) * 1000, 3) if waiting_since else UNSET
            return json_reply(
                AckAnswer(
                    topic=topic.name,
                    acked=len(acked.acked),
                    skipped=acked.skipped,
                    ready=counters.ready,
                    in_flight=counters.in_flight,
                    performance=AckPerformance(round(call.elapsed_ms(), 3), fsync_ms),
                )
            )

        return self._context.admission.after(commit, reply)

    def nack(self, call: Call) -> Reply | Later:
        """POST /v0/topics/{topic}/nack"""
        body = _nack_decoder.decode(call.body)
        if body.reason is UNSET:
            _check_misspelled_reason(call.body)
        topic, queue = self._held(call, body)
        commit = queue.nack(
            body.node, body.seqs, body.delay_ms, body.lease_ids, None if body.reason is UNSET else bytes(body.reason)
        )

        def reply(nacked: Nacked) -> Reply:
            counters = queue.counters()
            dispatcher = self._context.dispatchers.find(queue)
            if dispatcher is not None:
                dispatcher.done_with(nacked.nacked, given_back=True)
            return json_reply(
                NackAnswer(
                    topic=topic.name,
                    nacked=len(nacked.nacked),
                    skipped=nacked.skipped,
                    ready=counters.ready,
                    in_flight=counters.in_flight,
                    performance=performance(call),
                )
            )

        return self._context.admission.after(commit, reply)

    def extend(self, call: Call) -> Reply | Later:
        """POST /v0/topics/{topic}/extend"""
        body = _extend_decoder.decode(call.body)
        topic, queue = self._held(call, body)
        commit = queue.extend(body.node, body.seqs, clamp_lease(body.lease_ms), body.lease_ids)

        def reply(extended: Extended) -> Reply:
            dispatcher = self._context.dispatchers.find(queue)
            if dispatcher is not None:
                dispatcher.extended(extended.deadlines)
            return json_reply(
                ExtendAnswer(
                    topic=topic.name,
                    extended=len(extended.deadlines),
                    skipped=extended.skipped,
                    deadlines={str(seq): deadline for seq, deadline in extended.deadlines.items()},
                    performance=performance(call),
                )
            )

        return self._context.admission.after(commit, reply)

    def _held(self, call: Call, body: AckBody) -> tuple[Topic, Queue]:
        """The checks that ack, nack and extend share: the queue, the worker and the number of seqs."""
        context = self._context
        topic = queue_topic(context, call.head.params["topic"])
        check_node(context, body.node)
        maximum = context.settings.max_claim
        if len(body.seqs) > maximum:
            raise Refusal(
                BATCH_TOO_LARGE,
                f"{len(body.seqs)} seqs in one request, the limit is {maximum}",
                {"seqs": len(body.seqs), "max": maximum},
            )
        return topic, context.queue(topic)


def _check_misspelled_reason(body: bytes) -> None:
    """Refuse a nack with a member whose name is nearly ``reason``. Other unknown members are ignored, but a lost reason
    cannot be sent again."""
    known = member_names(NackBody)
    for name in _members_decoder.decode(body):
        if name not in known and nearest_name(name[:MAX_QUOTED], known) == "reason":
            raise invalid(f"unknown member {name[:MAX_QUOTED]!r}; did you mean 'reason'?")


def _claimed(call: Call, topic: Topic, queue: Queue, jobs: list[Claimed], waited_ms: float) -> Reply:
    return json_reply(
        ClaimAnswer(
            topic=topic.name,
            claimed=shown_jobs(jobs),
            count=len(jobs),
            ready=queue.counters().ready,
            performance=ClaimPerformance(round(call.elapsed_ms(), 3), round(waited_ms, 3)),
        )
    )
