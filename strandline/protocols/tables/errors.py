"""What can go wrong, in the words of tables: ``{"error":{"code","message",…}}``, and one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from strandline.delivery.pressure import Throttled
from strandline.engine.errors import (
    BadRequest,
    BatchTooLarge,
    DamagedFile,
    DiskFull,
    EngineClosed,
    JournalFailed,
    RecordTooLarge,
    SealingBehind,
    UnknownLog,
)
from strandline.protocols.http import Refusal, Reply, damaged_data
from strandline.protocols.tables.problems import CODES, PROBLEMS
from strandline.tables import TableError

#: After how many seconds to come again, where nobody says.
_RETRY_AFTER = {"THROTTLED": 1, "UNAVAILABLE": 1, "READ_ONLY": 5, "DISK_FULL": 5}


def invalid(message: str, **more: Any) -> TableError:
    return TableError("VALIDATION_FAILED", message, **more)


def _damaged(error: DamagedFile) -> TableError:
    refusal = damaged_data(error)
    return TableError("DAMAGED_DATA", refusal.message, detail=refusal.detail)


#: The first match counts.
_TABLE: tuple[tuple[type[Exception], Callable[[Any], TableError]], ...] = (
    (RecordTooLarge, lambda error: TableError("PAYLOAD_TOO_LARGE", str(error))),
    (BatchTooLarge, lambda error: TableError("PAYLOAD_TOO_LARGE", str(error))),
    (UnknownLog, lambda error: TableError("NOT_FOUND", "the rows are gone: somebody has removed their log")),
    (BadRequest, lambda error: invalid(str(error))),
    (Throttled, lambda error: TableError("THROTTLED", str(error))),
    (SealingBehind, lambda error: TableError("THROTTLED", str(error))),
    (EngineClosed, lambda error: TableError("UNAVAILABLE", "the server is shutting down")),
    (DiskFull, lambda error: TableError("DISK_FULL", str(error))),
    (DamagedFile, _damaged),
    (JournalFailed, lambda error: TableError("READ_ONLY", str(error))),
    (UnicodeDecodeError, lambda error: invalid(f"the body is not valid UTF-8: {error}")),
    (RecursionError, lambda error: invalid("the JSON is nested too deeply")),
    (msgspec.MsgspecError, lambda error: invalid(str(error))),
)


class Errors:
    """Says what went wrong in an operation of a table. One per route."""

    def __init__(self, table: str, op: str) -> None:
        self._about = {"table": table, "op": op}

    def reply_to(self, error: Exception) -> Reply | None:
        """The reply to an error that a client can do something about, or that has a code of its own."""
        if isinstance(error, TableError):
            return self._reply(error.code, error.message, error.more)
        for kind, make in _TABLE:
            if isinstance(error, kind):
                return self.reply_to(make(error))
        return None

    def refuse(self, refusal: Refusal) -> Reply:
        """A refusal of the server itself."""
        more: dict[str, Any] = {} if refusal.detail is None else {"detail": refusal.detail}
        code = CODES.get(refusal.code, refusal.code.upper())
        return self._reply(code, refusal.message, more, refusal)

    def _reply(self, code: str, message: str, more: dict[str, Any], refusal: Refusal | None = None) -> Reply:
        headers = [(b"cache-control", b"no-store")]
        status = PROBLEMS[code].status if refusal is None else refusal.status
        after = None if refusal is None else refusal.retry_after
        if "retryAfter" in more:
            # Whole seconds, and never too early.
            after = -(-int(more["retryAfter"]) // 1000)
        if after is None:
            after = _RETRY_AFTER.get(code)
        if after is not None:
            headers.append((b"retry-after", b"%d" % after))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        error = {"code": code, "message": message, **self._about, **more}
        return Reply(msgspec.json.encode({"error": error}), status, headers=tuple(headers))
