"""A connection that receives requests, with limits on everything that a client can send without an API key.

It extends uvicorn's httptools protocol with limits that uvicorn does not have: the size and the time of a head, how
long a body may stall, trailers, unsupported upgrades, and the number of connections.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from math import ceil
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from strandline.server.asgi import CONNECTION, AsgiSink

log = logging.getLogger(__name__)

#: The maximum size of the request line and headers. Clients with cookies, tokens and long queries stay below 16 KiB.
MAX_REQUEST_HEAD_BYTES = 64 << 10
#: The overhead that a chunked body may have (sizes and extensions of chunks, trailers): this many bytes, plus
#: ``MAX_FRAMING_RATIO`` bytes per byte of content, which is enough for chunks of one byte.
MAX_FRAMING_BYTES = 64 << 10
MAX_FRAMING_RATIO = 16
#: A connection without a request is closed after this time. Most clients and proxies close idle connections after 60 s,
#: so the server seldom closes one that a client is about to use.
IDLE_SECONDS = 75.0
#: The longest time between two sweeps. A missed deadline is noticed at most one sweep later.
SWEEP_SECONDS = 5.0
#: File descriptors that are reserved for everything but connections: 64 open segments (two each if they are cold), the
#: journal, sealing, indexes, webhooks, and the event loop. At most a quarter of all, for systems with low limits.
RESERVED_FILES = 256
#: Below this share of the limit, reaching the limit again is logged again.
RELAXED_SHARE = 0.9
#: The limit if the system has none.
UNLIMITED = 1 << 20

#: Headers that apply to one connection, and to an upgrade that does not take place.
_UPGRADE_HEADERS = (b"connection", b"upgrade", b"http2-settings")


class Deadlines:
    """When a connection is closed, counted in sweeps."""

    def __init__(self, head_seconds: float, body_seconds: float) -> None:
        self.head_seconds = head_seconds
        self.body_seconds = body_seconds
        #: The time between two sweeps.
        self.sweep_seconds = min(SWEEP_SECONDS, head_seconds / 4, body_seconds / 4)
        self.head_turns = ceil(head_seconds / self.sweep_seconds)
        self.body_turns = ceil(body_seconds / self.sweep_seconds)
        self.idle_turns = ceil(IDLE_SECONDS / self.sweep_seconds)


class ConnectionCap:
    """The maximum number of open connections, and how many were refused because of it."""

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
                "the limit of %d open connections is reached: the server refuses new connections with 503 until some "
                "are closed. The limit is limits.max_connections, or the limit of open files minus %d",
                self.most,
                RESERVED_FILES,
            )
        return False

    def relax(self, open_now: int) -> None:
        if open_now < self.most * RELAXED_SHARE:
            self._told = False


def connection_limit(wanted: int) -> int:
    """The maximum number of connections; ``wanted`` is the setting, 0 for as many as possible. It always leaves enough
    file descriptors for other files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        possible = UNLIMITED
    else:
        possible = files - min(RESERVED_FILES, files // 4)
    if wanted > possible:
        log.warning(
            "limits.max_connections is %d, but this process may open only %d files: the limit is %d connections. Raise "
            "the limit of open files (ulimit -n, LimitNOFILE)",
            wanted,
            files,
            possible,
        )
    return min(wanted or possible, possible)


class Connection(HttpToolsProtocol):
    cap: ConnectionCap
    deadlines: Deadlines

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Whether the parser is inside a request, inside its head, and how many bytes of the head have arrived.
        self.in_message = False
        self._in_head = False
        self._head_bytes = 0
        self._head_too_large = False
        #: The size of the data that is being parsed, and how many requests began in it.
        self._read_bytes = 0
        self._begun = 0
        #: The bytes of the body's content, and of its overhead.
        self._body_bytes = 0
        self._framing_bytes = 0
        #: Whether the head asks for a protocol that the server does not support.
        self._wants_upgrade = False
        #: Requests of the ASGI lane that were not answered when the next one came in. uvicorn knows only the last one.
        self._unanswered: list[RequestResponseCycle] = []
        #: The sink of a stream of the ASGI lane, while one is open.
        self.asgi_sink: AsgiSink | None = None
        #: How many sweeps ago data was last received or sent, and how many ago the head began.
        self.idle_turns = 0
        self._head_turns = 0
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        if self.cap.admits(len(self.connections)):
            super().connection_made(transport)
            return
        self.transport = transport
        self._end(503, "Too many connections are open. Try again later.", b"retry-after: 1\r\n")

    # --- receiving -------------------------------------------------------------------------------------------------

    def pass_on(self, data: bytes) -> None:
        """Pass the data to the parser, within limits: the parser itself accepts heads and trailers of any size."""
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
            # If other requests were in the same data, the start of this one is unknown: count from the next data on.
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
            # Any client can send invalid data, so it is not worth a warning.
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
        """Only a GET without a body becomes a WebSocket, and only if no other answer is due."""
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
        """Continue with HTTP although the client offers another protocol. The parser would treat the data after the
        head as that protocol, so a new parser gets the request without the offer. The connection closes after this
        request: a proxy that expects the upgrade would misread what follows."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("CONNECT is not supported.")
            return
        self._wants_upgrade = False
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] not in _UPGRADE_HEADERS]
        lines += [b"connection: close", b"", rest]
        self.parser = httptools.HttpRequestParser(self)
        # Like uvicorn: data after the last request is not an error, and is never executed.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"\r\n".join(lines))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]  # for the ASGI lane
        self.in_message = self._in_head = True
        self._begun += 1
        self._head_bytes = self._head_turns = self._body_bytes = self._framing_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # Headers after the head are trailers. They must not change the request's API key or anything else.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_bytes + self._read_bytes > MAX_REQUEST_HEAD_BYTES:
            # Only an estimate: part of the data may belong to other requests, or to the body.
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

    # --- closing ---------------------------------------------------------------------------------------------------

    def _refuse_head(self) -> None:
        self._end(431, f"The head of the request is larger than {MAX_REQUEST_HEAD_BYTES} bytes.")

    def send_400_response(self, msg: str) -> None:
        self._end(400, msg)

    def _end(self, status: int, message: str, further: bytes = b"") -> None:
        """Answer an invalid or incomplete request, and close."""
        if self.transport.is_closing():
            return
        # While another answer is due or being sent, the client would read this one as a part of it.
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

    # --- deadlines -------------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Idle connections are closed by sweeps; a timer per request would cost more than the request.
        self._unset_keepalive_if_required()
        self.idle_turns = 0

    @property
    def waits_for_answer(self) -> bool:
        """Whether a request has arrived completely and is not answered yet."""
        cycle = self.cycle
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete and not cycle.more_body)

    @property
    def receives_body(self) -> bool:
        return self.in_message and not self._in_head

    def look(self) -> None:
        """Close the connection if its client is overdue. Called every ``deadlines.sweep_seconds``."""
        if self.waits_for_answer:
            return
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            # The client reads its data, if slowly.
            self._unsent = unsent
            self.idle_turns = 0
        self.idle_turns += 1
        deadlines = self.deadlines
        if self.transport.is_closing():
            if self.idle_turns > deadlines.idle_turns:
                self.transport.abort()
        elif self.receives_body:
            if self.idle_turns > deadlines.body_turns:
                self._end(408, f"No more of the body came for {deadlines.body_seconds:g} s.")
        elif self.in_message:
            self._head_turns += 1
            if self._head_turns > deadlines.head_turns:
                self._end(408, f"The head of the request took longer than {deadlines.head_seconds:g} s.")
        elif self.idle_turns > deadlines.idle_turns:
            self.transport.close()
