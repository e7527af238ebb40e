"""The fast lane: hot requests are answered from the transport's callback, without a task, a scope or a message.

What comes in at the boundary between two requests is looked at here
first: if it is the head of a hot route, this class reads the body, calls the gate and writes the answer; anything else
goes to uvicorn and on into the ASGI app. Clients send the same head again and again, so a head that has been parsed and
admitted once is remembered, and not looked at again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from functools import partial
from time import perf_counter
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from strandline.protocols.http import BODILESS, NOSNIFF, Call, Head, Later, Reply, Sink, Stream
from strandline.server.connection import Connection, ConnectionCap, Deadlines
from strandline.server.gate import CLOSE, Gate

#: Heads that are remembered. Every topic a client writes to is another one.
MAX_HEADS = 16_384
#: Memory for remembered heads: of clients, and as much again of trusted proxies. Enough for as many usual heads, which
#: have ten headers at the most.
MAX_HEADS_BYTES = 32 << 20
#: What a remembered head takes beside its bytes, and what each of its headers takes beside theirs, as measured.
HEAD_OVERHEAD_BYTES = 700
HEADER_OVERHEAD_BYTES = 120
#: Larger heads are not worth remembering.
MAX_HEAD_BYTES = 4096
#: A body from this size on is not copied to put its head in front of it.
LARGE_BODY_BYTES = 64 << 10
#: What a client may send ahead, while its last request is still being answered.
MAX_HELD_BYTES = 1 << 20


class HotHead:
    """A head of a hot route, as remembered: admitted, or refused for good."""

    __slots__ = ("head", "keep_alive", "length", "refused", "size")

    def __init__(self, head: Head, length: int, keep_alive: bool, refused: Reply | None) -> None:
        self.head = head
        self.length = length
        self.keep_alive = keep_alive
        self.refused = refused
        #: The memory that it takes, about.
        self.size = HEAD_OVERHEAD_BYTES + sum(
            len(name) + len(value) + HEADER_OVERHEAD_BYTES for name, value in head.headers.items()
        )

    @property
    def comes_again(self) -> bool:
        """Whether another request may have the very same head: one that is signed is sent once."""
        return b"authorization" not in self.head.headers


class Heads:
    """What is remembered of heads: a hot one as such, any other as None.

    With keys configured, heads hold secrets: then only a keyed digest of each is kept. ``trusted`` heads come from a
    proxy that may say for whom it asks.
    """

    def __init__(self, gate: Gate, *, trusted: bool = False) -> None:
        self._gate = gate
        self._trusted = trusted
        #: By the head itself, or by its digest where heads hold secrets.
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
        head = Head(parsed.method, parsed.path, parsed.query, parsed.headers)
        self._gate.find(head)
        if head.route is None or not head.route.fast:
            return None
        refused = self._gate.admit(head)
        if not head.route.certified:
            # It has been seen who asks; the secret itself is not kept.
            parsed.headers.pop(b"authorization", None)
        length = int(parsed.headers.get(b"content-length", b"0"))
        if length > self._gate.max_body_bytes:
            return None  # the other lane knows how to leave a body unread
        return HotHead(head, length, parsed.keep_alive, refused)


def _size(key: bytes, found: HotHead | None) -> int:
    return HEAD_OVERHEAD_BYTES + len(key) if found is None else len(key) + found.size


class NoHeads(Heads):
    """Knows of no hot route."""

    def get(self, raw: bytes) -> HotHead | None:
        return None


class _HeadParser:
    """One head, taken apart by the same parser that uvicorn uses."""

    def __init__(self, raw: bytes) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.method = self.path = self.query = ""
        self.keep_alive = False
        #: A request that can be answered here: HTTP/1.1, a body of known length, nothing to negotiate.
        self.plain = False
        self._url = b""
        self._repeated = False
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(raw)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.plain = False
        # The parser refers to this object: without the cycle both go at once, and not when the collector comes by.
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
    """Make a subclass per server with :func:`fast_lane`, which gives it the gate."""

    gate: Gate
    heads: Heads
    #: Of connections from trusted proxies.
    trusted_heads: Heads

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: A hot request whose body is still coming in, what of it is here, and how much is missing.
        self._hot: HotHead | None = None
        self._chunks: list[bytes] = []
        self._missing = 0
        #: What was decided of it when its head came in: nobody is turned away at the end of an upload.
        self._refused: Reply | None = None
        #: A hot request is being answered; what comes in meanwhile is held.
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
        if self.client is not None and self.gate.origins.trusts(self.client[0]):
            self.heads = self.trusted_heads

    # --- what comes in -------------------------------------------------------------------------------------

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
        """Answer the requests in the data, up to one that takes longer or belongs to the other lane. What comes
        behind a last request is not one."""
        while data and not self.transport.is_closing():
            if self.flow.write_paused:
                # The client has not read its last answers: it gets no further ones until it has.
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
                self._refused = self.gate.check_now(hot.head) or hot.refused
                if self._refused is None:
                    self.gate.hold(hot.head)
                self._hot = hot
                # The body of a request that is refused is not kept.
                self._chunks = [data[end:]] if self._refused is None else []
                self._missing = stop - len(data)
                return
            body = data[end:stop]
            data = data[stop:]
            self._answer(hot, body)
            if self._busy:
                if data:
                    self._hold(data)
                return

    def _more_body(self, data: bytes) -> None:
        hot, missing = self._hot, self._missing
        assert hot is not None
        if self._refused is None:
            self._chunks.append(data[:missing] if len(data) > missing else data)
        if len(data) < missing:
            self._missing -= len(data)
            return
        body = b"".join(self._chunks)
        self._forget_upload()
        if self._refused is None:
            self._call(hot, body)
        else:
            self._reply(hot, self._refused)
        rest = data[missing:]
        if rest:
            if self._busy:
                self._hold(rest)
            else:
                self._take(rest)

    def _forget_upload(self) -> None:
        hot, self._hot, self._chunks = self._hot, None, []
        if hot is not None and self._refused is None:
            self.gate.let_go(hot.head)

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > MAX_HELD_BYTES:
            self.flow.pause_reading()

    # --- what goes out -------------------------------------------------------------------------------------

    def _answer(self, hot: HotHead, body: bytes) -> None:
        gate, refused = self.gate, hot.refused
        if refused is not None or not gate.status.serving or gate.keys is not None:
            refused = gate.check_now(hot.head) or refused
            if refused is not None:
                self._reply(hot, refused)
                return
        self._call(hot, body)

    def _call(self, hot: HotHead, body: bytes) -> None:
        call = Call(hot.head, body, perf_counter(), self.client[0] if self.client else "")
        answer = self.gate.answer(call)
        if isinstance(answer, Reply):
            self._reply(hot, answer)
        elif isinstance(answer, Later):
            self._busy = True
            answer.then(partial(self._done, hot, call))
        else:
            self._begin_stream(hot, answer)

    def _done(self, hot: HotHead, call: Call, later: Later) -> None:
        if self.transport.is_closing():
            return
        answer = later.answer
        if answer is None:
            answer = self.gate.outcome(call, later)
        self._busy = False
        if isinstance(answer, Reply):
            self._reply(hot, answer)
        else:
            self._begin_stream(hot, answer)
        self._take_held()

    def _take_held(self) -> None:
        if self._held and not self._busy and not self.flow.write_paused:
            data = bytes(self._held)
            self._held.clear()
            self.flow.resume_reading()
            self._take(data)

    def _reply(self, hot: HotHead, reply: Reply) -> None:
        finished = self.gate.finish(hot.head, reply)
        if isinstance(finished, Reply):
            self._write(hot, finished)
        else:
            self._busy = True
            finished.then(partial(self._finished, hot))

    def _finished(self, hot: HotHead, later: Later) -> None:
        """A large reply has been compressed."""
        reply = later.answer
        if self.transport.is_closing():
            return
        if not isinstance(reply, Reply):
            self.transport.abort()
            return
        self._busy = False
        self._write(hot, reply)
        self._take_held()

    def _write(self, hot: HotHead, reply: Reply) -> None:
        body = reply.body
        if reply.status == 200 and hot.keep_alive and not reply.headers and not self._closing:
            # What nearly every reply looks like.
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
        """A reply of status 200 up to the length of its body."""
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
        """The headers of everything: those that uvicorn adds, of which it makes a new list every second, and ours."""
        defaults = self.server_state.default_headers
        if defaults is not self._joined_of:
            self._joined_of = defaults
            self._joined = _lines((*defaults, NOSNIFF))
        return self._joined

    def _begin_stream(self, hot: HotHead, stream: Stream) -> None:
        self._busy = True
        # The connection ends with the stream: nobody is to send another request on it meanwhile.
        self.transport.write(
            b"%b%bcontent-type: %b\r\n%btransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            % (STATUS_LINE[200], self._defaults(), stream.content_type, _lines(stream.headers + hot.head.further))
        )
        self._stream = _FastSink(self, stream)
        stream.opened(self._stream)

    # --- the connection ------------------------------------------------------------------------------------

    @property
    def waits_for_answer(self) -> bool:
        return self._busy or super().waits_for_answer

    @property
    def receives_body(self) -> bool:
        return self._hot is not None or super().receives_body

    @property
    def has_work(self) -> bool:
        """Whether a request is under way: its body comes in, or it waits for its answer."""
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
        waiting = 0 if self._stream is None else self._stream.stream.waiting_bytes
        return self.transport.get_write_buffer_size() + waiting

    def cut_off(self, grace: float) -> None:
        """The client does not read. A stream says a last word; an answer that stays incomplete says enough."""
        if self._stream is None or not grace:
            self.transport.abort()
            return
        self.loop.call_later(grace, self._stream.abort)
        self._stream.stream.too_slow()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gate.limits.unread.remove(self)
        self._forget_upload()
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
    """Writes a stream's pieces straight to the transport, as chunks."""

    __slots__ = ("_lane", "gone", "paused", "stream")

    def __init__(self, lane: FastLane, stream: Stream) -> None:
        self._lane = lane
        self.stream = stream
        self.paused = False
        self.gone = False

    def write(self, data: bytes) -> bool:
        if not self.gone:
            if len(data) < LARGE_BODY_BYTES:
                self._lane.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            else:
                # Not copied: all readers at the same place share the bytes.
                self._lane.transport.writelines((b"%x\r\n" % len(data), data, b"\r\n"))
        return not self.paused

    def close(self) -> None:
        if not self.gone:
            self._lane.transport.write(b"0\r\n\r\n")
            self._lane.transport.close()

    def abort(self) -> None:
        if not self.gone:
            self._lane.transport.abort()


def fast_lane(gate: Gate, cap: ConnectionCap, deadlines: Deadlines, *, hot: bool = True) -> type[FastLane]:
    """The protocol class to give to uvicorn. Unless ``hot``, everything goes through the ASGI app; the bounds on
    connections are the same."""
    kind = Heads if hot else NoHeads
    heads = {"heads": kind(gate), "trusted_heads": kind(gate, trusted=True)}
    return type("FastLane", (FastLane,), {"gate": gate, "cap": cap, "deadlines": deadlines, **heads})
