"""The error codes of the Arrow protocol: ``{"error": {"code", "message", "detail"}}``."""

from __future__ import annotations

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

NOT_JSON = Problem(
    "not_json", 400, "The log holds JSON, and the data of a record is not valid JSON; `detail.row` is its row."
)
EPOCH_CHANGED = Problem(
    "epoch_changed", 409, "The log was dropped and created again; `detail.epoch` is its epoch now. Read from the start."
)
PROGRESS_CONFLICT = Problem(
    "progress_conflict",
    409,
    "The progress of the writer is not what the request expects; `detail.progress` is its progress. Nothing was "
    "appended.",
)

STAGED_NOT_FOUND = Problem(
    "staged_not_found",
    404,
    "The staged rows do not exist, expired, or belong to another log; `detail.staged` is their id. Stage them again. "
    "Nothing was appended.",
)

PROBLEMS = by_code(
    [
        INVALID_REQUEST,
        NOT_JSON,
        RECORD_TOO_LARGE,
        UNAUTHORIZED,
        FORBIDDEN,
        LOG_NOT_FOUND,
        METHOD_NOT_ALLOWED,
        EPOCH_CHANGED,
        PROGRESS_CONFLICT,
        STAGED_NOT_FOUND,
        NOT_WRITABLE,
        NO_REPLICA,
        PAYLOAD_TOO_LARGE,
        UNSUPPORTED_MEDIA_TYPE,
        LOG_FULL,
        THROTTLED,
        DAMAGED_DATA,
        INTERNAL,
        NOT_READY,
        STANDBY,
        SHUTTING_DOWN,
        READ_ONLY,
        REPLICA_BEHIND,
        REPLICA_AWAY,
        DISK_FULL,
    ]
)


def not_json(row: int, why: str) -> Refusal:
    return Refusal(NOT_JSON, f"row {row}: the log holds JSON, and the data is not valid JSON: {why}", {"row": row})


def epoch_changed(name: str, epoch: int) -> Refusal:
    message = f"log {name!r} was dropped and created again: its epoch is {epoch}"
    return Refusal(EPOCH_CHANGED, message, {"log": name, "epoch": epoch})


def progress_conflict(writer: str, current: object) -> Refusal:
    message = f"the progress of writer {writer!r} is not what the request expects; nothing was appended"
    return Refusal(PROGRESS_CONFLICT, message, {"writer": writer, "progress": current})


def staged_not_found(id: str) -> Refusal:
    return Refusal(STAGED_NOT_FOUND, f"staged rows {id!r} not found: stage them again", {"staged": id})


def decompressed_too_large(size: int, limit: int) -> Refusal:
    message = f"the decompressed body has {size} bytes, the limit is {limit}"
    return Refusal(PAYLOAD_TOO_LARGE, message, {"max": limit})


def record_too_large(row: int, what: str, size: int, limit: int) -> Refusal:
    message = f"row {row}: {what} has {size} bytes, the limit is {limit}"
    return Refusal(RECORD_TOO_LARGE, message, {"row": row, "max": limit})
