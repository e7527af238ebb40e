"""Subscriptions: notifications about new records in streams."""

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
    "id",
    f"The id of the subscription: up to {MAX_ID_BYTES} bytes of printable text.",
    {"type": "string", "minLength": 1},
)
_TOKEN = "Send the token of the wake as a bearer token, instead of an API key."
_NOTHING = Answer(204, "Done.", headers=(p.NO_STORE,))
_HOLDER_ERRORS = (
    "INVALID_REQUEST",
    "TOKEN_INVALID",
    "TOKEN_EXPIRED",
    "SUBSCRIPTION_NOT_FOUND",
    "FENCED",
    "read_only",
    "disk_full",
)
_ACKNOWLEDGED = (Answer(200, "The acknowledgement is stored.", {JSON: WakeAcknowledged}, (p.NO_STORE,)),)


def _shown(status: int, words: str) -> Answer:
    return Answer(status, words, {JSON: SubscriptionAnswer}, (p.NO_STORE,))


SUBSCRIPTIONS: Operations = {
    ("GET", ROOT + "/jwks.json"): Operation(
        group="subscriptions",
        summary="Get the key that webhooks are signed with",
        answers=(
            Answer(
                200,
                "A key set with one key.",
                {"application/jwk-set+json": JsonWebKeys},
                (Header("Cache-Control", "How long the answer is valid.", {"type": "string"}, required=True),),
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
            "To the named streams and to all streams that match the pattern, including streams that are created later. "
            "Creating a subscription that exists with the same configuration is not an error."
        ),
        body={JSON: SubscriptionBody},
        answers=(_shown(200, "The subscription already exists."), _shown(201, "The subscription was created.")),
        parameters=(_ID,),
        errors=("INVALID_REQUEST", "WEBHOOK_URL_REJECTED", "SUBSCRIPTION_ALREADY_EXISTS", "read_only", "disk_full"),
    ),
    ("GET", _ONE): Operation(
        group="subscriptions",
        summary="Get a subscription",
        answers=(_shown(200, "The subscription."),),
        parameters=(_ID,),
        errors=("SUBSCRIPTION_NOT_FOUND",),
    ),
    ("DELETE", _ONE): Operation(
        group="subscriptions",
        summary="Unsubscribe",
        description="Deleting a subscription that does not exist is not an error.",
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
        summary="Remove a named stream",
        description="If the pattern matches the stream, it stays in the subscription.",
        answers=(_NOTHING,),
        parameters=(_ID, p.in_path("stream", "The name of the stream, which may contain slashes.")),
        errors=("SUBSCRIPTION_NOT_FOUND", "read_only", "disk_full"),
    ),
    ("POST", _ONE + "/claim"): Operation(
        group="subscriptions",
        summary="Claim a wake",
        description="For a subscription of the type `pull-wake`. The worker holds the wake until its lease ends.",
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
        summary="Acknowledge records of a webhook",
        description=f"Extends the lease, or ends the wake. {_TOKEN}",
        body={JSON: HolderBody},
        answers=_ACKNOWLEDGED,
        parameters=(_ID,),
        errors=(*_HOLDER_ERRORS, "INVALID_OFFSET"),
    ),
    ("POST", _ONE + "/ack"): Operation(
        group="subscriptions",
        summary="Acknowledge records of a claimed wake",
        description=f"Extends the lease, or ends the wake. {_TOKEN}",
        body={JSON: HolderBody},
        answers=_ACKNOWLEDGED,
        parameters=(_ID,),
        errors=(*_HOLDER_ERRORS, "INVALID_OFFSET"),
    ),
    ("POST", _ONE + "/release"): Operation(
        group="subscriptions",
        summary="Release a claimed wake",
        description=_TOKEN,
        body={JSON: HolderBody},
        answers=(_NOTHING,),
        parameters=(_ID,),
        errors=_HOLDER_ERRORS,
    ),
}
