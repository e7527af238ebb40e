"""Everything that subscriptions refuse. What the logs under them refuse comes through as the engine's own errors."""

from __future__ import annotations


class SubscriptionError(Exception):
    """Base of everything that subscriptions raise on purpose. Nothing has changed when one is raised."""


class BadPattern(SubscriptionError):
    """A pattern that names cannot be compared with."""


class AddressRejected(SubscriptionError):
    """A webhook's address that the server does not send anything to."""


class SubscriptionExists(SubscriptionError):
    """There is one of this id, and it is another one."""

    def __init__(self, id: str) -> None:
        super().__init__(f"subscription {id!r} already exists with a different configuration")


class TooManySubscriptions(SubscriptionError):
    """There are as many as there may be."""


class UnknownSubscription(SubscriptionError):
    def __init__(self, id: str) -> None:
        super().__init__(f"subscription {id!r} does not exist")


class WrongKind(SubscriptionError):
    """Asked of a webhook what only workers that pull can ask, or the other way round."""


class BadToken(SubscriptionError):
    """A token that was not given out for this subscription."""


class TokenExpired(SubscriptionError):
    """A token of this subscription whose time is up."""


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
    """An acknowledgement of something that is not there, or that goes backwards."""
