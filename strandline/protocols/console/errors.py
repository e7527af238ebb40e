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
    NOT_READY,
    SHUTTING_DOWN,
    THROTTLED,
    UNAUTHORIZED,
    by_code,
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
        THROTTLED,
        DAMAGED_DATA,
        INTERNAL,
        NOT_READY,
        SHUTTING_DOWN,
    ]
)
