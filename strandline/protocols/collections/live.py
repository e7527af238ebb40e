"""``GET /live/<path>``: the elements of a document as server-sent events, as they are appended.

A live response shows what repeated pulls with a checkpoint would show: the same elements, with the same fields, to the
same callers. It ends when the certificate of its caller expires or is revoked.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from strandline.collections.config import READ
from strandline.collections.documents import Document
from strandline.collections.errors import CollectionError, invalid_path, unauthorized
from strandline.collections.paths import DocumentPath, PathIndex
from strandline.collections.permissions import Caller, hidden_fields
from strandline.collections.pull import PullBounds, is_expired, render_each, select
from strandline.collections.rate_limits import PULL
from strandline.delivery.watch import FeedPosition, FeedReader, Feeds, FeedView, PlainSubject
from strandline.engine import Log, Page
from strandline.engine.errors import UnknownLog
from strandline.engine.record import MAX_TIME
from strandline.nearest_name import MAX_QUOTED
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import CollectionRefusal, invalid, refused_by
from strandline.protocols.collections.pull import number_of
from strandline.protocols.collections.wire import CollectionErrorAnswer, encode
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.http import Call, Later, StreamedAnswer, later_of
from strandline.service.live import Ending, LiveResponse

log = logging.getLogger(__name__)

#: The limits of one page. Hidden fields make the server parse each element, which takes about 5 µs.
PAGE_ELEMENTS = 128
PAGE_BYTES = 256 << 10
#: How often the certificates of open responses are checked. An element is never sent without a check.
CHECK_SECONDS = 2.0

CHECKPOINT = "checkpoint"
#: The gate reads the API key from the parameter ``token``.
PARAMETERS = (CHECKPOINT, "token")

_ID = re.compile(rb"0|[1-9][0-9]{0,18}")


class LivePage(NamedTuple):
    """Elements as events, with their times."""

    times: list[int]
    frames: list[bytes]
    joined: bytes


class LiveView(FeedView):
    """Elements without the hidden fields. All callers that may not see the same fields share a view."""

    __slots__ = ("_hidden",)

    def __init__(self, hidden: frozenset[str]) -> None:
        super().__init__(strong=False)
        self._hidden = hidden

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": PAGE_ELEMENTS, "max_bytes": PAGE_BYTES}

    def render(self, subject: Any, after: int, page: Page) -> LivePage:
        elements = render_each(page, self._hidden)
        frames = [sse.frame(b"element", one, b"%d" % ts) for ts, one in zip(page.ts, elements, strict=True)]
        return LivePage(page.ts, frames, b"".join(frames))


class LiveTails:
    """The live responses of all mounts: their views and feeds, and those that wait for a document to be created."""

    def __init__(self, context: CollectionsContext) -> None:
        self.context = context
        self.feeds = Feeds(context.hub, context.kernel.pressure)
        self._views: WeakValueDictionary[frozenset[str], LiveView] = WeakValueDictionary()
        #: By the key of the document.
        self._waiting: dict[str, set[LiveTail]] = {}
        context.kernel.catalog.created[self._created] = None

    def view(self, hidden: frozenset[str]) -> LiveView:
        view = self._views.get(hidden)
        if view is None:
            view = self._views[hidden] = LiveView(hidden)
        return view

    def wait(self, tail: LiveTail) -> None:
        self._waiting.setdefault(tail.key, set()).add(tail)

    def forget(self, tail: LiveTail) -> None:
        waiting = self._waiting.get(tail.key)
        if waiting is not None:
            waiting.discard(tail)
            if not waiting:
                del self._waiting[tail.key]

    def check(self) -> None:
        """End the responses whose certificates are no longer valid."""
        for tail in self.context.kernel.live.of(LiveTail):
            tail.check_caller()

    def _created(self, log: Log) -> None:
        for tail in self._waiting.pop(log.name, ()):
            tail.begin()


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
        context, now = self._context, self._context.hub.now()
        context.check_rate(path.bound, PULL, caller, call, now)
        if not path.is_safe:
            raise invalid_path()
        if path.is_regular or not path.rules.persist:
            message = f"collection {path.collection.name!r} has no stored elements to follow"
            raise CollectionRefusal(400, "live_not_supported", {"message": message})
        _check_query(call)
        checkpoint = _checkpoint(call)
        if checkpoint is not None:
            select(path.collection, path.rules, PullBounds(checkpoint), now)
        context.kernel.live.check_room(call.access)
        document = context.documents.find(path.key)
        tail = LiveTail(self._tails, call.access, path, caller, checkpoint)
        if document is None or tail.start_in_memory(document):
            return tail
        return later_of(self._find_start(tail, document))

    async def _find_start(self, tail: LiveTail, document: Document) -> StreamedAnswer:
        await self._context.workers.normal.run(tail.start_from_disk, document)
        return tail


def _checkpoint(call: Call) -> int | None:
    """The time after which elements are sent; None for elements that are appended from now on. A browser that
    reconnects repeats its first URL: its latest position is in the header."""
    last = call.head.headers.get(b"last-event-id", b"")
    if not last:
        return number_of(call.query, CHECKPOINT)
    if _ID.fullmatch(last) is None:
        raise invalid("Last-Event-ID")
    return int(last)


def _check_query(call: Call) -> None:
    """Refuse other parameters. With a misspelt checkpoint or the bounds of a pull, the response would leave out
    elements, and look like that of a document without new ones."""
    for name in call.query:
        if name not in PARAMETERS:
            raise CollectionRefusal(
                400, f"unknown parameter {name[:MAX_QUOTED]!r}; expected {CHECKPOINT!r}, or none for new elements only"
            )


class LiveTail(LiveResponse, FeedReader):
    """One live response. Its position is the last element that was sent, or the checkpoint."""

    __slots__ = ("_caller", "_path", "_since", "_start", "_tails", "_view", "position")

    def __init__(
        self, tails: LiveTails, access: Access, path: DocumentPath, caller: Caller, checkpoint: int | None
    ) -> None:
        super().__init__(tails.context.kernel.live, access)
        self._tails = tails
        self._path = path
        self._caller = caller
        hidden = hidden_fields(path.collection, caller.roles)
        #: None if the caller may not see the elements at all.
        self._view = None if path.rules.field in hidden else tails.view(hidden)
        #: Only later elements are sent. As in a pull, the checkpoint 0 includes the time 0; None: all new elements.
        self._since = -1 if not checkpoint else min(checkpoint, MAX_TIME)
        #: The seq to start after; None: at the end of the document.
        self._start: int | None = 0 if checkpoint == 0 else None
        self.position: FeedPosition | None = None

    @property
    def key(self) -> str:
        return self._path.key

    # --- the start -------------------------------------------------------------------------------------------------

    def start_in_memory(self, document: Document) -> bool:
        """Find the element to start from. Returns False if the disk must be read."""
        if self._since < 0:
            if self._start is None:
                self._start = document.log.head
            return True
        page = document.log.read_resident(0, 1, since=self._since + 1)
        return page is not None and self._start_at(page)

    def start_from_disk(self, document: Document) -> None:
        self._start_at(document.log.read(0, 1, since=self._since + 1))

    def _start_at(self, page: Page) -> bool:
        self._start = page.seqs[0] - 1 if page.seqs else page.next_after
        return True

    # --- the connection --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Attach to the document, or wait until it is created."""
        if self._view is None:
            return
        try:
            document = self._tails.context.documents.find(self.key)
            if document is None:
                # Whatever is appended to a document that does not exist yet is new.
                self._start = 0
                self._tails.wait(self)
                return
            start = document.log.head if self._start is None else self._start
            self.position = FeedPosition(self, PlainSubject(document.log), start, self._view)
            self._tails.feeds.attach(self.position)
        except UnknownLog:
            self._tails.wait(self)
            return
        except CollectionError as error:
            self._end_with(error)
            return
        self.go_on()

    def leave(self) -> None:
        self._tails.forget(self)
        if self.position is not None:
            self._tails.feeds.detach(self.position)

    def last_message(self, ending: Ending) -> bytes:
        return b"" if ending is Ending.SHUTDOWN else _end_frame(CollectionErrorAnswer(ending.value))

    def check_caller(self) -> bool:
        """Whether the certificate of the caller is still valid. Ends the response if it is not."""
        context = self._tails.context
        if context.authorizer.capabilities.is_valid(self._caller, context.hub.wall()):
            return True
        self._end_with(unauthorized())
        return False

    def _end_with(self, error: Exception) -> None:
        refusal = refused_by(error)
        self.end(b"" if refusal is None else _end_frame(refusal.answer))

    # --- elements --------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Send elements until the reader has all, its buffer is full, or other readers have waited long enough."""
        place = self.position
        if place is None or place.feed is None or not place.behind or not self.keeps_up or not self.check_caller():
            return
        if is_expired(self._path.collection, place.subject.log.last_ts, self._tails.context.hub.now()):
            # A pull shows nothing now. It shows these elements again after the next append, and so does this response.
            return
        for page in place.pages(lambda: self.keeps_up):
            if page.content is not None:
                self._send(page.content)

    def _send(self, page: LivePage) -> None:
        if not page.times:
            return
        if page.times[0] > self._since:
            self.write(page.joined)
        else:
            shown = zip(page.times, page.frames, strict=True)
            self.write(b"".join([frame for ts, frame in shown if ts > self._since]))
        self._since = max(self._since, page.times[-1])

    # --- the feed --------------------------------------------------------------------------------------------------

    def deliver(self, place: FeedPosition) -> None:
        self.go_on()

    def gone(self, place: FeedPosition) -> None:
        """The document was removed, for example because its first append failed: wait for the next one."""
        self.position = None
        self.begin()

    def paced(self, place: FeedPosition) -> None:
        pass

    def failed(self, place: FeedPosition, error: Exception) -> None:
        log.warning("closed a live response for %r after element %d: %s", self.key, place.cursor, error)
        self._end_with(error)


def _end_frame(answer: CollectionErrorAnswer) -> bytes:
    """The last event: the reason why the response ends."""
    return sse.frame(b"end", encode(answer))
