"""The kernel: the state that all protocols of a server share, with its one namespace of logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from strandline.delivery.hub import Hub, Waiter
from strandline.delivery.queues import Backoff, Queue, QueueCounters, QueueFigures, Queues, QueueSettings
from strandline.delivery.queues.activity import Activity
from strandline.delivery.queues.dispatcher import Dispatchers
from strandline.delivery.queues.expiry_timer import ExpiryTimer
from strandline.delivery.routers import Routers
from strandline.engine import Engine, Log
from strandline.engine.background import report
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError, JournalFailed, NotWritable
from strandline.engine.record import is_internal
from strandline.service.access import Access
from strandline.service.admission import Admission, Pressure
from strandline.service.catalog import Catalog, check_append, holds_json
from strandline.service.limits import Limits, Slots
from strandline.service.live import LiveResponses
from strandline.service.log_config import Traits, default_config, kind_of, traits_of
from strandline.service.problems import FORBIDDEN, STANDBY, Refusal, Throttled, invalid
from strandline.service.workers import Workers

T = TypeVar("T")

#: A read waits for at most this many routers in a row that are about to copy records.
MAX_HOPS = 16
#: A read with ``min_seq`` waits this long on a server that follows another one.
REACH_SECONDS = 5.0
#: How often expired logs are removed.
SWEEP_SECONDS = 1.0
#: How often a server that follows another one reads the routers of its leader, if they have changed.
FOLLOW_SECONDS = 1.0


class Kernel:
    """Create it on the event loop's thread when the engine is open. ``slots`` limits the open live responses."""

    def __init__(
        self, engine: Engine, hub: Hub, slots: Slots, workers: Workers, *, target_latency_ms: float = 5.0
    ) -> None:
        self.engine = engine
        self.hub = hub
        self.live = LiveResponses(hub.loop, slots)
        self.pressure = Pressure(hub.scheduler, target_latency_ms, lambda: engine.backlog.share)
        self.admission = Admission(hub, self.pressure)
        self.workers = workers
        self.catalog = Catalog(engine, hub.now, hub.post)
        self._expiry = ExpiryTimer(hub)
        self.queues = Queues(engine, hub.now, self._dead_letter_log, self._expiry.expect)
        self.dispatchers = Dispatchers(hub, self._hold_back)
        self.routers = Routers(engine, hub)
        self._following = (
            None if engine.follower is None else hub.every(FOLLOW_SECONDS, "reading of routers", self.routers.follow)
        )
        self.catalog.dropping.append(self._forget)
        self.catalog.sweep()
        self._sweeping = hub.every(SWEEP_SECONDS, "removal of expired logs", self.catalog.sweep)
        #: Returns why logs that keep records until the lake has them may have to wait long; empty if nothing is wrong.
        self.lake_warning: Callable[[], str] = str
        self._stopped = False
        limited = [log for log in self.catalog.limited_queues() if self.queues.was_used(log)]
        if limited:
            hub.in_thread(self._open_queues, limited)

    @classmethod
    def for_tests(
        cls, engine: Engine, hub: Hub | None = None, slots: Slots | None = None, workers: Workers | None = None
    ) -> Kernel:
        """A kernel over an open engine, as in a server, but with the engine's clock and no limit of live responses."""
        hub = hub or Hub(engine.now, health=engine.health)
        return cls(engine, hub, slots or Limits().streams, workers or Workers())

    def stop(self) -> None:
        self._stopped = True
        self._expiry.stop()
        self._sweeping.stop()
        if self._following is not None:
            self._following.stop()
        self.catalog.stop()

    # --- removing a log ----------------------------------------------------------------------------------------------

    def check_removable(self, log: Log, access: Access) -> None:
        """Refuse to remove a log if that would also remove a router that the API key may not access."""
        for router in self.routers.touching(log):
            if not access.may_touch_all(router.name, router.source.name, router.dest.name):
                message = f"{log.name!r} cannot be deleted: it has a router that the API key may not access"
                raise Refusal(FORBIDDEN, message, {"log": log.name})

    def _forget(self, log: Log) -> None:
        """Remove the routers and leases of a log that is about to be dropped."""
        self.routers.remove_touching(log)
        if kind_of(log.config) == "queue":
            self.queues.drop(log)

    # --- queues ------------------------------------------------------------------------------------------------------

    def queue(self, log: Log, traits: Traits | None = None) -> Queue:
        return self.queues.open(log, _queue_settings(traits or traits_of(log.config)))

    def _open_queues(self, logs: list[Log]) -> None:
        """Open queues with a maximum number of deliveries, so that jobs whose last lease ended during the restart
        become dead letters even if no one uses the queue."""
        for log in logs:
            if self._stopped:
                return
            try:
                self.known_queue(log)
            except Exception as error:
                if not log.dropped and not self._stopped:
                    report(f"cannot open the queue {log.name!r}", error)

    def known_queue(self, log: Log) -> Queue | None:
        """The queue of a log, for reading only; None if none of its jobs was ever delivered. May read from disk."""
        return self.queues.known(log, _queue_settings(traits_of(log.config)))

    def queue_counters(self, log: Log) -> QueueCounters:
        """How many jobs of a queue are in which state. Creates nothing; may read from the disk."""
        queue = self.known_queue(log)
        return _all_ready(log) if queue is None else queue.counters()

    def queue_figures(self, log: Log) -> QueueFigures:
        """The counters and rates of a queue, and the age of its oldest ready job. Creates nothing; may read from the
        disk."""
        queue = self.known_queue(log)
        if queue is not None:
            return queue.figures()
        now, first = self.hub.now(), log.read(0, 1).ts
        return QueueFigures(_all_ready(log), Activity(now).rates(now), max(now - first[0], 0) if first else None)

    def queue_figures_resident(self, log: Log) -> bool:
        """Whether ``queue_figures`` needs no read from the disk."""
        if self.queues.is_open(log):
            return self.queue(log).figures_resident
        return not self.queues.was_used(log) and log.read_resident(0, 1) is not None

    def _dead_letter_log(self, name: str) -> Log | None:
        """The log for dead letters, created if it is missing. None if it cannot be created or accepts no jobs."""
        try:
            log = self.catalog.find(name)
            if log is None:
                log, _ = self.catalog.create(name, default_config())
            check_append(log)
        except (NotWritable, Refusal, EngineError):
            return None
        return log if holds_json(log) else None

    def _hold_back(self, priority: int) -> int:
        """How many milliseconds to wait before jobs of a queue with this priority are pushed to workers."""
        if not self.pressure.level:
            return 0
        try:
            self.pressure.delay_ms(priority, False)
        except Throttled as error:
            return error.retry_after_ms
        return 0

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def arrive(self, log: Log, unfinished: Commit[Any] | None) -> None:
        """Wait until routers have copied pending records into the log, directly or through other logs."""
        for _ in range(MAX_HOPS):
            if unfinished is None:
                return
            await self.hub.when_done(unfinished, lambda _: None)
            unfinished = self.routers.catch_up(log)

    async def reach(self, name: str, seq: int) -> None:
        """Wait until readers of a log can see a seq, on a server that follows another one. Raises Refusal if that takes
        too long, or if this server is the leader and has no such record."""
        if is_internal(name):
            return  # the protocol says that it has no such log
        waiter = _Reach(self.hub, self.catalog, name, seq)
        follower = self.engine.follower
        if waiter.is_there():
            return
        if follower is None and not waiter.exists:
            return  # the protocol says that there is no such log
        if follower is None:
            raise invalid(f"{name!r} ends at sequence number {waiter.head}; min_seq is {seq}")
        if not await waiter.wait(REACH_SECONDS):
            detail = {"leader": follower.leader, "head": waiter.head, "min_seq": seq}
            message = f"{name!r} ends at sequence number {waiter.head} on this server, which follows the leader"
            raise Refusal(STANDBY, f"{message}; it did not reach {seq} in {REACH_SECONDS:.0f} s", detail)

    async def settled(self, log: Log) -> None:
        """Wait until everything that can be read from the log now is durable. Otherwise a copy of the log could contain
        records that the log itself loses in a power cut."""
        try:
            commit = log.sync()
            if not commit.done:
                await self.hub.when_done(commit, lambda _: None)
        except JournalFailed:
            pass  # reads still work


