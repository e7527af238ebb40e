"""``GET /list/<prefix>``: which documents a collection has."""

from __future__ import annotations

import re
from collections.abc import Awaitable

import msgspec

from strandline.protocols.collections.catalogue import Catalogue, Found
from strandline.protocols.collections.config import LIST
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.permissions import Caller
from strandline.protocols.collections.problems import Refused, invalid_path, no_such_path, regular_document
from strandline.protocols.collections.rate_limits import LIST as LISTING
from strandline.protocols.collections.template import key_is_safe, segments_of, values_fit
from strandline.protocols.http import Call, Reply
from strandline.protocols.ownership import COLLECTION

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
#: Names that are looked at in one go.
_CHUNK = 1024
#: Behind every name that begins like what is in front of it.
_LAST = "\U0010ffff"
_POSITIVE = re.compile("[1-9][0-9]*", re.ASCII)


class Listing:
    """``prefix`` is what comes before the path of the documents."""

    def __init__(self, context: CollectionsContext, catalogue: Catalogue, prefix: str) -> None:
        self._context = context
        self._catalogue = catalogue
        self._skip = len(prefix)

    def get(self, call: Call) -> Reply | Awaitable[Reply]:
        """GET /list/<prefix>"""
        rest = call.head.path[self._skip :]
        found = self._catalogue.find_list(segments_of(rest) if rest else [])
        if found is None:
            raise no_such_path()
        if found.entry.collection.append_only is None:
            raise regular_document(found.entry.collection.name)
        if not values_fit(found.params):
            raise invalid_path()
        caller = self._context.admission.admit(call, found.entry, LIST, found.params, self._context.hub.wall())
        if not isinstance(caller, Caller):
            return self._list_later(call, found, caller)
        return self._list(call, found, caller)

    async def _list_later(self, call: Call, found: Found, caller: Awaitable[Caller]) -> Reply:
        return self._list(call, found, await caller)

    def _list(self, call: Call, found: Found, caller: Caller) -> Reply:
        context = self._context
        context.check_rate(found.entry, LISTING, caller, call, context.hub.now())
        prefix = found.entry.template.prefix(found.params)
        if not key_is_safe(prefix):
            raise invalid_path()
        limit = _limit(call.query.get("limit"))
        items = self._items(prefix, call.query.get("after", ""), limit + 1)
        more = len(items) > limit
        return Reply(msgspec.json.encode({"items": items[:limit], "hasMore": more}))

    def _items(self, prefix: str, after: str, most: int) -> list[str]:
        """The last segments of the keys of documents, in order."""
        engine = self._context.engine
        items: list[str] = []
        behind = prefix + after
        while True:
            names = engine.names(prefix, behind, _CHUNK)
            for name in names:
                behind = name
                item, slash, _ = name[len(prefix) :].partition("/")
                if slash:
                    # What is further down belongs to another path; all of it is passed by at once.
                    behind = f"{prefix}{item}/{_LAST}"
                    break
                log = engine.find(name)
                if item and log is not None and COLLECTION in log.notes and log.head:
                    items.append(item)
                    if len(items) == most:
                        return items
            else:
                if len(names) < _CHUNK:
                    return items


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if len(text) > 400 or _POSITIVE.fullmatch(text) is None:
        raise Refused(400, "Invalid limit parameter")
    return min(int(text), MAX_LIMIT)
