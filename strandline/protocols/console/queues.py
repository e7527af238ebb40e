"""Queues: waiting, leased and upcoming jobs."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

import msgspec

from strandline.delivery.queues import Failure, Queue, QueueCounters
from strandline.delivery.queues.state import KnownJob
from strandline.engine import Log
from strandline.engine.errors import UnknownLog
from strandline.engine.reads.single_records import records_at
from strandline.protocols.console.catalogue import Catalogue, Wanted
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.kinds import kind_of
from strandline.protocols.console.records import render_all
from strandline.protocols.console.wire import (
    DeadLetters,
    DelayedJob,
    FailureRow,
    HeldJob,
    NextJob,
    QueueAnswer,
    QueueCounts,
    QueueRow,
    QueuesAnswer,
)
from strandline.service.access import Access
from strandline.service.http import Call, Reply
from strandline.service.log_config import shown_config, traits_of
from strandline.service.parameters import number
from strandline.service.problems import not_a_queue

DEFAULT_LIMIT = 100
MAX_LIMIT = 500
#: The maximum number of jobs shown per state.
SHOWN = 100
NEXT = 20

_decode_jobs = msgspec.json.Decoder(list[NextJob]).decode


class ConsoleQueues:
    def __init__(self, context: ConsoleContext, catalogue: Catalogue) -> None:
        self._context = context
        self._catalogue = catalogue

    async def queues(self, call: Call) -> Reply:
        """GET /console/api/queues"""
        offset = number(call, "offset", 0) or 0
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        catalog = self._context.kernel.catalog
        if not catalog.queues:
            return Reply(msgspec.json.encode(QueuesAnswer(queues=[], total=0)))
        wanted = Wanted(search=call.query.get("search", ""), kind="queue", prefixes=call.access.prefixes)
        listed = await self._catalogue.page(wanted, offset, limit)
        found = [log for name in listed.names if (log := catalog.find(name)) is not None]

        def look() -> Reply:
            rows = [row for log in found if (row := self._row(log, call.access)) is not None]
            return Reply(msgspec.json.encode(QueuesAnswer(queues=rows, total=listed.total)))

        return await self._context.work(look)

    async def queue(self, call: Call) -> Reply:
        """GET /console/api/queue/{name}"""
        log = self._context.log(call)
        if kind_of(log.config, log.notes) != "queue":
            raise not_a_queue(log.name)
        return await self._context.work(lambda: self._details(log, call.access))

    def _row(self, log: Log, access: Access) -> QueueRow | None:
        try:
            counters = self._context.kernel.queue_counters(log)
            letters = self._dead_letters(log, access)
            shown = None if letters is None else letters.log
            return QueueRow(**_counts(counters, letters), name=log.name, dead_letter=shown)
        except UnknownLog:  # dropped a moment ago
            return None

    def _details(self, log: Log, access: Access) -> Reply:
        kernel = self._context.kernel
        queue = kernel.known_queue(log)
        figures = kernel.queue_figures(log)
        jobs = [] if queue is None else queue.known_jobs()
        held = (job for job in jobs if job.lease and job.node is not None)
        delayed = (job for job in jobs if job.until and not job.lease)
        letters = self._dead_letters(log, access)
        answer = QueueAnswer(
            name=log.name,
            counts=QueueCounts(**_counts(figures.counters, letters)),
            oldest_ready_ms=figures.oldest_ready_ms,
            throughput=figures.rates.throughput,
            failure_rate=figures.rates.failure_rate,
            config=shown_config(log.config, traits_of(log.config), log.notes, access),
            # Ordered by when their state changes next.
            held=[
                HeldJob(
                    seq=job.seq,
                    worker=job.node or "",
                    until=job.until,
                    deliveries=job.deliveries,
                    priority=job.priority,
                    failures=_failures(job.failures),
                )
                for job in nsmallest(SHOWN, held, key=lambda job: (job.until, job.seq))
            ],
            delayed=[
                DelayedJob(
                    seq=job.seq,
                    at=job.until,
                    deliveries=job.deliveries,
                    priority=job.priority,
                    failures=_failures(job.failures),
                )
                for job in nsmallest(SHOWN, delayed, key=lambda job: (job.until, job.seq))
            ],
            next=_next(log, queue, jobs),
            dead_letters=letters,
        )
        return Reply(msgspec.json.encode(answer))

    def _dead_letters(self, log: Log, access: Access) -> DeadLetters | None:
        """The dead-letter log, if the caller may see it."""
        name = traits_of(log.config).dead_letter
        if name is None or not access.may_touch(name):
            return None
        dead = self._context.engine.find(name)
        return DeadLetters(log=name, exists=dead is not None, records=0 if dead is None else dead.state().count)


def _counts(counters: QueueCounters, letters: DeadLetters | None) -> dict[str, int]:
    return {
        "ready": counters.ready,
        "in_flight": counters.in_flight,
        "delayed": counters.delayed,
        "dead": 0 if letters is None else letters.records,
        "dead_lettered": counters.dead_lettered,
        "dropped": counters.dropped,
    }


def _failures(failures: Iterable[Failure]) -> list[FailureRow]:
    return [FailureRow(at=each.at, delivery=each.delivery, worker=each.node, reason=each.reason) for each in failures]


def _next(log: Log, queue: Queue | None, known: list[KnownJob]) -> list[NextJob]:
    """The next jobs to be delivered, in order."""
    seqs = log.read(0, NEXT).seqs if queue is None else queue.upcoming(NEXT)
    by_seq = {record.seq: record for record in records_at(log, sorted(seqs))}
    jobs = _decode_jobs(render_all(log, [by_seq[seq] for seq in seqs if seq in by_seq]))
    delivered = {job.seq: job for job in known if job.deliveries}
    for job in jobs:
        if job.seq in delivered:
            job.deliveries = delivered[job.seq].deliveries
            job.failures = _failures(delivered[job.seq].failures)
    return jobs
