"""Live responses: the lifecycle of every answer that stays open while its client reads.

A live response takes a slot when its connection opens and releases it when the connection closes. In between it sends
heartbeats, waits for a reader that does not keep up, and ends with a last message. A protocol defines the messages;
this module does everything else. :class:`LiveResponses` registers all of them, so that the server can end them when it
stops.

Use this module only on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from strandline.delivery.watch import FeedPosition
from strandline.delivery.watch.alarms import Alarms
from strandline.service import sse
from strandline.service.access import Access
from strandline.service.http import Holder, Sink, StreamedAnswer
from strandline.service.limits import Slots
from strandline.service.problems import too_many_streams

#: A reader that received nothing for this time gets a heartbeat. Proxies close silent connections after 30 s or more.
HEARTBEAT_SECONDS = 15.0
#: After the response has ended, a reader that reads nothing for this time is cut off.
CUT_OFF_SECONDS = 5.0
#: How long clients wait before they reconnect, unless the protocol sends another value.
RETRY_MS = 1000

_HEARTBEAT = sse.comment()
_GREETING = sse.retry(RETRY_MS)


class Ending(Enum):
    """The reasons why the server ends a live response, in all protocols."""

    NO_SLOT = "too many streams are open"
    TOO_SLOW = "the client does not keep up; reconnect and continue from the last position"
    SHUTDOWN = "the server is shutting down"
    REVOKED = "the API key was revoked or has expired"
    DISCONNECTED = "an administrator closed the connection"


class Followed(NamedTuple):
    """A log that a live response sends. ``behind`` is the number of seqs after its position; None if it has none."""

    log: str
    behind: int | None

    @classmethod
    def at(cls, place: FeedPosition) -> Followed:
        return cls(place.subject.log.name, max(place.subject.log.head - place.cursor, 0))


class Following(NamedTuple):
    """The first logs that a live response sends, and the number of all."""

    logs: list[Followed]
    total: int

    @classmethod
    def of(cls, places: Collection[FeedPosition], most: int) -> Following:
        return cls([Followed.at(place) for place in islice(places, most)], len(places))


class OpenResponse(Protocol):
    """An open live response, as :class:`LiveResponses` uses it."""

    access: Access

    def shut_down(self) -> None:
        """Send the last message and close, because the server stops."""

    def revoke(self) -> None:
        """Send the last message and close, because the API key of the response no longer works."""

    def disconnect(self) -> None:
        """Send the last message and close, because an administrator ends the connection."""

    def following(self, most: int) -> Following:
        """The logs that the response sends, at most ``most`` of them."""


class SocketResponse(OpenResponse, Holder, Protocol):
    """The response of a WebSocket. It buffers data itself."""


L = TypeVar("L", bound=OpenResponse)


class LiveResponses:
    """The open live responses of a server, with their slots and their timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slots: Slots) -> None:
        self.slots = slots
        self.alarms = Alarms(loop)
        self.now = loop.time
        self.draining = False
        self._open: dict[type, dict[OpenResponse, None]] = {}

    def has_room(self, access: Access) -> bool:
        return self.slots.room(access)

    def check_room(self, access: Access) -> None:
        """Raise a refusal if no slot is free. The response takes its slot later, when the connection opens."""
        if not self.slots.room(access):
            raise too_many_streams()

    @contextmanager
    def connection(self, response: OpenResponse, access: Access) -> Iterator[None]:
        """Hold a slot and register the response while the block runs, for a response that is a whole connection. Raises
        a refusal if no slot is free."""
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

    def add(self, response: OpenResponse) -> None:
        self._open.setdefault(type(response), {})[response] = None

    def remove(self, response: OpenResponse) -> None:
        """Does nothing if the response is not registered."""
        self._open.get(type(response), {}).pop(response, None)

    def of(self, kind: type[L]) -> list[L]:
        """The open responses of exactly this class, oldest first."""
        return list(self._open.get(kind, ()))  # type: ignore[arg-type]  # they are filed by their class

    def count(self, kind: type[OpenResponse]) -> int:
        return len(self._open.get(kind, ()))

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def end_key(self, id: str) -> None:
        """End every response that was opened with this API key."""
        for responses in list(self._open.values()):
            for response in list(responses):
                if response.access.id == id:
                    response.revoke()

    def drain(self) -> None:
        """The server stops: end every response that has no end of its own, including those that open later."""
        self.draining = True
        for responses in list(self._open.values()):
            for response in list(responses):
                response.shut_down()

    def close(self) -> None:
        self.alarms.stop()


class LiveResponse(StreamedAnswer):
    """A live response to one client. Subclasses implement ``begin``, ``go_on`` and ``leave``, and define the
    messages."""

    __slots__ = ("_holds_slot", "_sink", "_unread", "access", "ended", "live", "paused_at", "rings_at", "sent_at")

    def __init__(self, live: LiveResponses, access: Access) -> None:
        self.live = live
        self.access = access
        self.ended = False
        #: When the reader stopped keeping up; 0.0: it keeps up.
        self.paused_at = 0.0
        #: When data was last sent.
        self.sent_at = 0.0
        self.rings_at: float | None = None
        self._sink: Sink | None = None
        self._holds_slot = False
        #: The unread bytes at the last check, once the response has ended.
        self._unread = 0

    # --- defined by the protocol -------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """The response has a slot: send the data that is available."""

    @abstractmethod
    def go_on(self) -> None:
        """The reader has caught up: send the data that arrived in the meantime."""

    @abstractmethod
    def leave(self) -> None:
        """The response has ended: stop watching logs. Called once, even if ``begin`` was not called."""

    def pause(self) -> None:
        """The reader does not keep up: write nothing until ``go_on`` is called."""

    def greeting(self) -> bytes:
        """The first message, sent even if no slot is free."""
        return _GREETING

    def heartbeat(self) -> bytes:
        """The message to a reader that received nothing for ``heartbeat_seconds``."""
        return _HEARTBEAT

    @property
    def heartbeat_seconds(self) -> float:
        """The interval of heartbeats; 0: none are sent."""
        return HEARTBEAT_SECONDS

    def following(self, most: int) -> Following:
        """The logs that the response sends, for administrators."""
        return Following([], 0)

    def last_message(self, ending: Ending) -> bytes:
        """The protocol's message to a reader that the server disconnects; empty if the protocol has none."""
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

    # --- sending -----------------------------------------------------------------------------------------------------

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
        """Send a heartbeat if one is due. After the response has ended, cut off a reader that stopped reading."""
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
        """Send a last message and close. The connection of a finite response is reset, because it is incomplete."""
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
        """Close a finite response that is complete. The reader gets the rest at its own speed."""
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

    def revoke(self) -> None:
        self._end_because(Ending.REVOKED)

    def disconnect(self) -> None:
        self._end_because(Ending.DISCONNECTED)

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
