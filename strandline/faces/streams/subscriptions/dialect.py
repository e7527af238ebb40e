"""What streams are to subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from strandline.delivery.subscriptions import Dialect, Link, Subscription
from strandline.engine import Log
from strandline.engine.errors import EngineError
from strandline.faces.neighbours import is_hidden
from strandline.faces.streams.context import StreamsContext
from strandline.faces.streams.stream import StreamTraits
from strandline.faces.streams.streams import SYSTEM
from strandline.faces.streams.subscriptions import rendering
from strandline.faces.streams.subscriptions.errors import invalid
from strandline.faces.web import Refusal

log = logging.getLogger(__name__)


class StreamsDialect(Dialect):
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def visible(self, log: Log) -> bool:
        return (not log.name.startswith("_") or log.name in SYSTEM) and not is_hidden(log)

    def wake_log(self, name: str) -> Log | None:
        try:
            return self.check_wake_stream(name)
        except (Refusal, EngineError) as error:
            log.warning("wakes cannot be written to %r: %s", name, error)
            return None

    def check_wake_stream(self, name: str) -> Log:
        """The log of the stream that wakes are written into, made if need be; refuses one that takes none."""
        context, now = self._context, self._context.hub.now()
        if name in SYSTEM:
            raise invalid(f"wake_stream {name!r} is the server's own")
        stream = context.streams.find(name)
        if stream is None:
            stream, _ = context.streams.create(name, StreamTraits(created_at=now))
        if stream.gone or stream.closed:
            raise invalid(f"wake_stream {name!r} is closed or deleted")
        if not stream.is_json or not stream.is_plain:
            raise invalid(f"wake_stream {name!r} must be a stream of application/json without a schema or a profile")
        stream.use(now)
        return stream.log

    def wake_event(self, subscription: Subscription, name: str, generation: int) -> bytes:
        return rendering.wake_event(subscription, name, generation, self._context.hub.now())

    def notification(self, subscription: Subscription, links: Sequence[Link], token: str) -> bytes:
        return rendering.notification(subscription, links, token)
