"""All queues of an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable

from strandline.delivery.queues.jobs import QueueSettings
from strandline.delivery.queues.lease_log import companion_name, drop_companion
from strandline.delivery.queues.queue import Queue
from strandline.engine import Commit, Engine, Log


class Queues:
    """``create_log`` gives the log for dead letters of a name, made if need be; None if there must be none, and then
    jobs keep being delivered. ``now`` gives the time in milliseconds."""

    def __init__(self, engine: Engine, now: Callable[[], int], create_log: Callable[[str], Log | None]) -> None:
        self._engine = engine
        self._now = now
        self._create_log = create_log
        self._lock = threading.Lock()
        self._by_epoch: dict[int, Queue] = {}

    def open(self, log: Log, settings: QueueSettings) -> Queue:
        """The queue over this log. The first time, what is known of its jobs is read from its companion log."""
        queue = self._by_epoch.get(log.epoch)
        if queue is None:
            with self._lock:
                queue = self._by_epoch.get(log.epoch)
                if queue is None:
                    queue = Queue(self._engine, log, settings, self._now, self._create_log)
                    self._by_epoch[log.epoch] = queue
        if queue.settings != settings:
            queue.configure(settings)
        return queue

    def is_open(self, log: Log) -> bool:
        return log.epoch in self._by_epoch

    def known(self, log: Log, settings: QueueSettings) -> Queue | None:
        """The queue over this log, or None if nothing ever happened to its jobs but that they were written. Unlike
        ``open``, this leaves no trace."""
        if not self.is_open(log) and self._engine.find(companion_name(log.name)) is None:
            return None
        return self.open(log, settings)

    def in_flight(self) -> int:
        """How many jobs are held by workers, in all queues that were opened."""
        return sum(queue.counters().in_flight for queue in list(self._by_epoch.values()) if queue.hands_out)

    def drop(self, log: Log) -> Commit[None]:
        """The log is deleted, or about to be: what was known of its jobs goes with it."""
        with self._lock:
            self._by_epoch.pop(log.epoch, None)
            return drop_companion(self._engine, log)
