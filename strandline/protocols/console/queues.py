"""Queues: what waits, who holds what until when, and what comes next."""

from __future__ import annotations

from heapq import nsmallest

import msgspec

from strandline.delivery.queues import Queue
from strandline.delivery.queues.records import records_at
from strandline.engine.errors import UnknownLog
from strandline.protocols.access import Access
from strandline.protocols.arrow.request import number
from strandline.protocols.console.catalogue import Catalogue, Wanted
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.kinds import kind_of
from strandline.protocols.console.records import render_all
from strandline.protocols.console.wire import (
    DeadLetters,
    DelayedJob,
    HeldJob,
    QueueAnswer,
    QueueCounts,
    QueueRow,
    QueuesAnswer,
    RecordAnswer,
)
from strandline.protocols.http import Call, Reply
from strandline.protocols.topics.config import config_json
from strandline.protocols.topics.errors import not_a_queue
from strandline.protocols.topics.topics import Topic

DEFAULT_LIMIT = 100
MAX_LIMIT = 500
#: Jobs of each kind that are told of.
SHOWN = 100
NEXT = 20

_decode_records = msgspec.json.Decoder(list[RecordAnswer]).decode


class Queueing:
    def __init__(self, context: ConsoleContext, catalogue: Catalogue) -> None:
        self._context = context
        self._catalogue = catalogue

    async def queues(self, call: Call) -> Reply:
        """GET /console/api/queues"""
        offset = number(call, "offset", 0) or 0
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        topics = self._context.topics.topics
        if not topics.queues:
            return Reply(msgspec.json.encode(QueuesAnswer(queues=[], total=0)))
        wanted = Wanted(search=call.query.get("search", ""), kind="queue", prefixes=call.access.prefixes)
        listed = await self._catalogue.page(wanted, offset, limit)
        found = [topic for name in listed.names if (topic := topics.find(name)) is not None]

        def look() -> Reply:
            rows = [row for topic in found if (row := self._row(topic, call.access)) is not None]
            return Reply(msgspec.json.encode(QueuesAnswer(queues=rows, total=listed.total)))

        return await self._context.work(look)

    async def queue(self, call: Call) -> Reply:
        """GET /console/api/queue/{name}"""
        log = self._context.log(call)
        if kind_of(log.config, log.notes) != "queue":
            raise not_a_queue(log.name)
        topic = self._context.topics.topics.get(log.name)
        return await self._context.work(lambda: self._details(topic, call.access))

    def _row(self, topic: Topic, access: Access) -> QueueRow | None:
        try:
            queue = self._context.topics.known_queue(topic)
            dead_letter = topic.traits.dead_letter
            shown = dead_letter if dead_letter is not None and access.may_touch(dead_letter) else None
            return QueueRow(**_counts(topic, queue), name=topic.name, dead_letter=shown)
        except UnknownLog:  # dropped a moment ago
            return None

    def _details(self, topic: Topic, access: Access) -> Reply:
        queue = self._context.topics.known_queue(topic)
        jobs = [] if queue is None else queue.known_jobs()
        held = (job for job in jobs if job.lease and job.node is not None)
        delayed = (job for job in jobs if job.until and not job.lease)
        answer = QueueAnswer(
            name=topic.name,
            counts=QueueCounts(**_counts(topic, queue)),
            config=config_json(topic.log.config, topic.traits, access),
            # Those first with which something happens next.
            held=[
                HeldJob(
                    seq=job.seq,
                    worker=job.node or "",
                    until=job.until,
                    deliveries=job.deliveries,
                    priority=job.priority,
                )
                for job in nsmallest(SHOWN, held, key=lambda job: (job.until, job.seq))
            ],
            delayed=[
                DelayedJob(seq=job.seq, at=job.until, deliveries=job.deliveries, priority=job.priority)
                for job in nsmallest(SHOWN, delayed, key=lambda job: (job.until, job.seq))
            ],
            next=_next(topic, queue),
            dead_letters=self._dead_letters(topic, access),
        )
        return Reply(msgspec.json.encode(answer))

    def _dead_letters(self, topic: Topic, access: Access) -> DeadLetters | None:
        """Where they are, if that is something to know of."""
        name = topic.traits.dead_letter
        if name is None or not access.may_touch(name):
            return None
        log = self._context.engine.find(name)
        return DeadLetters(log=name, exists=log is not None, records=0 if log is None else log.state().count)


def _counts(topic: Topic, queue: Queue | None) -> dict[str, int]:
    if queue is None:
        # None of its jobs was ever handed out: all are ready.
        return {"ready": topic.log.state().count, "in_flight": 0, "delayed": 0, "dead": 0}
    counters = queue.counters()
    return {
        "ready": counters.ready,
        "in_flight": counters.in_flight,
        "delayed": counters.delayed,
        "dead": counters.dead_lettered,
    }


def _next(topic: Topic, queue: Queue | None) -> list[RecordAnswer]:
    """The jobs to be handed out next, in that order."""
    log = topic.log
    seqs = log.read(0, NEXT).seqs if queue is None else queue.upcoming(NEXT)
    by_seq = {record.seq: record for record in records_at(log, sorted(seqs))}
    return _decode_records(render_all(log, [by_seq[seq] for seq in seqs if seq in by_seq]))
