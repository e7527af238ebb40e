"""The dispatcher of a queue: collects claims into cohorts, and pushes jobs to waiting workers.

A queue itself never waits. The dispatcher waits on the event loop: one wake-up per burst of new jobs, one timer for the
next lease or delay that ends, one window for all claims that arrive in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from strandline.delivery.hub import Hub, Waiter
from strandline.delivery.queues import Claimed, ClaimRequest, Queue
from strandline.delivery.queues.leases import QueueWorker, WorkerLeases
from strandline.engine import Commit, Log
from strandline.engine.background import delay_after, report
from strandline.engine.errors import EngineError, UnknownLog

#: The delay before the next attempt if jobs cannot be delivered, for example because the disk is full. It grows with
#: consecutive failures.
RETRY_SECONDS = 1.0
#: The maximum wait of a timer. Later times are checked again when it fires.
MAX_TIMER_SECONDS = 3600.0
#: The minimum wait of a timer, so that an overdue timer cannot keep the loop busy.
MIN_TIMER_SECONDS = 0.001


class _Claim(NamedTuple):
    request: ClaimRequest
    #: Called with the jobs or with an error.
    done: Callable[[list[Claimed] | Exception], None]


class _Cohort(NamedTuple):
    """The recipients of one claim of the queue: first the claims, then the workers, each with the number of jobs it can
    take."""

    claims: list[_Claim]
    workers: list[tuple[QueueWorker, int]]


class Dispatcher(Waiter):
    """One per queue that has waiting claims or workers. Used on the event loop's thread only.

    ``priority`` returns the priority of the queue at a time. ``hold_back`` returns for how many milliseconds no jobs
    are pushed; 0 means push now. ``idle`` is called when no claim and no worker is left.
    """

    __slots__ = (
        "_claims",
        "_failures",
        "_fetching",
        "_held_back",
        "_hold_back",
        "_holdings",
        "_hub",
        "_hungry",
        "_idle",
        "_priority",
        "_timer",
        "_timer_at",
        "_watching",
        "_window",
        "_workers",
        "queue",
    )

    def __init__(
        self,
        hub: Hub,
        queue: Queue,
        priority: Callable[[int], int],
        hold_back: Callable[[], int],
        idle: Callable[[Dispatcher], None],
    ) -> None:
        self.queue = queue
        self._hub = hub
        self._priority = priority
        self._hold_back = hold_back
        self._idle = idle
        self._claims: list[_Claim] = []
        self._workers: dict[QueueWorker, None] = {}
        #: Workers that can take more jobs, longest waiting first.
        self._hungry: dict[QueueWorker, None] = {}
        self._holdings = WorkerLeases()
        self._window: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._fetching = False
        self._held_back = False
        self._watching = False
        #: Consecutive failures to deliver jobs.
        self._failures = 0

    # --- claims and workers ----------------------------------------------------------------------------------------

    def claim(self, request: ClaimRequest, done: Callable[[list[Claimed] | Exception], None]) -> None:
        """Add the claim to the next cohort."""
        self._watch()
        self._claims.append(_Claim(request, done))
        self.feed()

    def join(self, worker: QueueWorker) -> None:
        """Push jobs to the worker until it leaves."""
        if self.queue.log.dropped:
            worker.dismiss(gone=True)
            self._rest()
            return
        self._watch()
        self._workers[worker] = None
        self.look_at(worker)
        self.feed()

    def leave(self, worker: QueueWorker, *, is_restart: bool = False) -> None:
        """Remove a worker and release its jobs at once. Does nothing if the worker has left already."""
        if self._workers.pop(worker, self) is not None:
            return
        self._hungry.pop(worker, None)
        self._release(self._holdings.let_go_all(worker), is_restart=is_restart)
        self.feed()
        self._rest()

    def _release(self, leases: dict[int, str], *, is_restart: bool = False) -> None:
        if leases:
            # If this fails, the leases expire.
            with suppress(EngineError):
                self.queue.release(list(leases), list(leases.values()), is_restart=is_restart)

    def look_at(self, worker: QueueWorker) -> None:
        """Update whether the worker can take more jobs."""
        if worker.free > 0 and worker in self._workers:
            self._hungry.setdefault(worker)
        else:
            self._hungry.pop(worker, None)

    def _rest(self) -> None:
        if not (self._workers or self._claims or self._fetching):
            for handle in (self._timer, self._window):
                if handle is not None:
                    handle.cancel()
            self._timer = self._window = None
            if self._watching:
                self._watching = False
                self._hub.unwatch(self.queue.log, self)
            self._idle(self)

    def _watch(self) -> None:
        if not self._watching:
            self._hub.watch(self.queue.log, self)
            self._watching = True

    # --- changes of jobs -------------------------------------------------------------------------------------------

    def done_with(self, seqs: list[int], *, given_back: bool = False) -> None:
        """Free the workers' capacity for these jobs. Jobs that were given back can be delivered again."""
        found = False
        for seq in seqs:
            worker = self._holdings.let_go(seq)
            if worker is not None:
                found = True
                self.look_at(worker)
        if found or given_back:
            self.feed()

    def extended(self, deadlines: dict[int, int]) -> None:
        """Update the deadlines of leases."""
        self._holdings.extend(deadlines)
        self._set_timer()

    def check_held(self) -> None:
        """Free the capacity of jobs that another client has deleted."""
        leases = self._holdings.leases()
        still = set(self.queue.holds(list(leases), list(leases.values())))
        self.done_with([seq for seq in leases if seq not in still])

    def _let_leases_end(self) -> None:
        for worker in self._holdings.end_leases(self._hub.now()):
            self.look_at(worker)

    # --- wake-ups --------------------------------------------------------------------------------------------------

    def wake(self, log: Log) -> None:
        if log.dropped:
            self._dismiss_all(gone=True)
        else:
            self.feed()

    def priority(self, now: int) -> int:
        return self._priority(now)

    def stop(self) -> None:
        """Complete the pending claims and dismiss the workers, because the server stops."""
        if self._claims and not self._fetching:
            self._close_window()
        self._dismiss_all(gone=False)

    def _dismiss_all(self, gone: bool) -> None:
        if gone:
            claims, self._claims = self._claims, []
            for claim in claims:
                claim.done(UnknownLog(self.queue.log.name))
        for worker in list(self._workers):
            self._hungry.clear()
            self.leave(worker, is_restart=True)
            worker.dismiss(gone)
        self._rest()

    def feed(self) -> None:
        """Deliver jobs if there are any, because jobs or capacity may have become available."""
        if self._window is not None or self._fetching:
            return
        if not self._claims and not self._hungry and self._holdings.next_deadline is None:
            return
        window_ms = self.queue.settings.claim_jitter_ms
        if window_ms and (self._claims or self._hungry):
            self._window = self._hub.loop.call_later(window_ms / 1000, self._close_window)
        else:
            self._serve()

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.cancel()
            self._window = None
        self._serve()

    def _set_timer(self) -> None:
        """Set the timer for the next job that becomes available while workers wait, or else for the next lease that
        expires."""
        if self._timer is not None and not self._timer_at:
            # The timer is set for a retry. It is set again after that.
            return
        when = None
        with suppress(EngineError):
            when = self.queue.next_change() if self._hungry else None
        if when is None:
            deadline = self._holdings.next_deadline
            when = None if deadline is None else deadline + 1
        if self._timer is not None:
            if when == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if when is not None and self._workers:
            seconds = (when - self._hub.now()) / 1000
            self._start_timer(min(max(seconds, MIN_TIMER_SECONDS), MAX_TIMER_SECONDS), when)

    def _start_timer(self, seconds: float, when: int = 0) -> None:
        """``when`` is the time that the timer is set for; 0 for a retry."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._hub.loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._let_leases_end()
        self.feed()

    # --- delivery --------------------------------------------------------------------------------------------------

    def _serve(self, fetched: bool = False) -> None:
        """Divide the available jobs among claims and workers. After an unexpected error, retry later."""
        try:
            self._divide(fetched)
        except Exception as error:
            self._retry_later(error)

    def _divide(self, fetched: bool) -> None:
        self._let_leases_end()
        claims, self._claims = self._claims, []
        cohort = _Cohort(claims, [])
        try:
            cohort = _Cohort(claims, self._choose())
            requests = [claim.request for claim in claims]
            requests += [ClaimRequest(worker.node, wish, worker.lease_ms) for worker, wish in cohort.workers]
            wishes = sum(request.max for request in requests)
            if not wishes:
                self._finish([], cohort)
                return
            if not fetched and not self.queue.has_resident(wishes):
                self._fetch(claims, wishes)
                return
            commit = self.queue.claim_cohort(requests)
        except Exception as error:
            self._failed(cohort, error)
            return
        if commit.done:
            self._hand_over(cohort, commit)
            return
        for worker, wish in cohort.workers:
            worker.expected += wish
            self.look_at(worker)
        self._hub.on_done(commit, partial(self._arrived, cohort, commit))

    def _choose(self) -> list[tuple[QueueWorker, int]]:
        """The workers that take part, with the number of jobs each can take. There are no more workers than ready
        jobs."""
        if not self._hungry:
            return []
        ready = self.queue.counters().ready
        if not ready:
            return []
        milliseconds = self._hold_back()
        if milliseconds:
            if not self._held_back:
                self._held_back = True
                for worker in list(self._hungry):
                    worker.held_back(milliseconds)
            self._start_timer(milliseconds / 1000)
            return []
        self._held_back = False
        return [(worker, worker.free) for worker in islice(self._hungry, ready)]

    def _arrived(self, cohort: _Cohort, commit: Commit[list[list[Claimed]]]) -> None:
        for worker, wish in cohort.workers:
            worker.expected -= wish
            self.look_at(worker)
        self._hand_over(cohort, commit)

    def _hand_over(self, cohort: _Cohort, commit: Commit[list[list[Claimed]]]) -> None:
        try:
            granted = commit.wait()
        except Exception as error:
            self._failed(cohort, error)
            return
        self._finish(granted, cohort)

    def _finish(self, granted: list[list[Claimed]], cohort: _Cohort) -> None:
        self._failures = 0
        shares = iter(granted)
        for claim in cohort.claims:
            claim.done(next(shares, []))
        given = [self._give(worker, next(shares, [])) for worker, _ in cohort.workers]
        if any(given) and self._hungry:
            # If there were fewer jobs than workers, some workers did not take part, and there may be new jobs for them.
            self.feed()
        self._set_timer()
        self._rest()

    def _give(self, worker: QueueWorker, jobs: list[Claimed]) -> bool:
        if not jobs:
            return False
        leases = {job.seq: job.lease_id for job in jobs}
        if worker not in self._workers:
            # The worker left while the claim was being flushed.
            self._release(leases)
            return True
        self._holdings.add(worker, jobs, leases)
        self._hungry.pop(worker, None)
        self.look_at(worker)
        worker.take(jobs)
        return True

    def _failed(self, cohort: _Cohort, error: Exception) -> None:
        for claim in cohort.claims:
            claim.done(error)
        self._retry_later(error)
        self._rest()

    def _retry_later(self, error: Exception) -> None:
        if self._workers and not self.queue.log.dropped:
            self._failures += 1
            delay = max(RETRY_SECONDS, delay_after(self._failures))
            report(f"queue {self.queue.log.name!r}: cannot deliver jobs; next attempt in {delay:.0f} s", error)
            self._start_timer(delay)

    def _fetch(self, claims: list[_Claim], count: int) -> None:
        """Read jobs that are not in memory on another thread, and then continue."""
        self._fetching = True

        def fetched(future: asyncio.Future[None]) -> None:
            self._fetching = False
            if not future.cancelled():
                future.exception()  # the claim itself reports the error
            self._claims = claims + self._claims
            self._serve(fetched=True)

        self._hub.in_thread(self.queue.bring, count).add_done_callback(fetched)


class Dispatchers:
    """The dispatchers of all queues with waiting claims or workers."""

    def __init__(self, hub: Hub, hold_back: Callable[[int], int]) -> None:
        self._hub = hub
        self._hold_back = hold_back
        self._by_epoch: dict[int, Dispatcher] = {}

    def __len__(self) -> int:
        return len(self._by_epoch)

    def find(self, queue: Queue) -> Dispatcher | None:
        return self._by_epoch.get(queue.log.epoch)

    def at(self, queue: Queue, priority: Callable[[int], int]) -> Dispatcher:
        """Return the dispatcher of the queue, created if necessary. ``priority`` returns the priority of the queue at a
        time."""
        dispatcher = self._by_epoch.get(queue.log.epoch)
        if dispatcher is None:
            dispatcher = Dispatcher(
                self._hub, queue, priority, lambda: self._hold_back(priority(self._hub.now())), self._take_away
            )
            self._by_epoch[queue.log.epoch] = dispatcher
        return dispatcher

    def _take_away(self, dispatcher: Dispatcher) -> None:
        if self._by_epoch.get(dispatcher.queue.log.epoch) is dispatcher:
            del self._by_epoch[dispatcher.queue.log.epoch]

    def stop(self) -> None:
        for dispatcher in list(self._by_epoch.values()):
            dispatcher.stop()
