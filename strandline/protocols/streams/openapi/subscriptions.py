"""Subscriptions: being woken when there is something new in streams."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from strandline.delivery.subscriptions.signatures import JsonWebKey
from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.answers import Number, Offset, Time
from strandline.protocols.streams.openapi.parameters import Operations
from strandline.protocols.streams.subscriptions.bodies import (
    MAX_ID_BYTES,
    ClaimWakeBody,
    HolderBody,
    StreamsBody,
    SubscriptionBody,
)
from strandline.protocols.streams.subscriptions.json import ROOT
from strandline.service.openapi import JSON, Answer, Header, Operation

_ONE = ROOT + "/subscriptions/{id}"
_LinkType = Literal["explicit", "glob"]


class SubscribedStream(msgspec.Struct):
    path: str
    link_type: _LinkType
    acked_offset: Offset


class WokenStream(SubscribedStream):
    tail_offset: Offset
    has_pending: bool


class WebhookSigning(msgspec.Struct):
    alg: Literal["ed25519"]
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


class WakeClaimed(msgspec.Struct):
    wake_id: str
    generation: Number
    token: str
    streams: list[WokenStream]
    lease_ttl_ms: Number


class WakeAcknowledged(msgspec.Struct):
    ok: bool
    next_wake: bool


class JsonWebKeys(msgspec.Struct):
    keys: list[JsonWebKey]


DESCRIPTIONS: dict[str, dict[str, str]] = {
    "SubscriptionBody": {
        "type": "`webhook`: the server sends a request. `pull-wake`: it writes into `wake_stream`, and workers claim.",
        "pattern": "Names of streams: `*` is one segment, `**` any number of them.",
        "streams": "Names of streams, beside those of the pattern.",
        "lease_ttl_ms": "For how long a wake belongs to whoever has it.",
    },
    "HolderBody": {
        "acks": "How far each stream was dealt with.",
        "done": "Whether that was all: the wake is over then.",
    },
    "AckWakeBody": {"path": "Another word for `stream`; one of them is needed."},
    "SubscriptionAnswer": {"status": "`failed`: the last webhook could not be delivered, and is tried again."},
    "WakeClaimed": {"token": "To be shown as a bearer token with `ack` and `release`."},
    "WakeAcknowledged": {"next_wake": "Whether there is more to do: another wake follows."},
}

_GROUP = "subscriptions"
_ID = p.in_path(
    "id", f"The subscription's id: up to {MAX_ID_BYTES} bytes of printable text.", {"type": "string", "minLength": 1}
)
_TOKEN = "Needs the token of the wake, as a bearer token where a key would be."
_NOTHING = Answer(204, "It is done.", headers=(p.NO_STORE,))
_HOLDER_ERRORS = (
    "INVALID_REQUEST",
    "TOKEN_INVALID",
    "TOKEN_EXPIRED",
    "SUBSCRIPTION_NOT_FOUND",
    "FENCED",
    "read_only",
    "disk_full",
)
_ACKNOWLEDGED = (Answer(200, "It is written down.", {JSON: WakeAcknowledged}, (p.NO_STORE,)),)


def _shown(status: int, words: str) -> Answer:
    return Answer(status, words, {JSON: SubscriptionAnswer}, (p.NO_STORE,))


SUBSCRIPTIONS: Operations = {
    ("GET", ROOT + "/jwks.json"): Operation(
        group=_GROUP,
        summary="Show the key that webhooks are signed with",
        answers=(
            Answer(
                200,
                "A set of one key.",
                {"application/jwk-set+json": JsonWebKeys},
                (Header("Cache-Control", "For how long the answer holds.", {"type": "string"}, required=True),),
            ),
        ),
        errors=(
            "read_only",
            "disk_full",
        ),
    ),
    ("PUT", _ONE): Operation(
        group=_GROUP,
        summary="Subscribe",
        description=(
            "To the streams that are named and those that match, those made later included. To make one that is there "
            "and is the same is no error."
        ),
        body={JSON: SubscriptionBody},
        answers=(_shown(200, "The subscription was there."), _shown(201, "The subscription was made.")),
        parameters=(_ID,),
        errors=("INVALID_REQUEST", "WEBHOOK_URL_REJECTED", "SUBSCRIPTION_ALREADY_EXISTS", "read_only", "disk_full"),
    ),
    ("GET", _ONE): Operation(
        group=_GROUP,
        summary="Look at a subscription",
        answers=(_shown(200, "The subscription."),),
        parameters=(_ID,),
        errors=("SUBSCRIPTION_NOT_FOUND",),
    ),
    ("DELETE", _ONE): Operation(
        group=_GROUP,
        summary="Unsubscribe",
        description="To remove what is not there is no error.",
        answers=(_NOTHING,),
        parameters=(_ID,),
        errors=(
            "read_only",
            "disk_full",
        ),
    ),
    ("POST", _ONE + "/streams"): Operation(
        group=_GROUP,
        summary="Add streams by name",
        body={JSON: StreamsBody},
        answers=(_NOTHING,),
        parameters=(_ID,),
        errors=("INVALID_REQUEST", "SUBSCRIPTION_NOT_FOUND", "read_only", "disk_full"),
    ),
    ("DELETE", _ONE + "/streams/{stream}"): Operation(
        group=_GROUP,
        summary="Remove a stream that was named",
        description="One that the pattern matches stays because of that.",
        answers=(_NOTHING,),
        parameters=(_ID, p.in_path("stream", "The name of the stream, which may contain slashes.")),
        errors=("SUBSCRIPTION_NOT_FOUND", "read_only", "disk_full"),
    ),
    ("POST", _ONE + "/claim"): Operation(
        group=_GROUP,
        summary="Claim a wake",
        description="Of a subscription of the type `pull-wake`. It is this worker's until the lease runs out.",
        body={JSON: ClaimWakeBody},
        answers=(Answer(200, "The wake.", {JSON: WakeClaimed}, (p.NO_STORE,)),),
        parameters=(_ID,),
        errors=(
            "INVALID_REQUEST",
            "SUBSCRIPTION_NOT_FOUND",
            "ALREADY_CLAIMED",
            "NO_PENDING_WORK",
            "read_only",
            "disk_full",
        ),
    ),
    ("POST", _ONE + "/callback"): Operation(
        group=_GROUP,
        summary="Acknowledge what a webhook has told",
        description=f"Prolongs the lease, or ends the wake. {_TOKEN}",
        body={JSON: HolderBody},
        answers=_ACKNOWLEDGED,
        parameters=(_ID,),
        errors=(*_HOLDER_ERRORS, "INVALID_OFFSET"),
    ),
    ("POST", _ONE + "/ack"): Operation(
        group=_GROUP,
        summary="Acknowledge what a claimed wake was about",
        description=f"Prolongs the lease, or ends the wake. {_TOKEN}",
        body={JSON: HolderBody},
        answers=_ACKNOWLEDGED,
        parameters=(_ID,),
        errors=(*_HOLDER_ERRORS, "INVALID_OFFSET"),
    ),
    ("POST", _ONE + "/release"): Operation(
        group=_GROUP,
        summary="Give a claimed wake back",
        description=_TOKEN,
        body={JSON: HolderBody},
        answers=(_NOTHING,),
        parameters=(_ID,),
        errors=_HOLDER_ERRORS,
    ),
}
