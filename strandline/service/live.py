"""Live responses: the lifecycle that all answers share which continue while the client reads.

A live response takes a slot when its connection opens and returns the slot when the connection is closed. In between it
sends heartbeats, waits for slow readers, and ends with a last message. The protocol decides what is sent; everything
else is handled here. :class:`LiveResponses` knows all open responses, so that the server can end them when it stops.

Only used on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import ClassVar, Protocol, TypeVar

from strandline.delivery.watch.alarms import Alarms
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.http import Sink, Stream
from strandline.service.limits import Slots
from strandline.service.problems import too_many_streams

#: A reader that got nothing for this long gets a heartbeat. Proxies close silent connections after 30 s or more.
HEARTBEAT_SECONDS = 15.0
#: After a response has ended, a reader that reads nothing for this long is disconnected.
CUT_OFF_SECONDS = 5.0
#: How long clients wait before they reconnect, unless the protocol sets another time.
RETRY_MS = 1000

_HEARTBEAT = sse.comment()
_GREETING = sse.retry(RETRY_MS)


class Ending(Enum):
    """Why the server ends a live response, in every protocol."""

    NO_SLOT = "too many streams are open"
    TOO_SLOW = "the client does not keep up; connect again and continue from the last position"
    SHUTDOWN = "the server is shutting down"


class Live(Protocol):
    """An open live response, as the registry sees it."""

    def shut_down(self) -> None:
        """The server stops: send the last message and close."""


L = TypeVar("L", bound=Live)


class LiveResponses:
    """All open live responses of a server, their slots and their timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slots: Slots) -> None:
        self.slots = slots
        self.alarms = Alarms(loop)
        self.now = loop.time
        self.draining = False
        self._open: dict[type, dict[Live, None]] = {}

    def has_room(self, access: Access) -> bool:
        return self.slots.room(access)

    def check_room(self, access: Access) -> None:
        """Refuse a response if no slot is free. The slot is taken when the connection opens."""
        if not self.slots.room(access):
            raise too_many_streams()

    @contextmanager
    def connection(self, response: Live, access: Access) -> Iterator[None]:
        """The lifetime of a response that is a connection of its own: takes a slot, or refuses, and registers it."""
        if not self.slots.acquire(access):
            raise too_many_streams()
        self.add(response)
        try:
            if self.draining:
                response.shut_down()
            yield
        finally:
            self.remove(response)
            self.slots.release(access)

    def add(self, response: Live) -> None:
        self._open.setdefault(type(response), {})[response] = None

    def remove(self, response: Live) -> None:
        """Remove a response, if it is registered."""
        self._open.get(type(response), {}).pop(response, None)

    def of(self, kind: type[L]) -> list[L]:
        """The open responses of exactly this class, oldest first."""
        return list(self._open.get(kind, ()))  # type: ignore[arg-type]  # they are filed by their class

    def count(self, kind: type[Live]) -> int:
        return len(self._open.get(kind, ()))

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def drain(self) -> None:
        """The server stops: end every response that would not end by itself, and those that open later."""
        self.draining = True
        for responses in list(self._open.values()):
            for response in list(responses):
                response.shut_down()

    def close(self) -> None:
        self.alarms.stop()


