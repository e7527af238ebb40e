"""Subscriptions: a webhook, or a wake record in another log, tells an external worker that logs have new records."""

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
