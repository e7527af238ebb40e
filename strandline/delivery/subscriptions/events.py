"""What happened to subscriptions, as JSON arrays that begin with the event's name and go on with the subscription's id.

Every event says how something is from now on, so one that comes twice does no harm. The end of a lease by time has no
event: its deadline is in the event that began it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

WEBHOOK, PULL_WAKE = "webhook", "pull-wake"


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a subscription is, as its maker wants it. ``streams`` are sorted and all different."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: tuple[str, ...] = ()
    webhook_url: str | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int
    description: str | None = None


class Place(NamedTuple):
    """How far a log is acknowledged. The epoch says which log of the name it is; 0: there is none."""

    name: str
    epoch: int
    seq: int


class MadeEvent(msgspec.Struct, frozen=True, array_like=True, tag="made"):
    """``next_epoch`` parts the logs that were there from those that came later. ``base_url`` is where the server was
    reached."""

    id: str
    definition: Definition
    made_at: int
    next_epoch: int
    base_url: str


class MovedEvent(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """The server is reached somewhere else now."""

    id: str
    base_url: str


class LinkedEvent(msgspec.Struct, frozen=True, array_like=True, tag="linked"):
    id: str
    places: list[Place]
    explicit: bool


class UnlinkedEvent(msgspec.Struct, frozen=True, array_like=True, tag="unlinked"):
    """The name is no longer subscribed to by itself; a pattern may still match it."""

    id: str
    name: str


class WokenEvent(msgspec.Struct, frozen=True, array_like=True, tag="woken"):
    """A wake began; with an empty ``wake_id`` there is none now, and this is the generation of the last one."""

    id: str
    generation: int
    wake_id: str


class LeasedEvent(msgspec.Struct, frozen=True, array_like=True, tag="leased"):
    """Somebody has the wake until then."""

    id: str
    until: int
    holder: str


class AckedEvent(msgspec.Struct, frozen=True, array_like=True, tag="acked"):
    """How far the logs are acknowledged, and until when the wake is held now; ``until`` 0: the wake has ended."""

    id: str
    places: list[Place]
    until: int


class RemovedEvent(msgspec.Struct, frozen=True, array_like=True, tag="removed"):
    id: str


Event: TypeAlias = (
    MadeEvent | MovedEvent | LinkedEvent | UnlinkedEvent | WokenEvent | LeasedEvent | AckedEvent | RemovedEvent
)

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder[Event](Event).decode
