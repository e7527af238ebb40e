"""Making dead letters of jobs that were delivered too often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.delivery.queues.companion import Companion
from strandline.delivery.queues.dead_letters import dead_letter
from strandline.delivery.queues.events import DeadLetteredEvent
from strandline.delivery.queues.jobs import QueueSettings
from strandline.delivery.queues.leaving import Leaving
from strandline.delivery.queues.state import Job, State
from strandline.engine import Append, Commit, Log, Record
from strandline.engine.errors import BadRequest, LogFull, UnknownLog


class Undertaker:
    """The letter and the event that tells of it are written in one step, and only then is the job deleted. So after a
    crash either the job is as it was, or it is known to be dead, and its deletion is made up for."""

    def __init__(
        self,
        log: Log,
        state: State,
        companion: Companion,
        leaving: Leaving,
        create_log: Callable[[str], Log | None],
    ) -> None:
        self._log = log
        self._state = state
        self._companion = companion
        self._leaving = leaving
        self._create_log = create_log

    def bury(
        self, jobs: list[Job], records: dict[int, Record], settings: QueueSettings, commits: list[Commit[Any]]
    ) -> None:
        """Take those of the jobs that must not be delivered again out of the queue. Those without a record are gone
        already; those that cannot be made into dead letters stay."""
        limit, name = settings.max_deliveries, settings.dead_letter
        if not limit or name is None:
            return
        doomed = [job for job in jobs if job.deliveries >= limit and job.seq in records]
        dead = self._create_log(name) if doomed else None
        if dead is None or dead.epoch == self._log.epoch:
            return
        letters = {job.seq: dead_letter(self._log, dead, records[job.seq], job.deliveries) for job in doomed}
        self._post(letters, list(letters), commits)

    def _post(self, letters: dict[int, Append], seqs: list[int], commits: list[Commit[Any]]) -> None:
        try:
            commits.append(self._companion.write_with(DeadLetteredEvent(seqs), [letters[seq] for seq in seqs]))
        except (LogFull, BadRequest, UnknownLog):
            # Better delivered once more than lost. One that finds no room must not keep the others from going.
            if len(seqs) > 1:
                half = len(seqs) // 2
                self._post(letters, seqs[:half], commits)
                self._post(letters, seqs[half:], commits)
            return
        self._state.bury(seqs)
        commits.append(self._leaving.bury(seqs))
