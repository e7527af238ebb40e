"""A stream as server-sent events: every piece of data is followed by a control event that says where it ends.

Those who read along at the same place get the same bytes, made once.
"""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from strandline.delivery.watch import Place, Reader, View
from strandline.engine import Page
from strandline.protocols import http
from strandline.protocols.access import Access
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.offsets import cursor, encode, encode_bytes
from strandline.protocols.streams.pages import lost
from strandline.protocols.streams.read_request import Ask
from strandline.protocols.streams.replies import end_offset, next_offset
from strandline.protocols.streams.stream import JSON, Stream

log = logging.getLogger(__name__)

#: A reader that hears nothing for this long is told where it stands.
SILENCE_SECONDS = 30.0
#: A piece from this size on is written as it is, so that all readers at the same place share its bytes.
SHARED_BYTES = 64 << 10
_LINE = re.compile(rb"\r\n|\r|\n")


class EventView(View):
    """Which records, and as what: one object for everybody who wants the same."""

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
        """The data event of a page. A reader that something was lost for on its way comes again, and is told then."""
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
            payload = b"[%b]" % b",".join(data)
        else:
            payload = b"".join(data)
            if self._encoding == "base64":
                payload = b64encode(payload)
        if b"\n" in payload or b"\r" in payload:
            # Every line of the payload is a line of its own: nothing in it can pass for an event.
            payload = _LINE.sub(b"\ndata:", payload)
        return b"event: data\ndata:%b\n\n" % payload


_views: WeakValueDictionary[tuple[Any, ...], EventView] = WeakValueDictionary()


def _view(stream: Stream, ask: Ask, max_records: int, max_bytes: int) -> EventView:
    key = (encoding_of(stream, ask), ask.key, max_records, max_bytes)
    view = _views.get(key)
    if view is None:
        view = _views[key] = EventView(*key)
    return view


def encoding_of(stream: Stream, ask: Ask) -> str:
    """How payloads get into events: as JSON, as text, or in base 64."""
    if stream.media_type == JSON:
        return "json" if ask.as_json(stream) else "text"
    return "text" if stream.media_type.startswith("text/") else "base64"


class EventStream(http.Stream, Reader):
    """One client that reads along."""

    __slots__ = (
        "_access", "_context", "_cursor", "_ended", "_forget", "_greeted", "_paused", "_place", "_rotate_at", "_sink",
        "_stream", "headers", "rings_at",
    )  # fmt: skip
    content_type = b"text/event-stream"

    def __init__(
        self, context: StreamsContext, stream: Stream, ask: Ask, access: Access, forget: Callable[[EventStream], None]
    ) -> None:
        self._context = context
        self._stream = stream
        self._access = access
        self._cursor = ask.cursor
        self._forget = forget
        # A place behind the end is taken for the end.
        start = stream.log.head if ask.after is None else min(ask.after, stream.log.head)
        settings = context.settings
        view = _view(stream, ask, settings.read_max_records, settings.read_max_bytes)
        self._place = Place(self, stream, start, view)
        self._sink: http.Sink | None = None
        self._paused = False
        self._ended = False
        #: Whether the client has been told where it stands.
        self._greeted = False
        self._rotate_at = 0.0
        self.rings_at: float | None = None
        self.headers = (
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            next_offset(start),
            end_offset(stream.log.head),
        )
        if encoding_of(stream, ask) == "base64":
            self.headers += ((b"stream-sse-data-encoding", b"base64"),)

    # --- the connection --------------------------------------------------------------------------------------------

    def opened(self, sink: http.Sink) -> None:
        self._sink = sink
        now = self._context.hub.loop.time()
        self._rotate_at = now + self._context.settings.sse_rotate_seconds
        try:
            self._context.feeds.attach(self._place)
        except Exception:
            self.end()
            return
        self._context.alarms.set(self, min(self._rotate_at, now + SILENCE_SECONDS))
        self.deliver(self._place)

    def resumed(self) -> None:
        if self._paused and not self._ended:
            self._paused = False
            self.deliver(self._place)

    def closed(self) -> None:
        self._ended = True
        self._context.feeds.detach(self._place)
        self._context.alarms.cancel(self)
        self._context.slots.release(self._access)
        self._forget(self)

    def end(self) -> None:
        """Have the client come again."""
        if not self._ended and self._sink is not None:
            self._ended = True
            self._sink.close()

    def too_slow(self) -> None:
        """The protocol has no word for it: the client comes again with the last offset it has got."""
        self.end()

    # --- what is new -----------------------------------------------------------------------------------------------

    def deliver(self, place: Place) -> None:
        feed = place.feed
        while not self._paused and not self._ended and feed is not None:
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
                    self._write_piece(piece.content, self._control(place.cursor))
                    continue
            if not self._greeted or self._stream.ended:
                self._write(self._control(place.cursor))
            if not moved:
                return

    def _control(self, at: int) -> bytes:
        """Where the client stands, whether that is the end, and whether there will be more."""
        stream = self._stream
        self._greeted = True
        up_to_date = at >= stream.log.head
        if up_to_date and stream.ended:
            return b'event: control\ndata:{"streamNextOffset":"%b","upToDate":true,"streamClosed":true}\n\n' % (
                encode_bytes(at)
            )
        return b'event: control\ndata:{"streamNextOffset":"%b"%b,"streamCursor":"%d"}\n\n' % (
            encode_bytes(at),
            b',"upToDate":true' if up_to_date else b"",
            cursor(self._context.hub.now(), self._cursor),
        )

    def _write_piece(self, content: bytes, control: bytes) -> None:
        if len(content) < SHARED_BYTES:
            self._write(content + control)
            return
        assert self._sink is not None
        self._context.meters.event_bytes.add(len(content))
        # Both go out whatever the sink says: data without a control event would be read again.
        keeps_up = self._sink.write(content)
        self._write(control)
        self._paused = self._paused or not keeps_up

    def _write(self, data: bytes) -> None:
        assert self._sink is not None
        self._context.meters.event_bytes.add(len(data))
        if not self._sink.write(data):
            self._paused = True
        if self._place.cursor >= self._stream.log.head and self._stream.ended:
            self.end()
        elif self.rings_at is not None:
            now = self._context.hub.loop.time()
            if self.rings_at < min(self._rotate_at, now + SILENCE_SECONDS / 2):
                self._context.alarms.set(self, min(self._rotate_at, now + SILENCE_SECONDS))

    def ring(self, now: float) -> float | None:
        """Nothing was said for a while, or the connection has lasted long enough."""
        if self._ended:
            return None
        if now >= self._rotate_at:
            self.end()
            return None
        if not self._paused:
            assert self._sink is not None
            self._paused = not self._sink.write(self._control(self._place.cursor))
        return min(self._rotate_at, now + SILENCE_SECONDS)

    def gone(self, place: Place) -> None:
        self.end()

    def paced(self, place: Place) -> None:
        pass

    def failed(self, place: Place, error: Exception) -> None:
        log.warning("an event stream of %r ends behind %s: %s", self._stream.name, encode(place.cursor), error)
        self.end()
