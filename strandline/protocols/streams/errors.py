"""What can go wrong, in the words of the protocol: ``{"error":{"code","message"}}``, and one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from strandline.delivery.pressure import Throttled
from strandline.engine.errors import (
    BadConfig,
    BadName,
    BadRequest,
    BatchTooLarge,
    DamagedFile,
    DiskFull,
    EngineClosed,
    JournalFailed,
    LogExists,
    LogFull,
    RecordTooLarge,
    SealingBehind,
    UnknownLog,
)
from strandline.protocols.http import Refusal, Reply, damaged_data
from strandline.query.errors import QueryError
from strandline.schema.errors import SchemaError

JSON = b"application/json; charset=utf-8"
NO_STORE = (b"cache-control", b"no-store")

#: What the server calls by other names.
CODES = {
    "invalid_request": "bad_request",
    "throttled": "overloaded",
    "shutting_down": "unavailable",
    "not_ready": "unavailable",
}
#: After how many seconds to come again, where the protocol says so.
_RETRY_AFTER = {"overloaded": 1, "unavailable": 5}

Headers = tuple[tuple[bytes, bytes], ...]


def bad_request(message: str) -> Refusal:
    return Refusal(400, "bad_request", message)


def not_found(message: str = "not_found") -> Refusal:
    return Refusal(404, "not_found", message)


def gone() -> Refusal:
    return Refusal(410, "gone", "the stream was deleted; it is kept for the streams that were forked from it")


def conflict(message: str, headers: Headers = ()) -> Refusal:
    return Refusal(409, "conflict", message, headers=headers)


def too_large(limit: int) -> Refusal:
    return Refusal(413, "payload_too_large", f"the body is larger than {limit} bytes")


def too_many_records(limit: int) -> Refusal:
    message = f"the body has more than {limit} records; append them in several requests"
    return Refusal(413, "payload_too_large", message)


def overloaded(message: str) -> Refusal:
    return Refusal(429, "overloaded", message)


def request_timeout() -> Refusal:
    return Refusal(408, "request_timeout", "request timed out")


def append_timeout() -> Refusal:
    message = "append timed out; append outcome is unknown, check Stream-Next-Offset before retrying"
    return Refusal(408, "append_timeout", message)


#: The first match counts, so the special ones come first.
_TABLE: tuple[tuple[type[Exception], Callable[[Any], Refusal]], ...] = (
    (UnknownLog, lambda error: not_found()),
    (LogFull, lambda error: conflict(str(error))),
    (LogExists, lambda error: Refusal(503, "unavailable", "the stream that had this name is still to be removed")),
    (RecordTooLarge, lambda error: too_large(error.limit)),
    (BatchTooLarge, lambda error: Refusal(413, "payload_too_large", str(error))),
    (BadRequest, lambda error: bad_request(str(error))),
    (BadName, lambda error: bad_request(str(error))),
    (BadConfig, lambda error: bad_request(str(error))),
    (SchemaError, lambda error: Refusal(error.status, _code_of(error.status), str(error))),
    (QueryError, lambda error: bad_request(str(error))),
    (Throttled, lambda error: overloaded(str(error))),
    (SealingBehind, lambda error: overloaded(str(error))),
    (EngineClosed, lambda error: Refusal(503, "unavailable", "the server is shutting down")),
    (DiskFull, lambda error: Refusal(507, "disk_full", str(error), retry_after=5)),
    (DamagedFile, damaged_data),
    (JournalFailed, lambda error: Refusal(503, "read_only", str(error), retry_after=5)),
)


def _code_of(status: int) -> str:
    return "conflict" if status == 409 else "bad_request"


def reply_to(error: Exception) -> Reply | None:
    """The reply to an error that a client can do something about, or that has a code of its own."""
    if isinstance(error, msgspec.MsgspecError):
        return refuse(bad_request(str(error)))
    if isinstance(error, UnicodeDecodeError):
        return refuse(bad_request(f"the body is not valid UTF-8: {error}"))
    if isinstance(error, RecursionError):
        return refuse(bad_request("the JSON is nested too deeply"))
    for kind, refusal in _TABLE:
        if isinstance(error, kind):
            return refuse(refusal(error))
    return None


def refuse(refusal: Refusal) -> Reply:
    """A refusal, whoever it comes from, as this protocol says it."""
    code = CODES.get(refusal.code, refusal.code)
    headers = [*refusal.headers, NO_STORE]
    retry_after = _RETRY_AFTER.get(code, refusal.retry_after)
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % retry_after))
    if refusal.allow is not None:
        headers.append((b"allow", refusal.allow.encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    error: dict[str, object] = {"code": code, "message": refusal.message}
    if refusal.detail is not None:
        error |= refusal.detail
    return Reply(msgspec.json.encode({"error": error}), refusal.status, JSON, tuple(headers))
