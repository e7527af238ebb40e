"""``GET /list/<prefix>``: the documents of a collection. ``GET /config``: the collections of the server."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable

from msgspec import UNSET

from strandline.collections.collections import LIST_LIMIT, MAX_LIST_LIMIT
from strandline.collections.config import LIST, Collection
from strandline.collections.errors import invalid_path
from strandline.collections.paths import PathIndex, PathMatch, key_is_safe
from strandline.collections.permissions import Caller, role_filtered
from strandline.collections.rate_limits import LIST as LISTING
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import CollectionRefusal, no_such_path
from strandline.protocols.collections.pull import MAX_DIGITS
from strandline.protocols.collections.wire import CollectionInfo, ConfigAnswer, ListAnswer, NamespaceInfo, encode
from strandline.service.http import Call, Reply

_POSITIVE = re.compile("[1-9][0-9]*", re.ASCII)


class ListHandler:
    """``prefix`` is the part of the route before the path of the documents."""

    def __init__(self, context: CollectionsContext, index: PathIndex, prefix: str) -> None:
        self._context = context
        self._index = index
        self._skip = len(prefix)

    def get(self, call: Call) -> Reply | Awaitable[Reply]:
        """GET /list/<prefix>"""
        found = self._index.resolve_list(call.head.path[self._skip :])
        caller = self._context.authorizer.authorize(call, found.bound, LIST, found.params, self._context.hub.wall())
        if not isinstance(caller, Caller):
            return self._list_later(call, found, caller)
        return self._list(call, found, caller)

    async def _list_later(self, call: Call, found: PathMatch, caller: Awaitable[Caller]) -> Reply:
        return self._list(call, found, await caller)

    def _list(self, call: Call, found: PathMatch, caller: Caller) -> Reply:
        context = self._context
        context.check_rate(found.bound, LISTING, caller, call, context.hub.now())
        prefix = found.bound.path.prefix(found.params)
        if not key_is_safe(prefix):
            raise invalid_path()
        limit = _limit(call.query.get("limit"))
        after = call.query.get("after", "")
        items = context.collections.list_documents(self._index, found.bound, prefix, after, limit + 1)
        return Reply(encode(ListAnswer(items[:limit], len(items) > limit)))


def _limit(text: str | None) -> int:
    if text is None:
        return LIST_LIMIT
    if len(text) > MAX_DIGITS or _POSITIVE.fullmatch(text) is None:
        raise CollectionRefusal(400, "Invalid limit parameter")
    return min(int(text), MAX_LIST_LIMIT)


class ConfigHandler:
    """Lists all collections, or those that the caller has a role for."""

    def __init__(self, context: CollectionsContext) -> None:
        self._context = context
        self._everything = self._rendered(lambda collection: True)

    async def config(self, call: Call) -> Reply:
        """GET /config"""
        endpoint = self._context.settings.config_endpoint
        if endpoint == "off":
            raise no_such_path()
        if endpoint == "public":
            return Reply(self._everything)
        roles = (await self._context.caller_of(call)).roles
        return Reply(self._rendered(lambda collection: role_filtered(collection, roles)))

    def _rendered(self, shown: Callable[[Collection], bool]) -> bytes:
        def infos(collections: Iterable[Collection]) -> list[CollectionInfo]:
            return [CollectionInfo.of(collection) for collection in collections if shown(collection)]

        config = self._context.config
        namespaces = {name: NamespaceInfo(infos(collections)) for name, collections in config.namespaces.items()}
        return encode(ConfigAnswer(infos(config.collections), namespaces or UNSET))
