"""What passes between subscriptions and the protocol in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from strandline.delivery.subscriptions.links import Link
from strandline.delivery.subscriptions.subscription import Subscription
from strandline.engine import Log


class Dialect(Protocol):
    """What the protocol in front decides: what can be subscribed to, and how things are said."""

    def visible(self, log: Log) -> bool:
        """Whether there is such a log for this protocol."""

    def wake_log(self, name: str) -> Log | None:
        """Where wakes are written, made if need be; None if nothing can be written there."""

    def wake_event(self, subscription: Subscription, name: str, generation: int) -> bytes:
        """What is written there; ``name`` is the log that has something new."""

    def notification(self, subscription: Subscription, links: Sequence[Link], token: str) -> bytes:
        """What a webhook is told."""


class Claim(NamedTuple):
    """A wake that is somebody's for a while."""

    wake_id: str
    generation: int
    token: str
    links: list[Link]


class Holder(NamedTuple):
    """Who asks: the token, and the wake that it is about."""

    token: str
    wake_id: str
    generation: int
