"""Every error that answers about tables can have, by its code."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.protocols.openapi import Problem

PROBLEMS: dict[str, Problem] = {
    "VALIDATION_FAILED": Problem(400, "The request makes no sense; of a payload, `fieldErrors` says where and why."),
    "NOT_AUTHENTICATED": Problem(401, "It is not known who asks, or the API key is not a valid one."),
    "FORBIDDEN": Problem(403, "Whoever asks may not do this, or the API key lacks a scope."),
    "NOT_FOUND": Problem(404, "There is no such row, parent or table, or none that whoever asks may know of."),
    "NOT_ACCEPTABLE": Problem(406, "It is an event stream, and the client does not accept one."),
    "CONFLICT": Problem(409, "Somebody else was faster: look at what is there now, and decide again."),
    "PAYLOAD_TOO_LARGE": Problem(413, "The body, or a row of it, is larger than the server takes."),
    "UNSUPPORTED_MEDIA_TYPE": Problem(415, "The body is not JSON, or is compressed in another way than gzip."),
    "RATE_LIMITED": Problem(
        429, "More rows than the table takes of one user in a while: `retryAfter` says when to go on.", retry=True
    ),
    "THROTTLED": Problem(429, "The server is busy, or one of its caps is reached.", retry=True),
    "DAMAGED_DATA": Problem(
        500, "A file with the rows is damaged or missing; `detail.file` says which. Other rows can be read."
    ),
    "INTERNAL": Problem(500, "Something is wrong with the server or with a hook: its log has the details."),
    "UNAVAILABLE": Problem(503, "The server is starting or about to stop.", retry=True),
    "READ_ONLY": Problem(
        503,
        "The journal failed: the server takes no writes until it is restarted. Reads work. If a write was under way "
        "at that moment, its outcome is unknown.",
        retry=True,
    ),
    "DISK_FULL": Problem(507, "There is no room on the disk. Nothing was written.", retry=True),
}

#: What the server calls by other names.
CODES = {
    "invalid_request": "VALIDATION_FAILED",
    "unauthorized": "NOT_AUTHENTICATED",
    "forbidden": "FORBIDDEN",
    "not_found": "NOT_FOUND",
    "not_acceptable": "NOT_ACCEPTABLE",
    "payload_too_large": "PAYLOAD_TOO_LARGE",
    "unsupported_media_type": "UNSUPPORTED_MEDIA_TYPE",
    "throttled": "THROTTLED",
    "damaged_data": "DAMAGED_DATA",
    "internal": "INTERNAL",
    "not_ready": "UNAVAILABLE",
    "shutting_down": "UNAVAILABLE",
}


class TableErrorLimit(msgspec.Struct, frozen=True):
    max: int
    remaining: int
    window: int


class TableErrorBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What went wrong: ``code`` is for programs, ``message`` for people."""

    code: str
    message: str
    table: str | None = None
    op: str | None = None
    fields: list[str] | None = None
    field_errors: dict[str, str] | None = None
    #: In milliseconds.
    retry_after: int | None = None
    limit: TableErrorLimit | None = None
    #: Whatever else a refusal has to say.
    detail: dict[str, Any] | None = None


class TableErrorAnswer(msgspec.Struct, frozen=True):
    error: TableErrorBody
