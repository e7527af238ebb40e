"""One subscription: its logs, the acknowledged position in each, the current wake, and the holder of the wake.

In a name pattern ``*`` matches one segment between slashes, and ``**`` any number of segments, including none. Write a
literal star as ``%2A``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Literal, NamedTuple, Protocol

from strandline.delivery.subscriptions.errors import BadPattern, BadPosition
from strandline.delivery.subscriptions.events import (
    WEBHOOK,
    AckedEvent,
    Acknowledged,
    Event,
    LeasedEvent,
    LinkedEvent,
    MadeEvent,
    MovedEvent,
    SubscriptionDefinition,
    UnlinkedEvent,
    WokenEvent,
)
from strandline.engine import Log
from strandline.engine.record import is_internal

ONE, ANY = "*", "**"
_STAR = "\0"


class Glob:
    """A name pattern. Every matching name begins with ``prefix``."""

    __slots__ = ("_parts", "prefix", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(_part(part) for part in text.split("/"))
        self.prefix = _prefix(self._parts)

    def matches(self, name: str) -> bool:
        """Whether the name matches. Only the last ``**`` is retried, so the time is bounded by the product of both
        lengths."""
        pattern, parts = self._parts, name.split("/")
        at = here = 0
        deep, resume = -1, 0
        while here < len(parts):
            wanted = pattern[at] if at < len(pattern) else ""
            if wanted == ANY:
                deep, resume = at, here
                at += 1
            elif at < len(pattern) and (wanted == ONE or wanted.replace(_STAR, ONE) == parts[here]):
                at += 1
                here += 1
            elif deep >= 0:
                resume += 1
                at, here = deep + 1, resume
            else:
                return False
        return all(part == ANY for part in pattern[at:])


def _part(part: str) -> str:
    if part in (ONE, ANY):
        return part
    if "*" in part or "\0" in part:
        raise BadPattern(f"invalid segment {part!r}: a star must be a whole segment; write %2A for the character")
    return part.replace("%2A", _STAR).replace("%2a", _STAR)


def _prefix(parts: tuple[str, ...]) -> str:
    literal: list[str] = []
    for part in parts:
        if part in (ONE, ANY):
            break
        literal.append(part.replace(_STAR, ONE))
    rest = parts[len(literal) :]
    # If more segments must follow, every matching name has the slash.
    return "/".join(literal) + ("/" if literal and any(part != ANY for part in rest) else "")


class Link:
    """A log of a subscription: it was named, or it matches the pattern, or both. ``log`` is None while no log of this
    name exists."""

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
    def place(self) -> Acknowledged:
        return Acknowledged(self.name, self.epoch, self.acked)


class Links:
    """The links of a subscription. ``pending`` are the links with unacknowledged records, longest waiting first."""

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
        """Return the link of this name, created if necessary."""
        link = self.by_name.get(name)
        if link is None:
            link = self.by_name[name] = Link(self._subscription, name)
        return link

    def put_at(self, place: Acknowledged) -> Link:
        """Set the acknowledged position of a log, whether or not the log exists."""
        link = self.make(place.name)
        link.epoch, link.acked = place.epoch, place.seq
        return link

    def remove(self, link: Link) -> None:
        self.pending.pop(link, None)
        self.by_name.pop(link.name, None)

    def note(self, link: Link) -> None:
        """Update whether the link's log has unacknowledged records."""
        if link.tail > link.acked:
            self.pending.setdefault(link)
        else:
            self.pending.pop(link, None)

    def selection(self, limit: int) -> list[Link]:
        """At most ``limit`` links, those with pending records first."""
        rest = (link for link in self.by_name.values() if link not in self.pending)
        return list(islice(chain(self.pending, rest), limit))


#: The maximum length of the reason of a failure that is kept.
MAX_REASON = 500


class DeliveryFailure(NamedTuple):
    """When a wake last failed to reach its receiver, and why."""

    at: int
    why: str


#: Positions per event, which keeps records small.
PLACES_PER_EVENT = 5000


