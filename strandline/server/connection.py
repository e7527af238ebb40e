"""A client connection, with bounds on everything that a client can send before it presents an API key.

The class extends uvicorn's httptools protocol with limits that uvicorn lacks: the size of a head and the time it may
take, how long a body may stall, and the number of connections. It also ignores trailers and unsupported upgrades.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from itertools import count
from math import ceil
from time import perf_counter
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from strandline.server.asgi import CONNECTION, AsgiSink
from strandline.service.http import Head, StreamedAnswer

log = logging.getLogger(__name__)

#: The maximum size of the request line and headers. Clients with cookies, tokens and long queries stay below 16 KiB.
MAX_REQUEST_HEAD_BYTES = 64 << 10
#: The maximum overhead of a chunked body (sizes and extensions of chunks, trailers): this many bytes, plus
#: ``MAX_FRAMING_RATIO`` bytes for each byte of content, which is enough for chunks of one byte.
MAX_FRAMING_BYTES = 64 << 10
MAX_FRAMING_RATIO = 16
#: A connection without a request is closed after this time. Most clients and proxies close idle connections after 60 s,
#: so the server seldom closes one that a client is about to use.
IDLE_SECONDS = 75.0
#: The longest interval of sweeps over all connections. A missed deadline is noticed at most one sweep late.
SWEEP_SECONDS = 5.0
#: File descriptors that are reserved for other purposes: 64 open segments (two descriptors for a cold one), the
#: journal, sealing, indexes, webhooks, and the event loop. At most a quarter of all descriptors, for systems with low
#: limits.
RESERVED_FILES = 256
#: After the number of connections fell below this share of the limit, reaching the limit is logged again.
RELAXED_SHARE = 0.9
#: The limit if the system has none.
UNLIMITED = 1 << 20

#: Headers of an upgrade, which are removed if the server does not upgrade the connection.
_UPGRADE_HEADERS = (b"connection", b"upgrade", b"http2-settings")


#: Each connection and each WebSocket gets the next number.
connection_numbers = count(1)


class ConnectionDeadlines:
    """The deadlines of a connection, counted in sweeps (turns)."""

    def __init__(self, head_seconds: float, body_seconds: float) -> None:
        self.head_seconds = head_seconds
        self.body_seconds = body_seconds
        #: The interval of sweeps.
        self.sweep_seconds = min(SWEEP_SECONDS, head_seconds / 4, body_seconds / 4)
        self.head_turns = ceil(head_seconds / self.sweep_seconds)
        self.body_turns = ceil(body_seconds / self.sweep_seconds)
        self.idle_turns = ceil(IDLE_SECONDS / self.sweep_seconds)


class ConnectionLimit:
    """The maximum number of open connections, and the number of refused ones."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.refused = 0
        self._told = False

    def admits(self, open_now: int) -> bool:
        if open_now < self.most:
            return True
        self.refused += 1
        if not self._told:
            self._told = True
            log.warning(
                "the maximum of %d open connections is reached: new ones get 503. Raise limits.max_connections or the "
                "limit of open files (ulimit -n)",
                self.most,
            )
        return False

    def relax(self, open_now: int) -> None:
        if open_now < self.most * RELAXED_SHARE:
            self._told = False