class _Reach(Waiter):
    """Waits until a log, which may not exist yet, has a seq."""

    __slots__ = ("_catalog", "_hub", "_log", "_name", "_reached", "_seq")

    def __init__(self, hub: Hub, catalog: Catalog, name: str, seq: int) -> None:
        self._hub = hub
        self._catalog = catalog
        self._name = name
        self._seq = seq
        self._log = catalog.find(name)
        self._reached: asyncio.Future[None] = hub.loop.create_future()

    @property
    def exists(self) -> bool:
        return self._log is not None

    @property
    def head(self) -> int:
        return 0 if self._log is None or self._log.dropped else self._log.head

    def is_there(self) -> bool:
        return self.head >= self._seq

    def wake(self, log: Log) -> None:
        if self.is_there() and not self._reached.done():
            self._reached.set_result(None)

    def _hear_of(self, log: Log) -> None:
        if log.name == self._name:
            self._log = log
            self._hub.watch(log, self)
            self.wake(log)

    async def wait(self, seconds: float) -> bool:
        self._catalog.created[self._hear_of] = None
        if self._log is not None:
            self._hear_of(self._log)
        try:
            async with asyncio.timeout(seconds):
                await self._reached
        except TimeoutError:
            return False
        finally:
            del self._catalog.created[self._hear_of]
            if self._log is not None:
                self._hub.unwatch(self._log, self)
        return True


def _all_ready(log: Log) -> QueueCounters:
    """The counters of a queue without a lease log."""
    return QueueCounters(log.state().count, 0, 0, 0)


def _queue_settings(traits: Traits) -> QueueSettings:
    return QueueSettings(
        lease_ms=traits.lease_ms,
        claim_jitter_ms=traits.claim_jitter_ms,
        max_deliveries=traits.max_deliveries,
        dead_letter=traits.dead_letter,
        leases_durable=traits.leases_durable,
        backoff=Backoff(traits.retry_delay_ms, traits.retry_backoff, traits.retry_max_ms, traits.retry_jitter),
    )
