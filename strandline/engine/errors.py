"""The engine's errors, as one small hierarchy.

Every exception carries its facts as attributes, so that a protocol can build its own error body without parsing the
message. An operation that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable

#: When to retry a refused request: a limit or a pause is usually over within a second.
SOON_MS = 1_000


class EngineError(Exception):
    """Base class of all errors that the engine raises on purpose."""


class UnknownLog(EngineError):
    """No log has this name, or the log of this handle has been dropped."""

    def __init__(self, name: str) -> None:
        super().__init__(f"log {name!r} not found")
        self.name = name


class LogExists(EngineError):
    """A log of this name already exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"log {name!r} already exists")
        self.name = name


class LogHasForks(EngineError):
    """The log cannot be dropped because other logs are forked from it. Drop those logs first."""

    def __init__(self, name: str, forks: int) -> None:
        super().__init__(f"log {name!r} cannot be dropped: {forks} logs are forked from it; drop them first")
        self.name = name
        self.forks = forks


class BadName(EngineError):
    """A log name that is empty, too long, or contains characters that are not allowed."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"invalid log name {name!r}: {why}")
        self.name = name
        self.why = why


class BadConfig(EngineError):
    """A configuration value that is out of range or of the wrong type."""

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(f"config {field}={value!r}: {why}")
        self.field = field
        self.value = value
        self.why = why


class BadRequest(EngineError):
    """An invalid argument, such as an empty batch, a negative limit, or a selector without a condition."""


class BadRecord(BadRequest):
    """A record of the wrong type or shape. ``index`` is its position in the batch."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"record {index} of the batch: {why}")
        self.index = index
        self.why = why


class RecordTooLarge(BadRecord):
    """A record above the size limit."""

    def __init__(self, index: int, size: int, limit: int) -> None:
        super().__init__(index, f"it has {size} bytes; the limit is {limit}")
        self.size = size
        self.limit = limit


class BatchTooLarge(BadRequest):
    """A batch that exceeds the retention limits of a log that rejects appends when full, even if the log were empty."""

    def __init__(self, name: str, records: int, size: int, cap_records: int, cap_bytes: int) -> None:
        super().__init__(
            f"a batch of {records} records and {size} bytes does not fit log {name!r} even when the log is empty: "
            f"max records {cap_records or 'unlimited'}, max bytes {cap_bytes or 'unlimited'}"
        )
        self.name = name
        self.records = records
        self.size = size
        self.cap_records = cap_records
        self.cap_bytes = cap_bytes


class LogFull(EngineError):
    """The log has reached its retention limit and rejects appends when full. Retry after records have been removed."""

    def __init__(
        self, name: str, cap_records: int, cap_bytes: int, head: int, earliest: int, records: int, size: int
    ) -> None:
        super().__init__(
            f"log {name!r} is full: {records} records and {size} bytes; "
            f"max records {cap_records or 'unlimited'}, max bytes {cap_bytes or 'unlimited'}"
        )
        self.name = name
        self.cap_records = cap_records
        self.cap_bytes = cap_bytes
        self.head = head
        self.earliest = earliest
        self.records = records
        self.size = size


class QuotaExceeded(EngineError):
    """A new log or an append would exceed a limit on all logs together. ``limit`` names the limit."""

    #: Space becomes free when records expire or are removed. An earlier retry is not worthwhile.
    retry_after_ms = SOON_MS

    def __init__(self, limit: str, maximum: int) -> None:
        what = "no more logs can be created" if limit == "max_logs" else "the records do not fit"
        super().__init__(f"{what}: {limit} is {maximum}. Remove records or logs, or raise the limit")
        self.limit = limit
        self.max = maximum


