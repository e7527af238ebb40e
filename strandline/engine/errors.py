"""Everything that can go wrong, as one small hierarchy.

Every exception carries the facts as attributes, so that a protocol can map it to its own error body
without parsing the message. An operation that raises has changed nothing.
"""

from __future__ import annotations

#: When a request that was refused is worth another try: a limit or a pause is usually over within a second.
SOON_MS = 1_000


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class UnknownLog(EngineError):
    """No log has this name (or the handle's log has been dropped)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no log named {name!r}")
        self.name = name


class LogExists(EngineError):
    """A log of this name exists and the caller asked for a new one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a log named {name!r} exists already")
        self.name = name


class LogHasForks(EngineError):
    """The log cannot be dropped: other logs begin with its records. They have to be dropped first."""

    def __init__(self, name: str, forks: int) -> None:
        super().__init__(f"log {name!r} cannot be dropped: {forks} logs are forked from it")
        self.name = name
        self.forks = forks


class BadName(EngineError):
    """A log name that is empty, too long, or has characters that are not allowed."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name!r} cannot name a log: {why}")
        self.name = name
        self.why = why


class BadConfig(EngineError):
    """A configuration value out of its range or of the wrong type."""

    def __init__(self, field: str, value: object, why: str) -> None:
        super().__init__(f"config {field}={value!r}: {why}")
        self.field = field
        self.value = value
        self.why = why


class BadRequest(EngineError):
    """An argument is not valid: an empty batch, a negative limit, a selector that selects nothing."""


class BadRecord(BadRequest):
    """A record of the wrong type or shape; ``index`` is its place in the batch."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"record {index} of the batch: {why}")
        self.index = index
        self.why = why


class RecordTooLarge(BadRecord):
    """A record over the size limit."""

    def __init__(self, index: int, size: int, limit: int) -> None:
        super().__init__(index, f"{size} bytes, the limit is {limit}")
        self.size = size
        self.limit = limit


class BatchTooLarge(BadRequest):
    """A batch that can never fit a log that rejects what is over its caps, even if it were empty."""

    def __init__(self, name: str, records: int, size: int, cap_records: int, cap_bytes: int) -> None:
        super().__init__(
            f"a batch of {records} records and {size} bytes can never fit log {name!r}, "
            f"caps {cap_records or 'none'} and {cap_bytes or 'none'}"
        )
        self.name = name
        self.records = records
        self.size = size
        self.cap_records = cap_records
        self.cap_bytes = cap_bytes


class LogFull(EngineError):
    """The log is at its cap and its policy is to reject; it can take records again once some are gone."""

    def __init__(
        self, name: str, cap_records: int, cap_bytes: int, head: int, earliest: int, records: int, size: int
    ) -> None:
        super().__init__(
            f"log {name!r} is full: {records} records and {size} bytes live, "
            f"caps {cap_records or 'none'} and {cap_bytes or 'none'}"
        )
        self.name = name
        self.cap_records = cap_records
        self.cap_bytes = cap_bytes
        self.head = head
        self.earliest = earliest
        self.records = records
        self.size = size


class QuotaExceeded(EngineError):
    """One more log, or these records, would exceed a bound on all logs together; ``limit`` names the bound."""

    #: Space comes back when records expire or are removed, which takes at least this long to be worth another try.
    retry_after_ms = SOON_MS

    def __init__(self, limit: str, maximum: int) -> None:
        what = "there can be no more logs" if limit == "max_logs" else "the records do not fit"
        super().__init__(f"{what}: {limit} is {maximum}. Remove records or logs, or raise the limit")
        self.limit = limit
        self.max = maximum


class NotWritable(EngineError):
    """The log does not take this change from this caller: it has an owner, or was closed. Nothing was changed.

    The engine knows no owners; the catalog of a server raises it for all protocols.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name!r} cannot be changed here: {why}")
        self.name = name
        self.why = why


class UnknownSeq(EngineError):
    """The record is not there: never written, deleted, or evicted."""

    def __init__(self, name: str, seq: int) -> None:
        super().__init__(f"log {name!r} has no record {seq}")
        self.name = name
        self.seq = seq


class ProducerFenced(EngineError):
    """The producer's epoch is older than the one the log knows."""

    def __init__(self, producer: str, epoch: int, current: int) -> None:
        super().__init__(f"producer {producer!r} epoch {epoch} was superseded by epoch {current}")
        self.producer = producer
        self.epoch = epoch
        self.current = current


class ProducerGap(EngineError):
    """The producer's seq is not the next one (or a new epoch does not start at 0)."""

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
    """A file of a format version that this release does not know."""

    def __init__(self, path: str, found: int, supported: int) -> None:
        super().__init__(f"{path} has format version {found}; this release reads version {supported}")
        self.path = path
        self.found = found
        self.supported = supported


class DamagedFile(EngineError):
    """A file whose bytes are not what was written."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}")
        self.path = path
        self.why = why

    @property
    def file(self) -> str:
        """The file without the place of its directory, for those who must not learn where the server keeps its data."""
        inside = "://" not in self.path and not self.path.startswith("/")
        return self.path if inside else f"cold/{self.path.rpartition('/')[2]}"


class MissingFile(DamagedFile):
    """A file that the manifest names and that is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the file is missing")


class JournalIncomplete(DamagedFile):
    """Journal files that must exist are missing, cut off or unreadable. A start would hand out seqs a second time.

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
            "records the missing ones as gaps with the reason 'lost', and does not reuse their sequence numbers.",
        )


class DiskFull(EngineError):
    """No space left: the append was not taken; it can be tried again once there is space."""

    def __init__(self, path: str, needed: int) -> None:
        super().__init__(f"no space left for {needed} bytes in {path}")
        self.path = path
        self.needed = needed


def shown(error: BaseException) -> str:
    """What may be shown to anybody of an error whose text may name files or data."""
    return (isinstance(error, OSError) and error.strerror) or f"an internal error, {type(error).__name__}"


class NoSpaceToStart(EngineError):
    """The disk is too full to open the data directory. Nothing that is in it has changed."""

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
    """More is written than can be sealed: nothing was taken. Try again once some of the backlog is sealed."""

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
        #: Without file names and other details: clients get this text.
        self.reason = shown(cause)
        super().__init__(f"read-only: the journal {path} failed ({self.reason}). Check the disk, then restart")
        self.path = path
        self.cause = cause

    def again(self) -> JournalFailed:
        """A new error that says the same. An error that is raised twice keeps the frames of both tracebacks."""
        return JournalFailed(self.path, self.cause)


class WorkerFailed(EngineError):
    """The process that seals and merges died twice over one job, met something unforeseen, or was closed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the sealing worker failed: {why}")
        self.why = why
