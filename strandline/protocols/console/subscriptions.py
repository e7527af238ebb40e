"""Subscriptions: what they match, whom they wake, how far behind they are, and why deliveries failed."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import msgspec

from strandline.delivery.subscriptions import Link, Subscription
from strandline.delivery.subscriptions.errors import UnknownSubscription
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.wire import (
    ConsoleSubscriptionAnswer,
    ConsoleSubscriptionsAnswer,
    DeliveryFailureRow,
    LinkedLog,
    SubscriptionRow,
    SubscriptionState,
)
from strandline.service.http import Call, Reply
from strandline.service.parameters import number
from strandline.service.problems import NOT_FOUND, Refusal
from strandline.service.subscription_access import check_subscription, may_see

DEFAULT_LIMIT = 100
MAX_LIMIT = 500
#: The logs of a subscription whose lag is added up, and those that are shown.
MAX_COUNTED = 1_000
MAX_SHOWN = 500
#: The number of subscriptions that are looked at before other work gets a turn.
SLICE = 100


class ConsoleSubscriptions:
    """Runs on the event loop's thread, like the subscriptions."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def list(self, call: Call) -> Reply:
        """GET /console/api/subscriptions"""
        offset = number(call, "offset", 0) or 0
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        search = call.query.get("search", "").lower()
        subscriptions = self._context.surroundings.subscriptions()
        subscriptions.catch_up()
        found = []
        for at, each in enumerate(list(subscriptions), 1):
            if not each.removed and _contains(each, search) and may_see(call.access, each):
                found.append(each)
            if at % SLICE == 0:
                await asyncio.sleep(0)
        # Those that need attention come first.
        found.sort(key=lambda each: (not each.failures, each.id))
        rows = [SubscriptionRow(**_row(each)) for each in found[offset : offset + limit]]
        failing = sum(1 for each in found if each.failures)
        return Reply(msgspec.json.encode(ConsoleSubscriptionsAnswer(rows, len(found), failing)))

    def get(self, call: Call) -> Reply:
        """GET /console/api/subscription/{id}"""
        subscriptions = self._context.surroundings.subscriptions()
        subscriptions.catch_up()
        try:
            found = subscriptions.get(call.param("id"))
        except UnknownSubscription as error:
            raise Refusal(NOT_FOUND, str(error)) from None
        check_subscription(call.access, found)
        logs = [_linked(link) for link in found.links.selection(MAX_SHOWN)]
        return Reply(msgspec.json.encode(ConsoleSubscriptionAnswer(**_row(found), shown=logs)))


def _contains(subscription: Subscription, search: str) -> bool:
    definition = subscription.definition
    words = (
        subscription.id,
        definition.pattern,
        definition.webhook_url,
        definition.wake_stream,
        definition.description,
    )
    return not search or any(search in text.lower() for text in (*words, *definition.streams) if text)


def _row(subscription: Subscription) -> dict[str, Any]:
    definition, links, failure = subscription.definition, subscription.links, subscription.last_failure
    lag = sum(max(link.tail - link.acked, 0) for link in islice(links.pending, MAX_COUNTED))
    return {
        "id": subscription.id,
        "type": definition.type,
        "pattern": definition.pattern,
        "named": list(definition.streams[:MAX_SHOWN]),
        "description": definition.description,
        "target": definition.webhook_url or definition.wake_stream or "",
        "state": _state(subscription),
        "logs": len(links),
        "pending": len(links.pending),
        "lag": lag,
        "lag_is_least": len(links.pending) > MAX_COUNTED,
        "generation": subscription.generation,
        "holder": subscription.holder,
        "leased_until": subscription.until or None,
        "retry_at": subscription.retry_at or None,
        "failures": subscription.failures,
        "last_failure": None if failure is None else DeliveryFailureRow(at=failure.at, why=failure.why),
        "delivered_at": subscription.delivered_at or None,
        "created_at": subscription.made_at,
        "lease_ms": definition.lease_ttl_ms,
    }


def _state(subscription: Subscription) -> SubscriptionState:
    if not subscription.wake_id:
        return "retrying" if subscription.retry_at else "idle"
    if subscription.until:
        return "leased"
    if subscription.retry_at:
        return "retrying"
    return "sending" if subscription.is_webhook else "waiting"


def _linked(link: Link) -> LinkedLog:
    return LinkedLog(
        name=link.name,
        exists=link.log is not None,
        named=link.explicit,
        matched=link.matched,
        acked=link.acked,
        head=link.tail,
        lag=max(link.tail - link.acked, 0),
    )
