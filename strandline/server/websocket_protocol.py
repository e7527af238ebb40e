"""WebSocket connections below the topics protocol: limits on unfinished messages.

A message may arrive in one large frame or in many small ones, and the client may never finish it. The server holds the
parts meanwhile, so each message has a limit, and all unfinished messages together have one. uvicorn's protocol does the
rest.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from strandline.service.live import Ending

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent

    from strandline.service.unread import UnreadBytes

log = logging.getLogger(__name__)

#: The close code for a client for which the server has no memory now.
TRY_AGAIN_LATER = 1013
#: How long the server keeps reading from a connection that it closes. Closing while the client still sends would reset
#: the connection, and the client would not see the reason.
LINGER_SECONDS = 2.0
#: Closed sockets are logged at most this often, with their number.
LOG_SECONDS = 10.0


class UnfinishedMessages:
    """The bytes of messages that are not complete, or not processed yet, over all sockets. ``limit`` 0: no limit.

    Only used on the event loop's thread.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._held: dict[SocketProtocol, int] = {}
        self.total = 0
        #: How many sockets were closed so far because of the limit.
        self.closed = 0
        self._logged_at = -LOG_SECONDS
        self._logged = 0

    def set(self, socket: SocketProtocol, held: int) -> None:
        """Set the bytes that a socket holds. If all sockets together exceed the limit, the largest holders are
        closed."""
        before = self._held.get(socket, 0)
        if held:
            self._held[socket] = held
        elif before:
            del self._held[socket]
        self.total += held - before
        while self._limit and self.total > self._limit:
            self._close(max(self._held, key=self._held.__getitem__))

    def forget(self, socket: SocketProtocol) -> None:
        self.total -= self._held.pop(socket, 0)

    def _close(self, socket: SocketProtocol) -> None:
        self.forget(socket)
        self.closed += 1
        self._logged += 1
        now = monotonic()
        if now - self._logged_at >= LOG_SECONDS:
            words = "closed %d WebSockets: unfinished messages of all sockets together had more than %d bytes"
            log.warning(words, self._logged, self._limit)
            self._logged_at, self._logged = now, 0
        socket.refuse(TRY_AGAIN_LATER, "too many unfinished messages; try again later")


class SocketProtocol(WebSocketsSansIOProtocol):
    """Create a subclass per server with :func:`socket_protocol`, which sets the limits."""

    unfinished: UnfinishedMessages
    unread: UnreadBytes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: The fragments of a message so far, joined: many small fragments would take far more memory than their bytes.
        self._fragments = bytearray()
        #: Bytes of complete messages that the application has not received yet.
        self._queued = 0
        self._write_paused = False
        #: Whether the server has closed the connection: further data is dropped.
        self._refused = False

    # --- receiving -------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if not self._refused:
            self._tell()

    def _tell(self) -> None:
        held = len(self.conn.reader.buffer) + len(self._fragments) + self._queued
        self.unfinished.set(self, held)

    def handle_text(self, event: Frame) -> None:
        if event.fin:
            super().handle_text(event)
        else:
            self.curr_msg_data_type = "text"
            self._fragments = bytearray(event.data)

    def handle_bytes(self, event: Frame) -> None:
        if event.fin:
            super().handle_bytes(event)
        else:
            self.curr_msg_data_type = "bytes"
            self._fragments = bytearray(event.data)

    def handle_cont(self, event: Frame) -> None:
        self._fragments += event.data
        if event.fin:
            self.frames = [bytes(self._fragments)]
            self._fragments = bytearray()
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        if not self.close_sent:
            self._queued += len(self.frames[0])
        super().send_receive_event_to_app()

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if self.queue.empty():
            self._queued = 0
            if self.read_paused:
                self.read_paused = False
                self._read_on()
            if not self._refused and not self.disconnected:
                self._tell()
        return message

    # --- sending ---------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_paused = True
        # Pongs are sent independently of the application: a client that does not read them must not send more pings.
        self.transport.pause_reading()
        self.unread.add(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_paused = False
        self.unread.remove(self)
        self._read_on()

    def _read_on(self) -> None:
        if not self.read_paused and not self._write_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def cut_off(self, grace: float) -> None:
        """The client does not read. The close frame is its last message, if it reads within ``grace`` seconds."""
        if not grace:
            self.transport.abort()
            return
        self.loop.call_later(grace, self.transport.abort)
        if not self._refused:
            self.refuse(TRY_AGAIN_LATER, Ending.TOO_SLOW.value)

    # --- closing ---------------------------------------------------------------------------------------------------

    def refuse(self, code: int, reason: str) -> None:
        """Close the connection and drop received data."""
        if self.conn.close_sent is None:
            self.conn.fail(code, reason)
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """The connection has failed: send the reason, and read for a moment without keeping anything."""
        self._refused = True
        self.unfinished.forget(self)
        self._fragments = bytearray()
        self._queued = 0
        closing = self.conn.close_sent
        assert closing is not None
        self.queue.put_nowait({"type": "websocket.disconnect", "code": closing.code, "reason": closing.reason})
        self.conn.reader.discard()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.stop_keepalive()
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
        self.read_paused = False
        self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._refused = True
        self.unfinished.forget(self)
        self.unread.remove(self)
        self._fragments = bytearray()
        super().connection_lost(exc)


def socket_protocol(unfinished: UnfinishedMessages, unread: UnreadBytes) -> type[SocketProtocol]:
    """The protocol class for uvicorn."""
    return type("SocketProtocol", (SocketProtocol,), {"unfinished": unfinished, "unread": unread})
