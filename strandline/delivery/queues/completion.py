"""Jobs that are done with. On a log that waits for the disk, they can be seen until their deletion is durable."""

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
    #: Those who come back should the deletion fail; None for dead letters, which must not.
    jobs: list[JobState] | None


class Leaving:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._departures: deque[_Departure] = deque()
        #: Dead letters whose deletion has yet to be begun.
        self._buried: list[int] = []
        #: Done with and perhaps still visible: never to be handed out.
        self.seqs: set[int] = set()

    def delete(self, jobs: list[JobState]) -> Commit[Any]:
        """Delete acked jobs. When it raises nothing has changed."""
        seqs = [job.seq for job in jobs]
        commit = self._log.delete(seqs=seqs, erasure=False)
        if not commit.done:
            self._depart(_Departure(commit, seqs, jobs))
        return commit

    def bury(self, seqs: list[int]) -> Commit[Any]:
        """Delete dead letters: now, or if there is no space for it, whenever there is again."""
        self._buried.extend(seqs)
        self.seqs.update(seqs)
        return self._finish()

    def settle(self) -> list[JobState]:
        """Take note of what has been done since. Returns the jobs whose deletion failed."""
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
        # Without space, while sealing is behind, or once the journal has failed, the jobs stay in the log for now:
        # nobody is given them.
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
