"""``GET /config``: which collections there are, for clients that want to know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from strandline.protocols.collections.batch import Batching
from strandline.protocols.collections.catalogue import Catalogue
from strandline.protocols.collections.config import Collection
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.list import Listing
from strandline.protocols.collections.openapi import describe
from strandline.protocols.collections.paths import BATCH, CONFIG, LIST, PULL, PUSH, mounts_of
from strandline.protocols.collections.permissions import Caller, role_filtered
from strandline.protocols.collections.problems import Refused, no_such_path, refuse, reply_to
from strandline.protocols.collections.pull import Pulling
from strandline.protocols.collections.push import Pushing
from strandline.protocols.http import Call, Cors, Handler, Reply, Route, preflight
from strandline.protocols.openapi import Described

Shown = Callable[[Collection], bool]


class Telling:
    def __init__(self, context: CollectionsContext) -> None:
        self._context = context
        self._everything = _rendered(context, lambda collection: True)

    async def config(self, call: Call) -> Reply:
        """GET /config"""
        endpoint = self._context.settings.config_endpoint
        if endpoint == "off":
            raise no_such_path()
        if endpoint == "public":
            return Reply(self._everything)
        roles = (await self._caller(call)).roles
        return Reply(_rendered(self._context, lambda collection: role_filtered(collection, roles)))

    async def _caller(self, call: Call) -> Caller:
        """Who asks; somebody whose certificate is no good gets to see nothing."""
        try:
            caller = self._context.admission.identify(call, self._context.hub.wall())
            return caller if isinstance(caller, Caller) else await caller
        except Refused:
            return Caller()


def _rendered(context: CollectionsContext, shown: Shown) -> bytes:
    config = context.config
    answer: dict[str, Any] = {"collections": _infos(config.collections, shown)}
    if config.namespaces:
        answer["namespaces"] = {
            name: {"collections": _infos(collections, shown)} for name, collections in config.namespaces.items()
        }
    return msgspec.json.encode(answer)


def _infos(collections: Iterable[Collection], shown: Shown) -> list[dict[str, Any]]:
    return [info_of(collection) for collection in collections if shown(collection)]


def info_of(collection: Collection) -> dict[str, Any]:
    info: dict[str, Any] = {
        "name": collection.name,
        "maxBodyBytes": collection.max_body_bytes,
        "encryption": collection.encryption,
        "allowedMimeTypes": list(collection.allowed_mime_types),
    }
    if collection.pull_only:
        info["pullOnly"] = True
    if collection.push_only:
        info["pushOnly"] = True
    if collection.append_only is not None:
        info["appendOnly"] = {"type": "by_timestamp", **msgspec.to_builtins(collection.append_only)}
    if collection.ttl_ms is not None:
        info["ttlMs"] = collection.ttl_ms
    return info


# --- What pages of allowed origins may read and send ----------------------------------------------------------------

#: A signed request needs all of these.
_ALLOWED = (
    b"Authorization, Content-Type, Accept, If-None-Match, X-Starfish-Sig, X-Starfish-Ts, X-Starfish-Nonce, "
    b"X-Starfish-Pub, X-Requested-With"
)
_EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", _ALLOWED),
    (b"access-control-max-age", b"86400"),
)


def cors_of(origins: tuple[str, ...]) -> Cors:
    """``origins`` may call collections, beside those that may call everything."""
    return Cors(_EXPOSED, _PREFLIGHT, frozenset(origin.lower() for origin in origins))


# --- The face as a whole: its routes, at the root and once more for every namespace ---------------------------------


class CollectionsFace:
    """Everything of the protocol that answers HTTP requests."""

    def __init__(self, context: CollectionsContext) -> None:
        self.context = context
        self.telling = Telling(context)
        self._cors = cors_of(context.settings.cors)
        self._watch: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Keep the revocation lists current from now on."""
        self._watch = asyncio.ensure_future(self.context.admission.callers.revocations.watch())

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def routes(self) -> list[Route]:
        config = self.context.config
        routes = [*self._mounted("", Catalogue(config.collections)), self._route("GET", CONFIG, self.telling.config)]
        for namespace, collections in config.namespaces.items():
            catalogue = Catalogue(collections, namespace)
            for mount in mounts_of(namespace):
                routes += self._mounted(mount, catalogue)
        return [*routes, *self._preflights(routes)]

    @property
    def described(self) -> Described:
        """Of the two places where a namespace is, one is told."""
        mounts = ["", *(mounts_of(namespace)[0] for namespace in self.context.config.namespaces)]
        return describe(mounts)

    def _mounted(self, mount: str, catalogue: Catalogue) -> Iterator[Route]:
        context = self.context
        push = Pushing(context, catalogue, f"{mount}/push/")
        pull = Pulling(context, catalogue, f"{mount}/pull/")
        listing = Listing(context, catalogue, f"{mount}/list/")
        batching = Batching(context, catalogue)
        yield self._route("POST", mount + PUSH, push.push, body="any", fast=True)
        yield self._route("GET", mount + PULL, pull.pull, fast=True)
        yield self._route("GET", mount + LIST, listing.get)
        yield self._route("GET", mount + BATCH, batching.pull, fast=True)

    def _preflights(self, routes: list[Route]) -> Iterator[Route]:
        for path in dict.fromkeys(route.path for route in routes):
            yield self._route("OPTIONS", path, preflight)

    def _route(self, method: str, path: str, handler: Handler, *, body: str = "none", fast: bool = False) -> Route:
        return Route(
            method=method,
            path=path,
            handler=handler,
            body=body,
            fast=fast,
            own_access=True,
            certified=True,
            spans="path" if path.endswith("{path}") else "",
            cors=self._cors,
            errors=reply_to,
            refuse=refuse,
        )
