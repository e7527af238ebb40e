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
from strandline.engine.errors import BadRequest, BatchTooLarge, LogFull, QuotaExceeded, RecordTooLarge, UnknownLog

if TYPE_CHECKING:
    from strandline.delivery.queues.queue import Queue

#: Where a dead letter came from, how often it had been delivered, and the seq it had there; all of them strings.
FROM = "$dead_letter_from"
DELIVERIES = "$dead_letter_deliveries"
SOURCE_SEQ = "$dead_letter_src_seq"
STAMPS = (FROM, DELIVERIES, SOURCE_SEQ)

#: Records per read when dead letters are looked through.
READ_RECORDS = 256

_Meta = dict[str, msgspec.Raw]
_decoder: msgspec.json.Decoder[_Meta] = msgspec.json.Decoder(_Meta)
_encode = msgspec.json.Encoder().encode


class Redriven(NamedTuple):
    """``moved``: how many records went to which log. ``left``: how many were looked at and stay where they are,
    because nobody knows where they belong, or because there is no room."""

    moved: dict[str, int]
    left: int


def dead_letter(queue: Log, dead: Log, record: Record, deliveries: int) -> Append:
    """The append that makes a dead letter of a job. Made twice, it makes one."""
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
    """Move up to ``limit`` dead letters, oldest first, back to where they came from, or to one given log.

    ``destination`` is that log or queue, or a function from the name of the queue of origin to either; what it gives
    None for stays. If ``dead`` is a queue, its ``forget_missing`` is to be called afterwards.
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
            # Also when one could not be moved: those before it are in their place, and must not stay here too.
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
        # Moved to where it is, a dead letter would be found again, for ever.
        return None if target is None or target.epoch == self._dead.epoch else target


def _log_of(destination: Log | Queue | None) -> Log | None:
    return destination if destination is None or isinstance(destination, Log) else destination.log


def _meta_of(meta: bytes | None) -> _Meta:
    """The meta as an object; one that is something else cannot be stamped and is left out."""
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
    """The letter and the event that tells of it are written in one step, and only then is the job deleted. So after a
    crash either the job is as it was, or it is known to be dead, and its deletion is made up for."""

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
        except (LogFull, QuotaExceeded, BadRequest, UnknownLog):
            # Better delivered once more than lost. One that finds no room must not keep the others from going.
            if len(seqs) > 1:
                half = len(seqs) // 2
                self._post(letters, seqs[:half], commits)
                self._post(letters, seqs[half:], commits)
            return
        self._state.bury(seqs)
        commits.append(self._leaving.bury(seqs))
