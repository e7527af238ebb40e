"""The state of a queue: the jobs and their leases, as the projection of the events in its lease log.

Events are JSON arrays that begin with the event's name. An acknowledgement has no event: it is the deletion of the job.
The expiry of a lease has none either: the deadline is in the event that began the lease, and a job that is claimed
again under a lease has lost that lease by expiry.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import NamedTuple, TypeAlias

import msgspec

from strandline.delivery.queues.jobs import NO_REASON, Failure

#: The reasons for failures that no worker reports.
EXPIRED = msgspec.Raw(b'"the lease expired"')
DISCONNECTED = msgspec.Raw(b'"the worker disconnected"')

#: A job keeps its last failures, at most this many, and of at most this many bytes. The last one is always kept.
MAX_FAILURES = 5
MAX_FAILURE_BYTES = 8192
#: The failures of all jobs of a queue have at most about this many bytes. Beyond that, jobs keep no reasons.
MAX_ALL_FAILURES_BYTES = 32 << 20
NOT_KEPT = msgspec.Raw(b'"not kept: the failed jobs of the queue have too many bytes of reasons"')
#: What a failure needs beside its reason and its node.
FAILURE_OVERHEAD_BYTES = 64


class Grant(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Jobs leased to one node. The leases are numbered consecutively from ``lease``."""

    node: str
    lease: int
    deadline: int
    seqs: list[int]


class ClaimedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="claimed"):
    grants: list[Grant]


class ReleasedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="released"):
    """Leases were released. The jobs can be claimed from ``not_before`` on (0: at once): one time for all of them, or
    one for each. ``at`` is the time of the release. ``reason`` is null if none was given. ``counted``: whether the
    deliveries count for the maximum."""

    seqs: list[int]
    not_before: int | list[int]
    at: int = 0
    reason: msgspec.Raw = NO_REASON
    counted: bool = True


class RestartedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="restarted"):
    """The process that granted the leases has ended, and all leases with it. ``at`` is the last time at which it is
    known to have run. Leases that expired before are failures. The other deliveries do not count, however long the
    server was down: that it restarted says nothing about the jobs."""

    at: int


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


class DroppedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="dropped"):
    """The jobs failed on their last delivery and there is no dead-letter log. They must not be delivered again."""

    seqs: list[int]


class KnownJob(NamedTuple):
    """A stored job. ``until`` is the deadline of the lease if ``lease`` is not 0, otherwise the end of the delay."""

    seq: int
    priority: int
    deliveries: int
    lease: int
    node: str | None
    until: int
    failures: tuple[Failure, ...] = ()


class SnapshotEvent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="snapshot"):
    """The whole state. A large snapshot consists of several events in one batch; ``first`` marks the first one."""

    first: bool
    next_lease: int
    dead_lettered: int
    jobs: list[KnownJob]
    dropped: int = 0


Event: TypeAlias = (
    ClaimedEvent
    | ReleasedEvent
    | RestartedEvent
    | ExtendedEvent
    | ScheduledEvent
    | UnscheduledEvent
    | DeadLetteredEvent
    | DroppedEvent
    | SnapshotEvent
)

encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def decode(data: bytes) -> Event | None:
    """Decode an event. Returns None if it is invalid: losing an event is harmless, but a queue must always open."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


#: Heaps keep stale entries of jobs. A heap is rebuilt when most of its entries, and at least this many, are stale.
STALE_ENTRIES = 64

#: The delivery order: highest priority first, then reclaimed before new jobs, then the lowest seq.
Order = tuple[int, int, int]


class JobState:
    """A job with a ``lease`` (a number other than 0) is held by ``node`` up to and including ``until``.

    A job without a lease is delayed until ``until``, or can be claimed if that is 0.
    """

    __slots__ = ("deliveries", "failures", "lease", "node", "priority", "seq", "until")

    def __init__(
        self,
        seq: int,
        priority: int = 0,
        deliveries: int = 0,
        lease: int = 0,
        node: str | None = None,
        until: int = 0,
        failures: tuple[Failure, ...] = (),
    ) -> None:
        self.seq = seq
        self.priority = priority
        self.deliveries = deliveries
        self.lease = lease
        self.node = node
        self.until = until
        self.failures = failures

    def fail(self, at: int, reason: msgspec.Raw) -> None:
        """Record why the current delivery failed."""
        failures = (*self.failures, Failure(at, self.deliveries, self.node or "", reason))[-MAX_FAILURES:]
        while len(failures) > 1 and failure_bytes(failures) > MAX_FAILURE_BYTES:
            failures = failures[1:]
        self.failures = failures

    def free(self) -> None:
        """End the lease or the delay."""
        self.lease = self.until = 0
        self.node = None

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
        self.dropped = 0
        #: The size of all failures, about.
        self.failure_bytes = 0
        #: Dead letters and dropped jobs that may still be in the jobs log. Only set during a replay.
        self.unfinished: set[int] = set()
        #: The maximum number of deliveries; 0: no limit.
        self.limit = 0
        #: Jobs that failed on their last delivery. They can be claimed until they are removed.
        self.exhausted: set[int] = set()
        self._ready: list[Order] = []
        #: A heap of the times since when jobs can be claimed, with their seqs and numbers of deliveries. An entry is
        #: stale once the job was delivered again.
        self._waiting: list[tuple[int, int, int]] = []
        #: A heap of the times when last deliveries expire, a number that makes entries comparable, and their jobs.
        self._last: list[tuple[int, int, list[int]]] = []
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
                # A copy, because the raw value keeps the whole page in memory that it was read from.
                self.release(event.seqs, event.not_before, event.at, event.reason.copy(), event.counted)
            case RestartedEvent():
                self.end_leases(event.at)
            case ExtendedEvent():
                self.extend(event.seqs, event.deadline)
            case ScheduledEvent():
                for scheduled in event.jobs:
                    self.add(job_of(scheduled), 0)
            case UnscheduledEvent():
                for seq in event.seqs:
                    self.forget(seq)
            case DeadLetteredEvent():
                self.remove(event.seqs)
                self.unfinished.update(event.seqs)
            case DroppedEvent():
                self.drop(event.seqs)
                self.unfinished.update(event.seqs)
            case SnapshotEvent():
                self._restore(event)

    def _restore(self, snapshot: SnapshotEvent) -> None:
        if snapshot.first:
            self.jobs.clear()
            self.failure_bytes = 0
        self.next_lease = snapshot.next_lease
        self.dead_lettered = snapshot.dead_lettered
        self.dropped = snapshot.dropped
        for known in snapshot.jobs:
            failures = tuple(msgspec.structs.replace(each, reason=each.reason.copy()) for each in known.failures)
            self.jobs[known.seq] = JobState(*known[:-1], failures)
            self.failure_bytes += failure_bytes(failures)

    def grant(self, grant: Grant) -> bool:
        """Returns whether any of the deliveries is the last one of its job."""
        jobs, node, lease, deadline = self.jobs, grant.node, grant.lease, grant.deadline
        limit = self.limit
        last = grant.seqs if limit == 1 else []
        for seq in grant.seqs:
            job = jobs.get(seq)
            if job is None:
                jobs[seq] = JobState(seq, 0, 1, lease, node, deadline)
                if self._lowest is not None:
                    heappush(self._lowest, seq)
            else:
                if job.lease:
                    # Only during a replay, where leases do not expire by themselves.
                    self._fail(job, job.until, EXPIRED)
                job.deliveries += 1
                job.lease = lease
                job.node = node
                job.until = deadline
                if limit > 1 and job.deliveries >= limit:
                    last.append(seq)
            lease += 1
        self.next_lease = max(self.next_lease, lease)
        self.in_flight += len(grant.seqs)
        self._remind(deadline + 1, grant.seqs)
        if last:
            self.exhausted.difference_update(last)
            self._expect_last(deadline + 1, last)
        return bool(last)

    def release(
        self,
        seqs: Iterable[int],
        not_before: int | list[int] = 0,
        at: int = 0,
        reason: msgspec.Raw = NO_REASON,
        counted: bool = True,
    ) -> None:
        delayed: dict[int, list[int]] = {}
        times = repeat(not_before) if isinstance(not_before, int) else not_before
        for seq, when in zip(seqs, times, strict=False):
            job = self.jobs.get(seq)
            if job is None or not job.lease:
                continue
            self.in_flight -= 1
            if reason != NO_REASON:
                self._fail(job, at, reason)
            job.free()
            if not counted:
                job.deliveries -= 1
            self._check_exhausted(job)
            if when:
                job.until = when
                self.delayed += 1
                delayed.setdefault(when, []).append(seq)
            else:
                self._make_ready(job, at)
        for when, together in delayed.items():
            self._remind(when, together)

    def end_leases(self, at: int) -> None:
        """End all leases, because the process that granted them has ended after ``at``. For a replay: it does not
        maintain the counters and the order."""
        for job in self.jobs.values():
            if job.lease:
                if job.until < at:
                    self._fail(job, job.until, EXPIRED)
                else:
                    job.deliveries -= 1
                job.free()

    def _fail(self, job: JobState, at: int, reason: msgspec.Raw) -> None:
        self.failure_bytes -= failure_bytes(job.failures)
        if self.failure_bytes > MAX_ALL_FAILURES_BYTES:
            job.failures, reason = (), NOT_KEPT
        job.fail(at, reason)
        self.failure_bytes += failure_bytes(job.failures)

    def extend(self, seqs: list[int], deadline: int) -> None:
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is not None and job.lease:
                job.until = deadline
        self._remind(deadline + 1, seqs)
        last = [seq for seq in seqs if seq in self.jobs and self.jobs[seq].deliveries >= self.limit > 0]
        if last:
            self._expect_last(deadline + 1, last)

    def add(self, job: JobState, now: int) -> None:
        """Add a scheduled job, or a job whose deletion failed."""
        self.jobs[job.seq] = job
        if self._lowest is not None:
            heappush(self._lowest, job.seq)
        if job.until:
            self.delayed += 1
            self._remind(job.until, [job.seq])
        else:
            self._make_ready(job, now)

    def forget(self, seq: int) -> JobState | None:
        """Remove a job that is completed or deleted."""
        job = self.jobs.pop(seq, None)
        if job is not None:
            if job.lease:
                self.in_flight -= 1
            elif job.until:
                self.delayed -= 1
            if job.failures:
                self.failure_bytes -= failure_bytes(job.failures)
            if self.exhausted:
                self.exhausted.discard(seq)
        return job

    def remove(self, seqs: Iterable[int]) -> None:
        """Remove jobs that have become dead letters."""
        for seq in seqs:
            self.forget(seq)
            self.dead_lettered += 1

    def drop(self, seqs: Iterable[int]) -> None:
        """Remove jobs that failed on their last delivery and have no dead-letter log."""
        for seq in seqs:
            self.forget(seq)
            self.dropped += 1

    def index(self, written: Mapping[int, int]) -> None:
        """Rebuild the counters and the order after a replay, which does not maintain them. ``written`` has the times
        when the jobs were written."""
        jobs = self.jobs.values()
        self.in_flight = sum(1 for job in jobs if job.lease)
        self.delayed = sum(1 for job in jobs if job.until and not job.lease)
        self.failure_bytes = sum(failure_bytes(job.failures) for job in jobs)
        self._lowest = None
        self._order_ready()
        self._order_timers()
        self._waiting = [
            (job.failures[-1].at if job.failures else written.get(job.seq, 0), job.seq, job.deliveries)
            for job in jobs
            if not job.until
        ]
        heapify(self._waiting)

    def set_limit(self, limit: int) -> None:
        """Set the maximum number of deliveries, after a replay or a change of the settings."""
        self.limit = limit
        self.exhausted.clear()
        for job in self.jobs.values():
            if not job.lease:
                self._check_exhausted(job)
        self._order_last()

    def correct_times(self, latest: int) -> None:
        """After a replay, end leases and delays that end after ``latest``, because they come from a wrong clock. Times
        that a producer set for its jobs are kept."""
        for job in self.jobs.values():
            if job.deliveries and job.until > latest:
                job.free()

    # --- time ----------------------------------------------------------------------------------------------

    def sweep(self, now: int) -> int:
        """Make jobs available whose lease has expired or whose delay has ended. Returns the number of expired
        leases."""
        timers = self._timers
        expired = 0
        while timers and timers[0][0] <= now:
            for seq in heappop(timers)[2]:
                job = self.jobs.get(seq)
                if job is None or not job.until or job.claimable_at > now:
                    continue
                since = job.claimable_at
                if job.lease:
                    self.in_flight -= 1
                    expired += 1
                    self._fail(job, job.until, EXPIRED)
                else:
                    self.delayed -= 1
                job.free()
                self._check_exhausted(job)
                self._make_ready(job, since)
        return expired

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

    # --- last deliveries -----------------------------------------------------------------------------------

    def next_exhaustion(self) -> int | None:
        """The next time at which the lease of a last delivery expires. It is in the past if there are such jobs
        already."""
        if self.exhausted:
            return 0
        while self._last:
            when, _, seqs = self._last[0]
            for seq in seqs:
                job = self.jobs.get(seq)
                if job is not None and job.lease and job.claimable_at == when and job.deliveries >= self.limit:
                    return when
            heappop(self._last)
        return None

    def _check_exhausted(self, job: JobState) -> None:
        if self.limit and job.deliveries >= self.limit:
            self.exhausted.add(job.seq)

    def _expect_last(self, when: int, seqs: list[int]) -> None:
        self._timers_made += 1
        heappush(self._last, (when, self._timers_made, seqs))
        if len(self._last) > STALE_ENTRIES + 2 * len(self.jobs):
            self._order_last()

    def _order_last(self) -> None:
        due: dict[int, list[int]] = {}
        for job in self.jobs.values():
            if self.limit and job.lease and job.deliveries >= self.limit:
                due.setdefault(job.claimable_at, []).append(job.seq)
        self._last = [(when, number, seqs) for number, (when, seqs) in enumerate(due.items())]
        heapify(self._last)

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

    def ready_since(self) -> int | None:
        """When the oldest ready job became ready, of those that are known; None if there is none."""
        waiting = self._waiting
        while waiting and not self._is_waiting(waiting[0]):
            heappop(waiting)
        return waiting[0][0] if waiting else None

    def _is_waiting(self, entry: tuple[int, int, int]) -> bool:
        job = self.jobs.get(entry[1])
        return job is not None and not job.until and job.deliveries == entry[2]

    def _make_ready(self, job: JobState, since: int) -> None:
        heappush(self._ready, job.order)
        heappush(self._waiting, (since, job.seq, job.deliveries))
        if len(self._waiting) > STALE_ENTRIES + 2 * len(self.jobs):
            self._waiting = [entry for entry in self._waiting if self._is_waiting(entry)]
            heapify(self._waiting)

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
        self, node: str, seqs: Sequence[int], fences: list[int] | None, without: Container[int] = ()
    ) -> tuple[dict[int, JobState], list[int]]:
        """The jobs that the node holds, except those in ``without``, and the seqs of the others. A duplicate seq counts
        once."""
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
                or seq in without
            ):
                skipped.append(seq)
            else:
                held[seq] = job
        return held, skipped

    def known(self) -> Iterator[KnownJob]:
        return (known_job(job) for job in self.jobs.values())


def known_job(job: JobState) -> KnownJob:
    return KnownJob(job.seq, job.priority, job.deliveries, job.lease, job.node, job.until, job.failures)


def failure_bytes(failures: Iterable[Failure]) -> int:
    """The size of failures in the lease log, about."""
    return sum(len(bytes(each.reason)) + len(each.node) + FAILURE_OVERHEAD_BYTES for each in failures)


def job_of(scheduled: Scheduled) -> JobState:
    return JobState(scheduled.seq, scheduled.priority, until=scheduled.not_before)
