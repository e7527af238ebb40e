"""Which subscriptions an API key may create, see and use: those of which it may access every name."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.delivery.subscriptions import Subscription, SubscriptionDefinition
from strandline.delivery.subscriptions.subscription import Glob
from strandline.service.access import Access
from strandline.service.problems import FORBIDDEN, Refusal, may_not_touch


def check_definition(access: Access, definition: SubscriptionDefinition) -> None:
    """Raise unless the key may create this subscription: it needs access to every name that can match."""
    if not access.prefixes:
        return
    if definition.pattern is not None:
        prefix = Glob(definition.pattern).prefix
        if not access.may_touch(prefix):
            raise Refusal(FORBIDDEN, f"the API key may not access every name that {definition.pattern!r} matches")
    wake_stream = () if definition.wake_stream is None else (definition.wake_stream,)
    check_names(access, (*definition.streams, *wake_stream))


def check_subscription(access: Access, subscription: Subscription) -> None:
    """Raise unless the key may see and use the subscription. The message reveals no name of a stream."""
    if not access.prefixes:
        return
    try:
        check_definition(access, subscription.definition)
        check_names(access, (link.name for link in subscription.links))
    except Refusal:
        message = f"the API key may not access every stream of subscription {subscription.id!r}"
        raise Refusal(FORBIDDEN, message) from None


def check_names(access: Access, names: Iterable[str]) -> None:
    for name in names:
        if not access.may_touch(name):
            raise may_not_touch(name)


def may_see(access: Access, subscription: Subscription) -> bool:
    try:
        check_subscription(access, subscription)
    except Refusal:
        return False
    return True
