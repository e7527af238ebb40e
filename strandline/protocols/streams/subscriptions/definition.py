"""Checks the requests about subscriptions."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import UNSET

from strandline.delivery.subscriptions import WEBHOOK, SubscriptionDefinition
from strandline.delivery.subscriptions.subscription import Ack, Glob
from strandline.nearest_name import decode_body
from strandline.protocols.streams import offsets
from strandline.protocols.streams.errors import subscription_invalid
from strandline.protocols.streams.streams import check_name
from strandline.protocols.streams.subscriptions.wire import (
    AckWakeBody,
    ClaimWakeBody,
    HolderBody,
    StreamsBody,
    SubscriptionBody,
)
from strandline.service.problems import Refusal

MAX_ID_BYTES = 256

decode_subscription = partial(decode_body, msgspec.json.Decoder(SubscriptionBody))
decode_streams = partial(decode_body, msgspec.json.Decoder(StreamsBody))
decode_claim = msgspec.json.Decoder(ClaimWakeBody).decode
decode_holder = msgspec.json.Decoder(HolderBody).decode


def ack_of(body: AckWakeBody) -> Ack:
    name = body.path if body.stream is UNSET else body.stream
    if name is UNSET:
        raise subscription_invalid("an ack must name its stream")
    # The start of a stream is a valid position to read from, but no record that could have been processed.
    return relative(name), offsets.decode(body.offset)


def relative(name: str) -> str:
    """A name without the slashes around it: names are given as in paths."""
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
        raise subscription_invalid(f"the id of a subscription must be printable text of 1 to {MAX_ID_BYTES} bytes")
    return id


def define(body: SubscriptionBody) -> SubscriptionDefinition:
    """The subscription of the request; refuses one that is not valid."""
    pattern = relative(body.pattern or "") or None
    streams = tuple(sorted({checked_name(name) for name in body.streams or ()}))
    if pattern is None and not streams:
        raise subscription_invalid("pattern or streams is missing: send at least one of them")
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
    """Check that each kind has what it needs, and nothing that would have no effect."""
    if definition.type == WEBHOOK:
        if definition.webhook_url is None:
            raise subscription_invalid("webhook subscriptions require webhook.url")
        if definition.wake_stream is not None:
            raise subscription_invalid("webhook subscriptions cannot have a wake_stream")
        return
    if definition.wake_stream is None:
        raise subscription_invalid("pull-wake subscriptions require wake_stream")
    if definition.webhook_url is not None:
        raise subscription_invalid("pull-wake subscriptions cannot have a webhook")
    if definition.wake_stream in definition.streams:
        raise subscription_invalid("a subscription cannot be woken by its own wake_stream")
