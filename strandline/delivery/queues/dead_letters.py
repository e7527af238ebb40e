"""Dead letters: jobs that fail on their last delivery move to a separate log, and redrive moves them back. Without such
a log, they are dropped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from strandline.delivery.queues.completion import Completion
from strandline.delivery.queues.jobs import LARGEST, Failure, QueueSettings, Schedule, shortened
from strandline.delivery.queues.lease_log import LeaseLog
from strandline.delivery.queues.state import DeadLetteredEvent, DroppedEvent, JobState, State
from strandline.engine import Append, Batch, Commit, Log, Page, Record
from strandline.engine.commit import after_all
from strandline.engine.errors import BadRequest, BatchTooLarge, LogFull, QuotaExceeded, RecordTooLarge, UnknownLog

if TYPE_CHECKING:
    from strandline.delivery.queues.queue import Queue

log = logging.getLogger(__name__)

#: Members of a dead letter's meta: the log of origin, the number of deliveries, the seq in that log, and the priority
#: if it is not 0. All are strings.
FROM = "$dead_letter_from"
DELIVERIES = "$dead_letter_deliveries"
SOURCE_SEQ = "$dead_letter_src_seq"
PRIORITY = "$dead_letter_priority"
#: The reason for the last failure, as it was given, and the last failures. They are left out if none is known.
REASON = "$dead_letter_reason"
FAILURES = "$dead_letter_failures"
STAMPS = (FROM, DELIVERIES, SOURCE_SEQ, PRIORITY, REASON, FAILURES)

#: Records per read of a dead-letter log.
READ_RECORDS = 256
#: How many seqs of dropped jobs the server's log shows.
SHOWN_SEQS = 10

_Meta = dict[str, msgspec.Raw]
_decoder: msgspec.json.Decoder[_Meta] = msgspec.json.Decoder(_Meta)
_encode = msgspec.json.Encoder().encode


class Redriven(NamedTuple):
    """``moved`` is the number of records moved to each log. ``left`` is the number of records that were examined and
    not moved, because their origin is unknown or the destination has no room."""

    moved: dict[str, int]
    left: int


def dead_letter(queue: Log, dead: Log, record: Record, job: JobState) -> Append:
    """The append that writes a job to the dead-letter log. Repeating it has no effect."""
    # The job may be a dead letter of another queue. Its stamps say nothing about this queue.
    meta: dict[str, Any] = {name: value for name, value in _meta_of(record.meta).items() if name not in STAMPS}
    meta[FROM] = queue.name
    meta[DELIVERIES] = str(job.deliveries)
    meta[SOURCE_SEQ] = str(record.seq)
    if job.priority:
        meta[PRIORITY] = str(job.priority)
    if job.failures:
        if job.failures[-1].delivery == job.deliveries:
            meta[REASON] = job.failures[-1].reason
        meta[FAILURES] = [shown_failure(failure) for failure in job.failures]
    batch = Batch.of(record.data, record.key, record.node, _encode(meta))
    return Append(dead, batch, f"dead:{queue.epoch}:{record.seq}")


def shown_failure(failure: Failure) -> dict[str, Any]:
    return {"at": failure.at, "delivery": failure.delivery, "node": failure.node, "reason": failure.reason}


def redrive(
    dead: Log,
    destination: Log | Queue | Callable[[str], Log | Queue | None],
    *,
    limit: int,
    key: str | None = None,
    key_prefix: str | None = None,
    seq: int | None = None,
    data: bytes | None = None,
) -> Commit[Redriven]:
    """Move up to ``limit`` dead letters, oldest first, to their log of origin or to one given log. With ``seq``, move
    only the dead letter with this seq; with ``data`` as well, with this data in place of its own.

    ``destination`` is that log or queue, or a function that returns a log or queue for the name of the origin. Letters
    for which it returns None stay. A queue gets them with their priorities. If ``dead`` is a queue, call its
    ``forget_missing`` afterwards.
    """
    drive = _Drive(dead, destination, data)
    position = 0
    if seq is not None:
        page = dead.read(max(seq - 1, 0), min(limit, 1), key=key, key_prefix=key_prefix)
        if page.seqs == [seq]:
            drive.move(page)
        limit = 0
    while drive.moved_count < limit:
        page = dead.read(position, min(limit - drive.moved_count, READ_RECORDS), key=key, key_prefix=key_prefix)
        drive.move(page)
        if page.caught_up:
            break
        position = page.next_after
    return after_all(drive.commits, Redriven(drive.moved, drive.left))


class _Drive:
    def __init__(
        self, dead: Log, destination: Log | Queue | Callable[[str], Log | Queue | None], data: bytes | None
    ) -> None:
        self._dead = dead
        self._destination = destination
        self._data = data
        self._found: dict[str, Log | Queue | None] = {}
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
            # Also after an error: the letters that were moved already must not stay here as well.
            if gone:
                self.commits.append(self._dead.delete(seqs=gone, erasure=False))

    def _append(self, record: Record) -> bool:
        meta = _meta_of(record.meta)
        target = self._target(meta)
        if target is None:
            return False
        data = record.data if self._data is None else self._data
        batch = Batch.of(data, record.key, record.node, _without_stamps(record.meta, meta))
        key = f"redrive:{self._dead.epoch}:{record.seq}"
        try:
            if isinstance(target, Log):
                commit = target.append(batch, idempotency_key=key)
            else:
                priority = _priority(meta)
                commit = target.append(batch, [Schedule(priority=priority)] if priority else None, key)
        except (LogFull, BatchTooLarge, RecordTooLarge):
            return False
        self.commits.append(commit)
        name = _log_of(target).name
        self.moved[name] = self.moved.get(name, 0) + 1
        self.moved_count += 1
        return True

    def _target(self, meta: _Meta) -> Log | Queue | None:
        target: Log | Queue | None
        if not callable(self._destination):
            target = self._destination
        else:
            name = _text(meta.get(FROM))
            if name is None:
                return None
            if name not in self._found:
                self._found[name] = self._destination(name)
            target = self._found[name]
        # A letter that is moved to its own log would be found again, in an endless loop.
        return None if target is None or _log_of(target).epoch == self._dead.epoch else target


def _log_of(destination: Log | Queue) -> Log:
    return destination if isinstance(destination, Log) else destination.log


def _priority(meta: _Meta) -> int:
    """The priority in the stamps; 0 if there is none, or if it is not one that a queue writes."""
    try:
        priority = int(_text(meta.get(PRIORITY)) or 0)
    except ValueError:
        return 0
    return priority if abs(priority) <= LARGEST else 0


def _meta_of(meta: bytes | None) -> _Meta:
    """The meta as an object. A meta that is not an object cannot hold the stamps and is dropped, like one that is
    nested too deeply to be read: its job must not keep all others from their workers."""
    if meta is None:
        return {}
    try:
        return _decoder.decode(meta)
    except (msgspec.DecodeError, RecursionError):
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


class LastDeliveries:
    """Removes jobs that failed on their last delivery. A dead letter and its event are written in one transaction, and
    then the job is deleted. After a crash, either the job is unchanged, or the event says that it is a dead letter and
    the job is deleted on replay. Without a dead-letter log, there is only the event."""

    def __init__(
        self,
        log: Log,
        state: State,
        lease_log: LeaseLog,
        leaving: Completion,
        create_log: Callable[[str], Log | None],
    ) -> None:
        self._log = log
        self._state = state
        self._lease_log = lease_log
        self._leaving = leaving
        self._create_log = create_log

    def remove(
        self, jobs: list[JobState], records: dict[int, Record], settings: QueueSettings, commits: list[Commit[Any]]
    ) -> None:
        """Remove those of the jobs that reached the maximum number of deliveries. Jobs without a record are already
        deleted. Jobs that cannot be moved to the dead-letter log stay in the queue."""
        limit, name = settings.max_deliveries, settings.dead_letter
        failed = [job for job in jobs if limit and job.deliveries >= limit and job.seq in records]
        if not failed:
            return
        if name is None:
            self._drop(failed, commits)
            return
        dead = self._create_log(name)
        if dead is None or dead.epoch == self._log.epoch:
            return
        letters = {job.seq: dead_letter(self._log, dead, records[job.seq], job) for job in failed}
        self._post(letters, list(letters), commits)

    def _drop(self, jobs: list[JobState], commits: list[Commit[Any]]) -> None:
        seqs = [job.seq for job in jobs]
        commits.append(self._lease_log.write(DroppedEvent(seqs)))
        self._state.drop(seqs)
        commits.append(self._leaving.remove(seqs))
        # One line, however many jobs there are.
        last = jobs[-1].failures[-1:]
        log.warning(
            "queue %r has no dead_letter: dropped %d %s after the last delivery failed, seq %s%s; last reason: %s",
            self._log.name,
            len(seqs),
            "job" if len(seqs) == 1 else "jobs",
            ", ".join(map(str, seqs[:SHOWN_SEQS])),
            ", …" if len(seqs) > SHOWN_SEQS else "",
            shortened(bytes(last[0].reason)) if last else "not given",
        )

    def _post(self, letters: dict[int, Append], seqs: list[int], commits: list[Commit[Any]]) -> None:
        try:
            commits.append(self._lease_log.write_with(DeadLetteredEvent(seqs), [letters[seq] for seq in seqs]))
        except (LogFull, QuotaExceeded, BadRequest, UnknownLog):
            # Another delivery is better than a lost job. A letter without room must not block the others.
            if len(seqs) > 1:
                half = len(seqs) // 2
                self._post(letters, seqs[:half], commits)
                self._post(letters, seqs[half:], commits)
            return
        self._state.remove(seqs)
        commits.append(self._leaving.remove(seqs))