class Subscription:
    """A subscription. Its stored state is changed only by :meth:`apply`. The state of the delivery is not stored."""

    __slots__ = (
        "base_url", "definition", "delivered_at", "failures", "generation", "glob", "holder", "id", "last_failure",
        "links", "made_at", "next_epoch", "removed", "retry_at", "stumbles", "timer_at", "until", "wake_id",
    )  # fmt: skip

    def __init__(self, event: MadeEvent) -> None:
        self.id = event.id
        self.definition: SubscriptionDefinition = event.definition
        self.made_at = event.made_at
        self.next_epoch = event.next_epoch
        self.base_url = event.base_url
        self.glob = None if event.definition.pattern is None else Glob(event.definition.pattern)
        self.links = Links(self)
        self.generation = 0
        #: Empty if there is no current wake.
        self.wake_id = ""
        #: The deadline of the wake's lease; 0 if the wake is not leased.
        self.until = 0
        self.holder = ""
        # The state of the delivery, which a restart resets.
        self.failures = 0
        #: Consecutive failures that the webhook did not cause.
        self.stumbles = 0
        #: When a wake last reached its receiver: the webhook was delivered, or a worker claimed it; 0 if none has.
        self.delivered_at = 0
        self.last_failure: DeliveryFailure | None = None
        #: When to retry after a failure; 0 if there was none.
        self.retry_at = 0
        #: When the timer next checks the times above.
        self.timer_at = 0
        self.removed = False

    def note_failure(self, at: int, why: str) -> None:
        self.last_failure = DeliveryFailure(at, why[:MAX_REASON])

    @property
    def is_webhook(self) -> bool:
        return self.definition.type == WEBHOOK

    @property
    def status(self) -> Literal["active", "failed"]:
        return "failed" if self.failures else "active"

    @property
    def due_at(self) -> int:
        """The next time at which the subscription needs attention; 0 if there is none."""
        times = [at for at in (self.until, self.retry_at) if at]
        return min(times) if times else 0

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the name. Internal logs must be named."""
        return self.glob is not None and not is_internal(name) and self.glob.matches(name)

    # --- events --------------------------------------------------------------------------------------------------

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
            # A position in a log does not apply to a later log of the same name.
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
        """End the wake and its lease. Its tokens are no longer valid."""
        self.wake_id = ""
        self.end_lease()

    def end_lease(self) -> None:
        self.until = 0
        self.holder = ""
        self.retry_at = 0

    # --- snapshot ------------------------------------------------------------------------------------------------

    def restate(self) -> list[Event]:
        """The events that recreate the current state."""
        events: list[Event] = [MadeEvent(self.id, self.definition, self.made_at, self.next_epoch, self.base_url)]
        for explicit in (True, False):
            places = [link.place for link in self.links if link.explicit is explicit]
            for start in range(0, len(places), PLACES_PER_EVENT):
                events.append(LinkedEvent(self.id, places[start : start + PLACES_PER_EVENT], explicit))
        events.append(WokenEvent(self.id, self.generation, self.wake_id))
        if self.until:
            events.append(LeasedEvent(self.id, self.until, self.holder))
        return events


#: The name of a log and the acknowledged seq; None if the client's offset is not valid.
Ack = tuple[str, int | None]


def checked(subscription: Subscription, acks: Sequence[Ack]) -> list[Acknowledged]:
    """Validate the acknowledgements: each must advance the position, but not past the end of the log."""
    places: dict[str, Acknowledged] = {}
    for name, seq in acks:
        link = subscription.links.find(name)
        if link is None:
            raise BadPosition(f"the subscription does not include {name!r}")
        if seq is None:
            raise BadPosition(f"the offset for {name!r} is not a valid offset")
        if seq < (places[name].seq if name in places else link.acked):
            raise BadPosition(f"the offset for {name!r} is lower than the acknowledged offset")
        if seq > link.tail:
            raise BadPosition(f"the offset for {name!r} is beyond the end of the stream")
        places[name] = Acknowledged(name, link.epoch, seq)
    return list(places.values())


def still_there(subscription: Subscription, told: Sequence[Acknowledged]) -> list[Acknowledged]:
    """Of the positions sent with a wake, those whose logs are still linked."""
    found = []
    for place in told:
        link = subscription.links.find(place.name)
        if link is not None and link.epoch == place.epoch:
            found.append(place)
    return found


class Dialect(Protocol):
    """The decisions of the protocol: which logs can be subscribed to, and how notifications look."""

    def visible(self, log: Log) -> bool:
        """Whether the log exists for this protocol."""

    def wake_log(self, name: str) -> Log | None:
        """The log that receives wakes, created if necessary; None if it cannot be written to."""

    def wake_event(self, subscription: Subscription, name: str, generation: int) -> bytes:
        """The record to append to the wake log. ``name`` is the log with new records."""

    def notification(self, subscription: Subscription, links: Sequence[Link], token: str) -> bytes:
        """The body of a webhook request."""


class Claim(NamedTuple):
    """A wake that a worker holds."""

    wake_id: str
    generation: int
    token: str
    links: list[Link]


class WakeHolder(NamedTuple):
    """The caller of a request about a wake: its token, and the wake that it names."""

    token: str
    wake_id: str
    generation: int
