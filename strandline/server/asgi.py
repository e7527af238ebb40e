"""The ASGI lane: serves every route under any ASGI server.

Starlette handles WebSockets and the lifespan. All HTTP requests pass the gate, as in the fast lane.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from strandline.server.gate import CLOSE, Gate
from strandline.service.access import Access
from strandline.service.http import BODILESS, NOSNIFF, Answer, Call, Head, Later, Reply, Sink, StreamedAnswer, refuse
from strandline.service.live import SocketResponse
from strandline.service.problems import Headers, Refusal

#: A stream with this many unsent bytes has to wait.
HIGH_WATER_BYTES = 64 << 10
#: How long the server reads and drops the body of a refused request before it closes the connection. Some clients read
#: the answer only after they have sent the whole body; they get it if they finish in this time.
LINGER_SECONDS = 10.0

#: The extension of a scope that holds the connection, if the HTTP server below counts unread data.
CONNECTION = "strandline.connection"

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def make_app(gate: Gate, websockets: list[WebSocketRoute], lifespan: Lifespan) -> Starlette:
    return Starlette(routes=[*websockets, _AllHttp(gate)], lifespan=lifespan)


class _AllHttp(BaseRoute):
    """Matches every HTTP request: the gate finds the route."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.FULL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate = self._gate
        path = scope.get("raw_path") or scope["path"].encode()
        query = scope["query_string"].decode("latin-1")
        head = Head(scope["method"], path.decode("latin-1"), query, _headers(scope, gate))
        head.takes_chunks = scope["http_version"] != "1.0"
        connection: StreamCarrier | None = scope.get("extensions", {}).get(CONNECTION)
        if connection is not None:
            connection.head, connection.asked_at = head, perf_counter()
        answer: Answer | Call = gate.enter(head, _peer(scope), awaits_body=True)
        is_read = not gate.leaves_body(head)
        if isinstance(answer, Call):
            body = await self._body_of(answer, receive)
            if body is None:
                return
            is_read = len(body) <= gate.max_body_bytes
            answered = Later()
            gate.answer(answer, body, lambda _, answer: answered.settle(answer))
            answer = await answered
        if isinstance(answer, StreamedAnswer):
            if head.method == "HEAD":
                await _send_stream_head(send, answer, head.further)
                return
            await _run_stream(answer, head.further, receive, send, connection)
        elif is_read:
            await _send_reply(send, answer, bodiless=head.method == "HEAD")
        else:
            await _send_last_reply(receive, send, answer, gate.max_body_bytes)

    async def _body_of(self, call: Call, receive: Receive) -> bytes | None:
        """The body; None if the client has disconnected. Then the request no longer counts as in flight."""
        body = None
        try:
            body = await _read_body(receive, self._gate.max_body_bytes)
        finally:
            if body is None:
                self._gate.leave(call)
        return body


def _headers(scope: Scope, gate: Gate) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    if not gate.origins.trusts(_peer(scope)):
        gate.origins.drop_forwarded(headers)
    return headers


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if the client has disconnected. Reading stops when the body exceeds the limit, and the gate
    then refuses it."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        chunks.append(chunk)
        if size > limit or not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _send_reply(send: Send, reply: Reply, *, more: bool = False, bodiless: bool = False) -> None:
    """Send a reply. The ``bodiless`` answer to HEAD has the headers of the reply, including the length of its body."""
    headers = [NOSNIFF, *reply.headers]
    if reply.status not in BODILESS:
        headers += [(b"content-type", reply.content_type), (b"content-length", str(len(reply.body)).encode())]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if bodiless else reply.body, "more_body": more})


async def _send_last_reply(receive: Receive, send: Send, reply: Reply, most: int) -> None:
    """Answer a request without using its body, and close the connection.

    If the server closed the connection while the client still writes, the connection would be reset and the client
    might never see the answer. Therefore up to ``most`` bytes of the body are read and dropped first.
    """
    if CLOSE not in reply.headers:
        reply = Reply(reply.body, reply.status, reply.content_type, (*reply.headers, CLOSE))
    await _send_reply(send, reply, more=True)
    dropped = 0
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while dropped <= most:
                message = await receive()
                dropped += len(message.get("body", b""))
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})


#: Accepts a WebSocket and serves it, or raises Refusal. The last argument is called with the response.
ServeSocket = Callable[
    [Callable[[], Awaitable[None]], Receive, Send, Access, Callable[[SocketResponse], None]], Awaitable[None]
]


