"""The engine's errors in the words of the protocol: one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from strandline.delivery.pressure import Throttled
from strandline.delivery.queues import QueueError
from strandline.engine.errors import (
    BadConfig,
    BadName,
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


def topic_not_found(name: str) -> Refusal:
    return Refusal(404, "topic_not_found", f"topic {name!r} does not exist", {"topic": name})


def not_a_queue(name: str) -> Refusal:
    return Refusal(409, "not_a_queue", f"topic {name!r} is not a queue", {"topic": name})


def invalid(message: str, detail: dict[str, object] | None = None) -> Refusal:
    return Refusal(400, "invalid_request", message, detail)


def capped(limit: str, maximum: int) -> Refusal:
    """A resource cap of the server is reached."""
    return Refusal(429, "throttled", f"{limit} is reached", {"limit": limit, "max": maximum}, retry_after=1)


def _full(error: LogFull) -> Refusal:
    detail: dict[str, object] = {
        "topic": error.name,
        "cap_records": error.cap_records,
        "cap_bytes": error.cap_bytes,
        "head_seq": error.head,
        "earliest_seq": error.earliest,
    }
    return Refusal(422, "topic_full", f"topic {error.name!r} is full and rejects what does not fit", detail)


def _throttled(error: Throttled | SealingBehind) -> Refusal:
    wait_ms = error.retry_after_ms
    return Refusal(429, "throttled", str(error), {"retry_after_ms": wait_ms}, retry_after=-(-wait_ms // 1000))


#: The first match counts, so the special ones come first.
_TABLE: tuple[tuple[type[Exception], Callable[[Any], Refusal]], ...] = (
    (UnknownLog, lambda error: topic_not_found(error.name)),
    (LogFull, _full),
    (Throttled, _throttled),
    (SealingBehind, _throttled),
    (BatchTooLarge, lambda error: Refusal(400, "record_too_large", str(error), {"topic": error.name})),
    (RecordTooLarge, lambda error: Refusal(400, "record_too_large", str(error))),
    (BadRequest, lambda error: invalid(str(error))),
    (BadName, lambda error: invalid(str(error))),
    (BadConfig, lambda error: invalid(str(error))),
    (QueueError, lambda error: invalid(str(error))),
    (EngineClosed, lambda error: Refusal(503, "shutting_down", "the server is shutting down", retry_after=1)),
    (DiskFull, lambda error: Refusal(507, "disk_full", str(error), retry_after=5)),
    (DamagedFile, damaged_data),
    (JournalFailed, lambda error: Refusal(503, "read_only", str(error), {"retry_after_ms": 5000}, retry_after=5)),
)


def reply_to(error: Exception) -> Reply | None:
    """The reply to an error that a client can do something about, or that has a code of its own."""
    if isinstance(error, msgspec.MsgspecError):
        return invalid(str(error)).reply()
    if isinstance(error, UnicodeDecodeError):
        return invalid(f"the body is not valid UTF-8: {error}").reply()
    if isinstance(error, RecursionError):
        return invalid("the JSON is nested too deeply").reply()
    for kind, refusal in _TABLE:
        if isinstance(error, kind):
            return refusal(error).reply()
    return None
