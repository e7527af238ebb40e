"""The error codes of tables: ``{"error": {"code", "message", "table", "op", …}}``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from strandline.engine.errors import SOON_MS
from strandline.protocols.tables.wire import TableErrorAnswer, TableErrorBody, encode
from strandline.service import problems
from strandline.service.http import NO_STORE, Reply
from strandline.service.problems import (
    DAMAGED_DATA,
    DISK_FULL,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    LOG_FULL,
    LOG_NOT_FOUND,
    METHOD_NOT_ALLOWED,
    NO_REPLICA,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    NOT_READY,
    NOT_WRITABLE,
    PAYLOAD_TOO_LARGE,
    READ_ONLY,
    RECORD_TOO_LARGE,
    REPLICA_AWAY,
    REPLICA_BEHIND,
    SHUTTING_DOWN,
    STANDBY,
    THROTTLED,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA_TYPE,
    Problem,
    Refusal,
    by_code,
)
from strandline.tables import TableError
from strandline.tables.errors import ErrorMembers

log = logging.getLogger(__name__)

CONFLICT = Problem("CONFLICT", 409, "Another request changed the row or took the name first. Read it, then decide.")
RATE_LIMITED = Problem(
    "RATE_LIMITED",
    429,
    "The user appended more rows than the table allows in its window; `retryAfter` says when to continue.",
    SOON_MS,
)
HOOK_FAILED = Problem(
    "HOOK_FAILED",
    500,
    "A hook of the application failed; `hook` names it and the log of the server has the details. Nothing was written.",
)
UNAVAILABLE = SHUTTING_DOWN.renamed(
    "UNAVAILABLE", "The server is starting or shutting down, or `identify` of the application took too long."
)
_NOT_FOUND = NOT_FOUND.renamed(
    "NOT_FOUND", "The row, the parent or the table does not exist, or the user may not know of it."
)
_PAYLOAD_TOO_LARGE = PAYLOAD_TOO_LARGE.renamed("PAYLOAD_TOO_LARGE")

#: The shared codes under the names of tables.
RENAMED = {
    INVALID_REQUEST: INVALID_REQUEST.renamed(
        "VALIDATION_FAILED",
        "The request is not valid; for a payload, `fieldErrors` says what is wrong with each field.",
    ),
    UNAUTHORIZED: UNAUTHORIZED.renamed(
        "NOT_AUTHENTICATED", "The request does not say who the user is, or the API key is not valid."
    ),
    FORBIDDEN: FORBIDDEN.renamed("FORBIDDEN", "The user may not do this, or the API key lacks a scope."),
    NOT_FOUND: _NOT_FOUND,
    LOG_NOT_FOUND: _NOT_FOUND,
    METHOD_NOT_ALLOWED: METHOD_NOT_ALLOWED.renamed("METHOD_NOT_ALLOWED"),
    NOT_ACCEPTABLE: NOT_ACCEPTABLE.renamed("NOT_ACCEPTABLE"),
    NOT_WRITABLE: CONFLICT,
    LOG_FULL: CONFLICT,
    PAYLOAD_TOO_LARGE: _PAYLOAD_TOO_LARGE,
    RECORD_TOO_LARGE: _PAYLOAD_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE: UNSUPPORTED_MEDIA_TYPE.renamed("UNSUPPORTED_MEDIA_TYPE"),
    THROTTLED: THROTTLED.renamed("THROTTLED"),
    DAMAGED_DATA: DAMAGED_DATA.renamed(
        "DAMAGED_DATA", "A file with the rows is damaged or missing; `detail.file` names it. Other rows can be read."
    ),
    INTERNAL: INTERNAL.renamed("INTERNAL", "The server failed; the log of the server has the details."),
    NOT_READY: UNAVAILABLE,
    SHUTTING_DOWN: UNAVAILABLE,
    READ_ONLY: READ_ONLY.renamed("READ_ONLY"),
    STANDBY: STANDBY.renamed("STANDBY"),
    REPLICA_BEHIND: REPLICA_BEHIND.renamed("REPLICA_BEHIND"),
    REPLICA_AWAY: REPLICA_AWAY.renamed("REPLICA_AWAY"),
    NO_REPLICA: NO_REPLICA.renamed("NO_REPLICA"),
    DISK_FULL: DISK_FULL.renamed("DISK_FULL"),
}

PROBLEMS = by_code(dict.fromkeys((*RENAMED.values(), RATE_LIMITED, HOOK_FAILED)))


def invalid(message: str, **more: Unpack[ErrorMembers]) -> TableError:
    return TableError("VALIDATION_FAILED", message, **more)


_MEMBERS = {field.encode_name: field.name for field in msgspec.structs.fields(TableErrorBody)}


def error_body(code: str, message: str, more: Mapping[str, Any]) -> bytes:
    """The body of an error; ``more`` are its other members, as clients see them."""
    body = TableErrorBody(code, message, **{_MEMBERS[name]: value for name, value in more.items()})
    return encode(TableErrorAnswer(body))


class Errors:
    """The replies to errors in one operation of a table."""

    def __init__(self, table: str, op: str) -> None:
        self._about = {name: value for name, value in (("table", table), ("op", op)) if value}

    def reply_to(self, error: Exception) -> Reply | None:
        """The reply to an exception that has a code; None for any other exception."""
        if isinstance(error, TableError):
            if error.code == HOOK_FAILED.code:
                log.error("%s", error.message, exc_info=error.__cause__)
            refusal = Refusal(PROBLEMS[error.code], error.message, retry_after_ms=error.retry_after)
            return self._reply(refusal, error.more)
        found = problems.refusal_of(error)
        return None if found is None else self.refuse(found)

    def refuse(self, refusal: Refusal) -> Reply:
        """The reply to a refusal, with a code of tables and their error body."""
        return self._reply(refusal.renamed(RENAMED), {} if refusal.detail is None else {"detail": refusal.detail})

    def _reply(self, refusal: Refusal, more: Mapping[str, Any]) -> Reply:
        headers = (NO_STORE, *refusal.headers)
        if refusal.status == 401:
            headers += ((b"www-authenticate", b"Bearer"),)
        body = error_body(refusal.code, refusal.message, {**self._about, **more})
        return Reply(body, refusal.status, headers=headers)
