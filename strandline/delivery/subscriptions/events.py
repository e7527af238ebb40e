"""The events of subscriptions: JSON arrays that begin with the event's name and the subscription's id.

Every event states a new value, so repeating an event has no effect. The expiry of a lease has no event: the deadline is
in the event that began the lease.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

WEBHOOK, PULL_WAKE = "webhook", "pull-wake"


class SubscriptionDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The configuration of a subscription, as its creator sent it. ``streams`` is sorted and has no duplicates."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: tuple[str, ...] = ()
    webhook_url: str | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int
    description: str | None = None


class Acknowledged(NamedTuple):
    """The acknowledged position in one log. ``epoch`` identifies the log among logs of the same name; 0 means that no
    log exists."""

    name: str
    epoch: int
    seq: int


class MadeEvent(msgspec.Struct, frozen=True, array_like=True, tag="made"):
    """A subscription was created. Logs with an epoch of at least ``next_epoch`` are newer than the subscription.
    ``base_url`` is the URL at which the server was reached."""

    id: str
    definition: SubscriptionDefinition
    made_at: int
    next_epoch: int
    base_url: str


class MovedEvent(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """The server is now reached at another URL."""

    id: str
    base_url: str


class LinkedEvent(msgspec.Struct, frozen=True, array_like=True, tag="linked"):
    id: str
    places: list[Acknowledged]
    explicit: bool


class UnlinkedEvent(msgspec.Struct, frozen=True, array_like=True, tag="unlinked"):
    """The log is no longer subscribed to by name. A pattern may still match it."""

    id: str
    name: str


class WokenEvent(msgspec.Struct, frozen=True, array_like=True, tag="woken"):
    """A wake began. An empty ``wake_id`` means that there is no wake; ``generation`` is that of the last one."""

    id: str
    generation: int
    wake_id: str


class LeasedEvent(msgspec.Struct, frozen=True, array_like=True, tag="leased"):
    """The wake is held until this time."""

    id: str
    until: int
    holder: str


class AckedEvent(msgspec.Struct, frozen=True, array_like=True, tag="acked"):
    """The acknowledged positions, and the new deadline of the wake. ``until`` 0 means that the wake has ended."""

    id: str
    places: list[Acknowledged]
    until: int


class RemovedEvent(msgspec.Struct, frozen=True, array_like=True, tag="removed"):
    id: str


Event: TypeAlias = (
    MadeEvent | MovedEvent | LinkedEvent | UnlinkedEvent | WokenEvent | LeasedEvent | AckedEvent | RemovedEvent
)

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder[Event](Event).decode
