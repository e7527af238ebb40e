"""A stream as server-sent events: each data event is followed by a control event with the offset after it.

Readers at the same position get the same bytes, rendered once.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import Any
from weakref import WeakValueDictionary

from strandline.delivery.watch import FeedPosition, FeedReader, FeedView
from strandline.engine import Page
from strandline.engine.ownership import JSON
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.offsets import cursor, encode, encode_bytes
from strandline.protocols.streams.pages import lost
from strandline.protocols.streams.read_request import ReadRequest
from strandline.protocols.streams.replies import end_offset, next_offset
from strandline.protocols.streams.state_messages import with_offsets
from strandline.protocols.streams.stream import Stream
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.live import Following, LiveResponse

log = logging.getLogger(__name__)

#: A reader that got nothing for this long gets a control event.
SILENCE_SECONDS = 30.0
#: Pieces from this size on are not copied, so that all readers at the same position share the bytes.
SHARED_BYTES = 64 << 10
_CONTROL = sse.frame(b"control", b'{"streamNextOffset":"%b"%b,"streamCursor":"%d"}', prefix=sse.BARE_DATA)
_CLOSED = sse.frame(b"control", b'{"streamNextOffset":"%b","upToDate":true,"streamClosed":true}', prefix=sse.BARE_DATA)


class EventView(FeedView):
    """Selects and renders records: one object for all readers that want the same."""

    __slots__ = ("_encoding", "_key", "_max_bytes", "_max_records")

    def __init__(self, encoding: str, key: str | None, max_records: int, max_bytes: int) -> None:
        super().__init__(strong=False)
        self._encoding = encoding
        self._key = key
        self._max_records = max_records
        self._max_bytes = max_bytes

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": self._max_records, "max_bytes": self._max_bytes, "key": self._key}

    def render(self, subject: Any, after: int, page: Page) -> bytes:
        """The data event of a page. A reader that lost records on its way reconnects, and gets the error then."""
        stream: Stream = subject
        data = page.data
        if page.tombstone is not None and after:
            raise lost(page.tombstone)
        if not data:
            return b""
        if self._encoding == "json":
            registry = stream.registry
            if registry.promotes:
                data = registry.promote_rows(page.seqs, data)
            data = with_offsets(stream, page.seqs, data, None if self._key is not None else (after, page.next_after))
            payload = b"[%b]" % b",".join(data)
        else:
            payload = b"".join(data)
            if self._encoding == "base64":
                payload = b64encode(payload)
        return sse.frame(b"data", payload, prefix=sse.BARE_DATA)


_views: WeakValueDictionary[tuple[Any, ...], EventView] = WeakValueDictionary()


def _view(stream: Stream, ask: ReadRequest, max_records: int, max_bytes: int) -> EventView:
    key = (encoding_of(stream, ask), ask.key, max_records, max_bytes)
    view = _views.get(key)
    if view is None:
        view = _views[key] = EventView(*key)
    return view


def encoding_of(stream: Stream, ask: ReadRequest) -> str:
    """How events contain payloads: as JSON, as text, or in base 64."""
    if stream.media_type == JSON:
        return "json" if ask.as_json(stream) else "text"
    return "text" if stream.media_type.startswith("text/") else "base64"


class EventStream(LiveResponse, FeedReader):
    """One client that reads live."""

    __slots__ = ("_context", "_cursor", "_greeted", "_place", "_rotate_at", "_stream", "headers")
    content_type = b"text/event-stream"
    heartbeat_seconds = SILENCE_SECONDS

    def __init__(self, context: StreamsContext, stream: Stream, ask: ReadRequest, access: Access) -> None:
        super().__init__(context.live, access)
        self._context = context
        self._stream = stream
        self._cursor = ask.cursor
        # A position after the end counts as the end.
        start = stream.log.head if ask.after is None else min(ask.after, stream.log.head)
        settings = context.settings
        view = _view(stream, ask, settings.read_max_records, settings.read_max_bytes)
        self._place = FeedPosition(self, stream, start, view)
        #: Whether the client has got a control event.
        self._greeted = False
        self._rotate_at = 0.0
        self.headers = (
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            next_offset(start),
            end_offset(stream.log.head),
        )
        if encoding_of(stream, ask) == "base64":
            self.headers += ((b"stream-sse-data-encoding", b"base64"),)

    # --- the connection --------------------------------------------------------------------------------------------

    def greeting(self) -> bytes:
        return b""

    def begin(self) -> None:
        self._rotate_at = self.sent_at + self._context.settings.sse_rotate_seconds
        try:
            self._context.feeds.attach(self._place)
        except Exception:
            self.end()
            return
        if self._rotate_at < self.sent_at + SILENCE_SECONDS:
            self.live.alarms.set(self, self._rotate_at)
        self.deliver(self._place)

    def go_on(self) -> None:
        self.deliver(self._place)

    def leave(self) -> None:
        self._context.feeds.detach(self._place)

    def following(self, most: int) -> Following:
        return Following.of((self._place,), most)

    def heartbeat(self) -> bytes:
        return self._control(self._place.cursor)

    def ring(self, now: float) -> float | None:
        """Also end a connection that has reached its maximum time: the client reconnects."""
        if now >= self._rotate_at and not self.ended:
            self.end()
            return None
        after = super().ring(now)
        return after if after is None or self.ended else min(after, self._rotate_at)

    # --- new records -----------------------------------------------------------------------------------------------

    def deliver(self, place: FeedPosition) -> None:
        feed = place.feed
        while self.keeps_up and feed is not None:
            if self._stream.gone:
                self.end()
                return
            moved = False
            if place.behind:
                piece = feed.piece(place)
                if piece is None:
                    return
                moved = piece.next_after != place.cursor
                place.move(piece)
                if piece.content:
                    self._send(piece.content, self._control(place.cursor))
                    continue
            if not self._greeted or self._stream.ended:
                self._send(b"", self._control(place.cursor))
            if not moved:
                return

    def _control(self, at: int) -> bytes:
        """The control event: the offset of the client, whether it is the end, and whether more will follow."""
        stream = self._stream
        self._greeted = True
        up_to_date = at >= stream.log.head
        if up_to_date and stream.ended:
            return _CLOSED % encode_bytes(at)
        return _CONTROL % (
            encode_bytes(at),
            b',"upToDate":true' if up_to_date else b"",
            cursor(self._context.hub.now(), self._cursor),
        )

    def _send(self, content: bytes, control: bytes) -> None:
        self._context.meters.event_bytes.add(len(content) + len(control))
        if len(content) < SHARED_BYTES:
            self.write(content + control)
        else:
            # Both are sent even to a slow reader: data without a control event would be read again.
            self.write(content)
            self.write(control)
        if self._place.cursor >= self._stream.log.head and self._stream.ended:
            self.end()

    def gone(self, place: FeedPosition) -> None:
        self.end()

    def paced(self, place: FeedPosition) -> None:
        pass

    def failed(self, place: FeedPosition, error: Exception) -> None:
        log.warning("stopped an event stream of %r at offset %s: %s", self._stream.name, encode(place.cursor), error)
        self.end()
