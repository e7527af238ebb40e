"""Dead letters: jobs that were delivered too often move to a log of their own, and redrive moves them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from strandline.delivery.queues.completion import Leaving
from strandline.delivery.queues.jobs import QueueSettings
from strandline.delivery.queues.lease_log import LeaseLog
from strandline.delivery.queues.state import DeadLetteredEvent, JobState, State
from strandline.engine import Append, Batch, Commit, Log, Page, Record
from strandline.engine.commit import after_all
from strandline.engine.errors import BadRequest, BatchTooLarge, LogFull, RecordTooLarge, UnknownLog

if TYPE_CHECKING:
    from strandline.delivery.queues.queue import Queue

#: The stamps of a dead letter: its queue, the number of deliveries, and its seq there; all of them strings.
FROM = "$dead_letter_from"
DELIVERIES = "$dead_letter_deliveries"
SOURCE_SEQ = "$dead_letter_src_seq"
STAMPS = (FROM, DELIVERIES, SOURCE_SEQ)

#: Records per read when dead letters are scanned.
READ_RECORDS = 256

_Meta = dict[str, msgspec.Raw]
_decoder: msgspec.json.Decoder[_Meta] = msgspec.json.Decoder(_Meta)
_encode = msgspec.json.Encoder().encode


class Redriven(NamedTuple):
    """``moved``: how many records went to which log. ``left``: how many were checked and stay, because their origin is
    unknown or because there is no space."""

    moved: dict[str, int]
    left: int


def dead_letter(queue: Log, dead: Log, record: Record, deliveries: int) -> Append:
    """The append that makes a dead letter of a job. Repeating it has no effect."""
    meta: dict[str, Any] = dict(_meta_of(record.meta))
    meta[FROM] = queue.name
    meta[DELIVERIES] = str(deliveries)
    meta[SOURCE_SEQ] = str(record.seq)
    batch = Batch.of(record.data, record.key, record.node, _encode(meta))
    return Append(dead, batch, f"dead:{queue.epoch}:{record.seq}")


def redrive(
    dead: Log,
    destination: Log | Queue | Callable[[str], Log | Queue | None],
    *,
    limit: int,
    key: str | None = None,
    key_prefix: str | None = None,
) -> Commit[Redriven]:
    """Move up to ``limit`` dead letters, oldest first, back to their queues, or to one given log.

    ``destination`` is that log or queue, or a function from the name of the original queue to either; None: the dead
    letter stays. If ``dead`` is a queue, call its ``forget_missing`` afterwards.
    """
    drive = _Drive(dead, destination)
    position = 0
    while drive.moved_count < limit:
        page = dead.read(position, min(limit - drive.moved_count, READ_RECORDS), key=key, key_prefix=key_prefix)
        drive.move(page)
        if page.caught_up:
            break
        position = page.next_after
    return after_all(drive.commits, Redriven(drive.moved, drive.left))


class _Drive:
    def __init__(self, dead: Log, destination: Log | Queue | Callable[[str], Log | Queue | None]) -> None:
        self._dead = dead
        self._destination = destination
        self._found: dict[str, Log | None] = {}
        self.commits: list[Commit[Any]] = []
        self.moved: dict[str, int] = {}
        self.moved_count = 0
        self.left = 0

    def move(self, page: Page) -> None:
        gone: list[int] = []
        try:
            for record in page:
                if self._append(record):
                    gone.append(record.seq)
                else:
                    self.left += 1
        finally:
            # Also if one could not be moved: those before it were moved, and must not stay here too.
            if gone:
                self.commits.append(self._dead.delete(seqs=gone, erasure=False))

    def _append(self, record: Record) -> bool:
        meta = _meta_of(record.meta)
        target = self._target(meta)
        if target is None:
            return False
        batch = Batch.of(record.data, record.key, record.node, _without_stamps(record.meta, meta))
        try:
            commit = target.append(batch, idempotency_key=f"redrive:{self._dead.epoch}:{record.seq}")
        except (LogFull, BatchTooLarge, RecordTooLarge):
            return False
        self.commits.append(commit)
        self.moved[target.name] = self.moved.get(target.name, 0) + 1
        self.moved_count += 1
        return True

    def _target(self, meta: _Meta) -> Log | None:
        target: Log | None
        if not callable(self._destination):
            target = _log_of(self._destination)
        else:
            name = _text(meta.get(FROM))
            if name is None:
                return None
            if name not in self._found:
                self._found[name] = _log_of(self._destination(name))
            target = self._found[name]
        # A dead letter that is moved to its own log would be found again endlessly.
        return None if target is None or target.epoch == self._dead.epoch else target


def _log_of(destination: Log | Queue | None) -> Log | None:
    return destination if destination is None or isinstance(destination, Log) else destination.log


def _meta_of(meta: bytes | None) -> _Meta:
    """The meta as an object; a meta of another type cannot be stamped and is left out."""
    if meta is None:
        return {}
    try:
        return _decoder.decode(meta)
    except msgspec.DecodeError:
        return {}


def _without_stamps(original: bytes | None, meta: _Meta) -> bytes | None:
    kept = {name: value for name, value in meta.items() if name not in STAMPS}
    if len(kept) == len(meta):
        return original
    return _encode(kept) if kept else None


def _text(value: msgspec.Raw | None) -> str | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=str)
    except msgspec.DecodeError:
        return None


class Undertaker:
    """Writes the dead letter and its event in one step, and only then deletes the job. After a crash, either the job is
    unchanged, or it is known to be dead and is deleted."""

    def __init__(
        self,
        log: Log,
        state: State,
        companion: LeaseLog,
        leaving: Leaving,
        create_log: Callable[[str], Log | None],
    ) -> None:
        self._log = log
        self._state = state
        self._companion = companion
        self._leaving = leaving
        self._create_log = create_log

    def bury(
        self, jobs: list[JobState], records: dict[int, Record], settings: QueueSettings, commits: list[Commit[Any]]
    ) -> None:
        """Remove the jobs that must not be delivered again from the queue. Jobs without a record are already gone; jobs
        that cannot become dead letters stay."""
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
            # Better delivered once more than lost. A full dead-letter log must not stop the other jobs.
            if len(seqs) > 1:
                half = len(seqs) // 2
                self._post(letters, seqs[:half], commits)
                self._post(letters, seqs[half:], commits)
            return
        self._state.bury(seqs)
        commits.append(self._leaving.bury(seqs))
