"""What can go wrong, in the words of this face: one table for the errors of the rooms behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from strandline.delivery.pressure import Throttled
from strandline.engine.errors import (
    BadName,
    BadRecord,
    BadRequest,
    BatchTooLarge,
    DamagedFile,
    DiskFull,
    EngineClosed,
    JournalFailed,
    LogFull,
    RecordTooLarge,
    SealingBehind,
    UnknownLog,
)
from strandline.protocols.http import Refusal, Reply, damaged_data


def invalid(message: str, detail: dict[str, object] | None = None) -> Refusal:
    return Refusal(400, "invalid_request", message, detail)


def not_json(row: int, why: str) -> Refusal:
    return Refusal(
        400, "not_json", f"row {row} of data is no JSON, which is all that the log takes: {why}", {"row": row}
    )


def log_not_found(name: str) -> Refusal:
    return Refusal(404, "log_not_found", f"there is no log {name!r}", {"log": name})


def epoch_changed(name: str, epoch: int) -> Refusal:
    message = f"log {name!r} is another one than was asked for: its epoch is {epoch}"
    return Refusal(409, "epoch_changed", message, {"log": name, "epoch": epoch})


def progress_conflict(writer: str, current: object) -> Refusal:
    message = f"the progress of writer {writer!r} is not what it was taken for; nothing was appended"
    return Refusal(409, "progress_conflict", message, {"writer": writer, "progress": current})


def not_writable(name: str, why: str) -> Refusal:
    return Refusal(409, "not_writable", f"nothing can be appended to {name!r} here: {why}", {"log": name})


def too_large(size: int, limit: int) -> Refusal:
    message = f"the body would have {size} bytes once it is decompressed, the limit is {limit}"
    return Refusal(413, "payload_too_large", message, {"max": limit})


def record_too_large(row: int, what: str, size: int, limit: int) -> Refusal:
    message = f"row {row}: {what} has {size} bytes, the limit is {limit}"
    return Refusal(400, "record_too_large", message, {"row": row, "max": limit})


def _full(error: LogFull) -> Refusal:
    detail: dict[str, object] = {
        "log": error.name,
        "cap_records": error.cap_records,
        "cap_bytes": error.cap_bytes,
        "head": error.head,
        "earliest": error.earliest,
    }
    return Refusal(422, "log_full", f"log {error.name!r} is full and rejects what does not fit", detail)


def _throttled(error: Throttled | SealingBehind) -> Refusal:
    wait_ms = error.retry_after_ms
    return Refusal(429, "throttled", str(error), {"retry_after_ms": wait_ms}, retry_after=-(-wait_ms // 1000))


#: The first match counts, so the special ones come first.
_TABLE: tuple[tuple[type[Exception], Callable[[Any], Refusal]], ...] = (
    (UnknownLog, lambda error: log_not_found(error.name)),
    (LogFull, _full),
    (Throttled, _throttled),
    (SealingBehind, _throttled),
    (BatchTooLarge, lambda error: Refusal(400, "record_too_large", str(error), {"log": error.name})),
    (RecordTooLarge, lambda error: Refusal(400, "record_too_large", str(error))),
    (BadRecord, lambda error: invalid(str(error))),
    (BadRequest, lambda error: invalid(str(error))),
    (BadName, lambda error: invalid(str(error))),
    (EngineClosed, lambda error: Refusal(503, "shutting_down", "the server is shutting down", retry_after=1)),
    (DiskFull, lambda error: Refusal(507, "disk_full", str(error), retry_after=5)),
    (DamagedFile, damaged_data),
    (JournalFailed, lambda error: Refusal(503, "read_only", str(error), retry_after=5)),
)


def reply_to(error: Exception) -> Reply | None:
    """The reply to an error that a client can do something about, or that has a code of its own."""
    if isinstance(error, msgspec.MsgspecError):
        return invalid(str(error)).reply()
    for kind, refusal in _TABLE:
        if isinstance(error, kind):
            return refusal(error).reply()
    return None
