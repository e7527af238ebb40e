"""What the tests of queues share: an engine that is driven by hand, a queue on it, and short ways to use it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from strandline.delivery.queues import Claimed, Queue, Queues, QueueSettings, Schedule
from strandline.engine import Batch, Config, Engine, Log, ManualClock
from strandline.engine.disk import Disk

NOW = 1_700_000_000_000


def failures(job: Claimed) -> list[tuple[int, int, str, object]]:
    return [(each.at, each.delivery, each.node, msgspec.json.decode(each.reason)) for each in job.failures]


class Stand:
    """One engine with one queue named ``jobs``; ``reopen`` is a restart."""

    def __init__(
        self,
        place: Path | Disk,
        settings: QueueSettings | None = None,
        clock: ManualClock | None = None,
        **config: object,
    ) -> None:
        self.place = place
        self.settings = settings or QueueSettings()
        self.clock = clock or ManualClock(NOW)
        #: Names that must not be made into logs of dead letters.
        self.forbidden: set[str] = set()
        #: The queues and times of which somebody should look for jobs that failed for the last time.
        self.alarms: list[tuple[str, int]] = []
        #: What the random source says.
        self.chance = 0.5
        self._config = Config(**config)  # type: ignore[arg-type]
        self._open()

    def _open(self) -> None:
        self.engine = Engine.open(self.place, clock=self.clock, background=False)
        self.log = self.engine.find("jobs") or self.engine.create("jobs", self._config).wait()
        self.queues = Queues(self.engine, self.clock.now, self.create, self._alarm, lambda: self.chance)

    def _alarm(self, queue: Queue, when: int) -> None:
        self.alarms.append((queue.log.name, when))

    @property
    def queue(self) -> Queue:
        return self.queues.open(self.log, self.settings)

    @property
    def companion(self) -> Log:
        return self.engine.log("__leases__:jobs")

    def events_written(self) -> int:
        """How many events there have been, whether or not the companion shows them yet."""
        return self.companion.next_seq - 1

    def create(self, name: str) -> Log | None:
        if name in self.forbidden:
            return None
        return self.engine.find(name) or self.engine.create(name).wait()

    def reopen(self, place: Path | Disk | None = None) -> None:
        if place is None:
            self.engine.close()
        else:
            self.place = place
        self._open()

    def close(self) -> None:
        self.engine.close()

    def fill(self, count: int) -> None:
        """Jobs whose data is their seq."""
        first = self.log.next_seq
        self.log.append(Batch([str(seq).encode() for seq in range(first, first + count)])).wait()

    def add(self, not_before: int = 0, priority: int = 0) -> int:
        """One job with a schedule; ``not_before`` counts from now."""
        when = self.clock.now() + not_before if not_before else 0
        return self.queue.append(Batch([b"job"]), [Schedule(when, priority)]).wait().first

    def claim(self, node: str, max: int = 1, lease_ms: int | None = None) -> list[Claimed]:
        return self.queue.claim(node, max, lease_ms).wait()

    def seqs(self, node: str, max: int = 1, lease_ms: int | None = None) -> list[int]:
        return [job.seq for job in self.claim(node, max, lease_ms)]

    def left(self) -> list[int]:
        """The jobs that are still in the log."""
        return self.log.read(limit=100_000).seqs

    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