class SocketDoor:
    """The ASGI app of a WebSocket path. The gate checks the handshake; ``serve`` gets the bare connection."""

    def __init__(self, gate: Gate, serve: ServeSocket) -> None:
        self._gate = gate
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        head = Head("GET", scope["path"], "", _headers(scope, self._gate))
        answered = self._gate.open_socket(head, _peer(scope))

        async def accept() -> None:
            await websocket.accept()
            answered(101)

        try:
            carrier: SocketCarrier | None = scope.get("extensions", {}).get(CONNECTION)
            opened = _ignore if carrier is None else carrier.carry
            await self._serve(accept, receive, send, self._gate.admit_socket(head), opened)
        except Refusal as refusal:
            answered(refusal.status)
            await _deny(websocket, refuse(refusal))


def _ignore(response: SocketResponse) -> None:
    pass


async def _deny(websocket: WebSocket, reply: Reply) -> None:
    """Answer the handshake with an error."""
    if "websocket.http.response" not in websocket.scope.get("extensions", {}):
        await websocket.close()  # closing before accepting sends a 403 without a body
        return
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    await websocket.send_denial_response(Response(reply.body, reply.status, headers, reply.content_type.decode()))


class SocketCarrier(Protocol):
    """The connection of a WebSocket."""

    def carry(self, response: SocketResponse) -> None:
        """The response that the connection is used for."""


class StreamCarrier(Protocol):
    """The connection of a stream of this lane. It counts unread data, and ends the stream of a slow client."""

    head: Head | None
    asked_at: float
    transport: asyncio.Transport
    asgi_sink: AsgiSink | None


class AsgiSink(Sink):
    """Buffers the data of a stream until it can be sent."""

    def __init__(self, stream: StreamedAnswer, connection: StreamCarrier | None) -> None:
        self.stream = stream
        self._connection = connection
        self.chunks: deque[bytes] = deque()
        self.size = 0
        self.ended = False
        self.paused = False
        self.aborted = False
        self.something = asyncio.Event()
        self._task = asyncio.current_task()

    def write(self, data: bytes) -> bool:
        self.chunks.append(data)
        self.size += len(data)
        self.something.set()
        # A paused stream stays paused until ``resumed``, even if it writes little meanwhile.
        self.paused = self.paused or self.size >= HIGH_WATER_BYTES
        return not self.paused

    def close(self) -> None:
        self.ended = True
        self.something.set()

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.transport.abort()
        elif self._task is not None and not self._task.done():
            self.aborted = True
            self._task.cancel()

    @property
    def unread_bytes(self) -> int:
        below = 0 if self._connection is None else self._connection.transport.get_write_buffer_size()
        return self.size + below


async def _start_stream(send: Send, stream: StreamedAnswer, further: Headers) -> None:
    headers = [NOSNIFF, (b"content-type", stream.content_type), *stream.headers, *further]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_stream_head(send: Send, stream: StreamedAnswer, further: Headers) -> None:
    """Answer HEAD at the route of a stream. The stream is never opened, so it takes no slot and claims nothing."""
    await _start_stream(send, stream, further)
    await send({"type": "http.response.body", "body": b""})


async def _run_stream(
    stream: StreamedAnswer, further: Headers, receive: Receive, send: Send, connection: StreamCarrier | None
) -> None:
    await _start_stream(send, stream, further)
    sink = AsgiSink(stream, connection)
    if connection is not None:
        connection.asgi_sink = sink
    gone = asyncio.ensure_future(_wait_for_disconnect(receive, sink))
    try:
        stream.opened(sink)
        while not gone.done():
            await sink.something.wait()
            sink.something.clear()
            while sink.chunks and not gone.done():
                data = sink.chunks[0] if len(sink.chunks) == 1 else b"".join(sink.chunks)
                sink.chunks.clear()
                # From here on the connection counts these bytes.
                sink.size = 0
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if sink.ended:
                break
            if sink.paused:
                sink.paused = False
                stream.resumed()
        if not gone.done():
            await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not sink.aborted:
            raise
    finally:
        if connection is not None:
            connection.asgi_sink = None
        gone.cancel()
        stream.closed()


async def _wait_for_disconnect(receive: Receive, sink: AsgiSink) -> None:
    message: Any = {}
    while message.get("type") != "http.disconnect":
        message = await receive()
    sink.something.set()
