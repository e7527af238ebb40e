"""The errors of subscriptions. Errors of the underlying logs are passed on as the engine's own errors."""

from __future__ import annotations


class SubscriptionError(Exception):
    """Base of all errors of subscriptions. Nothing was changed when one is raised."""


class BadPattern(SubscriptionError):
    """The pattern is not valid."""


class AddressRejected(SubscriptionError):
    """The server does not send webhooks to this URL or address."""


class SubscriptionExists(SubscriptionError):
    """A subscription with this id exists and has a different configuration."""

    def __init__(self, id: str) -> None:
        super().__init__(f"subscription {id!r} already exists with a different configuration")


class TooManySubscriptions(SubscriptionError):
    """The maximum number of subscriptions is reached."""


class UnknownSubscription(SubscriptionError):
    def __init__(self, id: str) -> None:
        super().__init__(f"subscription {id!r} does not exist")


class WrongKind(SubscriptionError):
    """The operation does not apply to this type of subscription: webhook or pull-wake."""


class BadToken(SubscriptionError):
    """The token was not issued for this subscription."""


class TokenExpired(SubscriptionError):
    """The token was issued for this subscription and has expired."""


class Fenced(SubscriptionError):
    """The caller holds a wake that has ended: it was done, released, or its lease expired."""


class AlreadyClaimed(SubscriptionError):
    """Another worker holds the subscription."""

    def __init__(self, holder: str, generation: int) -> None:
        super().__init__(f"worker {holder!r} holds the subscription")
        self.holder = holder
        self.generation = generation


class NothingPending(SubscriptionError):
    """All records are acknowledged."""


class BadPosition(SubscriptionError):
    """The acknowledged position is past the end of the log, or lower than the current one."""
