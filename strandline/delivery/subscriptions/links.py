"""Which logs a subscription is about, how far each is acknowledged, and which have something new."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from strandline.delivery.subscriptions.events import Place
from strandline.engine import Log

if TYPE_CHECKING:
    from strandline.delivery.subscriptions.subscription import Subscription


class Link:
    """A name that a subscription is about: because it was named, because it matches the pattern, or both. ``log`` is
    None while there is no log of the name."""

    __slots__ = ("acked", "epoch", "explicit", "log", "matched", "name", "subscription")

    def __init__(self, subscription: Subscription, name: str) -> None:
        self.subscription = subscription
        self.name = name
        self.explicit = False
        self.matched = False
        self.log: Log | None = None
        self.epoch = 0
        self.acked = 0

    @property
    def tail(self) -> int:
        return 0 if self.log is None else self.log.head

    @property
    def place(self) -> Place:
        return Place(self.name, self.epoch, self.acked)


class Links:
    """``pending`` are those with something that is not acknowledged, the one that has waited longest first."""

    __slots__ = ("_subscription", "by_name", "pending")

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.by_name: dict[str, Link] = {}
        self.pending: dict[Link, None] = {}

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Link]:
        return iter(self.by_name.values())

    def find(self, name: str) -> Link | None:
        return self.by_name.get(name)

    def make(self, name: str) -> Link:
        """The link of this name, made if need be."""
        link = self.by_name.get(name)
        if link is None:
            link = self.by_name[name] = Link(self._subscription, name)
        return link

    def put_at(self, place: Place) -> Link:
        """What is acknowledged of the log with the place's epoch, be it there or not."""
        link = self.make(place.name)
        link.epoch, link.acked = place.epoch, place.seq
        return link

    def remove(self, link: Link) -> None:
        self.pending.pop(link, None)
        self.by_name.pop(link.name, None)

    def note(self, link: Link) -> None:
        """Look again whether something of the link's log is not acknowledged."""
        if link.tail > link.acked:
            self.pending.setdefault(link)
        else:
            self.pending.pop(link, None)

    def selection(self, limit: int) -> list[Link]:
        """So many of them, those that are pending first."""
        rest = (link for link in self.by_name.values() if link not in self.pending)
        return list(islice(chain(self.pending, rest), limit))
