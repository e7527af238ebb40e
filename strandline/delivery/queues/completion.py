"""Completed jobs. If the log waits for the disk, they stay visible until their deletion is durable."""

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
    #: The jobs that return if the deletion fails; None for dead letters, which must not return.
    jobs: list[JobState] | None


class Leaving:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._departures: deque[_Departure] = deque()
        #: Dead letters whose deletion has not begun.
        self._buried: list[int] = []
        #: Completed and possibly still visible: never handed out again.
        self.seqs: set[int] = set()

    def delete(self, jobs: list[JobState]) -> Commit[Any]:
        """Delete acked jobs. If it raises, nothing has changed."""
        seqs = [job.seq for job in jobs]
        commit = self._log.delete(seqs=seqs, erasure=False)
        if not commit.done:
            self._depart(_Departure(commit, seqs, jobs))
        return commit

    def bury(self, seqs: list[int]) -> Commit[Any]:
        """Delete jobs that became dead letters: now, or when there is space again."""
        self._buried.extend(seqs)
        self.seqs.update(seqs)
        return self._finish()

    def settle(self) -> list[JobState]:
        """Process finished deletions. Returns the jobs whose deletion failed."""
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
        # Without space, while sealing is behind, or after the journal has failed, the jobs stay in the log for now, but
        # are not handed out.
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
