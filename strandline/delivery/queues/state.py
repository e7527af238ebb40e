"""The state of a queue: the jobs and their leases, as the projection of the events in its lease log.

Events are JSON arrays that begin with the event's name. An acknowledgement has no event: it is the deletion of the job.
The expiry of a lease has none either: the deadline is in the event that began the lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

import msgspec


class Grant(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Jobs leased to one node. The leases are numbered consecutively from ``lease``."""

    node: str
    lease: int
    deadline: int
    seqs: list[int]


class ClaimedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="claimed"):
    grants: list[Grant]


class ReleasedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="released"):
    """Leases were released. The jobs can be claimed from ``not_before`` on (0: at once)."""

    seqs: list[int]
    not_before: int


class ExtendedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="extended"):
    seqs: list[int]
    deadline: int


class Scheduled(NamedTuple):
    seq: int
    not_before: int
    priority: int


class ScheduledEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="scheduled"):
    jobs: list[Scheduled]


class UnscheduledEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="unscheduled"):
    """The jobs of a ``scheduled`` event were not appended. Their seqs will be used by other jobs."""

    seqs: list[int]


class DeadLetteredEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="dead_lettered"):
    """The jobs were copied to the dead-letter log and must not be delivered again."""

    seqs: list[int]


class KnownJob(NamedTuple):
    """A stored job. ``until`` is the deadline of the lease if ``lease`` is not 0, otherwise the end of the delay."""

    seq: int
    priority: int
    deliveries: int
    lease: int
    node: str | None
    until: int


class SnapshotEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="snapshot"):
    """The whole state. A large snapshot consists of several events in one batch; ``first`` marks the first one."""

    first: bool
    next_lease: int
    dead_lettered: int
    jobs: list[KnownJob]


Event: TypeAlias = (
    ClaimedEvent | ReleasedEvent | ExtendedEvent | ScheduledEvent | UnscheduledEvent | DeadLetteredEvent | SnapshotEvent
)

encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def decode(data: bytes) -> Event | None:
    """Decode an event. Returns None if it is invalid: losing an event is harmless, but a queue must always open."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


#: Heaps keep stale entries of jobs. A heap is rebuilt when most of its entries, and at least this many, are stale.
STALE_ENTRIES = 64

#: The delivery order: highest priority first, then reclaimed before new jobs, then the lowest seq.
Order = tuple[int, int, int]


class JobState:
    """A job with a ``lease`` (a number other than 0) is held by ``node`` up to and including ``until``.

    A job without a lease is delayed until ``until``, or can be claimed if that is 0.
    """

    __slots__ = ("deliveries", "lease", "node", "priority", "seq", "until")

    def __init__(
        self,
        seq: int,
        priority: int = 0,
        deliveries: int = 0,
        lease: int = 0,
        node: str | None = None,
        until: int = 0,
    ) -> None:
        self.seq = seq
        self.priority = priority
        self.deliveries = deliveries
        self.lease = lease
        self.node = node
        self.until = until

    @property
    def claimable_at(self) -> int:
        """The earliest time at which the job can be claimed if nothing else happens to it."""
        return self.until + 1 if self.lease else self.until

    @property
    def order(self) -> Order:
        return (-self.priority, 0 if self.deliveries else 1, self.seq)


class State:
    def __init__(self) -> None:
        self.jobs: dict[int, JobState] = {}
        self.next_lease = 1
        self.in_flight = 0
        self.delayed = 0
        self.dead_lettered = 0
        #: Dead letters whose job may still be in the jobs log. Only set during a replay.
        self.unfinished: set[int] = set()
        self._ready: list[Order] = []
        #: Entries of a time, a number that makes entries comparable, and the jobs that can be claimed from then on.
        self._timers: list[tuple[int, int, list[int]]] = []
        self._timers_made = 0
        #: The seqs of all jobs as a heap, once ``forget_below`` was called.
        self._lowest: list[int] | None = None

    # --- events --------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        match event:
            case ClaimedEvent():
                for grant in event.grants:
                    self.grant(grant)
            case ReleasedEvent():
                self.release(event.seqs, event.not_before)
            case ExtendedEvent():
                self.extend(event.seqs, event.deadline)
            case ScheduledEvent():
                for scheduled in event.jobs:
                    self.add(job_of(scheduled))
            case UnscheduledEvent():
                for seq in event.seqs:
                    self.forget(seq)
            case DeadLetteredEvent():
                self.bury(event.seqs)
                self.unfinished.update(event.seqs)
            case SnapshotEvent():
                self._restore(event)

    def _restore(self, snapshot: SnapshotEvent) -> None:
        if snapshot.first:
            self.jobs.clear()
        self.next_lease = snapshot.next_lease
        self.dead_lettered = snapshot.dead_lettered
        for known in snapshot.jobs:
            self.jobs[known.seq] = JobState(*known)

    def grant(self, grant: Grant) -> None:
        jobs, node, lease, deadline = self.jobs, grant.node, grant.lease, grant.deadline
        for seq in grant.seqs:
            job = jobs.get(seq)
            if job is None:
                jobs[seq] = JobState(seq, 0, 1, lease, node, deadline)
                if self._lowest is not None:
                    heappush(self._lowest, seq)
            else:
                job.deliveries += 1
                job.lease = lease
                job.node = node
                job.until = deadline
            lease += 1
        self.next_lease = max(self.next_lease, lease)
        self.in_flight += len(grant.seqs)
        self._remind(deadline + 1, grant.seqs)

    def release(self, seqs: Iterable[int], not_before: int = 0) -> None:
        delayed = []
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is None or not job.lease:
                continue
            self.in_flight -= 1
            job.lease = 0
            job.node = None
            job.until = not_before
            if not_before:
                delayed.append(seq)
            else:
                heappush(self._ready, job.order)
        if delayed:
            self.delayed += len(delayed)
            self._remind(not_before, delayed)

    def extend(self, seqs: list[int], deadline: int) -> None:
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is not None and job.lease:
                job.until = deadline
        self._remind(deadline + 1, seqs)

    def add(self, job: JobState) -> None:
        """Add a scheduled job, or a job whose deletion failed."""
        self.jobs[job.seq] = job
        if self._lowest is not None:
            heappush(self._lowest, job.seq)
        if job.until:
            self.delayed += 1
            self._remind(job.until, [job.seq])
        else:
            heappush(self._ready, job.order)

    def forget(self, seq: int) -> JobState | None:
        """Remove a job that is completed or deleted."""
        job = self.jobs.pop(seq, None)
        if job is not None:
            if job.lease:
                self.in_flight -= 1
            elif job.until:
                self.delayed -= 1
        return job

    def bury(self, seqs: Iterable[int]) -> None:
        """Remove jobs that have become dead letters."""
        for seq in seqs:
            self.forget(seq)
            self.dead_lettered += 1

    def index(self) -> None:
        """Rebuild the counters and the order after a replay, which does not maintain them."""
        jobs = self.jobs.values()
        self.in_flight = sum(1 for job in jobs if job.lease)
        self.delayed = sum(1 for job in jobs if job.until and not job.lease)
        self._lowest = None
        self._order_ready()
        self._order_timers()

    def correct_times(self, latest: int) -> None:
        """After a replay, end leases and delays that end after ``latest``, because they come from a wrong clock. Times
        that a producer set for its jobs are kept."""
        for job in self.jobs.values():
            if job.deliveries and job.until > latest:
                job.lease = job.until = 0
                job.node = None

    # --- time ----------------------------------------------------------------------------------------------

    def sweep(self, now: int) -> None:
        """Make jobs available whose lease has expired or whose delay has ended."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            for seq in heappop(timers)[2]:
                job = self.jobs.get(seq)
                if job is None or not job.until or job.claimable_at > now:
                    continue
                if job.lease:
                    self.in_flight -= 1
                else:
                    self.delayed -= 1
                job.lease = job.until = 0
                job.node = None
                heappush(self._ready, job.order)

    def next_change(self) -> int | None:
        """The next time at which a job becomes available. It is in the past if that has happened since the last
        sweep."""
        while self._timers:
            when, _, seqs = self._timers[0]
            for seq in seqs:
                job = self.jobs.get(seq)
                if job is not None and job.until and job.claimable_at == when:
                    return when
            heappop(self._timers)
        return None

    def _remind(self, when: int, seqs: list[int]) -> None:
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, seqs))
        if len(self._timers) > STALE_ENTRIES + 2 * len(self.jobs):
            self._order_timers()

    def _order_timers(self) -> None:
        due: dict[int, list[int]] = {}
        for job in self.jobs.values():
            if job.until:
                due.setdefault(job.claimable_at, []).append(job.seq)
        self._timers = [(when, number, seqs) for number, (when, seqs) in enumerate(due.items())]
        self._timers_made = len(self._timers)
        heapify(self._timers)

    # --- delivery order ------------------------------------------------------------------------------------

    def first_ready(self) -> Order | None:
        """The order of the next known job to deliver."""
        ready = self._ready
        while ready:
            job = self.jobs.get(ready[0][2])
            if job is not None and not job.until and job.order == ready[0]:
                return ready[0]
            heappop(ready)
        return None

    def next_ready(self, count: int) -> list[int]:
        """The seqs of about the next ``count`` known jobs to deliver."""
        ready = self._ready
        seqs: list[int] = []
        # Read the smallest entries of the heap in order: the next smallest is always a child of an entry that was
        # taken.
        candidates = [(ready[0], 0)] if ready else []
        while candidates and len(seqs) < count:
            order, place = heappop(candidates)
            seqs.append(order[2])
            for below in (2 * place + 1, 2 * place + 2):
                if below < len(ready):
                    heappush(candidates, (ready[below], below))
        return seqs

    def take_ready(self) -> JobState:
        """Remove and return the job of ``first_ready``. The caller must grant, forget or put it back next."""
        return self.jobs[heappop(self._ready)[2]]

    def put_back(self, jobs: Iterable[JobState]) -> None:
        """Return jobs that were not delivered. Jobs that were forgotten meanwhile stay forgotten."""
        for job in jobs:
            heappush(self._ready, job.order)

    def _order_ready(self) -> None:
        self._ready = [job.order for job in self.jobs.values() if not job.until]
        heapify(self._ready)

    # --- removed jobs --------------------------------------------------------------------------------------

    def forget_below(self, floor: int) -> None:
        lowest = self._lowest
        if lowest is None or len(lowest) > STALE_ENTRIES + 2 * len(self.jobs):
            lowest = self._lowest = sorted(self.jobs)
        while lowest and lowest[0] < floor:
            self.forget(heappop(lowest))
        if len(self._ready) > STALE_ENTRIES + 2 * len(self.jobs):
            self._order_ready()

    def held_by(
        self, node: str, seqs: Sequence[int], fences: list[int] | None
    ) -> tuple[dict[int, JobState], list[int]]:
        """The jobs that the node holds, and the seqs of the others. A duplicate seq counts once."""
        jobs = self.jobs
        held: dict[int, JobState] = {}
        skipped = []
        for index, seq in enumerate(seqs):
            job = jobs.get(seq)
            if (
                job is None
                or not job.lease
                or job.node != node
                or (fences is not None and fences[index] and fences[index] != job.lease)
                or seq in held
            ):
                skipped.append(seq)
            else:
                held[seq] = job
        return held, skipped

    def known(self) -> Iterator[KnownJob]:
        for job in self.jobs.values():
            yield KnownJob(job.seq, job.priority, job.deliveries, job.lease, job.node, job.until)


def job_of(scheduled: Scheduled) -> JobState:
    return JobState(scheduled.seq, scheduled.priority, until=scheduled.not_before)
