"""The source of routers: a log whose routers advance together, in rounds.

A round reads the new records once and makes all copies in one operation of the engine: one frame in the journal,
regardless of the number of destinations. The copies and the routers' cursors are in that frame, so after a crash there
is no copy without a moved cursor, and no moved cursor without its copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from strandline.delivery.hub import Hub, Waiter
from strandline.delivery.routers.plan import RoundPlan
from strandline.delivery.routers.router import FIRST_DELAY_MS, MAX_DELAY_MS, Hops, Router
from strandline.engine import Engine, Log, Page
from strandline.engine.background import report
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineClosed
from strandline.engine.record import FLUSHED

#: The limits of one round.
ROUND_RECORDS = 1024
ROUND_BYTES = 8 << 20
#: Rounds are smaller once unsealed records use this share of their budget: copies of records that are no longer in the
#: newest journal file are written out once per destination. One destination may always get this many bytes.
SMALL_FROM = 0.5
SMALL_BYTES = 64 << 10
#: The maximum number of destinations per round, so that other tasks get their turn.
ROUND_ROUTERS = 2_000
#: The number of rounds that a reader waits for. Later rounds follow without it.
CATCH_UP_ROUNDS = 64
#: The priority of forwarding: like a log that is being read, and the lowest while the server is busy.
PRIORITY = 500
DEMOTED = -1000
#: If a page was evicted from the cache this often before it could be used, it is read synchronously.
MAX_MISSES = 3


class Shared:
    """State that all sources share."""

    def __init__(self, engine: Engine, hub: Hub, gone: Callable[[Log], object]) -> None:
        self.engine = engine
        self.hub = hub
        #: Called with a log that was found to be dropped.
        self.gone = gone
        #: Whether forwarding into a log is paused.
        self.spared: Callable[[Log], bool] = lambda log: False
        #: Whether the server is busy and forwarding must wait.
        self.demoted: Callable[[], bool] = lambda: False
        #: The hop counts of the logs on a cycle, by epoch.
        self.hops: dict[int, Hops] = {}
        #: Records forwarded since the start, including records that were lost before.
        self.forwarded_total = 0
        #: Whether another server, which this one follows, forwards the records.
        self.is_passive = engine.follower is not None


class RouterSource(Waiter):
    """A log with routers. It waits for the log to change. Used on the event loop's thread only."""

    __slots__ = (
        "_blocked",
        "_failed_ms",
        "_fetching",
        "_missed_at",
        "_misses",
        "_retry",
        "_settled",
        "_shared",
        "_unfinished",
        "log",
        "routers",
    )

    def __init__(self, shared: Shared, log: Log) -> None:
        self._shared = shared
        self.log = log
        self.routers: dict[str, Router] = {}
        #: The head that every router has reached, except blocked routers.
        self._settled = -1
        #: Routers that wait for room in their destination.
        self._blocked: set[Router] = set()
        self._fetching = False
        self._missed_at = -1
        self._misses = 0
        self._failed_ms = FIRST_DELAY_MS
        self._retry: asyncio.TimerHandle | None = None
        #: The last copies that waited for a flush.
        self._unfinished: Commit[Any] | None = None
        if not shared.is_passive:
            shared.hub.watch(log, self)

    def add(self, router: Router) -> None:
        self.routers[router.name] = router
        self._settled = -1

    def remove(self, name: str) -> None:
        """Stop a router at once. After the last router, the source stops waiting for the log."""
        router = self.routers.pop(name)
        self._blocked.discard(router)
        if router.timer is not None:
            router.timer.cancel()
        if not self.routers:
            self._shared.hub.unwatch(self.log, self)
            self._shared.hub.scheduler.withdraw(self)
            if self._retry is not None:
                self._retry.cancel()

    # --- scheduling ----------------------------------------------------------------------------------------

    def priority(self, now: int) -> int:
        return DEMOTED if self._shared.demoted() else PRIORITY

    def wake(self, log: Log) -> None:
        if self._shared.demoted():
            # Other waiters of this log may be urgent, so forwarding is scheduled separately.
            self.submit()
        else:
            self.run()

    def submit(self) -> None:
        if self.routers:
            self._shared.hub.submit(self)

    def run(self) -> None:
        """Run one round, and schedule another one if there are more records."""
        if self._goes_on():
            self.submit()

    def catch_up(self, dest: Log) -> Commit[Any] | None:
        """Forward all records that can be forwarded without waiting for the disk. Returns a commit if some copies wait
        for it."""
        for router in list(self._blocked):
            if router.dest.epoch == dest.epoch:
                # The reader may just have made room in the destination.
                self._admit(router)
        rounds = 0
        while self.log.head != self._settled and rounds < CATCH_UP_ROUNDS and self._goes_on():
            rounds += 1
        unfinished = self._unfinished
        if unfinished is not None and unfinished.done:
            self._unfinished = unfinished = None
        return unfinished if dest.config.durability in FLUSHED else None

    # --- a round -------------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        """Run one round. Returns whether another round can follow at once."""
        if self._retry is not None or not self.routers or self._shared.is_passive:
            return False
        if self.log.dropped:
            self._shared.gone(self.log)
            return False
        try:
            more = self._round()
        except EngineClosed:
            return False
        except Exception as error:
            self._failed(error)
            return False
        self._failed_ms = FIRST_DELAY_MS
        return more

    def _round(self) -> bool:
        shared, source = self._shared, self.log
        # The lock keeps records from being deleted between reading and copying.
        with shared.engine.lock:
            head = source.head
            behind = [router for router in self.routers.values() if router.position < head and not router.blocked]
            more = len(behind) > ROUND_ROUTERS
            if more:
                behind.sort(key=lambda router: router.position)
            by_position: dict[int, list[Router]] = {}
            for router in behind[:ROUND_ROUTERS]:
                by_position.setdefault(router.position, []).append(router)
            plan = RoundPlan(source, shared.hops, shared.spared)
            for position, routers in by_position.items():
                page = self._read(position)
                if page is not None:
                    plan.add(page, position, routers)
                    more = more or page.next_after < head
            there = len(self.routers) - len(behind) - len(self._blocked) + plan.arriving_at(head)
            plan.write_idle(head, together=there == len(self.routers))
            commit = shared.engine.forward(source, plan.copies) if plan.copies else None
            shared.forwarded_total += plan.make_true()
            self._forget_hops()
        if commit is not None and not commit.done:
            # Destinations with `fsync` publish the copies only when they are durable. Readers wait for that.
            commit.add_done_callback(_ignore)
            self._unfinished = commit
        for router, advanced in plan.blocked:
            self._block(router, advanced)
        if not more and not self._fetching:
            self._settled = head
        for dest in plan.gone:
            shared.gone(dest)
        return more

    def _forget_hops(self) -> None:
        hops = self._shared.hops.get(self.log.epoch)
        if hops:
            hops.forget(min(router.position for router in self.routers.values()))

    def _read(self, after: int) -> Page | None:
        """The page after a seq, or None if it must be read from the disk first. One such read runs at a time, and
        routers elsewhere in the log do not wait for it."""
        page = self.log.read_resident(after, ROUND_RECORDS, max_bytes=self._round_bytes, epoch=self.log.epoch)
        if page is not None or self._fetching:
            return page
        if after != self._missed_at:
            self._missed_at, self._misses = after, 0
        if self._misses >= MAX_MISSES:
            return self._fetch(after)
        self._misses += 1
        self._fetching = True
        future = self._shared.hub.in_thread(self._fetch, after)
        future.add_done_callback(self._fetched)
        return None

    def _fetch(self, after: int) -> Page:
        return self.log.read(after, ROUND_RECORDS, max_bytes=self._round_bytes, epoch=self.log.epoch)

    @property
    def _round_bytes(self) -> int:
        if self._shared.engine.backlog.share < SMALL_FROM:
            return ROUND_BYTES
        return max(ROUND_BYTES // max(len(self.routers), 1), SMALL_BYTES)

    def _fetched(self, future: asyncio.Future[Any]) -> None:
        self._fetching = False
        error = None if future.cancelled() else future.exception()
        if error is None or isinstance(error, EngineClosed) or self.log.dropped:
            self.submit()
        else:
            self._failed(error)

    # --- retries -------------------------------------------------------------------------------------------

    def _block(self, router: Router, advanced: bool) -> None:
        """Retry a full destination later. The delay grows while the destination stays full."""
        router.blocked = True
        self._blocked.add(router)
        if advanced:
            router.delay_ms = FIRST_DELAY_MS
        if router.timer is None:
            router.timer = self._shared.hub.loop.call_later(router.delay_ms / 1000, self._unblock, router)
            router.delay_ms = min(2 * router.delay_ms, MAX_DELAY_MS)

    def _unblock(self, router: Router) -> None:
        router.timer = None
        self._admit(router)
        self.submit()

    def _admit(self, router: Router) -> None:
        """Let the router take part in the next round."""
        router.blocked = False
        self._blocked.discard(router)
        self._settled = -1

    def _failed(self, error: BaseException) -> None:
        """Retry after an error, such as a full disk. The round changed nothing, so no record is lost."""
        if self._failed_ms == FIRST_DELAY_MS:
            report(f"log {self.log.name!r}: forwarding failed and will be retried", error)
        self._retry = self._shared.hub.loop.call_later(self._failed_ms / 1000, self._try_again)
        self._failed_ms = min(2 * self._failed_ms, MAX_DELAY_MS)

    def _try_again(self) -> None:
        self._retry = None
        self.submit()


def _ignore(_: object) -> None:
    pass
