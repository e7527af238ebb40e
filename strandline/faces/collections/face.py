"""The face as a whole: its routes, at the root and once more for every namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from strandline.faces.collections.batching import Batching
from strandline.faces.collections.browsers import cors_of
from strandline.faces.collections.catalogue import Catalogue
from strandline.faces.collections.context import CollectionsContext
from strandline.faces.collections.listing import Listing
from strandline.faces.collections.openapi import describe
from strandline.faces.collections.paths import BATCH, CONFIG, LIST, PULL, PUSH, mounts_of
from strandline.faces.collections.problems import refuse, reply_to
from strandline.faces.collections.pulling import Pulling
from strandline.faces.collections.pushing import Pushing
from strandline.faces.collections.telling import Telling
from strandline.faces.describing import Described
from strandline.faces.web import Handler, Route, preflight


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
