"""Live responses of append-only documents: their elements as server-sent events, as they are appended.

A live response shows what repeated pulls with a checkpoint would show: the same elements, with the same fields, to the
same callers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.collections.documents import Document
from strandline.collections.paths import DocumentPath
from strandline.collections.permissions import Caller, hidden_fields
from strandline.collections.pull import render_each
from strandline.delivery.watch import PlainSubject
from strandline.engine import Page
from strandline.engine.record import MAX_TIME
from strandline.protocols.collections.live_tails import HidingView, LiveTail, LiveTails
from strandline.service import sse
from strandline.service.access import Access

#: The limits of one page. Hidden fields make the server parse each element, which takes about 5 µs.
PAGE_ELEMENTS = 128
PAGE_BYTES = 256 << 10


class ElementPage(NamedTuple):
    """Elements as events, with their times."""

    times: list[int]
    frames: list[bytes]
    joined: bytes


class ElementView(HidingView):
    __slots__ = ()

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": PAGE_ELEMENTS, "max_bytes": PAGE_BYTES}

    def render(self, subject: Any, after: int, page: Page) -> ElementPage:
        elements = render_each(page, self.hidden)
        frames = [sse.frame(b"element", one, b"%d" % ts) for ts, one in zip(page.ts, elements, strict=True)]
        return ElementPage(page.ts, frames, b"".join(frames))


class ElementTail(LiveTail):
    """The elements of one document, new ones or those after a checkpoint."""

    __slots__ = ("_since",)

    def __init__(
        self, tails: LiveTails, access: Access, path: DocumentPath, caller: Caller, checkpoint: int | None
    ) -> None:
        hidden = hidden_fields(path.collection, caller.roles)
        view = None if path.rules.field in hidden else tails.view(ElementView, hidden)
        super().__init__(tails, access, path, caller, view)
        #: Only later elements are sent. As in a pull, the checkpoint 0 includes the time 0; None: all new elements.
        self._since = -1 if not checkpoint else min(checkpoint, MAX_TIME)
        self._start = 0 if checkpoint == 0 else None

    def find(self) -> Document | None:
        return self._tails.context.documents.find(self.key)

    def subject(self, document: Document) -> PlainSubject:
        return PlainSubject(document.log)

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

    # --- elements --------------------------------------------------------------------------------------------------

    def send(self, content: ElementPage) -> None:
        if not content.times:
            return
        if content.times[0] > self._since:
            self.write(content.joined)
        else:
            shown = zip(content.times, content.frames, strict=True)
            self.write(b"".join([frame for ts, frame in shown if ts > self._since]))
        self._since = max(self._since, content.times[-1])
