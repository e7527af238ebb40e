"""One subscription: what it is about, the wake that is under way, and who has it.

A wake begins when something is pending and ends when its holder is done, gives it back, or lets its lease run out.
There is one at a time, and every one has a generation higher than all before it.
"""

from __future__ import annotations

from strandline.delivery.subscriptions.events import (
    WEBHOOK,
    AckedEvent,
    Definition,
    Event,
    LeasedEvent,
    LinkedEvent,
    MadeEvent,
    MovedEvent,
    UnlinkedEvent,
    WokenEvent,
)
from strandline.delivery.subscriptions.globs import Glob
from strandline.delivery.subscriptions.links import Links

ACTIVE, FAILED = "active", "failed"
#: Places per event: a record may not be too large.
PLACES_PER_EVENT = 5000


class Subscription:
    """Changed by :meth:`apply` alone, but for what need not outlive a restart: how the delivery goes."""

    __slots__ = (
        "base_url", "definition", "failures", "generation", "glob", "holder", "id", "links", "made_at", "next_epoch",
        "removed", "retry_at", "stumbles", "timer_at", "until", "wake_id",
    )  # fmt: skip

    def __init__(self, event: MadeEvent) -> None:
        self.id = event.id
        self.definition: Definition = event.definition
        self.made_at = event.made_at
        self.next_epoch = event.next_epoch
        self.base_url = event.base_url
        self.glob = None if event.definition.pattern is None else Glob(event.definition.pattern)
        self.links = Links(self)
        self.generation = 0
        #: Empty while there is no wake under way.
        self.wake_id = ""
        #: When the lease of the wake runs out; 0: nobody has it.
        self.until = 0
        self.holder = ""
        # How the delivery goes.
        self.failures = 0
        #: Failures in a row that have nothing to do with the webhook.
        self.stumbles = 0
        #: When to try again what failed; 0: nothing did.
        self.retry_at = 0
        #: When somebody will look at the times above.
        self.timer_at = 0
        self.removed = False

    @property
    def is_webhook(self) -> bool:
        return self.definition.type == WEBHOOK

    @property
    def status(self) -> str:
        return FAILED if self.failures else ACTIVE

    @property
    def due_at(self) -> int:
        """When there is something to do for the clock; 0: never."""
        times = [at for at in (self.until, self.retry_at) if at]
        return min(times) if times else 0

    def matches(self, name: str) -> bool:
        """Whether the pattern has it. The server's own logs are for those who name them."""
        return self.glob is not None and not name.startswith("_") and self.glob.matches(name)

    # --- what happened -------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        if isinstance(event, MovedEvent):
            self.base_url = event.base_url
        elif isinstance(event, LinkedEvent):
            for place in event.places:
                link = self.links.put_at(place)
                link.explicit = link.explicit or event.explicit
        elif isinstance(event, UnlinkedEvent):
            named = self.links.find(event.name)
            if named is not None:
                named.explicit = False
        elif isinstance(event, WokenEvent):
            self.generation = event.generation
            self.wake_id = event.wake_id
            self.end_lease()
        elif isinstance(event, LeasedEvent):
            self.until, self.holder = event.until, event.holder
            self.retry_at = 0
        elif isinstance(event, AckedEvent):
            self._ack(event)

    def _ack(self, event: AckedEvent) -> None:
        for place in event.places:
            link = self.links.make(place.name)
            # What was said of a log does not count for a later one of its name.
            if place.epoch > link.epoch:
                link.epoch, link.acked = place.epoch, place.seq
            elif place.epoch == link.epoch:
                link.acked = max(link.acked, place.seq)
            self.links.note(link)
        if event.until:
            self.until = event.until
            self.retry_at = 0
        else:
            self.end_wake()

    def end_wake(self) -> None:
        """Nobody has it any more, and its tokens are worth nothing."""
        self.wake_id = ""
        self.end_lease()

    def end_lease(self) -> None:
        self.until = 0
        self.holder = ""
        self.retry_at = 0

    # --- all of it once more -------------------------------------------------------------------------------------

    def restate(self) -> list[Event]:
        """The events that it would take to make it what it is now."""
        events: list[Event] = [MadeEvent(self.id, self.definition, self.made_at, self.next_epoch, self.base_url)]
        for explicit in (True, False):
            places = [link.place for link in self.links if link.explicit is explicit]
            for start in range(0, len(places), PLACES_PER_EVENT):
                events.append(LinkedEvent(self.id, places[start : start + PLACES_PER_EVENT], explicit))
        events.append(WokenEvent(self.id, self.generation, self.wake_id))
        if self.until:
            events.append(LeasedEvent(self.id, self.until, self.holder))
        return events