class NotWritable(EngineError):
    """The log does not accept this change from this caller, because it has an owner or was closed. Nothing was changed.

    The engine does not know about owners: the catalog of a server raises this error for all protocols.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name!r} cannot be changed here: {why}")
        self.name = name
        self.why = why


class UnknownSeq(EngineError):
    """The record does not exist: it was never written, was deleted, or was evicted."""

    def __init__(self, name: str, seq: int) -> None:
        super().__init__(f"log {name!r} has no record {seq}")
        self.name = name
        self.seq = seq


class ProducerFenced(EngineError):
    """The producer's epoch is older than the epoch that the log knows."""

    def __init__(self, producer: str, epoch: int, current: int) -> None:
        super().__init__(f"producer {producer!r} epoch {epoch} was superseded by epoch {current}")
        self.producer = producer
        self.epoch = epoch
        self.current = current


class ProducerGap(EngineError):
    """The producer's seq is not the next one, or a new epoch does not start at 0."""

    def __init__(self, producer: str, expected: int, received: int) -> None:
        super().__init__(f"producer {producer!r} sent seq {received}, expected {expected}")
        self.producer = producer
        self.expected = expected
        self.received = received


class EngineClosed(EngineError):
    """The engine has been closed."""


class DirectoryInUse(EngineError):
    """Another process has the data directory open."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"{path} is in use by {holder}")
        self.path = path
        self.holder = holder


class NoDataDirectory(EngineError):
    """The path is not a data directory."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not a data directory: it has no MANIFEST")
        self.path = path


class UnsupportedFormat(EngineError):
    """The file has a format version that this release does not support."""

    def __init__(self, path: str, found: int, supported: int) -> None:
        super().__init__(f"{path} has format version {found}; this release reads version {supported}")
        self.path = path
        self.found = found
        self.supported = supported


class DamagedFile(EngineError):
    """The contents of a file are not what was written."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}")
        self.path = path
        self.why = why

    @property
    def file(self) -> str:
        """Return the path without its directory, for readers who must not learn where the server keeps its data."""
        inside = "://" not in self.path and not self.path.startswith("/")
        return self.path if inside else f"cold/{self.path.rpartition('/')[2]}"


class MissingFile(DamagedFile):
    """A file that the manifest names does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the file is missing")


class JournalIncomplete(DamagedFile):
    """Journal files are missing, truncated or unreadable. Starting without them would reuse sequence numbers.

    ``losses`` holds one (path, reason) per file.
    """

    def __init__(self, losses: list[tuple[str, str]]) -> None:
        path, why = losses[0]
        super().__init__(path, why)
        self.losses = losses
        named = "; ".join(f"{path}: {why}" for path, why in losses[:5])
        more = f"; and {len(losses) - 5} more files" if len(losses) > 5 else ""
        self.args = (
            f"the journal is incomplete ({named}{more}). Acknowledged records are missing, so the data directory "
            "cannot be used as it is. Nothing in it was changed. Put the files back, or restore a backup. If you have "
            "neither, run 'strandline verify --repair' on the directory: it keeps every record that it can read, "
            "leaves tombstones with the reason 'lost' for the others, and does not reuse their sequence numbers.",
        )


class DiskFull(EngineError):
    """No space is left on the disk. The append was not made; retry when there is space."""

    def __init__(self, path: str, needed: int) -> None:
        super().__init__(f"no space left for {needed} bytes in {path}")
        self.path = path
        self.needed = needed


def shown(error: BaseException) -> str:
    """Return a text of the error without file names and data, which anyone may see."""
    if isinstance(error, Superseded):
        return str(error)
    return (isinstance(error, OSError) and error.strerror) or f"an internal error, {type(error).__name__}"


class NoSpaceToStart(EngineError):
    """The disk is too full to open the data directory. The directory has not changed."""

    def __init__(self, path: str, needed: int, free_bytes: int, free_files: int, cause: OSError) -> None:
        super().__init__(
            f"the disk is full ({cause.strerror}): a start needs about {needed} bytes and 3 files in {path}, and the "
            f"file system has {free_bytes} bytes and {free_files} files free. Free space on that file system, or raise "
            f"the quota, and start again. Do not remove files from the data directory."
        )
        self.path = path
        self.needed = needed
        self.free_bytes = free_bytes
        self.free_files = free_files


