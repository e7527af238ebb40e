"""Subscriptions: somebody outside is woken when logs have something new, by a webhook or by a wake in another log, and
says how far it has come."""

from strandline.delivery.subscriptions.dialect import Claim, Dialect, Holder
from strandline.delivery.subscriptions.events import PULL_WAKE, WEBHOOK, Definition
from strandline.delivery.subscriptions.links import Link
from strandline.delivery.subscriptions.subscription import Subscription
from strandline.delivery.subscriptions.subscriptions import Subscriptions

__all__ = ["PULL_WAKE", "WEBHOOK", "Claim", "Definition", "Dialect", "Holder", "Link", "Subscription", "Subscriptions"]
