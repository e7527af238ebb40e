"""Event streams of the console: what the one of samples and the one of records have in common."""

from __future__ import annotations

from abc import abstractmethod

from strandline.protocols import http
from strandline.protocols.access import Access
from strandline.protocols.console.context import ConsoleContext

#: A reader that hears nothing for this long is told that the connection is alive.
HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": \n\n"
#: A reader that takes nothing for this long, or not even the last word of a stream, is cut off.
SLOW_SECONDS = 30.0
CUT_OFF_SECONDS = 5.0
#: How long a client waits before it comes again.
RETRY = b"retry: 1000\n\n"


class EventStream(http.Stream):
    """Takes a slot while it is open. ``streams`` is where it is kept as long as it is."""

    __slots__ = ("_access", "_context", "_holds_slot", "_paused_at", "_sink", "_streams", "ended", "rings_at")

    def __init__(self, context: ConsoleContext, access: Access, streams: dict[EventStream, None]) -> None:
        self._context = context
        self._access = access
        self._streams = streams
        self._sink: http.Sink | None = None
        self._holds_slot = False
        #: When the reader stopped taking anything; 0.0: it keeps up.
        self._paused_at = 0.0
        self.ended = False
        self.rings_at: float | None = None

    @property
    def access(self) -> Access:
        return self._access

    @property
    def keeps_up(self) -> bool:
        return not self._paused_at and not self.ended

    @abstractmethod
    def begin(self) -> None:
        """The reader is there, and there is a slot for it."""

    @abstractmethod
    def go_on(self) -> None:
        """The reader has caught up with what was written."""

    @abstractmethod
    def leave(self) -> None:
        """Nothing more is told."""

    # --- the connection --------------------------------------------------------------------------------------------

    def opened(self, sink: http.Sink) -> None:
        self._sink = sink
        self._holds_slot = self._context.slots.acquire(self._access)
        if not self._holds_slot:
            # Others came in between: it was looked at when the request was.
            self.end()
            return
        self._streams[self] = None
        self._context.alarms.set(self, self._now() + HEARTBEAT_SECONDS)
        self.write(RETRY)
        self.begin()

    def resumed(self) -> None:
        if self._paused_at and not self.ended:
            self._paused_at = 0.0
            self.go_on()

    def closed(self) -> None:
        self._leave()
        self._context.alarms.cancel(self)
        if self._holds_slot:
            self._holds_slot = False
            self._context.slots.release(self._access)

    def end(self, last_word: bytes = b"") -> None:
        if self.ended or self._sink is None:
            return
        if last_word:
            self._sink.write(last_word)
        self._leave()
        self._context.alarms.set(self, self._now() + CUT_OFF_SECONDS)
        self._sink.close()

    def too_slow(self) -> None:
        self.end()

    def _leave(self) -> None:
        if not self.ended:
            self.ended = True
            self._streams.pop(self, None)
            self.leave()

    def write(self, data: bytes) -> None:
        assert self._sink is not None
        if data and not self._sink.write(data) and not self._paused_at:
            self._paused_at = self._now()

    def ring(self, now: float) -> float | None:
        """Nothing was said for a while, or nothing was taken."""
        assert self._sink is not None
        if self.ended or (self._paused_at and now - self._paused_at >= SLOW_SECONDS):
            self._leave()
            self._sink.abort()
            return None
        if not self._paused_at:
            self.write(HEARTBEAT)
        return now + HEARTBEAT_SECONDS

    def _now(self) -> float:
        return self._context.hub.loop.time()


def frame(kind: bytes, data: bytes, id: bytes = b"") -> bytes:
    if b"\n" in data or b"\r" in data:
        # Between the members of an object as somebody wrote it down; within a string there is none.
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    head = b"id: %b\n" % id if id else b""
    return b"%bevent: %b\ndata: %b\n\n" % (head, kind, data)
