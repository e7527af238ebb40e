"""What can go wrong with subscriptions, in the words of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from strandline.protocols.http import Refusal, Reply
from strandline.protocols.streams import errors


def invalid(message: str) -> Refusal:
    return Refusal(400, "INVALID_REQUEST", message)


def token_invalid(message: str) -> Refusal:
    return Refusal(401, "TOKEN_INVALID", message)


def _claimed(error: AlreadyClaimed) -> Refusal:
    detail = {"current_holder": error.holder, "generation": error.generation}
    return Refusal(409, "ALREADY_CLAIMED", str(error), detail)


_TABLE: dict[type[Exception], Callable[[Any], Refusal]] = {
    BadPattern: lambda error: invalid(str(error)),
    WrongKind: lambda error: invalid(str(error)),
    AddressRejected: lambda error: Refusal(400, "WEBHOOK_URL_REJECTED", str(error)),
    BadToken: lambda error: token_invalid(str(error)),
    TokenExpired: lambda error: Refusal(401, "TOKEN_EXPIRED", str(error)),
    UnknownSubscription: lambda error: Refusal(404, "SUBSCRIPTION_NOT_FOUND", str(error)),
    SubscriptionExists: lambda error: Refusal(409, "SUBSCRIPTION_ALREADY_EXISTS", str(error)),
    Fenced: lambda error: Refusal(409, "FENCED", str(error)),
    AlreadyClaimed: _claimed,
    NothingPending: lambda error: Refusal(409, "NO_PENDING_WORK", str(error)),
    BadPosition: lambda error: Refusal(409, "INVALID_OFFSET", str(error)),
    TooManySubscriptions: lambda error: errors.overloaded(str(error)),
}


def reply_to(error: Exception) -> Reply | None:
    """The reply to an error that a client can do something about, or that has a code of its own."""
    if isinstance(error, msgspec.MsgspecError):
        return errors.refuse(invalid(str(error)))
    if isinstance(error, UnicodeDecodeError):
        return errors.refuse(invalid(f"the body is not valid UTF-8: {error}"))
    if isinstance(error, RecursionError):
        return errors.refuse(invalid("the JSON is nested too deeply"))
    refusal = _TABLE.get(type(error))
    return errors.reply_to(error) if refusal is None else errors.refuse(refusal(error))
