"""WebSocket connections, with limits on unfinished messages.

A message may arrive in one large frame or in many small ones, and the client may never finish it. The server buffers
the received part, so the size of one message and the total size of all unfinished messages are limited. uvicorn's
protocol does the rest.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from strandline.server.asgi import CONNECTION
from strandline.server.connection import connection_numbers
from strandline.service.frequent_warning import FrequentWarning
from strandline.service.live import Ending, SocketResponse

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent

    from strandline.service.unread import UnreadBytes

log = logging.getLogger(__name__)

#: The close code for a client that the server cannot serve now.
TRY_AGAIN_LATER = 1013
#: The close code for a client whose connection an administrator ends.
POLICY_VIOLATION = 1008
#: How long the server still reads from a connection that it closes. If it closed the socket while the client sends, the
#: connection would be reset and the client would not see the reason.
LINGER_SECONDS = 2.0


class UnfinishedMessages:
    """The total bytes of incomplete and unprocessed messages of all sockets. ``limit`` 0 means no limit.

    Use it only on the event loop's thread.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._held: dict[SocketProtocol, int] = {}
        self.total = 0
        #: The number of sockets that were closed because of the limit.
        self.closed = 0
        self._warn = FrequentWarning(log, "closed %d WebSockets: all unfinished messages together exceeded %d bytes")

    def set(self, socket: SocketProtocol, held: int) -> None:
        """Set the bytes that a socket holds. If the total exceeds the limit, close the sockets that hold the most."""
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
        self._warn(self._limit)
        socket.refuse(TRY_AGAIN_LATER, "too many unfinished messages; try again later")


class SocketProtocol(WebSocketsSansIOProtocol):
    """Create a subclass per server with :func:`socket_protocol`, which sets the limits."""

    unfinished: UnfinishedMessages
    unread: UnreadBytes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.number = next(connection_numbers)
        self.made_at = perf_counter()
        #: The response that the connection is used for, once the handshake is accepted.
        self.carried: SocketResponse | None = None
        #: The joined fragments of a message. A list of small fragments would take far more memory than their bytes.
        self._fragments = bytearray()
        #: The bytes of complete messages that are not processed yet.
        self._queued = 0
        self._write_paused = False
        #: The server has closed the connection and drops further data.
        self._refused = False

    async def run_asgi(self) -> None:
        self.scope["extensions"] = {**(self.scope["extensions"] or {}), CONNECTION: self}  # type: ignore[dict-item]
        try:
            await super().run_asgi()
        finally:
            # Break the cycles, so that everything is freed without the garbage collector.
            self.scope["extensions"], self.carried = {}, None

    def carry(self, response: SocketResponse) -> None:
        self.carried = response

    # --- receiving ---------------------------------------------------------------------------------------------------

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

    # --- sending -----------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_paused = True
        # Every ping causes a pong, so a client that does not read must not send pings either.
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
        """Disconnect a client that does not read. It gets a close frame if it reads within ``grace`` seconds."""
        if not grace:
            self.transport.abort()
            return
        self.loop.call_later(grace, self.transport.abort)
        if not self._refused:
            self.refuse(TRY_AGAIN_LATER, Ending.TOO_SLOW.value)

    def disconnect(self) -> None:
        """End the connection because an administrator wants it."""
        if self.carried is None:
            self.refuse(POLICY_VIOLATION, Ending.DISCONNECTED.value)
        else:
            self.carried.disconnect()

    # --- the end -----------------------------------------------------------------------------------------------------

    def refuse(self, code: int, reason: str) -> None:
        """Close the connection and drop buffered data."""
        if self.conn.close_sent is None:
            self.conn.fail(code, reason)
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Send the close frame with the reason, and read for a moment without keeping data."""
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
