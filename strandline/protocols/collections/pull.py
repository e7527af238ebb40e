"""``GET /pull/<path>``: elements of a document, within the bounds of the query."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping

from msgspec import UNSET

from strandline.collections.config import PUBLIC, READ, Collection
from strandline.collections.documents import EMPTY, Document, Version
from strandline.collections.errors import invalid_path
from strandline.collections.paths import DocumentPath, PathIndex
from strandline.collections.permissions import Caller, hidden_fields
from strandline.collections.pull import Elements, ElementSelection, PullBounds, is_expired, select
from strandline.collections.rate_limits import PULL
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import invalid
from strandline.protocols.collections.wire import PullAnswer, encode, stored
from strandline.service.admission import Replying, reply_of
from strandline.service.http import Call, Reply
from strandline.service.problems import Headers

#: A number without a sign or leading zeros, of any length.
_NUMBER = re.compile(r"0|[1-9][0-9]*", re.ASCII)
#: The digits of a number: more than any clock has, and few enough to parse quickly.
MAX_DIGITS = 400
_TRUE = ("true", "1")


def bounds_of(query: Mapping[str, str]) -> PullBounds:
    """The bounds in a query string. With a ``limit``, ``last`` is ignored."""
    checkpoint = _number(query, "checkpoint")
    limit = _number(query, "limit")
    last = _number(query, "last") if limit is None else None
    return PullBounds(checkpoint, last, query.get("full") in _TRUE, limit)


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if len(text) > MAX_DIGITS or _NUMBER.fullmatch(text) is None:
        raise invalid(name)
    return int(text)


class PullHandler:
    """``prefix`` is the part of the route before the path of a document."""

    def __init__(self, context: CollectionsContext, index: PathIndex, prefix: str) -> None:
        self._context = context
        self._index = index
        self._skip = len(prefix)

    def pull(self, call: Call) -> Replying:
        """GET /pull/<path>"""
        now = self._context.hub.now()
        path = self._index.resolve(call.head.path[self._skip :], READ)
        caller = self._context.authorizer.authorize(call, path.bound, READ, path.params, self._context.hub.wall())
        if not isinstance(caller, Caller):
            return self._pull_later(call, path, caller)
        return self._pull(call, path, caller, now)

    async def _pull_later(self, call: Call, path: DocumentPath, caller: Awaitable[Caller]) -> Reply:
        return await reply_of(self._pull(call, path, await caller, self._context.hub.now()))

    def _pull(self, call: Call, path: DocumentPath, caller: Caller, now: int) -> Replying:
        context, collection, rules = self._context, path.collection, path.rules
        context.check_rate(path.bound, PULL, caller, call, now)
        if not path.is_safe:
            raise invalid_path()
        if not rules.persist:
            return Reply(encode(PullAnswer({}, "", now)))
        selection = select(collection, rules, bounds_of(call.query), now)
        document = context.documents.find(path.key)
        if document is None:
            return Reply(encode(PullAnswer({rules.field: []}, "", now)))
        version = document.version()
        if version is None:
            return self._pull_from_disk(call, path, caller, document, selection)
        return self._answer(call, path, caller, document, version, selection)

    async def _pull_from_disk(
        self, call: Call, path: DocumentPath, caller: Caller, document: Document, selection: ElementSelection
    ) -> Reply:
        version = await self._context.workers.normal.run(document.version_from_disk)
        return await reply_of(self._answer(call, path, caller, document, version, selection))

    def _answer(
        self,
        call: Call,
        path: DocumentPath,
        caller: Caller,
        document: Document,
        version: Version,
        selection: ElementSelection,
    ) -> Replying:
        collection, rules, now = path.collection, path.rules, self._context.hub.now()
        if version is EMPTY:
            return Reply(encode(PullAnswer({rules.field: []}, "", now)))
        if is_expired(collection, version, now):
            return Reply(encode(PullAnswer({}, "", now)))
        etag = b'"%b"' % version.hash.encode()
        if call.head.headers.get(b"if-none-match") == etag:
            return Reply(b"", 304)
        headers: Headers = ((b"etag", etag), *cache_control(collection))
        hidden = hidden_fields(collection, caller.roles)
        if rules.field in hidden:
            return Reply(encode(PullAnswer({}, version.hash, now)), headers=headers)
        elements = self._context.reader.read(document, version, selection, hidden)
        if elements is None:
            return self._read(document, version, selection, hidden, rules.field, headers)
        return _reply(rules.field, elements, version, now, headers)

    async def _read(
        self,
        document: Document,
        version: Version,
        selection: ElementSelection,
        hidden: frozenset[str],
        field: str,
        headers: Headers,
    ) -> Reply:
        """Read elements that are not in memory, or take long."""
        elements = await self._context.workers.normal.run(
            self._context.reader.read_from_disk, document, version, selection, hidden
        )
        return _reply(field, elements, version, self._context.hub.now(), headers)


def _reply(field: str, elements: Elements, version: Version, now: int, headers: Headers) -> Reply:
    answer = PullAnswer({field: stored(elements.json)}, version.hash, now, elements.more or UNSET)
    return Reply(encode(answer), headers=headers)


def cache_control(collection: Collection) -> Headers:
    if collection.cache_duration_ms is None:
        return ()
    private = "" if PUBLIC in collection.read_roles else "private, "
    return ((b"cache-control", f"{private}max-age={collection.cache_duration_ms // 1000}".encode()),)
