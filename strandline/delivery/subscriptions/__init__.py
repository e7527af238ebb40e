"""Subscriptions: notify an external worker of new records, by a webhook or by a wake record in another log."""

from strandline.delivery.subscriptions.events import PULL_WAKE, WEBHOOK, SubscriptionDefinition
from strandline.delivery.subscriptions.subscription import Claim, Dialect, Link, Subscription, WakeHolder
from strandline.delivery.subscriptions.subscriptions import Subscriptions

__all__ = [
    "PULL_WAKE",
    "WEBHOOK",
    "Claim",
    "Dialect",
    "Link",
    "Subscription",
    "SubscriptionDefinition",
    "Subscriptions",
    "WakeHolder",
]
