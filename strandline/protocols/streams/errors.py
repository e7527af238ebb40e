"""The error codes of streams: ``{"error": {"code", "message", …}}``. The codes of subscriptions are in capitals."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strandline.delivery.subscriptions.errors import (
    AddressRejected,
    AlreadyClaimed,
    BadPattern,
    BadPosition,
    BadToken,
    Fenced,
    NothingPending,
    SubscriptionExists,
    TokenExpired,
    TooManySubscriptions,
    UnknownSubscription,
    WrongKind,
)
from strandline.engine.errors import LogExists
from strandline.schema.errors import SchemaError
from strandline.service import problems
from strandline.service.http import NO_STORE, Reply
from strandline.service.problems import (
    DAMAGED_DATA,
    DISK_FULL,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    LATER_MS,
    LOG_FULL,
    LOG_NOT_FOUND,
    METHOD_NOT_ALLOWED,
    NO_REPLICA,
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
    Headers,
    Problem,
    Refusal,
    by_code,
)

JSON = b"application/json; charset=utf-8"

#: The word for a log in streams.
NOUN = "stream"

BAD_REQUEST = INVALID_REQUEST.renamed("bad_request")
STALE_EPOCH = Problem(
    "stale_epoch", 403, "A producer with a higher epoch has taken over; `Producer-Epoch` has its epoch."
)
REQUEST_TIMEOUT = Problem("request_timeout", 408, "The request took longer than the server allows.")
APPEND_TIMEOUT = Problem(
    "append_timeout",
    408,
    "The append was not durable in time, and its outcome is unknown. Check `Stream-Next-Offset` before you retry.",
)
CONFLICT = Problem("conflict", 409, "The stream is not in the state that the request expects; the message says why.")
GONE = Problem(
    "gone",
    410,
    "The stream was deleted and is kept only for its forks, or retention removed the records after the offset.",
)
OVERLOADED = THROTTLED.renamed("overloaded")
UNAVAILABLE = Problem(
    "unavailable", 503, "The server is starting or shutting down, or a deleted stream still has the name.", LATER_MS
)

SUBSCRIPTION_INVALID = INVALID_REQUEST.renamed("INVALID_REQUEST")
WEBHOOK_URL_REJECTED = Problem(
    "WEBHOOK_URL_REJECTED",
    400,
    "Webhooks go to public addresses over HTTPS. Settings can allow this machine and private networks.",
)
TOKEN_INVALID = Problem("TOKEN_INVALID", 401, "The token is missing, or was not issued for this wake.")
TOKEN_EXPIRED = Problem("TOKEN_EXPIRED", 401, "The token has expired.")
SUBSCRIPTION_NOT_FOUND = Problem("SUBSCRIPTION_NOT_FOUND", 404, "The subscription does not exist.")
SUBSCRIPTION_ALREADY_EXISTS = Problem(
    "SUBSCRIPTION_ALREADY_EXISTS", 409, "A subscription with this id and another configuration exists."
)
FENCED = Problem("FENCED", 409, "The wake has ended, or another worker holds it.")
ALREADY_CLAIMED = Problem(
    "ALREADY_CLAIMED", 409, "Another worker, `current_holder`, holds the wake with this `generation`."
)
NO_PENDING_WORK = Problem("NO_PENDING_WORK", 409, "Every record is acknowledged.")
INVALID_OFFSET = Problem(
    "INVALID_OFFSET", 409, "The acknowledged offset is not valid, goes backwards, or is past the end of the stream."
)

#: The shared codes that streams rename or describe differently.
RENAMED = {
    INVALID_REQUEST: BAD_REQUEST,
    RECORD_TOO_LARGE: PAYLOAD_TOO_LARGE,
    NOT_FOUND: NOT_FOUND.renamed(
        meaning="The stream does not exist, nothing exists at this path, or `touch` is not enabled."
    ),
    NOT_WRITABLE: CONFLICT,
    LOG_FULL: CONFLICT,
    THROTTLED: OVERLOADED,
    NOT_READY: UNAVAILABLE,
    SHUTTING_DOWN: UNAVAILABLE,
}
RENAMED[LOG_NOT_FOUND] = RENAMED[NOT_FOUND]

PROBLEMS = by_code(
    [
        BAD_REQUEST,
        UNAUTHORIZED,
        FORBIDDEN,
        STALE_EPOCH,
        RENAMED[NOT_FOUND],
        METHOD_NOT_ALLOWED,
        REQUEST_TIMEOUT,
        APPEND_TIMEOUT,
        CONFLICT,
        NO_REPLICA,
        GONE,
        PAYLOAD_TOO_LARGE,
        UNSUPPORTED_MEDIA_TYPE,
        OVERLOADED,
        DAMAGED_DATA,
        INTERNAL,
        UNAVAILABLE,
        STANDBY,
        READ_ONLY,
        REPLICA_BEHIND,
        REPLICA_AWAY,
        DISK_FULL,
    ]
) | by_code(
    [
        SUBSCRIPTION_INVALID,
        WEBHOOK_URL_REJECTED,
        TOKEN_INVALID,
        TOKEN_EXPIRED,
        SUBSCRIPTION_NOT_FOUND,
        SUBSCRIPTION_ALREADY_EXISTS,
        FENCED,
        ALREADY_CLAIMED,
        NO_PENDING_WORK,
        INVALID_OFFSET,
    ]
)

_SUBSCRIPTION_PROBLEMS: Mapping[type[Exception], Problem] = {
    BadPattern: SUBSCRIPTION_INVALID,
    WrongKind: SUBSCRIPTION_INVALID,
    AddressRejected: WEBHOOK_URL_REJECTED,
    BadToken: TOKEN_INVALID,
    TokenExpired: TOKEN_EXPIRED,
    UnknownSubscription: SUBSCRIPTION_NOT_FOUND,
    SubscriptionExists: SUBSCRIPTION_ALREADY_EXISTS,
    Fenced: FENCED,
    AlreadyClaimed: ALREADY_CLAIMED,
    NothingPending: NO_PENDING_WORK,
    BadPosition: INVALID_OFFSET,
    TooManySubscriptions: OVERLOADED,
}


def bad_request(message: str) -> Refusal:
    return Refusal(BAD_REQUEST, message)


def not_found(message: str = "not_found") -> Refusal:
    """The message of a stream that does not exist is part of the protocol."""
    return Refusal(NOT_FOUND, message)


def gone() -> Refusal:
    return Refusal(GONE, "the stream was deleted and is kept only for the streams that are forked from it")


def conflict(message: str, headers: Headers = ()) -> Refusal:
    return Refusal(CONFLICT, message, headers=headers)


def too_many_records(limit: int) -> Refusal:
    message = f"the body has more than {limit} records; append them in several requests"
    return Refusal(PAYLOAD_TOO_LARGE, message)


def overloaded(message: str) -> Refusal:
    return Refusal(OVERLOADED, message)


def request_timeout() -> Refusal:
    return Refusal(REQUEST_TIMEOUT, "request timed out")


def append_timeout() -> Refusal:
    message = "append timed out; append outcome is unknown, check Stream-Next-Offset before retrying"
    return Refusal(APPEND_TIMEOUT, message)


def subscription_invalid(message: str) -> Refusal:
    return Refusal(SUBSCRIPTION_INVALID, message)


def token_invalid(message: str) -> Refusal:
    return Refusal(TOKEN_INVALID, message)


def _refusal_of(error: Exception) -> Refusal | None:
    if isinstance(error, LogExists):
        return Refusal(UNAVAILABLE, "a deleted stream still has this name; retry once it is removed")
    if isinstance(error, SchemaError):
        return Refusal(CONFLICT if error.status == 409 else BAD_REQUEST, str(error))
    return problems.refusal_of(error, NOUN)


def reply_to(error: Exception) -> Reply | None:
    """The reply to an exception that has a code; None for any other exception."""
    refusal = _refusal_of(error)
    return None if refusal is None else refuse(refusal)


def subscription_reply_to(error: Exception) -> Reply | None:
    """Like ``reply_to``, for the routes of subscriptions."""
    problem = _SUBSCRIPTION_PROBLEMS.get(type(error))
    if problem is not None:
        detail: dict[str, object] | None = None
        if isinstance(error, AlreadyClaimed):
            detail = {"current_holder": error.holder, "generation": error.generation}
        return refuse(Refusal(problem, str(error), detail))
    refusal = _refusal_of(error)
    malformed = isinstance(error, msgspec.MsgspecError | UnicodeDecodeError | RecursionError)
    if refusal is not None and malformed:
        refusal = subscription_invalid(refusal.message)
    return None if refusal is None else refuse(refusal)


def refuse(refusal: Refusal) -> Reply:
    """The reply to a refusal, with a code of streams and their error body."""
    refusal = refusal.renamed(RENAMED, {"log": NOUN})
    headers = (*refusal.headers, NO_STORE)
    if refusal.status == 401:
        headers += ((b"www-authenticate", b"Bearer"),)
    error = {"code": refusal.code, "message": refusal.message, **(refusal.detail or {})}
    return Reply(msgspec.json.encode({"error": error}), refusal.status, JSON, headers)