def connection_limit(wanted: int) -> int:
    """The maximum number of connections. ``wanted`` is the setting; 0 means as many as possible. The limit of open
    files always leaves room for other files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        possible = UNLIMITED
    else:
        possible = files - min(RESERVED_FILES, files // 4)
    if wanted > possible:
        log.warning(
            "limits.max_connections is %d, but this process may open only %d files, so the limit is %d connections. "
            "Raise the limit of open files (ulimit -n, LimitNOFILE)",
            wanted,
            files,
            possible,
        )
    return min(wanted or possible, possible)


class Connection(HttpToolsProtocol):
    cap: ConnectionLimit
    deadlines: ConnectionDeadlines

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: No other connection has this number.
        self.number = next(connection_numbers)
        #: When the connection was made, and when the request arrived that is not answered yet, as ``perf_counter``.
        self.made_at = perf_counter()
        self.asked_at = 0.0
        #: The head of the last request.
        self.head: Head | None = None
        #: Whether the parser is inside a request, whether it is inside its head, and the bytes of the head so far.
        self.in_message = False
        self._in_head = False
        self._head_bytes = 0
        self._head_too_large = False
        #: The size of the data that is being parsed, and the number of requests that began in it.
        self._read_bytes = 0
        self._begun = 0
        #: The bytes of the body's content and of its chunk framing.
        self._body_bytes = 0
        self._framing_bytes = 0
        #: The head asks for an upgrade to a protocol that the server does not support.
        self._wants_upgrade = False
        #: Requests of the ASGI lane that were not answered when the next one arrived. uvicorn knows only the last one.
        self._unanswered: list[RequestResponseCycle] = []
        #: The sink of a stream of the ASGI lane, while one is open.
        self.asgi_sink: AsgiSink | None = None
        #: The number of sweeps since data was received or sent, and since the head began.
        self.idle_turns = 0
        self._head_turns = 0
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        if self.cap.admits(len(self.connections)):
            super().connection_made(transport)
            return
        self.transport = transport
        self._end(503, "Too many connections are open. Try again later.", b"retry-after: 1\r\n")

    # --- receiving -----------------------------------------------------------------------------------------

    def pass_on(self, data: bytes) -> None:
        """Pass the data to the parser. The parser accepts heads and trailers of any size, so check their sizes here."""
        was_in_message, was_in_head, body_bytes = self.in_message, self._in_head, self._body_bytes
        if not was_in_message:
            self.in_message = self._in_head = True
            self._head_turns = 0
        self._read_bytes = len(data)
        self._begun = 0
        self._parse(data)
        if not self.in_message or self.transport.is_closing():
            return
        if self._in_head:
            # If the data contains other requests, the start of this head is unknown: count from the next data on.
            if self._begun + was_in_message <= 1:
                self._head_bytes += len(data)
            if self._head_bytes > MAX_REQUEST_HEAD_BYTES:
                self._refuse_head()
        elif was_in_message and not was_in_head and not self._begun:
            self._framing_bytes += len(data) - (self._body_bytes - body_bytes)
            if self._framing_bytes > MAX_FRAMING_BYTES + MAX_FRAMING_RATIO * self._body_bytes:
                self._end(400, "The chunks of the body hold too little content, or its trailers are too large.")

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            # Any client can send invalid data, so this is not worth a warning.
            log.debug("invalid HTTP request: %s", error)
            if self._head_too_large:
                self._refuse_head()
            else:
                self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._ignore_upgrade(data[upgrade.args[0] :])

    def _should_upgrade(self) -> bool:
        """Only a GET without a body becomes a WebSocket, and only if no other request waits for its answer."""
        return (
            super()._should_upgrade()
            and self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and (self.cycle is None or self.cycle.response_complete)
            and not any(
                name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
                for name, value in self.headers
            )
        )

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Answer a request for an unsupported upgrade with plain HTTP, as HTTP allows.

        The parser treats the data after the head as the other protocol, so a new parser gets the request without the
        upgrade headers. The connection closes after this request, because a proxy may assume that it was upgraded.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("CONNECT is not supported.")
            return
        self._wants_upgrade = False
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] not in _UPGRADE_HEADERS]
        lines += [b"connection: close", b"", rest]
        self.parser = httptools.HttpRequestParser(self)
        # As in uvicorn: data after the last request is ignored, without an error.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"\r\n".join(lines))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]  # for the ASGI lane
        self.in_message = self._in_head = True
        self._begun += 1
        self._head_bytes = self._head_turns = self._body_bytes = self._framing_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # A header after the head is a trailer. It must not change the request, for example its API key.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_bytes + self._read_bytes > MAX_REQUEST_HEAD_BYTES:
            # The head may be too large. Compute its size, because the data may include other requests or the body.
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_REQUEST_HEAD_BYTES:
                self._head_too_large = True
                raise ValueError("the head is too large")
        if self.parser.should_upgrade() and not self._should_upgrade():
            self._wants_upgrade = True
            return
        before = self.cycle
        super().on_headers_complete()
        if before is not None and not before.response_complete:
            self._unanswered = [cycle for cycle in self._unanswered if not cycle.response_complete]
            self._unanswered.append(before)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._wants_upgrade:
            self.in_message = False
            super().on_message_complete()

    # --- the end -------------------------------------------------------------------------------------------

    def _refuse_head(self) -> None:
        self._end(431, f"The head of the request is larger than {MAX_REQUEST_HEAD_BYTES} bytes.")

    def send_400_response(self, msg: str) -> None:
        self._end(400, msg)

    def _end(self, status: int, message: str, further: bytes = b"") -> None:
        """Send an error for invalid or incomplete data, and close the connection."""
        if self.transport.is_closing():
            return
        # While another answer is pending, the client would take the error for a part of that answer.
        started = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not started and not self.waits_for_answer:
            self.transport.write(
                b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b"
                % (STATUS_LINE[status], len(message), further, message.encode())
            )
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        # Otherwise a live response with another request behind it would keep its slot until its next heartbeat.
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._unanswered = []
        super().connection_lost(exc)

    def disconnect(self) -> None:
        """End the connection because an administrator wants it. A stream sends its last message."""
        stream = self.open_stream
        if stream is not None:
            if self.cycle is not None:
                self.cycle.keep_alive = False
            stream.disconnect()
        elif self.waits_for_answer:
            self.transport.abort()
        else:
            self.transport.close()

    @property
    def open_stream(self) -> StreamedAnswer | None:
        """The stream that the connection sends, while one is open."""
        return None if self.asgi_sink is None else self.asgi_sink.stream

    # --- time ----------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Sweeps close idle connections. A timer per request would cost more than the request.
        self._unset_keepalive_if_required()
        self.idle_turns = 0

    @property
    def waits_for_answer(self) -> bool:
        """Whether a complete request is not answered yet."""
        cycle = self.cycle
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete and not cycle.more_body)

    @property
    def receives_body(self) -> bool:
        return self.in_message and not self._in_head

    def look(self) -> None:
        """Close the connection if a deadline has passed. Called every ``deadlines.sweep_seconds``."""
        if self.waits_for_answer:
            return
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            # The client reads, if slowly.
            self._unsent = unsent
            self.idle_turns = 0
        self.idle_turns += 1
        deadlines = self.deadlines
        if self.transport.is_closing():
            if self.idle_turns > deadlines.idle_turns:
                self.transport.abort()
        elif self.receives_body:
            if self.idle_turns > deadlines.body_turns:
                self._end(408, f"No data of the body arrived for {deadlines.body_seconds:g} s.")
        elif self.in_message:
            self._head_turns += 1
            if self._head_turns > deadlines.head_turns:
                self._end(408, f"The head of the request took longer than {deadlines.head_seconds:g} s.")
        elif self.idle_turns > deadlines.idle_turns:
            self.transport.close()
