"""Completed jobs and dead letters whose deletion is not durable yet. They stay visible in the log until it is."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from strandline.delivery.queues.state import JobState
from strandline.engine import Commit, Log
from strandline.engine.errors import DiskFull, EngineError, JournalFailed, SealingBehind


class _Departure(NamedTuple):
    commit: Commit[Any]
    seqs: list[int]
    #: The jobs to return to the queue if the deletion fails; None for dead letters, which must not return.
    jobs: list[JobState] | None


class Completion:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._departures: deque[_Departure] = deque()
        #: Dead letters whose deletion has not begun yet.
        self._buried: list[int] = []
        #: The seqs of jobs that may still be visible and must not be delivered again.
        self.seqs: set[int] = set()

    def delete(self, jobs: list[JobState]) -> Commit[Any]:
        """Delete acknowledged jobs. If it raises, nothing was changed."""
        seqs = [job.seq for job in jobs]
        commit = self._log.delete(seqs=seqs, erasure=False)
        if not commit.done:
            self._depart(_Departure(commit, seqs, jobs))
        return commit

    def remove(self, seqs: list[int]) -> Commit[Any]:
        """Delete dead letters. If the disk is full, the deletion is retried later."""
        self._buried.extend(seqs)
        self.seqs.update(seqs)
        return self._finish()

    def settle(self) -> list[JobState]:
        """Process the deletions that are done, and retry pending ones. Returns the jobs whose deletion failed."""
        back: list[JobState] = []
        departures = self._departures
        while departures and departures[0].commit.done:
            commit, seqs, jobs = departures.popleft()
            try:
                commit.wait()
            except (EngineError, OSError):
                if jobs is None:
                    self._buried.extend(seqs)
                    continue
                back.extend(jobs)
            self.seqs.difference_update(seqs)
        if self._buried:
            self._finish()
        return back

    def _finish(self) -> Commit[Any]:
        # If the disk is full, sealing is behind or the journal has failed, the jobs stay in the log for now. They are
        # not delivered.
        with suppress(DiskFull, JournalFailed, SealingBehind):
            seqs = self._buried
            commit = self._log.delete(seqs=seqs, erasure=False)
            self._buried = []
            if commit.done:
                self.seqs.difference_update(seqs)
            else:
                self._depart(_Departure(commit, seqs, None))
            return commit
        return Commit.of(None)

    def _depart(self, departure: _Departure) -> None:
        self._departures.append(departure)
        self.seqs.update(departure.seqs)
