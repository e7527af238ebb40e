"""``GET /list/<prefix>``: the documents of a collection."""

from __future__ import annotations

import re
from collections.abc import Awaitable

import msgspec

from strandline.collections.collections import LIST_LIMIT, MAX_LIST_LIMIT
from strandline.collections.config import LIST
from strandline.collections.errors import invalid_path
from strandline.collections.paths import PathIndex, PathMatch, key_is_safe
from strandline.collections.permissions import Caller
from strandline.collections.rate_limits import LIST as LISTING
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import Refused
from strandline.protocols.collections.pull import MAX_DIGITS
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
        items = context.documents.list_below(prefix, call.query.get("after", ""), limit + 1)
        more = len(items) > limit
        return Reply(msgspec.json.encode({"items": items[:limit], "hasMore": more}))


def _limit(text: str | None) -> int:
    if text is None:
        return LIST_LIMIT
    if len(text) > MAX_DIGITS or _POSITIVE.fullmatch(text) is None:
        raise Refused(400, "Invalid limit parameter")
    return min(int(text), MAX_LIST_LIMIT)
