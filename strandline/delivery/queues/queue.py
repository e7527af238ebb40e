"""A queue: leases jobs to workers; and :class:`Queues`, all queues of an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from random import random
from typing import Any

from msgspec import Raw

from strandline.delivery.queues.activity import Activity
from strandline.delivery.queues.backoff import clamp_delay
from strandline.delivery.queues.completion import Completion
from strandline.delivery.queues.dead_letters import LastDeliveries
from strandline.delivery.queues.jobs import (
    NO_REASON,
    Acked,
    AckRequest,
    Claimed,
    ClaimRequest,
    Extended,
    Nacked,
    QueueCounters,
    QueueFigures,
    QueueSettings,
    Schedule,
    check_amount,
    check_reason,
    lease_id,
    lease_number,
    lease_numbers,
)
from strandline.delivery.queues.lease_log import LeaseLog, drop_lease_log, lease_log_name
from strandline.delivery.queues.multi_append import PlannedEvent, QueueWrite, append_together
from strandline.delivery.queues.selection import Picker, Row, divide, in_turn
from strandline.delivery.queues.state import (
    DISCONNECTED,
    ClaimedEvent,
    ExtendedEvent,
    Grant,
    JobState,
    KnownJob,
    ReleasedEvent,
    RestartedEvent,
    Scheduled,
    ScheduledEvent,
    State,
    UnscheduledEvent,
    job_of,
    known_job,
)
from strandline.engine import Appended, Batch, Commit, Engine, Log, Record
from strandline.engine.clock import MAX_AHEAD_MS
from strandline.engine.commit import after_all, then
from strandline.engine.errors import EngineError, UnknownLog
from strandline.engine.reads.single_records import records_at

#: Leases and delays last at most a day. A later end after a restart comes from a wrong clock. The second day allows for
#: a clock that was set back.
MAX_HELD_MS = 2 * MAX_AHEAD_MS

#: Opening a queue reads its lease log, and opening most other queues does not wait for that.
OPENING_LOCKS = 64

#: Called with a queue and the time, in milliseconds, at which a lease of a last delivery expires.
Alarm = Callable[["Queue", int], None]


class Queue:
    """The jobs of a log, leased to workers. Safe to use from any thread.

    Leases expire lazily: a lease has ended once ``now`` is past its deadline, and every call processes expired leases
    first. A call takes effect for all other calls at once. Its commit is done when it has the requested durability.

    A job that fails on its last delivery is removed: moved to the dead-letter log, or dropped if there is none. The
    queue calls ``alarm`` with the time at which the lease of a last delivery expires. Call ``remove_exhausted`` then;
    otherwise the next claim removes the job.

    A claim of jobs that are not in memory reads them from the disk. Other callers of this queue wait for it, but no
    other queue does. The lock of the queue is taken before the engine's lock.
    """

    def __init__(
        self,
        engine: Engine,
        log: Log,
        settings: QueueSettings,
        now: Callable[[], int],
        create_log: Callable[[str], Log | None],
        alarm: Alarm,
        random: Callable[[], float],
    ) -> None:
        self.log = log
        self.settings = settings
        self._engine = engine
        self._now = now
        self._alarm = alarm
        #: The earliest time that the alarm is set for.
        self._alarm_at: int | None = None
        self._random = random
        #: Taken before the engine's lock. Locks of several queues are taken in order of their epochs.
        self.lock = threading.RLock()
        self._lease_log = LeaseLog(engine, log, settings.leases_durable)
        self._state = State()
        self._activity = Activity(now())
        #: Scheduled jobs that are written but not visible yet, by seq, ascending.
        self._coming: dict[int, JobState] = {}
        self._leaving = Completion(log)
        self._last_deliveries = LastDeliveries(log, self._state, self._lease_log, self._leaving, create_log)
        self._picker = Picker(log, self._state, self._coming, self._leaving.seqs)
        self._replay()
        #: Leases are numbered, so the next one tells how many deliveries there were.
        self._first_lease = self._state.next_lease

    def __repr__(self) -> str:
        return f"<Queue {self.log.name!r} epoch {self.log.epoch}>"

    @property
    def leases_fit(self) -> bool:
        """Whether durable leases have the durability of the jobs."""
        return not self.settings.leases_durable or self._lease_log.fits

    def configure(self, settings: QueueSettings) -> None:
        """Change the settings. Current leases keep their deadlines."""
        with self.lock:
            self._lease_log.configure(settings.leases_durable)
            self.settings = settings
            if settings.max_deliveries != self._state.limit:
                self._state.set_limit(settings.max_deliveries)
                self._expect_exhaustion()

    def _replay(self) -> None:
        state = self._state
        for event in self._lease_log.events():
            state.apply(event)
        # An interrupted append may have left a scheduled event without its jobs. Their seqs will be used by other jobs.
        next_seq = self.log.next_seq
        without_job = [seq for seq in state.jobs if seq >= next_seq]
        if without_job:
            self._lease_log.write(UnscheduledEvent(without_job))
            for seq in without_job:
                state.forget(seq)
        written = self._forget_absent()
        now = self._now()
        if not self.settings.leases_durable and any(job.lease for job in state.jobs.values()):
            # The time during which no process ran ends no lease: it says nothing about the workers.
            ended = min(self._engine.recovered.last_ts, now)
            # If the disk is full, the event is not written, and the next process treats these leases as expired.
            with suppress(EngineError):
                self._lease_log.write(RestartedEvent(ended))
            state.end_leases(ended)
        state.correct_times(now + MAX_HELD_MS)
        state.index(written)
        state.set_limit(self.settings.max_deliveries)
        self._expect_exhaustion()
        unfinished = self._there(state.unfinished)
        state.unfinished.clear()
        if unfinished:
            self._leaving.remove(sorted(unfinished))

    # --- producing -----------------------------------------------------------------------------------------

    def append(
        self,
        batch: Batch,
        schedules: Sequence[Schedule | None] | None = None,
        idempotency_key: str | None = None,
    ) -> Commit[Appended]:
        """Append jobs. ``schedules`` has one entry per job with its time and priority.

        A job and its schedule are written in one transaction. A repeated append does not change schedules.
        """
        if schedules is None:
            return self.log.append(batch, idempotency_key=idempotency_key)
        write = QueueWrite(self.log, batch, self, schedules)
        return then(append_together(self._engine, [write], idempotency_key), lambda appended: appended[0])

    def plan(self, schedules: Sequence[Schedule | None]) -> PlannedEvent | None:
        """The event to append together with the next jobs so that they have these schedules, or None if no event is
        needed. The caller holds the locks of this queue and of the engine, so the seqs in the event are fixed."""
        scheduled = list(_scheduled(schedules, self.log.next_seq, self._now()))
        return PlannedEvent(self, scheduled, self._lease_log.prepare(ScheduledEvent(scheduled))) if scheduled else None

    def carry_out(self, plan: PlannedEvent) -> None:
        """Apply the plan after its append. The caller still holds both locks."""
        self._lease_log.count_prepared(plan.append)
        if self.log.next_seq <= plan.jobs[0].seq:
            # The append was a repetition and created no jobs.
            self._lease_log.write(UnscheduledEvent([job.seq for job in plan.jobs]))
            return
        for job in plan.jobs:
            self._coming[job.seq] = job_of(job)

    def catch_up(self) -> None:
        """Process what has happened since the last call. The caller holds this queue's lock, but not the engine's."""
        self._catch_up(self._now())
        self._compact()

    # --- claiming ------------------------------------------------------------------------------------------

    def claim(self, node: str, max: int, lease_ms: int | None = None) -> Commit[list[Claimed]]:
        """Lease up to ``max`` jobs to the node, in delivery order: highest priority first, then reclaimed before new
        jobs, then by seq."""
        claimed, commits = self._claim([ClaimRequest(node, max, lease_ms)], in_turn)
        return after_all(commits, claimed[0])

    def claim_each(self, requests: Sequence[ClaimRequest]) -> Commit[list[list[Claimed]]]:
        """Serve several claims in one step, with the result of one after the other."""
        claimed, commits = self._claim(requests, in_turn)
        return after_all(commits, claimed)

    def claim_cohort(self, requests: Sequence[ClaimRequest]) -> Commit[list[list[Claimed]]]:
        """Divide the available jobs among several claims in one step; see
        :mod:`~strandline.delivery.queues.selection`."""
        claimed, commits = self._claim(requests, divide)
        return after_all(commits, claimed)

    def _claim(
        self, requests: Sequence[ClaimRequest], split: Callable[[list[Row], Sequence[int]], list[list[Row]]]
    ) -> tuple[list[list[Claimed]], list[Commit[Any]]]:
        for request in requests:
            check_amount("max", request.max, 0)
            if request.lease_ms is not None:
                check_amount("lease_ms", request.lease_ms, 0)
        with self.lock:
            now = self._now()
            self._catch_up(now)
            commits: list[Commit[Any]] = []
            taken: list[JobState] = []
            cursor = self._picker.cursor
            try:
                wishes = [request.max for request in requests]
                granted = split(self._take(sum(wishes), taken, commits), wishes)
                event = ClaimedEvent(self._grants(requests, granted, now))
                if event.grants:
                    commits.append(self._lease_log.write(event))
            except BaseException:
                self._picker.cursor = cursor
                self._state.put_back(taken)
                raise
            has_last = False
            for grant in event.grants:
                has_last |= self._state.grant(grant)
            if has_last:
                self._expect_exhaustion()
            claimed = [self._claimed(rows) for rows in granted]
            self._compact()
            return claimed, commits

    def _take(self, count: int, taken: list[JobState], commits: list[Commit[Any]]) -> list[Row]:
        """The rows of the next jobs to deliver. The known jobs among them are added to ``taken``."""
        rows: list[Row] = []
        while len(rows) < count:
            wanted = count - len(rows)
            picked = self._picker.pick(wanted)
            known = [job for job in picked if isinstance(job, JobState)]
            found: dict[int, Record] = {}
            if known:
                taken.extend(known)
                found = self._look_up(known)
                self._last_deliveries.remove(known, found, self.settings, commits)
            for job in picked:
                if not isinstance(job, JobState):
                    rows.append(job)
                elif job.seq in self._state.jobs:
                    rows.append(found[job.seq])
            if len(picked) < wanted:
                break
        return rows

    def _look_up(self, known: list[JobState]) -> dict[int, Record]:
        found = {record.seq: record for record in records_at(self.log, sorted(job.seq for job in known))}
        for job in known:
            if job.seq not in found:
                self._state.forget(job.seq)
        return found

    def _grants(self, requests: Sequence[ClaimRequest], granted: list[list[Row]], now: int) -> list[Grant]:
        grants = []
        lease = self._state.next_lease
        for request, rows in zip(requests, granted, strict=True):
            if rows:
                lease_ms = self.settings.lease_ms if request.lease_ms is None else request.lease_ms
                grants.append(Grant(request.node, lease, now + lease_ms, [row[0] for row in rows]))
                lease += len(rows)
        return grants

    def _claimed(self, rows: list[Row]) -> list[Claimed]:
        jobs = self._state.jobs
        claimed = []
        for row in rows:
            job = jobs[row[0]]
            claimed.append(Claimed(*row, lease_id(job.lease), job.until, job.deliveries, job.priority, job.failures))
        return claimed

    # --- operations on held jobs ---------------------------------------------------------------------------

    def ack(self, node: str, seqs: Sequence[int], lease_ids: Sequence[str] | None = None) -> Commit[Acked]:
        """Acknowledge jobs: delete those that the node holds. Jobs that the node no longer holds, or holds with another
        lease than the given one, are skipped."""
        return then(self.ack_each([AckRequest.of(node, seqs, lease_ids)]), lambda acked: acked[0])

    def ack_each(self, requests: Sequence[AckRequest]) -> Commit[list[Acked]]:
        """Serve several acknowledgements in one step, with the result of one after the other."""
        with self.lock:
            now = self._now()
            self._catch_up(now)
            done: dict[int, JobState] = {}
            acked = []
            for node, seqs, fences in requests:
                held, skipped = self._state.held_by(node, seqs, fences, done)
                done.update(held)
                acked.append(Acked(list(held), skipped))
            if not done:
                return Commit.of(acked)
            commit = self._leaving.delete(list(done.values()))
            for seq in done:
                self._state.forget(seq)
            self._activity.complete(now, len(done))
            return after_all([commit], acked)

    def nack(
        self,
        node: str,
        seqs: Sequence[int],
        delay_ms: int | None = None,
        lease_ids: Sequence[str] | None = None,
        reason: bytes | None = None,
    ) -> Commit[Nacked]:
        """Release held jobs. They can be claimed again after ``delay_ms``; None: after the delay of the settings.

        ``reason`` is JSON and says why the jobs failed. It is kept with the jobs.
        """
        if delay_ms is not None:
            check_amount("delay_ms", delay_ms, 0)
        checked = check_reason(reason)
        fences = lease_numbers(seqs, lease_ids)
        with self.lock:
            now = self._now()
            self._catch_up(now)
            held, skipped = self._state.held_by(node, seqs, fences)
            commits = self._release(list(held), self._retry_times(held.values(), delay_ms, now), now, checked)
            self._activity.fail(now, len(held), "nack")
            return after_all(commits, Nacked(list(held), skipped))

    def _retry_times(self, jobs: Iterable[JobState], delay_ms: int | None, now: int) -> int | list[int]:
        """When the jobs can be claimed again: one time for all of them, or one for each; 0: at once. Every delay comes
        through here, and none is longer than the maximum."""
        backoff = self.settings.backoff
        if delay_ms is None and backoff.delay_ms:
            delays = [backoff.after(job.deliveries, self._random) for job in jobs]
            return [now + clamp_delay(delay) if delay else 0 for delay in delays]
        return now + clamp_delay(delay_ms) if delay_ms else 0

    def release(self, seqs: Sequence[int], lease_ids: Sequence[str], *, is_restart: bool = False) -> Commit[list[int]]:
        """Release the jobs of a closed connection that are still held with these leases. They can be claimed at once.
        If the server restarts, the deliveries do not count. They do not count either if their jobs would be dropped: a
        connection that breaks must not delete jobs that the worker has perhaps not begun."""
        fences = lease_numbers(seqs, lease_ids)
        assert fences is not None
        with self.lock:
            now = self._now()
            self._catch_up(now)
            jobs = self._state.jobs
            # A seq that occurs twice is released once.
            pairs = dict(zip(seqs, fences, strict=True)).items()
            released = [seq for seq, fence in pairs if fence and seq in jobs and jobs[seq].lease == fence]
            if is_restart:
                return after_all(self._release(released, 0, now, NO_REASON, counted=False), released)
            would_drop = self.settings.max_deliveries > 0 and self.settings.dead_letter is None
            commits = self._release(released, 0, now, DISCONNECTED, counted=not would_drop)
            self._activity.fail(now, len(released), "disconnected")
            return after_all(commits, released)

    def _release(
        self, seqs: list[int], not_before: int | list[int], now: int, reason: Raw, *, counted: bool = True
    ) -> list[Commit[Any]]:
        if not seqs:
            return []
        commits = [self._lease_log.write(ReleasedEvent(seqs, not_before, now, reason, counted))]
        self._state.release(seqs, not_before, now, reason, counted)
        if self._state.exhausted:
            if self._picker.are_resident(self._state.exhausted):
                # The release is complete. If the disk is full, the alarm tries again.
                with suppress(EngineError):
                    self._remove_exhausted(commits)
            self._expect_exhaustion()
        self._compact()
        return commits

    def extend(
        self, node: str, seqs: Sequence[int], lease_ms: int, lease_ids: Sequence[str] | None = None
    ) -> Commit[Extended]:
        """Set the leases of held jobs to end ``lease_ms`` from now, whether that is later or earlier than before."""
        check_amount("lease_ms", lease_ms, 0)
        fences = lease_numbers(seqs, lease_ids)
        with self.lock:
            now = self._now()
            self._catch_up(now)
            held, skipped = self._state.held_by(node, seqs, fences)
            if not held:
                return Commit.of(Extended({}, skipped))
            extended, deadline = list(held), now + lease_ms
            commit = self._lease_log.write(ExtendedEvent(extended, deadline))
            self._state.extend(extended, deadline)
            if self._state.limit:
                self._expect_exhaustion()
            self._compact()
            return after_all([commit], Extended(dict.fromkeys(extended, deadline), skipped))

    # --- last deliveries -----------------------------------------------------------------------------------

    def bring_exhausted(self) -> None:
        """Read the jobs that failed on their last delivery into the cache, without holding the lock."""
        with self.lock:
            self._catch_up(self._now())
            seqs = sorted(self._state.exhausted)
        for seq in seqs:
            self.log.read(seq - 1, 1)

    def remove_exhausted(self) -> Commit[None]:
        """Bury the jobs that failed on their last delivery. Call it when the alarm asks for it."""
        with self.lock:
            self._alarm_at = None
            self._catch_up(self._now())
            commits: list[Commit[Any]] = []
            self._remove_exhausted(commits)
            self._expect_exhaustion()
            self._compact()
            return after_all(commits, None)

    def _remove_exhausted(self, commits: list[Commit[Any]]) -> None:
        state = self._state
        jobs = [state.jobs[seq] for seq in sorted(state.exhausted)]
        if jobs:
            self._last_deliveries.remove(jobs, self._look_up(jobs), self.settings, commits)
            # Jobs that could not be removed are delivered again.
            state.exhausted.clear()

    def _expect_exhaustion(self) -> None:
        when = self._state.next_exhaustion()
        if when is not None and (self._alarm_at is None or when < self._alarm_at):
            self._alarm_at = when
            self._alarm(self, when)

    # --- inspection ----------------------------------------------------------------------------------------

    @property
    def hands_out(self) -> bool:
        """Whether any job was held at the last call. This check is very cheap."""
        return self._state.in_flight > 0

    def counters(self) -> QueueCounters:
        with self.lock:
            self._catch_up(self._now())
            state, book = self._state, self.log.book
            if book.config.ttl_ms or book.base is not None:
                log = self.log.state()
                count, floor = log.count, log.evict_floor
            else:
                # The same, without asking whether records have expired.
                book.check_there()
                count, floor = book.count, book.evict_floor
            state.forget_below(floor)
            ready = count - state.in_flight - state.delayed - len(self._leaving.seqs)
            return QueueCounters(max(ready, 0), state.in_flight, state.dead_lettered, state.delayed, state.dropped)

    def figures(self) -> QueueFigures:
        """The counters and rates, and the age of the oldest ready job. May read one page from the disk."""
        with self.lock:
            counters, now = self.counters(), self._now()
            new = self._picker.first_new()
            since = [time for time in (self._state.ready_since(), None if new is None else new[1]) if time is not None]
            oldest = max(now - min(since), 0) if since else None
            return QueueFigures(counters, self._activity.rates(now, self._state.next_lease - self._first_lease), oldest)

    @property
    def figures_resident(self) -> bool:
        """Whether ``figures`` needs no read from the disk."""
        with self.lock:
            return self._picker.first_new_resident

    def known_jobs(self) -> list[KnownJob]:
        """All held and delayed jobs, and released ones, in no order. The lock is held only while a list is copied."""
        with self.lock:
            self._catch_up(self._now())
            jobs = list(self._state.jobs.values())
        return [known_job(job) for job in jobs]

    def upcoming(self, count: int) -> list[int]:
        """The seqs of the next jobs in delivery order. May read from the disk."""
        self.bring(count)
        with self.lock:
            self._catch_up(self._now())
            cursor = self._picker.cursor
            picked = self._picker.pick(count)
            self._picker.cursor = cursor
            self._state.put_back([job for job in picked if isinstance(job, JobState)])
            return [job.seq if isinstance(job, JobState) else job[0] for job in picked]

    def holds(self, seqs: Sequence[int], lease_ids: Sequence[str]) -> list[int]:
        """Those of the jobs that are still held with these leases."""
        with self.lock:
            self._catch_up(self._now())
            jobs = self._state.jobs
            return [
                seq
                for seq, token in zip(seqs, lease_ids, strict=True)
                if seq in jobs and jobs[seq].lease and jobs[seq].lease == lease_number(token)
            ]

    def has_resident(self, count: int) -> bool:
        """Whether the next ``count`` jobs are in memory."""
        with self.lock:
            self._catch_up(self._now())
            return self._picker.has_resident(count)

    def bring(self, count: int) -> None:
        """Read the next ``count`` jobs from the disk into the cache, without holding the lock."""
        with self.lock:
            self._catch_up(self._now())
            places = self._picker.places(count)
        for place, limit in places:
            self.log.read(place, limit)

    def next_change(self) -> int | None:
        """The earliest time at which a lease expires or a delay ends. The time is in the past if that has happened
        since the last call."""
        with self.lock:
            self._admit()
            return self._state.next_change()

    def forget_missing(self) -> None:
        """Drop the leases of jobs that were deleted directly from the jobs log. Call it when the deletion is done."""
        with self.lock:
            self._catch_up(self._now())
            self._forget_absent()

    def _forget_absent(self) -> dict[int, int]:
        """Forget the jobs that are no longer in the log. Returns when the others were written."""
        jobs = self._state.jobs
        there = self._there(jobs)
        for seq in jobs.keys() - there.keys():
            self._state.forget(seq)
        return there

    def _there(self, seqs: Iterable[int]) -> dict[int, int]:
        """Those of the jobs that are in the log, with the times when they were written."""
        earliest = self.log.state().earliest
        return {
            record.seq: record.ts for record in records_at(self.log, sorted(seq for seq in seqs if seq >= earliest))
        }

    # --- shared --------------------------------------------------------------------------------------------

    def _catch_up(self, now: int) -> None:
        """Process completed deletions, evictions, and expired leases and delays."""
        state, log = self._state, self.log
        for job in self._leaving.settle():
            job.free()
            state.add(job, now)
        self._admit()
        config = log.config
        if config.ttl_ms or config.cap_records or config.cap_bytes:
            state.forget_below(log.state().evict_floor)
        expired = state.sweep(now)
        if expired:
            self._activity.fail(now, expired, "expired")

    def _admit(self) -> None:
        """Add the scheduled jobs that have become visible."""
        if self._coming:
            head = self.log.head
            for seq in list(takewhile(lambda seq: seq <= head, self._coming)):
                self._state.add(self._coming.pop(seq), self._now())

    def _compact(self) -> None:
        if self._lease_log.is_long:
            coming = (KnownJob(job.seq, job.priority, 0, 0, None, job.until) for job in self._coming.values())
            self._lease_log.compact(self._state, coming)


def _scheduled(schedules: Sequence[Schedule | None], first: int, now: int) -> Iterator[Scheduled]:
    """The schedules that differ from the default, with the seqs of their jobs."""
    for seq, schedule in enumerate(schedules, first):
        if schedule is not None:
            not_before = schedule.not_before if schedule.not_before > now else 0
            if not_before or schedule.priority:
                yield Scheduled(seq, not_before, schedule.priority)


class Queues:
    """All queues of an engine.

    ``create_log`` returns the dead-letter log of a name, created if necessary, or None if it is not allowed; then jobs
    are redelivered without limit. ``now`` returns the time in milliseconds. ``alarm`` is called, on any thread,
    with a queue and the time at which a lease of a last delivery expires. ``random`` returns numbers from 0 to 1.
    """

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], int],
        create_log: Callable[[str], Log | None],
        alarm: Alarm = lambda queue, when: None,
        random: Callable[[], float] = random,
    ) -> None:
        self._engine = engine
        self._now = now
        self._create_log = create_log
        self._alarm = alarm
        self._random = random
        self._locks = [threading.Lock() for _ in range(OPENING_LOCKS)]
        self._by_epoch: dict[int, Queue] = {}

    def open(self, log: Log, settings: QueueSettings) -> Queue:
        """Return the queue over this log. The first call rebuilds its state from its lease log."""
        queue = self._by_epoch.get(log.epoch)
        if queue is None:
            with self._lock(log):
                queue = self._by_epoch.get(log.epoch)
                if queue is None:
                    if log.dropped:
                        raise UnknownLog(log.name)
                    queue = Queue(self._engine, log, settings, self._now, self._create_log, self._alarm, self._random)
                    self._by_epoch[log.epoch] = queue
        if queue.settings != settings or not queue.leases_fit:
            queue.configure(settings)
        return queue

    def _lock(self, log: Log) -> threading.Lock:
        return self._locks[log.epoch % OPENING_LOCKS]

    def is_open(self, log: Log) -> bool:
        return log.epoch in self._by_epoch

    def known(self, log: Log, settings: QueueSettings) -> Queue | None:
        """The queue over this log, or None if no job of it was ever claimed or scheduled. Unlike ``open``, this creates
        nothing."""
        return self.open(log, settings) if self.is_open(log) or self.was_used(log) else None

    def was_used(self, log: Log) -> bool:
        """Whether a job of the queue was ever claimed or scheduled."""
        return self._engine.find(lease_log_name(log.name)) is not None

    def in_flight(self) -> int:
        """The number of held jobs in all open queues."""
        return sum(queue.counters().in_flight for queue in list(self._by_epoch.values()) if queue.hands_out)

    def drop(self, log: Log) -> Commit[None]:
        """Remove the queue of a log that is being deleted, with its lease log."""
        with self._lock(log):
            self._by_epoch.pop(log.epoch, None)
            return drop_lease_log(self._engine, log)
