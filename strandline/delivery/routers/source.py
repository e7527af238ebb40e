"""The source of routers: a log whose routers advance together, in rounds.

A round reads the new records once and makes all copies in one operation of the engine: one frame in the journal,
however many destinations there are. The copies and the routers' cursors are in that frame, so after a crash there is no
copy without a moved cursor, and no moved cursor without its copy.
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

#: What one round takes at the most.
ROUND_RECORDS = 1024
ROUND_BYTES = 8 << 20
#: From this share of the budget for unsealed records on, rounds are smaller: copies of what is no longer in the newest
#: journal file are written out once per destination. This is what one destination may get all the same.
SMALL_FROM = 0.5
SMALL_BYTES = 64 << 10
#: More destinations than this, and nobody else would get a turn for too long.
ROUND_ROUTERS = 2_000
#: A reader does not wait for more rounds than this; what is left comes by itself.
CATCH_UP_ROUNDS = 64
#: How urgent forwarding is: as a log that somebody reads; and when the server is too busy, after everything else.
PRIORITY = 500
DEMOTED = -1000
#: A page that is gone from the cache again so often, before it could be used, is waited for.
MAX_MISSES = 3


class Shared:
    """What all sources have in common."""

    def __init__(self, engine: Engine, hub: Hub, gone: Callable[[Log], object]) -> None:
        self.engine = engine
        self.hub = hub
        #: Called with a log that turns out to have been removed.
        self.gone = gone
        #: Whether nothing may be forwarded into a log, for now or for ever.
        self.spared: Callable[[Log], bool] = lambda log: False
        #: Whether the server has more urgent things to do.
        self.demoted: Callable[[], bool] = lambda: False
        #: Logs on a cycle by epoch, with how often their records have been forwarded.
        self.hops: dict[int, Hops] = {}
        #: Copies made and losses passed on since the start.
        self.forwarded_total = 0


class RouterSource(Waiter):
    """A log with routers: waits for the log to change. Used on the event loop's thread only."""

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
        #: The head that every router has got to, apart from those that wait for room.
        self._settled = -1
        #: Those that wait for room.
        self._blocked: set[Router] = set()
        self._fetching = False
        self._missed_at = -1
        self._misses = 0
        self._failed_ms = FIRST_DELAY_MS
        self._retry: asyncio.TimerHandle | None = None
        #: The last copies that waited for the flush.
        self._unfinished: Commit[Any] | None = None
        shared.hub.watch(log, self)

    def add(self, router: Router) -> None:
        self.routers[router.name] = router
        self._settled = -1

    def remove(self, name: str) -> None:
        """Stop forwarding at once; with the last router goes the waiting."""
        router = self.routers.pop(name)
        self._blocked.discard(router)
        if router.timer is not None:
            router.timer.cancel()
        if not self.routers:
            self._shared.hub.unwatch(self.log, self)
            self._shared.hub.scheduler.withdraw(self)
            if self._retry is not None:
                self._retry.cancel()

    # --- whose turn it is ----------------------------------------------------------------------------------

    def priority(self, now: int) -> int:
        return DEMOTED if self._shared.demoted() else PRIORITY

    def wake(self, log: Log) -> None:
        if self._shared.demoted():
            # Others who wait for this log may be urgent. This has to wait by itself.
            self.submit()
        else:
            self.run()

    def submit(self) -> None:
        if self.routers:
            self._shared.hub.submit(self)

    def run(self) -> None:
        """One round, and another one in the next turn if there is more."""
        if self._goes_on():
            self.submit()

    def catch_up(self, dest: Log) -> Commit[Any] | None:
        """Forward everything that is there now, as far as it can be done without waiting for the disk; what has to
        wait is told."""
        for router in list(self._blocked):
            if router.dest.epoch == dest.epoch:
                # Whoever looks at the destination may have made room in it just now.
                self._admit(router)
        rounds = 0
        while self.log.head != self._settled and rounds < CATCH_UP_ROUNDS and self._goes_on():
            rounds += 1
        unfinished = self._unfinished
        if unfinished is not None and unfinished.done:
            self._unfinished = unfinished = None
        return unfinished if dest.config.durability == "fsync" else None

    # --- a round -------------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        """Do one round; whether there is more to be done right away."""
        if self._retry is not None or not self.routers:
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
        # Nothing may be deleted between reading and copying: what is planned is what happens.
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
            # Careful destinations show nothing before it is durable. Readers wait for that, so it is to be soon.
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
        """What comes behind; None when it has to be fetched from the disk first. One such page is under way then, and
        holds up nobody who is elsewhere in the log."""
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

    # --- trying again --------------------------------------------------------------------------------------

    def _block(self, router: Router, advanced: bool) -> None:
        """The destination takes no more. Ask again later, and ever later as long as nothing changes."""
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
        """It takes part in the next round again."""
        router.blocked = False
        self._blocked.discard(router)
        self._settled = -1

    def _failed(self, error: BaseException) -> None:
        """A full disk, say. Nothing has changed, so nothing is lost by trying again."""
        if self._failed_ms == FIRST_DELAY_MS:
            report(f"forwarding from {self.log.name!r} failed and is tried again", error)
        self._retry = self._shared.hub.loop.call_later(self._failed_ms / 1000, self._try_again)
        self._failed_ms = min(2 * self._failed_ms, MAX_DELAY_MS)

    def _try_again(self) -> None:
        self._retry = None
        self.submit()


def _ignore(_: object) -> None:
    pass
