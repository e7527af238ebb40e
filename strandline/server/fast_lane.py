"""The fast lane: answers hot requests directly from the transport's callback, without the overhead of ASGI.

Data at the boundary between two requests arrives here first. If it is the head of a hot route, this class reads the
body, calls the gate and writes the answer. Everything else goes to uvicorn and the ASGI app. Clients send the same
heads repeatedly, so parsed and checked heads are cached.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from strandline.server.connection import Connection, ConnectionDeadlines, ConnectionLimit
from strandline.server.gate import CLOSE, Gate
from strandline.service.http import BODILESS, NOSNIFF, Answer, Call, Head, Reply, Sink, StreamedAnswer

#: The maximum number of cached heads. Each topic that a client writes to needs another one.
MAX_HEADS = 16_384
#: The memory for cached heads: once for clients and once for trusted proxies. It is enough for MAX_HEADS heads with up
#: to ten headers.
MAX_HEADS_BYTES = 32 << 20
#: The measured memory overhead of a cached head and of each of its headers.
HEAD_OVERHEAD_BYTES = 700
HEADER_OVERHEAD_BYTES = 120
#: Larger heads are not cached.
MAX_HEAD_BYTES = 4096
#: Bodies from this size on are written separately from their head, to avoid a copy.
LARGE_BODY_BYTES = 64 << 10
#: The maximum bytes that a client may send while its last request is not answered yet.
MAX_HELD_BYTES = 1 << 20

#: The headers that name the trace of a request: how each is found, also with a capital letter, its name, and the bytes
#: of its value. They differ from request to request, so the rest of the head is cached.
_TRACEPARENT = b"raceparent:"
_TRACE_HEADERS = (
    (_TRACEPARENT, b"traceparent", b" 0123456789abcdef-"),
    (b"racestate:", b"tracestate", bytes(range(0x20, 0x7F))),
)


class HotHead(Head):
    """A cached head of a hot route, which the gate has admitted or refused. A body of ``length`` bytes follows it."""

    __slots__ = ("keep_alive",)

    def __init__(
        self, method: str, path: str, query_string: str, headers: dict[bytes, bytes], keep_alive: bool
    ) -> None:
        super().__init__(method, path, query_string, headers)
        self.keep_alive = keep_alive

    def of_trace(self, headers: dict[bytes, bytes]) -> HotHead:
        """The head of a request with further headers, which name its trace."""
        other = HotHead.__new__(HotHead)
        for name in _PARTS:
            setattr(other, name, getattr(self, name))
        other.headers = {**self.headers, **headers}
        return other

    @property
    def size(self) -> int:
        """The approximate memory that the head takes."""
        headers = self.headers.items()
        return HEAD_OVERHEAD_BYTES + sum(len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in headers)

    @property
    def comes_again(self) -> bool:
        """Whether another request may have the same head. A signed head is sent only once."""
        return b"authorization" not in self.headers


#: The attributes of a head.
_PARTS = (*Head.__slots__, *HotHead.__slots__)


class Heads:
    """The cache of heads. A head that is not hot is cached as None.

    If API keys are configured, heads contain secrets, and the cache uses a keyed digest of each head. ``trusted`` heads
    come from a trusted proxy, whose X-Forwarded headers are used.
    """

    def __init__(self, gate: Gate, *, trusted: bool = False) -> None:
        self._gate = gate
        self._trusted = trusted
        #: By the bytes of the head, or by its digest if heads contain secrets.
        self.known: dict[bytes, HotHead | None] = {}
        self._bytes = 0
        self._generation = gate.generation
        self._digest = hashlib.blake2b(digest_size=16, key=os.urandom(32)) if gate.keys is not None else None

    def get(self, raw: bytes) -> HotHead | None:
        if self._generation != self._gate.generation:
            self._generation = self._gate.generation
            self.known.clear()
            self._bytes = 0
        key = raw
        if self._digest is not None:
            digest = self._digest.copy()
            digest.update(raw)
            key = digest.digest()
        known = self.known
        try:
            return known[key]
        except KeyError:
            pass
        if _TRACEPARENT in raw:
            headers, rest = _without_trace(raw)
            if headers:
                found = known.get(rest) or self.get(rest)
                return found.of_trace(headers) if found is not None and self._gate.keeps_traceparent else found
        found = self._parse(raw)
        if len(raw) <= MAX_HEAD_BYTES and (found is None or found.comes_again):
            known[key] = found
            self._bytes += _size(key, found)
            while len(known) > MAX_HEADS or self._bytes > MAX_HEADS_BYTES:
                oldest = next(iter(known))
                self._bytes -= _size(oldest, known.pop(oldest))
        return found

    def _parse(self, raw: bytes) -> HotHead | None:
        parsed = _HeadParser(raw)
        if not parsed.plain:
            return None
        if not self._trusted:
            self._gate.origins.drop_forwarded(parsed.headers)
        head = HotHead(parsed.method, parsed.path, parsed.query, parsed.headers, parsed.keep_alive)
        if head.length > self._gate.max_body_bytes:
            return None  # the ASGI lane handles bodies that are not read
        self._gate.find(head)
        if head.route is None or not head.route.fast or head.method == "HEAD":
            return None
        self._gate.check(head)
        if not head.route.certified:
            # The gate has identified the caller, so do not keep the secret.
            parsed.headers.pop(b"authorization", None)
        return head


def _without_trace(raw: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """The headers of a head that name its trace, and the rest of the head.

    A head that is unusual is left as it is, because the parser has to see it: one that repeats a header, has a similar
    one, or has a value with other bytes or in several lines.
    """
    headers: dict[bytes, bytes] = {}
    rest = raw
    for mark, name, allowed in _TRACE_HEADERS:
        at = rest.find(mark)
        if at >= 0:
            end = rest.index(b"\r\n", at)
            value = rest[at + len(mark) : end]
            if (
                rest.find(mark, at + 1) >= 0
                or rest[at - 3 : at] not in (b"\r\nt", b"\r\nT")
                or rest[end + 2 : end + 3] in (b" ", b"\t")
                or value.translate(None, allowed)
            ):
                return {}, raw
            headers[name] = value
            rest = rest[: at - 3] + rest[end:]
    return headers, rest


def _size(key: bytes, found: HotHead | None) -> int:
    return HEAD_OVERHEAD_BYTES + len(key) if found is None else len(key) + found.size


class NoHeads(Heads):
    """A cache without hot routes: every request takes the ASGI lane."""

    def get(self, raw: bytes) -> HotHead | None:
        return None


class _HeadParser:
    """Parses one head, with the parser that uvicorn uses."""

    def __init__(self, raw: bytes) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.method = self.path = self.query = ""
        self.keep_alive = False
        #: Whether the fast lane can answer the request: HTTP/1.1, a body of known length, no upgrade, no `Expect`.
        self.plain = False
        self._url = b""
        self._repeated = False
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(raw)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.plain = False
        # The parser refers to this object. Break the cycle, so that both are freed without the garbage collector.
        del self._parser

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._repeated = self._repeated or name in self.headers
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self.headers
        url = httptools.parse_url(self._url)
        self.method = parser.get_method().decode("ascii")
        self.path = url.path.decode("latin-1")
        self.query = (url.query or b"").decode("latin-1")
        self.keep_alive = parser.should_keep_alive()
        self.plain = (
            parser.get_http_version() == "1.1"
            and not parser.should_upgrade()
            and not self._repeated
            and b"transfer-encoding" not in headers
            and b"expect" not in headers
            and headers.get(b"content-length", b"0").isdigit()
        )


class FastLane(Connection):
    """Create a subclass per server with :func:`fast_lane`, which sets the gate."""

    gate: Gate
    heads: Heads
    #: For connections from trusted proxies.
    trusted_heads: Heads

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._peer = ""
        #: A hot request whose body is incomplete, the chunks of the body so far, and the number of missing bytes.
        self._hot: HotHead | None = None
        self._chunks: list[bytes] = []
        self._missing = 0
        #: The gate's decision about the head, made before the body arrives: no request is refused after its upload.
        self._entered: Call | Reply | None = None
        #: Whether a hot request is being answered. Data that arrives meanwhile is held.
        self._busy = False
        self._held = bytearray()
        self._closing = False
        self._stream: _FastSink | None = None
        self._default_headers: list[tuple[bytes, bytes]] | None = None
        self._joined_of: list[tuple[bytes, bytes]] | None = None
        self._joined = b""
        self._front_type = b""
        self._front_bytes = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        if self.client is not None and self.gate.origins.trusts(self._peer):
            self.heads = self.trusted_heads

    # --- receiving -----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.idle_turns = 0
        if self._hot is not None:
            self._more_body(data)
        elif self._busy:
            self._hold(data)
        elif self.in_message or (self.cycle is not None and not self.cycle.response_complete):
            self.pass_on(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Answer the requests in the data, until one takes longer or belongs to the ASGI lane. Data after the last
        request of a closing connection is ignored."""
        while data and not self.transport.is_closing():
            if self.flow.write_paused:
                # The client has not read its last answers, so its next requests wait.
                self._hold(data)
                return
            end = data.find(b"\r\n\r\n") + 4
            raw = data[:end]
            hot = self.heads.known.get(raw)
            if hot is None and end > 4:
                hot = self.heads.get(raw)
            if hot is None:
                self.pass_on(data)
                return
            stop = end + hot.length
            if len(data) < stop:
                self._hot = hot
                self.head = hot
                self._entered = self.gate.enter(hot, self._peer, self.number, awaits_body=True)
                self._chunks = [data[end:]]
                self._missing = stop - len(data)
                return
            body = data[end:stop]
            data = data[stop:]
            entered = self.gate.enter(hot, self._peer, self.number)
            if isinstance(entered, Reply):
                self._write(hot, entered)
                continue
            self._busy = True
            self.head = hot
            self.gate.answer(entered, body, self._send)
            if self._busy:
                self.asked_at = entered.started
                if data:
                    self._hold(data)
                return

    def _more_body(self, data: bytes) -> None:
        hot, entered, missing = self._hot, self._entered, self._missing
        assert hot is not None
        assert entered is not None
        if isinstance(entered, Call):  # do not keep the body of a refused request
            self._chunks.append(data[:missing] if len(data) > missing else data)
        if len(data) < missing:
            self._missing -= len(data)
            return
        body = b"".join(self._chunks)
        self._hot, self._entered, self._chunks = None, None, []
        if isinstance(entered, Reply):
            self._write(hot, entered)
        else:
            self._busy = True
            self.asked_at = entered.started
            self.gate.answer(entered, body, self._send)
        rest = data[missing:]
        if rest:
            if self._busy:
                self._hold(rest)
            else:
                self._take(rest)

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > MAX_HELD_BYTES:
            self.flow.pause_reading()

    # --- sending -------------------------------------------------------------------------------------------

    def _send(self, call: Call, answer: Answer) -> None:
        if self.transport.is_closing():
            return
        hot = call.head
        assert isinstance(hot, HotHead)
        if isinstance(answer, Reply):
            self._busy = False
            self._write(hot, answer)
            if self._held:
                self._take_held()
        else:
            self._begin_stream(hot, answer)

    def _take_held(self) -> None:
        if self._held and not self._busy and not self.flow.write_paused:
            data = bytes(self._held)
            self._held.clear()
            self.flow.resume_reading()
            self._take(data)

    def _write(self, hot: HotHead, reply: Reply) -> None:
        body = reply.body
        if reply.status == 200 and hot.keep_alive and not reply.headers and not self._closing:
            # The usual case.
            front = self._front(reply.content_type)
            if len(body) < LARGE_BODY_BYTES:
                self.transport.write(b"%b%d\r\n\r\n%b" % (front, len(body), body))
            else:
                self.transport.writelines((b"%b%d\r\n\r\n" % (front, len(body)), body))
            return
        further = _lines(reply.headers)
        closes = CLOSE in reply.headers
        keep_alive = hot.keep_alive and not self._closing and not closes
        if not keep_alive and not closes:
            further += _lines((CLOSE,))
        begin = STATUS_LINE[reply.status], self._defaults()
        if reply.status in BODILESS:
            self.transport.write(b"%b%b%b\r\n" % (*begin, further))
        else:
            self.transport.write(
                b"%b%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b"
                % (*begin, reply.content_type, len(body), further, body)
            )
        if not keep_alive:
            self.transport.close()

    def _front(self, content_type: bytes) -> bytes:
        """The start of a reply with status 200, up to the value of its content-length."""
        defaults = self.server_state.default_headers
        if defaults is not self._default_headers or content_type is not self._front_type:
            self._front_type = content_type
            self._front_bytes = b"%b%bcontent-type: %b\r\ncontent-length: " % (
                STATUS_LINE[200],
                self._defaults(),
                content_type,
            )
            self._default_headers = defaults
        return self._front_bytes

    def _defaults(self) -> bytes:
        """The headers of every reply: those of uvicorn, which creates a new list every second, and our own."""
        defaults = self.server_state.default_headers
        if defaults is not self._joined_of:
            self._joined_of = defaults
            self._joined = _lines((*defaults, NOSNIFF))
        return self._joined

    def _begin_stream(self, hot: HotHead, stream: StreamedAnswer) -> None:
        # The connection stays busy while the stream is open. It closes with a stream that has no end of its own, which
        # a client usually leaves by closing it.
        keep_alive = stream.finite and hot.keep_alive and not self._closing
        self.transport.write(
            b"%b%bcontent-type: %b\r\n%btransfer-encoding: chunked\r\n%b\r\n"
            % (
                STATUS_LINE[200],
                self._defaults(),
                stream.content_type,
                _lines(stream.headers + hot.further),
                b"" if keep_alive else _lines((CLOSE,)),
            )
        )
        self._stream = _FastSink(self, stream, keep_alive)
        stream.opened(self._stream)

    def end_stream(self, keep_alive: bool) -> None:
        """The stream is complete. Close the connection, or make it ready for the next request."""
        sink = self._stream
        assert sink is not None
        self.transport.write(b"0\r\n\r\n")
        if not keep_alive or self._closing:
            self.transport.close()
            return
        self._stream = None
        self._busy = False
        sink.gone = True
        sink.stream.closed()
        self._take_held()

    # --- the connection ------------------------------------------------------------------------------------

    @property
    def waits_for_answer(self) -> bool:
        return self._busy or super().waits_for_answer

    @property
    def receives_body(self) -> bool:
        return self._hot is not None or super().receives_body

    @property
    def open_stream(self) -> StreamedAnswer | None:
        return super().open_stream if self._stream is None else self._stream.stream

    @property
    def is_fast(self) -> bool:
        """Whether the last request was answered in this lane."""
        return isinstance(self.head, HotHead)

    @property
    def has_work(self) -> bool:
        """Whether a request is in progress: its body is incomplete, or it is not answered yet."""
        return self._hot is not None or self.waits_for_answer

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stream is not None:
            self._stream.paused = True
        self.gate.limits.unread.add(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.gate.limits.unread.remove(self)
        sink = self._stream
        if sink is not None and sink.paused:
            sink.paused = False
            sink.stream.resumed()
        self._take_held()

    @property
    def unread_bytes(self) -> int:
        sink = self._stream or self.asgi_sink
        return self.transport.get_write_buffer_size() if sink is None else sink.unread_bytes + sink.stream.waiting_bytes

    def cut_off(self, grace: float) -> None:
        """Disconnect a client that does not read. A stream sends its last message; another answer stays incomplete."""
        sink = self._stream or self.asgi_sink
        if sink is None or not grace:
            self.transport.abort()
        else:
            sink.stream.too_slow(grace)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gate.limits.unread.remove(self)
        if isinstance(self._entered, Call):
            self.gate.leave(self._entered)
        sink, self._stream = self._stream, None
        if sink is not None:
            sink.gone = True
            sink.stream.closed()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._busy:
            self._closing = True
        else:
            super().shutdown()


def _lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class _FastSink(Sink):
    """Writes the data of a stream to the transport, as HTTP chunks."""

    __slots__ = ("_keep_alive", "_lane", "gone", "paused", "stream")

    def __init__(self, lane: FastLane, stream: StreamedAnswer, keep_alive: bool) -> None:
        self._lane = lane
        self._keep_alive = keep_alive
        self.stream = stream
        self.paused = False
        self.gone = False

    def write(self, data: bytes) -> bool:
        if not self.gone:
            if len(data) < LARGE_BODY_BYTES:
                self._lane.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            else:
                # Not copied, because all readers at the same position share the bytes.
                self._lane.transport.writelines((b"%x\r\n" % len(data), data, b"\r\n"))
        return not self.paused

    def close(self) -> None:
        if not self.gone:
            self._lane.end_stream(self._keep_alive)

    def abort(self) -> None:
        if not self.gone:
            self._lane.transport.abort()

    @property
    def unread_bytes(self) -> int:
        return self._lane.transport.get_write_buffer_size()


def fast_lane(gate: Gate, cap: ConnectionLimit, deadlines: ConnectionDeadlines, *, hot: bool = True) -> type[FastLane]:
    """The protocol class for uvicorn. Without ``hot``, all requests take the ASGI lane; the limits of connections are
    the same."""
    kind = Heads if hot else NoHeads
    heads = {"heads": kind(gate), "trusted_heads": kind(gate, trusted=True)}
    return type("FastLane", (FastLane,), {"gate": gate, "cap": cap, "deadlines": deadlines, **heads})
