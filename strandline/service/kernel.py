"""The kernel: the parts of a server that all protocols share. A server has one kernel with one namespace of logs."""

from __future__ import annotations

from typing import Any, TypeVar

from strandline.delivery.hub import Hub
from strandline.delivery.queues import Queue, Queues, QueueSettings
from strandline.delivery.queues.dispatcher import Dispatchers
from strandline.delivery.routers import Routers
from strandline.engine import Engine, Log
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError, JournalFailed, NotWritable
from strandline.service.access import Access
from strandline.service.admission import Admission, Pressure
from strandline.service.catalog import Catalog, check_append, holds_json
from strandline.service.limits import Limits, Slots
from strandline.service.live import LiveResponses
from strandline.service.log_config import Traits, default_config, kind_of, traits_of
from strandline.service.problems import FORBIDDEN, Refusal, Throttled
from strandline.service.workers import Workers

T = TypeVar("T")

#: How many routers in a row a reader waits for: each may forward records that the next one forwards again.
MAX_HOPS = 16
#: How often expired logs are removed.
SWEEP_SECONDS = 1.0


class Kernel:
    """Created on the event loop's thread, after the engine is opened. ``slots`` limit the number of live responses."""

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
        self.queues = Queues(engine, hub.now, self._dead_letter_log)
        self.dispatchers = Dispatchers(hub, self._hold_back)
        self.routers = Routers(engine, hub)
        self.catalog.dropping.append(self._forget)
        self.catalog.sweep()
        self._sweeping = hub.every(SWEEP_SECONDS, "removal of expired logs", self.catalog.sweep)

    @classmethod
    def for_tests(
        cls, engine: Engine, hub: Hub | None = None, slots: Slots | None = None, workers: Workers | None = None
    ) -> Kernel:
        """A kernel over an open engine, as a server has it: with the engine's clock, and slots without a bound."""
        hub = hub or Hub(engine.now, health=engine.health)
        return cls(engine, hub, slots or Limits().streams, workers or Workers())

    def stop(self) -> None:
        self._sweeping.stop()
        self.catalog.stop()

    # --- removal of logs -------------------------------------------------------------------------------------------

    def check_removable(self, log: Log, access: Access) -> None:
        """Refuse to remove a log if that would remove a router that the key may not access."""
        for router in self.routers.touching(log):
            if not access.may_touch_all(router.name, router.source.name, router.dest.name):
                message = f"{log.name!r} cannot be deleted: it has a router that the API key may not access"
                raise Refusal(FORBIDDEN, message, {"log": log.name})

    def _forget(self, log: Log) -> None:
        """A log is about to be dropped: remove its routers and leases."""
        self.routers.remove_touching(log)
        if kind_of(log.config) == "queue":
            self.queues.drop(log)

    # --- queues ------------------------------------------------------------------------------------------------------

    def queue(self, log: Log, traits: Traits | None = None) -> Queue:
        return self.queues.open(log, _queue_settings(traits or traits_of(log.config)))

    def known_queue(self, log: Log) -> Queue | None:
        """The queue for a status request: None if none of its jobs was ever delivered. May read from the disk."""
        return self.queues.known(log, _queue_settings(traits_of(log.config)))

    def _dead_letter_log(self, name: str) -> Log | None:
        """The log for dead letters, created if it is missing. None if it cannot be created or written to."""
        try:
            log = self.catalog.find(name)
            if log is None:
                log, _ = self.catalog.create(name, default_config())
            check_append(log)
        except (NotWritable, Refusal, EngineError):
            return None
        return log if holds_json(log) else None

    def _hold_back(self, priority: int) -> int:
        """For how many milliseconds jobs of a queue of this priority are not pushed to workers."""
        if not self.pressure.level:
            return 0
        try:
            self.pressure.delay_ms(priority, False)
        except Throttled as error:
            return error.retry_after_ms
        return 0

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def arrive(self, log: Log, unfinished: Commit[Any] | None) -> None:
        """Wait until routers have forwarded all records that are on their way into the log."""
        for _ in range(MAX_HOPS):
            if unfinished is None:
                return
            await self.hub.when_done(unfinished, lambda _: None)
            unfinished = self.routers.catch_up(log)

    async def settled(self, log: Log) -> None:
        """Wait until everything that readers of the log can see now is durable: after a power cut, a copy must not hold
        more than the log itself."""
        try:
            commit = log.sync()
            if not commit.done:
                await self.hub.when_done(commit, lambda _: None)
        except JournalFailed:
            pass  # everything that readers see can still be read


def _queue_settings(traits: Traits) -> QueueSettings:
    return QueueSettings(
        lease_ms=traits.lease_ms,
        claim_jitter_ms=traits.claim_jitter_ms,
        max_deliveries=traits.max_deliveries,
        dead_letter=traits.dead_letter,
        leases_durable=traits.leases_durable,
    )