class SealingBehind(EngineError):
    """Writes outrun sealing. Nothing was written; retry when some of the backlog is sealed."""

    #: Long enough for a round of sealing to make some progress.
    retry_after_ms = SOON_MS

    def __init__(self, unsealed: int, budget: int) -> None:
        super().__init__(
            f"writes outrun sealing: {unsealed} bytes are not sealed yet, and the limit is {budget}. Nothing was "
            f"written; retry after {self.retry_after_ms} ms"
        )
        self.unsealed = unsealed
        self.budget = budget


class JournalFailed(EngineError):
    """A write or a flush of the journal failed. The engine is read-only until it is opened again.

    After a failed flush the contents of the disk are unknown, so nothing more is acknowledged.
    """

    def __init__(self, path: str, cause: Exception) -> None:
        #: Clients get this text, so it has no file names or other details.
        self.reason = shown(cause)
        super().__init__(
            f"read-only: {self.reason}"
            if isinstance(cause, Superseded)
            else f"read-only: the journal {path} failed ({self.reason}). Check the disk, then restart"
        )
        self.path = path
        self.cause = cause

    def again(self) -> JournalFailed:
        """Return a new error with the same content. An exception that is raised twice would collect the frames of both
        tracebacks."""
        return JournalFailed(self.path, self.cause)


class FollowsLeader(JournalFailed):
    """This server follows another one: it answers reads, and only the leader accepts changes."""

    def __init__(self, leader: Callable[[], str]) -> None:
        #: Where clients reach the leader, as host:port; empty if unknown.
        self.leader = leader()
        self._leader = leader
        at = f" at {self.leader}" if self.leader else ""
        self.reason = f"this server only answers reads; send changes to the leader{at}"
        EngineError.__init__(self, self.reason)
        self.path = ""
        self.cause = self

    def again(self) -> FollowsLeader:
        return FollowsLeader(self._leader)


class Superseded(EngineError):
    """Another server has taken over the replica, so this server must not accept writes any more."""

    def __init__(self, number: int, own_term: int, term: int, address: str) -> None:
        by = f" at {address}" if address else ""
        super().__init__(
            f"another server{by} has taken over (term {term or 'unknown'}, after term {own_term} of this server); "
            "send writes to that server"
        )
        #: The chunk that the other server created.
        self.number = number
        self.own_term = own_term
        self.term = term
        self.address = address


class ReplicaBehind(EngineError):
    """The replica did not store a write in time. The write is stored on this machine and may still reach the replica:
    repeat it with the same idempotency key or producer."""

    retry_after_ms = SOON_MS

    def __init__(self, waited_ms: int) -> None:
        super().__init__(
            f"the replica has not stored the write after {waited_ms} ms; only this server has it. Repeat the write "
            f"with the same idempotency key after {self.retry_after_ms} ms"
        )
        self.waited_ms = waited_ms


class ReplicaAway(EngineError):
    """The replica cannot be reached, so logs of the durability ``replicated`` accept no appends. Nothing was
    written."""

    retry_after_ms = SOON_MS

    def __init__(self, name: str) -> None:
        super().__init__(
            f"log {name!r} has the durability replicated, and the replica cannot be reached. Nothing was written; "
            f"retry after {self.retry_after_ms} ms"
        )
        self.name = name


class NoReplica(EngineError):
    """A log of the durability ``replicated`` in a server without a replica accepts no appends."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"log {name!r} has the durability replicated, but this server has no replica. Start the server with "
            "--replica, or give the log another durability"
        )
        self.name = name


class WorkerFailed(EngineError):
    """A worker process, which writes segments or index files, died twice in one job, failed unexpectedly, or was
    closed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the worker process failed: {why}")
        self.why = why
