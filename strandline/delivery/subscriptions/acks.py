"""What an acknowledgement may say."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.delivery.subscriptions.errors import BadPosition
from strandline.delivery.subscriptions.events import Place
from strandline.delivery.subscriptions.subscription import Subscription

#: The name of a log and the seq it is acknowledged to; None for one that makes no sense.
Ack = tuple[str, int | None]


def checked(subscription: Subscription, acks: Sequence[Ack]) -> list[Place]:
    """The acknowledgements, checked: every one goes forward, and none beyond what is there."""
    places: dict[str, Place] = {}
    for name, seq in acks:
        link = subscription.links.find(name)
        if link is None:
            raise BadPosition(f"the subscription is not about {name!r}")
        if seq is None:
            raise BadPosition(f"the offset for {name!r} is not one that can be acknowledged")
        if seq < (places[name].seq if name in places else link.acked):
            raise BadPosition(f"the offset for {name!r} is behind what is acknowledged already")
        if seq > link.tail:
            raise BadPosition(f"the offset for {name!r} is beyond the end of the stream")
        places[name] = Place(name, link.epoch, seq)
    return list(places.values())


def still_there(subscription: Subscription, told: Sequence[Place]) -> list[Place]:
    """Of the places that somebody was told of, those whose logs the subscription is still about."""
    found = []
    for place in told:
        link = subscription.links.find(place.name)
        if link is not None and link.epoch == place.epoch:
            found.append(place)
    return found
