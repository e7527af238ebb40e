"""Jobs of a queue: claim, ack, nack, extend."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec
from msgspec import UNSET, Raw

from strandline.delivery.queues import AckRequest, ClaimRequest, Extended, Nacked
from strandline.nearest_name import MAX_QUOTED, member_names, nearest_name
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import BATCH_TOO_LARGE, not_a_queue
from strandline.protocols.topics.job_calls import JobCall, JobCalls
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import (
    AckBody,
    ClaimBody,
    ExtendAnswer,
    ExtendBody,
    HolderBody,
    NackAnswer,
    NackBody,
)
from strandline.service.http import Call, Later, Reply, json_reply
from strandline.service.log_config import clamp_lease
from strandline.service.problems import Refusal, invalid, lacks_scope

_claim_decoder = msgspec.json.Decoder(ClaimBody)
_ack_decoder = msgspec.json.Decoder(AckBody)
_nack_decoder = msgspec.json.Decoder(NackBody)
_extend_decoder = msgspec.json.Decoder(ExtendBody)
_members_decoder = msgspec.json.Decoder(dict[str, Raw])


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
        self._calls = JobCalls(context)

    def claim(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """POST /v0/topics/{topic}/claim"""
        body = _claim_decoder.decode(call.body)
        topic = queue_topic(self._context, call.head.params["topic"])
        check_node(self._context, body.node)
        return self._admitted(call, topic, None, self._claim_request(body.node, body.max, body.lease_ms))

    def _claim_request(self, node: str, max: int, lease_ms: int | None) -> ClaimRequest:
        lease_ms = None if lease_ms is None else clamp_lease(lease_ms)
        return ClaimRequest(node, min(max or 1, self._context.settings.max_claim), lease_ms)

    def _admitted(
        self, call: Call, topic: Topic, ack: AckRequest | None, claim: ClaimRequest
    ) -> Reply | Later | Awaitable[Reply]:
        """Serve a request that claims jobs, now or when the pressure on the server allows it."""
        context = self._context

        def serve(waited_ms: float) -> Later:
            context.consumed(topic)
            context.catch_up(topic)
            return self._calls.serve(topic, JobCall(call, ack, claim, waited_ms))

        return context.admission.read(serve, topic)

    # --- changes by the holder -------------------------------------------------------------------------------------

    def ack(self, call: Call) -> Reply | Later | Awaitable[Reply]:
        """POST /v0/topics/{topic}/ack"""
        body = _ack_decoder.decode(call.body)
        topic = self._held(call, body)
        ack = AckRequest.of(body.node, body.seqs, body.lease_ids)
        if body.claim is None:
            return self._calls.serve(topic, JobCall(call, ack, None))
        if not call.access.may("read"):
            raise lacks_scope("read")
        return self._admitted(call, topic, ack, self._claim_request(body.node, body.claim.max, body.claim.lease_ms))

    def nack(self, call: Call) -> Reply | Later:
        """POST /v0/topics/{topic}/nack"""
        body = _nack_decoder.decode(call.body)
        if body.reason is UNSET:
            _check_misspelled_reason(call.body)
        topic = self._held(call, body)
        queue = self._context.queue(topic)
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
        topic = self._held(call, body)
        queue = self._context.queue(topic)
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

    def _held(self, call: Call, body: HolderBody) -> Topic:
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
        return topic


def _check_misspelled_reason(body: bytes) -> None:
    """Refuse a nack with a member whose name is nearly ``reason``. Other unknown members are ignored, but a lost reason
    cannot be sent again."""
    known = member_names(NackBody)
    for name in _members_decoder.decode(body):
        if name not in known and nearest_name(name[:MAX_QUOTED], known) == "reason":
            raise invalid(f"unknown member {name[:MAX_QUOTED]!r}; did you mean 'reason'?")
