"""``GET /live/<path>``: a document as server-sent events, as it is written.

A live response ends when the certificate of its caller expires or is revoked.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any

from strandline.collections.config import READ
from strandline.collections.errors import invalid_path
from strandline.collections.paths import DocumentPath, PathIndex
from strandline.collections.permissions import Caller
from strandline.collections.pull import PullBounds, select
from strandline.collections.rate_limits import PULL
from strandline.nearest_name import MAX_QUOTED
from strandline.protocols.collections.errors import CollectionRefusal, invalid
from strandline.protocols.collections.live_elements import ElementTail
from strandline.protocols.collections.live_tails import LiveTail, LiveTails
from strandline.protocols.collections.live_versions import VersionTail
from strandline.protocols.collections.pull import number_of
from strandline.service.http import Call, Later, StreamedAnswer, later_of

#: The classes of live responses.
TAILS = (ElementTail, VersionTail)

#: The parameter that says what the reader has: the time of an element, or the hash of a version of a regular document.
CHECKPOINT, BASE_HASH = "checkpoint", "baseHash"
#: The gate reads the API key from this parameter.
TOKEN = "token"

_TIME = re.compile(rb"0|[1-9][0-9]{0,18}")
_HASH = re.compile("[0-9a-f]{64}")
_LAST_EVENT_ID = b"last-event-id"


class LiveHandler:
    """``prefix`` is the part of the route before the path of a document."""

    def __init__(self, tails: LiveTails, index: PathIndex, prefix: str) -> None:
        self._tails = tails
        self._context = tails.context
        self._index = index
        self._skip = len(prefix)

    def open(self, call: Call) -> LiveTail | Later:
        """GET /live/<path>"""
        path = self._index.resolve(call.head.path[self._skip :], READ)
        caller = self._context.authorizer.authorize(call, path.bound, READ, path.params, self._context.hub.wall())
        if not isinstance(caller, Caller):
            return later_of(self._open_later(call, path, caller))
        return self._open(call, path, caller)

    async def _open_later(self, call: Call, path: DocumentPath, caller: Awaitable[Caller]) -> StreamedAnswer:
        opened = self._open(call, path, await caller)
        if isinstance(opened, LiveTail):
            return opened
        answer = await opened
        assert isinstance(answer, StreamedAnswer)
        return answer

    def _open(self, call: Call, path: DocumentPath, caller: Caller) -> LiveTail | Later:
        self._context.check_rate(path.bound, PULL, caller, call, self._context.hub.now())
        if not path.is_safe:
            raise invalid_path()
        tail = self._versions(call, path, caller) if path.is_regular else self._elements(call, path, caller)
        self._context.kernel.live.check_room(call.access)
        document: Any = tail.find()
        if document is None or tail.start_in_memory(document):
            return tail
        return later_of(self._find_start(tail, document))

    def _elements(self, call: Call, path: DocumentPath, caller: Caller) -> ElementTail:
        if not path.rules.persist:
            message = f"collection {path.collection.name!r} has no stored elements to follow"
            raise CollectionRefusal(400, "live_not_supported", {"message": message})
        _check_query(call, CHECKPOINT, "none for new elements only")
        checkpoint = _checkpoint(call)
        if checkpoint is not None:
            select(path.collection, path.rules, PullBounds(checkpoint), self._context.hub.now())
        return ElementTail(self._tails, call.access, path, caller, checkpoint)

    def _versions(self, call: Call, path: DocumentPath, caller: Caller) -> VersionTail:
        _check_query(call, BASE_HASH, "none to start with the current version")
        return VersionTail(self._tails, call.access, path, caller, _base_hash(call))

    async def _find_start(self, tail: ElementTail | VersionTail, document: Any) -> StreamedAnswer:
        await self._context.workers.normal.run(tail.start_from_disk, document, part=READ)
        return tail


# A browser that reconnects repeats its first URL: its latest position is in the header.


def _checkpoint(call: Call) -> int | None:
    """The time after which elements are sent; None for elements that are appended from now on."""
    last = call.head.headers.get(_LAST_EVENT_ID, b"")
    if not last:
        return number_of(call.query, CHECKPOINT)
    if _TIME.fullmatch(last) is None:
        raise invalid("Last-Event-ID")
    return int(last)


def _base_hash(call: Call) -> str:
    """The hash of the version that the reader has; empty if it has none."""
    last = call.head.headers.get(_LAST_EVENT_ID, b"").decode("latin-1")
    known = last or call.query.get(BASE_HASH, "")
    if known and _HASH.fullmatch(known) is None:
        raise invalid("Last-Event-ID" if last else BASE_HASH)
    return known


def _check_query(call: Call, parameter: str, otherwise: str) -> None:
    """Refuse other parameters. With a misspelt checkpoint or the bounds of a pull, the response would leave out
    elements, and look like that of a document without new ones."""
    for name in call.query:
        if name not in (parameter, TOKEN):
            raise CollectionRefusal(
                400, f"unknown parameter {name[:MAX_QUOTED]!r}; expected {parameter!r}, or {otherwise}"
            )
