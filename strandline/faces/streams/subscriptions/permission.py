"""Who may have to do with a subscription: whoever may touch every name that it can be about."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.delivery.subscriptions import Definition, Subscription
from strandline.delivery.subscriptions.globs import Glob
from strandline.faces.access import Access
from strandline.faces.web import Refusal


def check_definition(access: Access, definition: Definition) -> None:
    """Raise unless a subscription like this may be made."""
    if not access.prefixes:
        return
    if definition.pattern is not None:
        prefix = Glob(definition.pattern).prefix
        if not access.may_touch(prefix):
            raise _forbidden(f"the API key may not touch every name that {definition.pattern!r} matches")
    wake_stream = () if definition.wake_stream is None else (definition.wake_stream,)
    check_names(access, (*definition.streams, *wake_stream))


def check_subscription(access: Access, subscription: Subscription) -> None:
    """Raise unless the subscription may be seen and used. The message names nothing that the subscription is about."""
    if not access.prefixes:
        return
    try:
        check_definition(access, subscription.definition)
        check_names(access, (link.name for link in subscription.links))
    except Refusal:
        raise _forbidden(f"the API key may not touch every stream of subscription {subscription.id!r}") from None


def check_names(access: Access, names: Iterable[str]) -> None:
    for name in names:
        if not access.may_touch(name):
            raise _forbidden(f"the API key may not touch {name!r}")


def _forbidden(message: str) -> Refusal:
    return Refusal(403, "forbidden", message)
