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
    """``next_epoch`` separates the logs that existed at creation from later ones. ``base_url`` is the URL of the
    server."""

    id: str
    definition: SubscriptionDefinition
    made_at: int
    next_epoch: int
    base_url: str


class MovedEvent(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """The server has another URL now."""

    id: str
    base_url: str


class LinkedEvent(msgspec.Struct, frozen=True, array_like=True, tag="linked"):
    id: str
    places: list[Acknowledged]
    explicit: bool


class UnlinkedEvent(msgspec.Struct, frozen=True, array_like=True, tag="unlinked"):
    """The name is no longer subscribed to explicitly; a pattern may still match it."""

    id: str
    name: str


class WokenEvent(msgspec.Struct, frozen=True, array_like=True, tag="woken"):
    """A wake began. With an empty ``wake_id`` there is no wake, and this is the generation of the last one."""

    id: str
    generation: int
    wake_id: str


class LeasedEvent(msgspec.Struct, frozen=True, array_like=True, tag="leased"):
    """A worker or webhook holds the wake until then."""

    id: str
    until: int
    holder: str


class AckedEvent(msgspec.Struct, frozen=True, array_like=True, tag="acked"):
    """The acknowledged positions, and the new end of the lease; ``until`` 0: the wake has ended."""

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
