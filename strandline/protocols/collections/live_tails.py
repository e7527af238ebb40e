"""Live responses to callers who follow a document: what those of elements and of versions have in common."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from strandline.collections.documents import Document
from strandline.collections.errors import CollectionError, unauthorized
from strandline.collections.paths import DocumentPath
from strandline.collections.permissions import Caller
from strandline.collections.pull import is_expired
from strandline.collections.regular_documents import RegularDocument
from strandline.delivery.watch import FeedPosition, FeedReader, Feeds, FeedView, PlainSubject
from strandline.engine import Log
from strandline.engine.errors import UnknownLog
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import refused_by
from strandline.protocols.collections.wire import CollectionErrorAnswer, encode
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.live import Ending, Following, LiveResponse

log = logging.getLogger(__name__)

#: How often the certificates of open responses are checked. Nothing is ever sent without a check.
CHECK_SECONDS = 2.0


class HidingView(FeedView):
    """The records of a document without the fields that the caller may not see."""

    __slots__ = ("hidden",)

    def __init__(self, hidden: frozenset[str]) -> None:
        super().__init__(strong=False)
        self.hidden = hidden


V = TypeVar("V", bound=HidingView)


class LiveTails:
    """The live responses of all mounts: their views and feeds, and those that wait for a document to be created.
    ``kinds`` are their classes."""

    def __init__(self, context: CollectionsContext, kinds: tuple[type[LiveTail], ...]) -> None:
        self.context = context
        self.feeds = Feeds(context.hub, context.kernel.pressure)
        self._kinds = kinds
        self._views: WeakValueDictionary[tuple[type[HidingView], frozenset[str]], HidingView] = WeakValueDictionary()
        #: By the key of the document.
        self._waiting: dict[str, set[LiveTail]] = {}
        context.kernel.catalog.created[self._created] = None

    def view(self, kind: type[V], hidden: frozenset[str]) -> V:
        """The view of all callers that may not see the same fields."""
        view = self._views.get((kind, hidden))
        if view is None:
            view = self._views[kind, hidden] = kind(hidden)
        return cast(V, view)

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
        for kind in self._kinds:
            for tail in self.context.kernel.live.of(kind):
                tail.check_caller()

    def _created(self, log: Log) -> None:
        for tail in self._waiting.pop(log.name, ()):
            tail.begin()


class LiveTail(LiveResponse, FeedReader):
    """One live response. Its position is the last record that was sent, or where the caller wants to start.

    ``view`` is None if the caller may not see anything of the document.
    """

    __slots__ = ("_caller", "_path", "_start", "_tails", "_view", "position")

    def __init__(
        self, tails: LiveTails, access: Access, path: DocumentPath, caller: Caller, view: FeedView | None
    ) -> None:
        super().__init__(tails.context.kernel.live, access)
        self._tails = tails
        self._path = path
        self._caller = caller
        self._view = view
        #: The seq to start after; None: at the end of the document.
        self._start: int | None = None
        self.position: FeedPosition | None = None

    @property
    def key(self) -> str:
        return self._path.key

    # --- defined by the kind of document -----------------------------------------------------------------------------

    @abstractmethod
    def find(self) -> Document | RegularDocument | None:
        """The document, if it exists. Raises CollectionError."""

    @abstractmethod
    def subject(self, document: Any) -> PlainSubject:
        """The log of the document, for its feed."""

    @abstractmethod
    def send(self, content: Any) -> None:
        """Write a page that the view has rendered."""

    # --- the connection ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Attach to the document, or wait until it is created."""
        if self._view is None:
            return
        try:
            document = self.find()
            if document is None:
                # Whatever is written to a document that does not exist yet is new.
                self._start = 0
                self._tails.wait(self)
                return
            start = document.log.head if self._start is None else self._start
            self.position = FeedPosition(self, self.subject(document), start, self._view)
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

    def following(self, most: int) -> Following:
        return Following.of(() if self.position is None else (self.position,), most)

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

    # --- records -----------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Send records until the reader has all, its buffer is full, or other readers have waited long enough."""
        place = self.position
        if place is None or place.feed is None or not place.behind or not self.keeps_up or not self.check_caller():
            return
        if self.is_expired(place.subject.log.last_ts):
            # A pull shows nothing now, and shows the document again after the next push. So does this response.
            return
        for page in place.pages(lambda: self.keeps_up):
            if page.content is not None:
                self.send(page.content)

    def is_expired(self, ts: int) -> bool:
        return is_expired(self._path.collection, ts, self._tails.context.hub.now())

    # --- the feed ----------------------------------------------------------------------------------------------------

    def deliver(self, place: FeedPosition) -> None:
        self.go_on()

    def gone(self, place: FeedPosition) -> None:
        """The document was removed, for example because its first push failed: wait for the next one."""
        self.position = None
        self._start = 0
        self.begin()

    def paced(self, place: FeedPosition) -> None:
        pass

    def failed(self, place: FeedPosition, error: Exception) -> None:
        log.warning("closed a live response for %r after record %d: %s", self.key, place.cursor, error)
        self._end_with(error)


def _end_frame(answer: CollectionErrorAnswer) -> bytes:
    """The last event: the reason why the response ends."""
    return sse.frame(b"end", encode(answer))
