"""The leases of workers that jobs are pushed to, and when they end.

A lease of a job that a worker claims by itself ends in ``state.py``, when the queue is next used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from heapq import heappop, heappush

from strandline.delivery.queues import Claimed


class QueueWorker(ABC):
    """A worker that jobs are pushed to. It never holds more than ``max`` jobs at a time."""

    def __init__(self, node: str, max: int, lease_ms: int | None) -> None:
        self.node = node
        self.max = max
        self.lease_ms = lease_ms
        #: The lease ids of the worker's jobs, by seq.
        self.held: dict[int, str] = {}
        #: The number of jobs claimed for this worker and not delivered yet.
        self.expected = 0
        #: The worker takes no jobs for now.
        self.paused = False

    @property
    def free(self) -> int:
        return 0 if self.paused else self.max - len(self.held) - self.expected

    @abstractmethod
    def take(self, jobs: list[Claimed]) -> None:
        """Called with at least one job, in delivery order."""

    @abstractmethod
    def held_back(self, milliseconds: int) -> None:
        """Called when there are jobs, but the server is too busy to deliver them for about this long."""

    @abstractmethod
    def dismiss(self, gone: bool) -> None:
        """Called when there will be no more jobs, because the queue was deleted or the server stops. The worker's jobs
        were released."""


class WorkerLeases:
    """The workers of a dispatcher, with their jobs and deadlines. Keeps ``QueueWorker.held`` consistent."""

    __slots__ = ("_by_seq", "_due")

    def __init__(self) -> None:
        self._by_seq: dict[int, tuple[QueueWorker, int]] = {}
        #: A heap of deadlines with their seqs. It keeps entries of leases that were extended or released.
        self._due: list[tuple[int, int]] = []

    @property
    def next_deadline(self) -> int | None:
        """A lower bound of the next deadline, or None if there are no leases."""
        return self._due[0][0] if self._due else None

    def leases(self) -> dict[int, str]:
        """The lease ids of all held jobs, by seq."""
        return {seq: holding[0].held[seq] for seq, holding in self._by_seq.items()}

    def add(self, worker: QueueWorker, jobs: list[Claimed], leases: dict[int, str]) -> None:
        """Assign jobs to the worker and take them from their previous holders."""
        for job in jobs:
            before = self._by_seq.get(job.seq)
            if before is not None:
                before[0].held.pop(job.seq, None)
            self._by_seq[job.seq] = (worker, job.deadline)
            heappush(self._due, (job.deadline, job.seq))
        worker.held.update(leases)

    def let_go(self, seq: int) -> QueueWorker | None:
        """Remove a job from its holder, and return the holder."""
        holding = self._by_seq.pop(seq, None)
        if holding is None:
            return None
        holding[0].held.pop(seq, None)
        return holding[0]

    def let_go_all(self, worker: QueueWorker) -> dict[int, str]:
        """Remove all jobs of the worker, and return their leases."""
        held, worker.held = worker.held, {}
        for seq in held:
            self._by_seq.pop(seq, None)
        return held

    def extend(self, deadlines: dict[int, int]) -> None:
        for seq, deadline in deadlines.items():
            holding = self._by_seq.get(seq)
            if holding is not None:
                self._by_seq[seq] = (holding[0], deadline)
                heappush(self._due, (deadline, seq))

    def end_leases(self, now: int) -> Iterator[QueueWorker]:
        """Remove the jobs whose deadline has passed, and yield their holders."""
        due = self._due
        while due and due[0][0] < now:
            deadline, seq = heappop(due)
            holding = self._by_seq.get(seq)
            if holding is not None and holding[1] == deadline:
                del self._by_seq[seq]
                holding[0].held.pop(seq, None)
                yield holding[0]
