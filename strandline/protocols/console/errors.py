"""The error codes of the console: ``{"error": {"code", "message", "detail"}}``."""

from __future__ import annotations

from strandline.service.problems import (
    DAMAGED_DATA,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    LOG_NOT_FOUND,
    NOT_A_QUEUE,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    NOT_INSTALLED,
    NOT_READY,
    PAYLOAD_TOO_LARGE,
    SHUTTING_DOWN,
    STANDBY,
    THROTTLED,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA_TYPE,
    Problem,
    by_code,
)

QUERY_CANCELLED = Problem("query_cancelled", 409, "The query was cancelled before it was complete.")
QUERY_LIMIT = Problem(
    "query_limit",
    422,
    "The query exceeds a limit of time, memory or result size; the message names it. Read less, or use the command "
    "line.",
)

PROBLEMS = by_code(
    [
        INVALID_REQUEST,
        UNAUTHORIZED,
        FORBIDDEN,
        NOT_FOUND,
        LOG_NOT_FOUND,
        NOT_ACCEPTABLE,
        NOT_A_QUEUE,
        QUERY_CANCELLED,
        QUERY_LIMIT,
        PAYLOAD_TOO_LARGE,
        UNSUPPORTED_MEDIA_TYPE,
        THROTTLED,
        DAMAGED_DATA,
        INTERNAL,
        NOT_INSTALLED,
        NOT_READY,
        STANDBY,
        SHUTTING_DOWN,
    ]
)