class LiveResponse(Stream):
    """One client that reads live. Subclasses send the data: ``begin``, ``go_on``, ``leave``, and the messages."""

    __slots__ = ("_holds_slot", "_sink", "_unread", "access", "ended", "live", "paused_at", "rings_at", "sent_at")

    #: Whether the response ends by itself. When the server stops, it waits for such a response. If the response must
    #: end early, the connection is reset: a reader would take a clean end for the end of the data.
    finite: ClassVar[bool] = False

    def __init__(self, live: LiveResponses, access: Access) -> None:
        self.live = live
        self.access = access
        self.ended = False
        #: When the reader became too slow; 0.0: it keeps up.
        self.paused_at = 0.0
        #: When data was last sent.
        self.sent_at = 0.0
        self.rings_at: float | None = None
        self._sink: Sink | None = None
        self._holds_slot = False
        #: After the response has ended: the unread bytes at the last check.
        self._unread = 0

    # --- methods for protocols -------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """The connection is open and has a slot: send the existing data."""

    @abstractmethod
    def go_on(self) -> None:
        """The reader keeps up again: send the data that came in the meantime."""

    @abstractmethod
    def leave(self) -> None:
        """The response has ended: stop watching logs. Called once, possibly without ``begin``."""

    def pause(self) -> None:
        """The reader is too slow: write nothing until ``go_on``."""

    def greeting(self) -> bytes:
        """The first bytes, also for a reader that gets no slot."""
        return _GREETING

    def heartbeat(self) -> bytes:
        """Sent to a reader that got nothing for ``heartbeat_seconds``."""
        return _HEARTBEAT

    @property
    def heartbeat_seconds(self) -> float:
        """0 disables heartbeats."""
        return HEARTBEAT_SECONDS

    def last_message(self, ending: Ending) -> bytes:
        """The last message to a reader that the server disconnects; empty if the protocol has none."""
        return b""

    # --- the connection ----------------------------------------------------------------------------------------------

    def opened(self, sink: Sink) -> None:
        live = self.live
        self._sink = sink
        self.sent_at = live.now()
        self.write(self.greeting())
        self._holds_slot = live.slots.acquire(self.access)
        if not self._holds_slot:
            # Other responses took the last slots after the request was admitted.
            self._end_because(Ending.NO_SLOT)
        elif live.draining and not self.finite:
            self._end_because(Ending.SHUTDOWN)
        else:
            live.add(self)
            if self.heartbeat_seconds:
                live.alarms.set(self, self.sent_at + self.heartbeat_seconds)
            self.begin()

    def resumed(self) -> None:
        if self.paused_at and not self.ended:
            self.paused_at = 0.0
            self.go_on()

    def closed(self) -> None:
        self._leave()
        self.live.alarms.cancel(self)
        if self._holds_slot:
            self._holds_slot = False
            self.live.slots.release(self.access)

    # --- sending ---------------------------------------------------------------------------------------------------

    @property
    def keeps_up(self) -> bool:
        return not self.paused_at and not self.ended

    def write(self, data: bytes) -> None:
        sink = self._sink
        if sink is None or self.ended or not data:
            return
        self.sent_at = now = self.live.now()
        if not sink.write(data) and not self.paused_at:
            self.paused_at = now
            self.pause()

    def ring(self, now: float) -> float | None:
        """Send a heartbeat if one is due. After the response has ended, disconnect a reader that reads nothing."""
        if self.ended:
            return self._cut_off(now)
        if self.paused_at:
            return now + self.heartbeat_seconds
        due = self.sent_at + self.heartbeat_seconds
        if now >= due:
            self.write(self.heartbeat())
            due = now + self.heartbeat_seconds
        return due

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, last_message: bytes = b"") -> None:
        """Send a last message and close. A finite response is incomplete then, so its connection is reset."""
        sink = self._sink
        if self.ended or sink is None:
            return
        self.write(last_message)
        self._leave()
        if self.finite:
            sink.abort()
            return
        self._unread = sink.unread_bytes
        self.live.alarms.set(self, self.live.now() + CUT_OFF_SECONDS)
        sink.close()

    def finish(self) -> None:
        """A finite response is complete: close after the reader has read the rest."""
        assert self._sink is not None
        self._leave()
        self._sink.close()

    def too_slow(self, grace: float) -> None:
        self._end_because(Ending.TOO_SLOW)
        self._unread = 0
        self.live.alarms.set(self, self.live.now() + grace)

    def shut_down(self) -> None:
        if not self.finite:
            self._end_because(Ending.SHUTDOWN)

    def _end_because(self, ending: Ending) -> None:
        if not self.ended:
            self.end(self.last_message(ending))

    def _leave(self) -> None:
        if not self.ended:
            self.ended = True
            self.live.remove(self)
            self.leave()

    def _cut_off(self, now: float) -> float | None:
        assert self._sink is not None
        left = self._sink.unread_bytes
        if left < self._unread:
            self._unread = left
            return now + CUT_OFF_SECONDS
        self._sink.abort()
        return None
