"""What is refused, in the words of the protocol: a body with one member ``error``, and sometimes a few more.

The texts are part of the protocol: clients compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from strandline.delivery.pressure import Throttled
from strandline.engine.errors import (
    BadName,
    BadRequest,
    DamagedFile,
    DiskFull,
    EngineClosed,
    JournalFailed,
    LogFull,
    RecordTooLarge,
    SealingBehind,
)
from strandline.protocols.http import Refusal, Reply, damaged_data

Headers = tuple[tuple[bytes, bytes], ...]


class Refused(Exception):
    """A request, or an entry of a batch, is answered with an error."""

    def __init__(self, status: int, text: str, more: Mapping[str, object] | None = None, headers: Headers = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.more = more
        self.headers = headers

    def reply(self) -> Reply:
        return Reply(msgspec.json.encode({"error": self.text, **(self.more or {})}), self.status, headers=self.headers)


def retry_after(seconds: int) -> Headers:
    return ((b"retry-after", b"%d" % seconds),)


# --- who asks, and what for ------------------------------------------------------------------------------------------


def invalid_path() -> Refused:
    return Refused(400, "Invalid path parameter")


def unauthorized() -> Refused:
    return Refused(401, "Unauthorized")


def forbidden() -> Refused:
    return Refused(403, "Forbidden")


def no_such_path() -> Refused:
    return Refused(404, "Not Found")


def rate_limited(seconds: int) -> Refused:
    return Refused(429, "Rate limit exceeded", headers=retry_after(seconds))


def regular_document(name: str) -> Refused:
    message = f"collection {name!r} is not append-only, and this server keeps append-only collections alone"
    return Refused(501, "regular_documents_not_supported", {"message": message})


# --- pushing ---------------------------------------------------------------------------------------------------------


def too_large() -> Refused:
    return Refused(413, "Payload too large")


def wrong_media_type() -> Refused:
    return Refused(415, "Content-Type must be application/json")


def not_an_object() -> Refused:
    return Refused(400, "Body must be a JSON object")


def repeated_member(name: str) -> Refused:
    return Refused(400, f"Body repeats the member {name!r}: send each name once per object")


def too_deep() -> Refused:
    return Refused(400, "Body nesting too deep")


def no_data() -> Refused:
    return Refused(400, "Missing or invalid data")


def schema_failed(message: str, path: list[str | int], keyword: str) -> Refused:
    return Refused(400, f"Schema validation failed: {message}", {"path": path, "validator": keyword})


def no_proof() -> Refused:
    return Refused(400, "append requires authorPubkey and authorSignature")


def foreign_author() -> Refused:
    return Refused(403, "append author must be the request presenter")


def bad_proof() -> Refused:
    return Refused(403, "invalid append author signature")


def bad_ts() -> Refused:
    return Refused(400, "ts must be a non-negative integer")


def ts_in_future() -> Refused:
    return Refused(400, "ts is too far in the future")


def limit_exceeded(limit: int) -> Refused:
    return Refused(409, "append_limit_exceeded", {"limit": limit})


def not_monotonic() -> Refused:
    return Refused(409, "non_monotonic_timestamp")


def not_a_document(name: str) -> Refused:
    message = f"there is a log {name!r} that another protocol has made: it is no document of a collection"
    return Refused(409, "not_a_document", {"message": message})


def event_refused(why: str) -> Refused:
    message = f"the event of this append cannot be written: {why}. Nothing was stored"
    return Refused(503, "queue_unavailable", {"message": message}, retry_after(1))


def read_only(why: str) -> Refused:
    return Refused(503, "read_only", {"message": why}, retry_after(5))


# --- pulling ---------------------------------------------------------------------------------------------------------


def invalid(what: str) -> Refused:
    """A parameter of the query: ``checkpoint``, ``last``, ``limit``."""
    return Refused(400, f"Invalid {what}")


def bound_required() -> Refused:
    return Refused(400, "pull_bound_required")


def full_with_bounds() -> Refused:
    return Refused(400, "full_with_bounds")


def full_not_allowed() -> Refused:
    return Refused(400, "full_not_allowed")


def checkpoint_too_old() -> Refused:
    return Refused(400, "checkpoint_too_old")


# --- the rooms behind ------------------------------------------------------------------------------------------------


def refuse(refusal: Refusal) -> Reply:
    """A refusal of the gate, or of another face that was asked for something."""
    if refusal.status == 413:
        return too_large().reply()
    headers = refusal.headers
    if refusal.retry_after is not None:
        headers += retry_after(refusal.retry_after)
    return Refused(refusal.status, refusal.message, headers=headers).reply()


def throttled(error: Throttled | SealingBehind) -> Refused:
    return Refused(429, str(error), headers=retry_after(-(-error.retry_after_ms // 1000)))


def _damaged(error: DamagedFile) -> Refused:
    refusal = damaged_data(error)
    return Refused(refusal.status, refusal.code, {"message": refusal.message, **(refusal.detail or {})})


#: The first match counts, so the special ones come first.
_TABLE: tuple[tuple[type[Exception], Callable[[Any], Refused]], ...] = (
    (Throttled, throttled),
    (SealingBehind, throttled),
    (RecordTooLarge, lambda error: too_large()),
    (LogFull, lambda error: Refused(507, str(error))),
    (BadName, lambda error: invalid_path()),
    (BadRequest, lambda error: Refused(400, str(error))),
    (EngineClosed, lambda error: Refused(503, "the server is shutting down", headers=retry_after(1))),
    (DiskFull, lambda error: Refused(507, str(error), headers=retry_after(5))),
    (DamagedFile, _damaged),
    (JournalFailed, lambda error: read_only(str(error))),
)


def refused_by(error: Exception) -> Refused | None:
    """What an error of the rooms behind means to whoever asked; None: nobody has foreseen it."""
    if isinstance(error, Refused):
        return error
    for kind, make in _TABLE:
        if isinstance(error, kind):
            return make(error)
    return None


def reply_to(error: Exception) -> Reply | None:
    refused = refused_by(error)
    return None if refused is None else refused.reply()
