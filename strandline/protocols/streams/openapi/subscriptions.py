"""Subscriptions: being woken when there is something new in streams."""

from __future__ import annotations

from strandline.protocols.streams.openapi import parameters as p
from strandline.protocols.streams.openapi.parameters import Operations
from strandline.protocols.streams.subscriptions.definition import MAX_ID_BYTES
from strandline.protocols.streams.subscriptions.routes import ROOT
from strandline.protocols.streams.subscriptions.routes import SUBSCRIPTION as _ONE
from strandline.protocols.streams.subscriptions.wire import (
    ClaimWakeBody,
    HolderBody,
    JsonWebKeys,
    StreamsBody,
    SubscriptionAnswer,
    SubscriptionBody,
    WakeAcknowledged,
    WakeClaimed,
)
from strandline.service.openapi import JSON, Answer, Header, Operation

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
        group="subscriptions",
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
        group="subscriptions",
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
        group="subscriptions",
        summary="Look at a subscription",
        answers=(_shown(200, "The subscription."),),
        parameters=(_ID,),
        errors=("SUBSCRIPTION_NOT_FOUND",),
    ),
    ("DELETE", _ONE): Operation(
        group="subscriptions",
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
        group="subscriptions",
        summary="Add streams by name",
        body={JSON: StreamsBody},
        answers=(_NOTHING,),
        parameters=(_ID,),
        errors=("INVALID_REQUEST", "SUBSCRIPTION_NOT_FOUND", "read_only", "disk_full"),
    ),
    ("DELETE", _ONE + "/streams/{stream}"): Operation(
        group="subscriptions",
        summary="Remove a stream that was named",
        description="One that the pattern matches stays because of that.",
        answers=(_NOTHING,),
        parameters=(_ID, p.in_path("stream", "The name of the stream, which may contain slashes.")),
        errors=("SUBSCRIPTION_NOT_FOUND", "read_only", "disk_full"),
    ),
    ("POST", _ONE + "/claim"): Operation(
        group="subscriptions",
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
        group="subscriptions",
        summary="Acknowledge what a webhook has told",
        description=f"Prolongs the lease, or ends the wake. {_TOKEN}",
        body={JSON: HolderBody},
        answers=_ACKNOWLEDGED,
        parameters=(_ID,),
        errors=(*_HOLDER_ERRORS, "INVALID_OFFSET"),
    ),
    ("POST", _ONE + "/ack"): Operation(
        group="subscriptions",
        summary="Acknowledge what a claimed wake was about",
        description=f"Prolongs the lease, or ends the wake. {_TOKEN}",
        body={JSON: HolderBody},
        answers=_ACKNOWLEDGED,
        parameters=(_ID,),
        errors=(*_HOLDER_ERRORS, "INVALID_OFFSET"),
    ),
    ("POST", _ONE + "/release"): Operation(
        group="subscriptions",
        summary="Give a claimed wake back",
        description=_TOKEN,
        body={JSON: HolderBody},
        answers=(_NOTHING,),
        parameters=(_ID,),
        errors=_HOLDER_ERRORS,
    ),
}
