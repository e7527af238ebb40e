"""The routes of the protocol, at the root and again for every namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from strandline.collections.paths import PathIndex
from strandline.delivery.hub import Recurrence
from strandline.protocols.collections.batch import BatchHandler
from strandline.protocols.collections.catalogue import ConfigHandler, ListHandler
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import refuse, reply_to
from strandline.protocols.collections.live import TAILS, LiveHandler
from strandline.protocols.collections.live_tails import CHECK_SECONDS, LiveTails
from strandline.protocols.collections.openapi import BATCH, CONFIG, LIST, LIVE, PULL, PUSH, describe, mounts_of
from strandline.protocols.collections.pull import PullHandler
from strandline.protocols.collections.push import PushHandler
from strandline.service.http import Cors, Handler, Route, preflight
from strandline.service.openapi import Described

# --- CORS ----------------------------------------------------------------------------------------------------------

#: What a signed request needs, also one with a compressed body, and a reader of the live tail that reconnects.
_ALLOWED = (
    b"Authorization, Content-Type, Content-Encoding, Accept, If-None-Match, Last-Event-ID, X-Starfish-Sig, "
    b"X-Starfish-Ts, X-Starfish-Nonce, X-Starfish-Pub, X-Requested-With"
)
_EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, OPTIONS"),
    (b"access-control-allow-headers", _ALLOWED),
    (b"access-control-max-age", b"86400"),
)


def cors_of(origins: tuple[str, ...]) -> Cors:
    """``origins`` may call collections, in addition to the origins that may call everything."""
    return Cors(_EXPOSED, _PREFLIGHT, frozenset(origin.lower() for origin in origins))


class CollectionsProtocol:
    """The handlers of the collections protocol."""

    def __init__(self, context: CollectionsContext) -> None:
        self.context = context
        self._config = ConfigHandler(context)
        self._cors = cors_of(context.settings.cors)
        self._tails = LiveTails(context, TAILS)
        self._checking: Recurrence | None = None
        self._watch: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start refreshing the revocation lists, and checking the certificates of live responses."""
        self._checking = self.context.hub.every(CHECK_SECONDS, "check of live certificates", self._tails.check)
        self._watch = asyncio.ensure_future(
            self.context.authorizer.capabilities.revocations.watch(self.context.hub.in_thread)
        )

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._checking is not None:
            self._checking.stop()

    def routes(self) -> list[Route]:
        routes = [self._route("GET", CONFIG, self._config.config)]
        for namespace, index in self.context.collections.namespaces.items():
            for mount in mounts_of(namespace):
                routes += self._mounted(mount, index)
        return [*routes, *self._preflights(routes)]

    @property
    def described(self) -> Described:
        """The description. A namespace is mounted twice, and described once."""
        return describe(mounts_of(namespace)[0] for namespace in self.context.collections.namespaces)

    def _mounted(self, mount: str, index: PathIndex) -> Iterator[Route]:
        context = self.context
        push = PushHandler(context, index, f"{mount}/push/")
        pull = PullHandler(context, index, f"{mount}/pull/")
        live = LiveHandler(self._tails, index, f"{mount}/live/")
        listing = ListHandler(context, index, f"{mount}/list/")
        batch = BatchHandler(context, index)
        yield self._route("POST", mount + PUSH, push.push, body="any", fast=True)
        yield self._route("GET", mount + PULL, pull.pull, fast=True)
        yield self._route("GET", mount + LIVE, live.open, fast=True, stream=True)
        yield self._route("GET", mount + LIST, listing.get)
        yield self._route("GET", mount + BATCH, batch.pull, fast=True)

    def _preflights(self, routes: list[Route]) -> Iterator[Route]:
        for path in dict.fromkeys(route.path for route in routes):
            yield self._route("OPTIONS", path, preflight)

    def _route(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        body: str = "none",
        fast: bool = False,
        stream: bool = False,
    ) -> Route:
        return Route(
            method=method,
            path=path,
            handler=handler,
            body=body,
            fast=fast,
            stream=stream,
            own_access=True,
            certified=True,
            spans="path" if path.endswith("{path}") else "",
            cors=self._cors,
            errors=reply_to,
            refuse=refuse,
        )
