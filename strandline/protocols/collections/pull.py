"""``GET /pull/<path>``: the elements of a document, so many of them as was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec

from strandline.protocols.collections.catalogue import Catalogue
from strandline.protocols.collections.config import PUBLIC, READ, Collection
from strandline.protocols.collections.context import CollectionsContext, Place, Places, hidden_from
from strandline.protocols.collections.documents import EMPTY, Document, Version
from strandline.protocols.collections.elements import Elements
from strandline.protocols.collections.permissions import Caller
from strandline.protocols.collections.problems import Headers, invalid_path
from strandline.protocols.collections.pull_request import Wanted, bounds_of, wanted
from strandline.protocols.collections.rate_limits import PULL
from strandline.protocols.http import Call, Reply
from strandline.protocols.turns import Replying, reply_of


class Pulling:
    """``prefix`` is what comes before the path of a document."""

    def __init__(self, context: CollectionsContext, catalogue: Catalogue, prefix: str) -> None:
        self._context = context
        self._places = Places(catalogue, READ)
        self._skip = len(prefix)

    def pull(self, call: Call) -> Replying:
        """GET /pull/<path>"""
        head, now = call.head, self._context.hub.now()
        place = self._places.find(head.path[self._skip :])
        caller = self._context.admission.admit(call, place.entry, READ, place.params, self._context.hub.wall())
        if not isinstance(caller, Caller):
            return self._pull_later(call, place, caller)
        return self._pull(call, place, caller, now)

    async def _pull_later(self, call: Call, place: Place, caller: Awaitable[Caller]) -> Reply:
        return await reply_of(self._pull(call, place, await caller, self._context.hub.now()))

    def _pull(self, call: Call, place: Place, caller: Caller, now: int) -> Replying:
        context, collection, rules = self._context, place.collection, place.rules
        context.check_rate(place.entry, PULL, caller, call, now)
        if not place.is_safe:
            raise invalid_path()
        if not rules.persist:
            return Reply(answer(b"{}", "", now))
        asked = wanted(collection, rules, bounds_of(call.query), now)
        document = context.documents.find(place.key)
        if document is None:
            return Reply(answer(data_of(rules.field, b""), "", now))
        version = document.version()
        if version is None:
            return self._pull_from_disk(call, place, caller, document, asked)
        return self._answer(call, place, caller, document, version, asked)

    async def _pull_from_disk(
        self, call: Call, place: Place, caller: Caller, document: Document, asked: Wanted
    ) -> Reply:
        version = await asyncio.to_thread(document.version_from_disk)
        return await reply_of(self._answer(call, place, caller, document, version, asked))

    def _answer(
        self, call: Call, place: Place, caller: Caller, document: Document, version: Version, asked: Wanted
    ) -> Replying:
        collection, rules, now = place.collection, place.rules, self._context.hub.now()
        if version is EMPTY:
            return Reply(answer(data_of(rules.field, b""), "", now))
        if is_expired(collection, version, now):
            return Reply(answer(b"{}", "", now))
        etag = b'"%b"' % version.hash.encode()
        if call.head.headers.get(b"if-none-match") == etag:
            return Reply(b"", 304)
        headers: Headers = ((b"etag", etag), *cache_control(collection))
        hidden = hidden_from(collection, caller)
        if rules.field in hidden:
            return Reply(answer(b"{}", version.hash, now), headers=headers)
        elements = self._context.reader.read(document, version, asked, hidden)
        if elements is None:
            return self._read(document, version, asked, hidden, rules.field, headers)
        return _reply(rules.field, elements, version, now, headers)

    async def _read(
        self,
        document: Document,
        version: Version,
        asked: Wanted,
        hidden: frozenset[str],
        field: str,
        headers: Headers,
    ) -> Reply:
        """What is not at hand, or takes long."""
        elements = await asyncio.to_thread(self._context.reader.read_from_disk, document, version, asked, hidden)
        return _reply(field, elements, version, self._context.hub.now(), headers)


def _reply(field: str, elements: Elements, version: Version, now: int, headers: Headers) -> Reply:
    return Reply(answer(data_of(field, elements.json), version.hash, now, more=elements.more), headers=headers)


def answer(data: bytes, hash: str, now: int, *, more: bool = False) -> bytes:
    """The body of a pull, and an entry of a batch. ``more``: there are further elements behind these."""
    return b'{"data":%b,"hash":"%b","timestamp":%d%b}' % (data, hash.encode(), now, b',"more":true' if more else b"")


def data_of(field: str, elements: bytes) -> bytes:
    return b"{%b:[%b]}" % (msgspec.json.encode(field), elements)


def is_expired(collection: Collection, version: Version, now: int) -> bool:
    """Whether the last element is too old for the document to be shown. The time 0 is no time."""
    return collection.ttl_ms is not None and version.ts > 0 and now - version.ts > collection.ttl_ms


def cache_control(collection: Collection) -> Headers:
    if collection.cache_duration_ms is None:
        return ()
    private = "" if PUBLIC in collection.read_roles else "private, "
    return ((b"cache-control", f"{private}max-age={collection.cache_duration_ms // 1000}".encode()),)
