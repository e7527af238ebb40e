"""Subscriptions as JSON: what is shown, what webhooks are told, and what is written into wake streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from strandline.delivery.subscriptions import Link, Subscription
from strandline.protocols.streams.grammar import iso
from strandline.protocols.streams.offsets import encode

ROOT = "/v1/stream/__ds"
#: Links that are rendered before somebody else has a turn.
LINKS_PER_TURN = 1000


def infos(links: Iterable[Link]) -> list[dict[str, Any]]:
    """Links as those who are woken are told of them."""
    return [
        {
            "path": link.name,
            "link_type": _link_type(link),
            "acked_offset": encode(link.acked),
            "tail_offset": encode(link.tail),
            "has_pending": link.tail > link.acked,
        }
        for link in links
    ]


async def document(subscription: Subscription, base_url: str, kid: str) -> bytes:
    """Everything there is to know of it, for whoever asks at ``base_url``."""
    streams = []
    for count, link in enumerate(list(subscription.links), 1):
        streams.append({"path": link.name, "link_type": _link_type(link), "acked_offset": encode(link.acked)})
        if count % LINKS_PER_TURN == 0:
            await asyncio.sleep(0)
    definition = subscription.definition
    shown: dict[str, Any] = {
        "id": subscription.id,
        "subscription_id": subscription.id,
        "type": definition.type,
        "pattern": definition.pattern,
        "streams": streams,
        "webhook": None,
        "wake_stream": definition.wake_stream,
        "lease_ttl_ms": definition.lease_ttl_ms,
        "created_at": iso(subscription.made_at),
        "status": subscription.status,
        "description": definition.description,
    }
    if definition.webhook_url is not None:
        signing = {"alg": "ed25519", "kid": kid, "jwks_url": f"{base_url}{ROOT}/jwks.json"}
        shown["webhook"] = {"url": definition.webhook_url, "signing": signing}
    return msgspec.json.encode({name: value for name, value in shown.items() if value is not None})


def notification(subscription: Subscription, links: Iterable[Link], token: str) -> bytes:
    id = quote(subscription.id, safe="")
    return msgspec.json.encode(
        {
            "subscription_id": subscription.id,
            "wake_id": subscription.wake_id,
            "generation": subscription.generation,
            "streams": infos(links),
            "callback_url": f"{subscription.base_url}{ROOT}/subscriptions/{id}/callback",
            "callback_token": token,
        }
    )


def wake_event(subscription: Subscription, name: str, generation: int, now: int) -> bytes:
    return msgspec.json.encode(
        {"type": "wake", "subscription_id": subscription.id, "stream": name, "generation": generation, "ts": now}
    )


def _link_type(link: Link) -> str:
    return "explicit" if link.explicit else "glob"
