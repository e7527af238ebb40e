"""``GET /pull/<path>``: elements of a document, within the bounds of the query."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping

from msgspec import UNSET

from strandline.collections.config import READ
from strandline.collections.documents import EMPTY, Document, Version
from strandline.collections.errors import invalid_path
from strandline.collections.paths import DocumentPath, PathIndex
from strandline.collections.permissions import Caller, hidden_fields
from strandline.collections.pull import Elements, ElementSelection, PullBounds, is_expired, select
from strandline.collections.rate_limits import PULL
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import invalid
from strandline.protocols.collections.regular_documents import RegularDocumentHandler
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
    checkpoint = number_of(query, "checkpoint")
    limit = number_of(query, "limit")
    last = number_of(query, "last") if limit is None else None
    return PullBounds(checkpoint, last, query.get("full") in _TRUE, limit)


def number_of(query: Mapping[str, str], name: str) -> int | None:
    """A number of the query string; None if it is not given."""
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
        self._regular = RegularDocumentHandler(context, index)

    def pull(self, call: Call) -> Replying:
        """GET /pull/<path>"""
        now = self._context.hub.now()
        raw_path = call.head.path[self._skip :]
        bundle = self._index.resolve_bundle(raw_path)
        if bundle is not None:
            return self._regular.pull_bundle(call, bundle)
        path = self._index.resolve(raw_path, READ)
        caller = self._context.authorizer.authorize(call, path.bound, READ, path.params, self._context.hub.wall())
        if not isinstance(caller, Caller):
            return self._pull_later(call, path, caller)
        return self._pull(call, path, caller, now)

    async def _pull_later(self, call: Call, path: DocumentPath, caller: Awaitable[Caller]) -> Reply:
        return await reply_of(self._pull(call, path, await caller, self._context.hub.now()))

    def _pull(self, call: Call, path: DocumentPath, caller: Caller, now: int) -> Replying:
        context, collection = self._context, path.collection
        context.check_rate(path.bound, PULL, caller, call, now)
        if not path.is_safe:
            raise invalid_path()
        if path.is_regular:
            return self._regular.pull(call, path, caller)
        rules = path.rules
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
        version = await self._context.workers.normal.run(document.version_from_disk, part=READ)
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
        if is_expired(collection, version.ts, now):
            return Reply(encode(PullAnswer({}, "", now)))
        etag = b'"%b"' % version.hash.encode()
        if call.head.headers.get(b"if-none-match") == etag:
            return Reply(b"", 304)
        headers: Headers = ((b"etag", etag), *self._context.cache_control(collection))
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
            self._context.reader.read_from_disk, document, version, selection, hidden, part=READ
        )
        return _reply(field, elements, version, self._context.hub.now(), headers)


def _reply(field: str, elements: Elements, version: Version, now: int, headers: Headers) -> Reply:
    answer = PullAnswer({field: stored(elements.json)}, version.hash, now, elements.more or UNSET)
    return Reply(encode(answer), headers=headers)
