"""Subscriptions as JSON: bodies, answers, webhook notifications and wake events."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.delivery.subscriptions import Link
from strandline.delivery.subscriptions.webhook_signatures import JsonWebKey
from strandline.protocols.streams.offsets import encode
from strandline.protocols.streams.wire.values import Number, Offset, Time

MIN_LEASE_MS, MAX_LEASE_MS, DEFAULT_LEASE_MS = 1_000, 600_000, 30_000
#: The maximum number of streams in one request.
MAX_NAMED = 10_000

Words = Annotated[str, Meta(max_length=4096)]


class WebhookBody(msgspec.Struct, forbid_unknown_fields=True):
    url: str


class SubscriptionBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: Annotated[list[str], Meta(max_length=MAX_NAMED)] | None = None
    webhook: WebhookBody | None = None
    wake_stream: str | None = None
    lease_ttl_ms: Annotated[int, Meta(ge=MIN_LEASE_MS, le=MAX_LEASE_MS)] = DEFAULT_LEASE_MS
    description: Words | None = None


class StreamsBody(msgspec.Struct, forbid_unknown_fields=True):
    streams: Annotated[list[str], Meta(min_length=1, max_length=MAX_NAMED)]


class ClaimWakeBody(msgspec.Struct):
    worker: Annotated[str, Meta(min_length=1, max_length=1024)]


class AckWakeBody(msgspec.Struct):
    """``path`` is another name for ``stream``."""

    offset: str
    stream: str | UnsetType = UNSET
    path: str | UnsetType = UNSET


class HolderBody(msgspec.Struct):
    """The request of a worker that holds a wake: which wake, the processed offsets, and whether it is done."""

    wake_id: str
    generation: int
    acks: Annotated[list[AckWakeBody], Meta(max_length=MAX_NAMED)] | None = None
    done: bool | None = None


# --- answers ---------------------------------------------------------------------------------------------------------


class SubscribedStream(msgspec.Struct):
    path: str
    link_type: Literal["explicit", "glob"]
    acked_offset: Offset

    @classmethod
    def of(cls, link: Link) -> SubscribedStream:
        return cls(link.name, "explicit" if link.explicit else "glob", encode(link.acked))


class WokenStream(SubscribedStream):
    """A stream in a notification."""

    tail_offset: Offset
    has_pending: bool

    @classmethod
    def of(cls, link: Link) -> WokenStream:
        kind: Literal["explicit", "glob"] = "explicit" if link.explicit else "glob"
        return cls(link.name, kind, encode(link.acked), encode(link.tail), link.tail > link.acked)


class WebhookSigning(msgspec.Struct, kw_only=True):
    alg: Literal["ed25519"] = "ed25519"
    kid: str
    jwks_url: str


class WebhookShown(msgspec.Struct):
    url: str
    signing: WebhookSigning


class SubscriptionAnswer(msgspec.Struct, kw_only=True):
    id: str
    subscription_id: str
    type: Literal["webhook", "pull-wake"]
    pattern: str | UnsetType = UNSET
    streams: list[SubscribedStream]
    webhook: WebhookShown | UnsetType = UNSET
    wake_stream: str | UnsetType = UNSET
    lease_ttl_ms: Number
    created_at: Time
    status: Literal["active", "failed"]
    description: str | UnsetType = UNSET


class WakeClaimed(msgspec.Struct, kw_only=True):
    wake_id: str
    generation: Number
    token: str
    streams: list[WokenStream]
    lease_ttl_ms: Number


class WakeAcknowledged(msgspec.Struct, kw_only=True):
    ok: bool = True
    next_wake: bool


class JsonWebKeys(msgspec.Struct):
    keys: list[JsonWebKey]


# --- webhook notifications and wake events -------------------------------------------------------------------------


class WebhookNotification(msgspec.Struct, kw_only=True):
    subscription_id: str
    wake_id: str
    generation: Number
    streams: list[WokenStream]
    callback_url: str
    callback_token: str


class WakeEvent(msgspec.Struct, kw_only=True):
    type: Literal["wake"] = "wake"
    subscription_id: str
    stream: str
    generation: Number
    ts: Number
