"""What requests about subscriptions say, decoded and checked."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.delivery.subscriptions import WEBHOOK, SubscriptionDefinition
from strandline.delivery.subscriptions.subscription import Ack, Glob
from strandline.nearest_name import decode_body
from strandline.protocols.streams import offsets
from strandline.protocols.streams.errors import subscription_invalid
from strandline.protocols.streams.streams import check_name
from strandline.service.problems import Refusal

MIN_LEASE_MS, MAX_LEASE_MS, DEFAULT_LEASE_MS = 1_000, 600_000, 30_000
MAX_ID_BYTES = 256
#: Streams that one request may name.
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
    """``path`` is another word for ``stream``."""

    offset: str
    stream: str | UnsetType = UNSET
    path: str | UnsetType = UNSET

    @property
    def ack(self) -> Ack:
        name = self.path if self.stream is UNSET else self.stream
        if name is UNSET:
            raise subscription_invalid("an ack names its stream")
        # The start of a stream is a place to read from, but nothing that could have been processed.
        return relative(name), offsets.decode(self.offset)


class HolderBody(msgspec.Struct):
    """What a holder of a wake says: which one it is, how far it has come, and whether it is done."""

    wake_id: str
    generation: int
    acks: Annotated[list[AckWakeBody], Meta(max_length=MAX_NAMED)] | None = None
    done: bool | None = None


decode_subscription = partial(decode_body, msgspec.json.Decoder(SubscriptionBody))
decode_streams = partial(decode_body, msgspec.json.Decoder(StreamsBody))
decode_claim = msgspec.json.Decoder(ClaimWakeBody).decode
decode_holder = msgspec.json.Decoder(HolderBody).decode


def relative(name: str) -> str:
    """Names are given as in paths: slashes around them mean nothing."""
    return name.strip("/")


def checked_name(name: str) -> str:
    try:
        return check_name(relative(name))
    except Refusal as refusal:
        raise subscription_invalid(f"{name!r}: {refusal.message}") from None


def checked_id(id: str) -> str:
    try:
        size = len(id.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= MAX_ID_BYTES or not id.isprintable():
        raise subscription_invalid(f"the id of a subscription is printable text of 1 to {MAX_ID_BYTES} bytes")
    return id


def define(body: SubscriptionBody) -> SubscriptionDefinition:
    """The subscription that is asked for; raises where it makes no sense."""
    pattern = relative(body.pattern or "") or None
    streams = tuple(sorted({checked_name(name) for name in body.streams or ()}))
    if pattern is None and not streams:
        raise subscription_invalid("at least one of pattern and streams is needed")
    if pattern is not None:
        Glob(pattern)
    definition = SubscriptionDefinition(
        type=body.type,
        pattern=pattern,
        streams=streams,
        lease_ttl_ms=body.lease_ttl_ms,
        description=body.description,
        webhook_url=None if body.webhook is None else body.webhook.url,
        wake_stream=None if body.wake_stream is None else checked_name(body.wake_stream),
    )
    _check_kind(definition)
    return definition


def _check_kind(definition: SubscriptionDefinition) -> None:
    """Each kind has what it needs, and nothing that would have no effect."""
    if definition.type == WEBHOOK:
        if definition.webhook_url is None:
            raise subscription_invalid("webhook subscriptions require webhook.url")
        if definition.wake_stream is not None:
            raise subscription_invalid("webhook subscriptions have no wake_stream")
        return
    if definition.wake_stream is None:
        raise subscription_invalid("pull-wake subscriptions require wake_stream")
    if definition.webhook_url is not None:
        raise subscription_invalid("pull-wake subscriptions have no webhook")
    if definition.wake_stream in definition.streams:
        raise subscription_invalid("a subscription cannot be woken by its own wake_stream")
