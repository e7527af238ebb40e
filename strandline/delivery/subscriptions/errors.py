"""The errors of subscriptions. Errors of the logs under them are passed on as the engine's own errors."""

from __future__ import annotations


class SubscriptionError(Exception):
    """Base of the errors of subscriptions. Nothing has changed when one is raised."""


class BadPattern(SubscriptionError):
    """A pattern that is not valid."""


class AddressRejected(SubscriptionError):
    """The URL of a webhook to which the server does not send requests."""


class SubscriptionExists(SubscriptionError):
    """A subscription with this id and another configuration exists."""

    def __init__(self, id: str) -> None:
        super().__init__(f"subscription {id!r} already exists with a different configuration")


class TooManySubscriptions(SubscriptionError):
    """The maximum number of subscriptions is reached."""


class UnknownSubscription(SubscriptionError):
    def __init__(self, id: str) -> None:
        super().__init__(f"subscription {id!r} does not exist")


class WrongKind(SubscriptionError):
    """A request for pull-wake workers was made for a webhook subscription, or the other way round."""


class BadToken(SubscriptionError):
    """A token that was not issued for this subscription."""


class TokenExpired(SubscriptionError):
    """A token of this subscription that has expired."""


class Fenced(SubscriptionError):
    """The caller holds a wake that has ended: it was done, released, or its lease expired."""


class AlreadyClaimed(SubscriptionError):
    """Another worker holds the subscription."""

    def __init__(self, holder: str, generation: int) -> None:
        super().__init__(f"worker {holder!r} holds the subscription")
        self.holder = holder
        self.generation = generation


class NothingPending(SubscriptionError):
    """Everything has been acknowledged."""


class BadPosition(SubscriptionError):
    """An acknowledgement of an offset that does not exist, or that goes backwards."""
