"""The ASGI lane: every route, under any ASGI server.

Starlette has the WebSockets and the lifespan; all HTTP goes through the gate, as it does in the fast lane.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from strandline.protocols.access import Access
from strandline.protocols.http import (
    BODILESS,
    NOSNIFF,
    Call,
    Head,
    Headers,
    Later,
    Refusal,
    Reply,
    Sink,
    Stream,
    too_large,
)
from strandline.server.gate import CLOSE, Gate
from strandline.server.unread import UnreadBytes

#: A stream that has this much unsent is told to wait.
HIGH_WATER_BYTES = 64 << 10
#: How long the server reads and drops the body of a refused request before it closes the connection. A client that
#: sends everything before it reads gets its answer if it can send everything in this time.
LINGER_SECONDS = 10.0

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
        gate, started = self._gate, perf_counter()
        headers = _headers(scope, gate)
        path = scope.get("raw_path") or scope["path"].encode()
        head = Head(scope["method"], path.decode("latin-1"), scope["query_string"].decode("latin-1"), headers)
        refused = gate.admit(head)
        refused = gate.check_now(head) or refused
        if refused is None:
            gate.hold(head)
            call = Call(head, b"", started, _peer(scope))
            try:
                body = await _read_body(receive, gate.max_body_bytes)
            except Refusal as refusal:
                body, refused = None, gate.failed(call, refusal)
            finally:
                gate.let_go(head)
            if refused is None:
                if body is not None:
                    call.body = body
                    await self._answer(call, receive, send)
                return
        reply = await _finished(gate, head, refused)
        if gate.leaves_body(head):
            await _send_last_reply(receive, send, reply, gate.max_body_bytes)
        else:
            await _send_reply(send, reply)

    async def _answer(self, call: Call, receive: Receive, send: Send) -> None:
        gate = self._gate
        answer = gate.answer(call)
        if isinstance(answer, Later):
            try:
                answer = await answer
            except Exception as error:
                answer = gate.failed(call, error)
        if isinstance(answer, Reply):
            await _send_reply(send, await _finished(gate, call.head, answer))
        else:
            await _run_stream(answer, call.head.further, receive, send, gate.limits.unread)


async def _finished(gate: Gate, head: Head, reply: Reply) -> Reply:
    finished = gate.finish(head, reply)
    if isinstance(finished, Reply):
        return finished
    answer = await finished
    assert isinstance(answer, Reply)
    return answer


def _headers(scope: Scope, gate: Gate) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    if not gate.origins.trusts(_peer(scope)):
        gate.origins.drop_forwarded(headers)
    return headers


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None when the client has gone. Refuses one that is too large."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _send_reply(send: Send, reply: Reply, *, more: bool = False) -> None:
    headers = [NOSNIFF, *reply.headers]
    if reply.status not in BODILESS:
        headers += [(b"content-type", reply.content_type), (b"content-length", str(len(reply.body)).encode())]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body, "more_body": more})


async def _send_last_reply(receive: Receive, send: Send, reply: Reply, most: int) -> None:
    """Answer a request whose body is not wanted, and close the connection.

    Closing a connection that the client still writes to resets it, and the client may never see the answer. So up to
    ``most`` bytes of the body are read and dropped first.
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


class SocketDoor:
    """The ASGI app behind a WebSocket's path: lets in whom the gate admits, and hands over the bare connection."""

    def __init__(self, gate: Gate, serve: Callable[[Receive, Send, Access], Awaitable[None]]) -> None:
        self._gate = gate
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        try:
            access = self._gate.admit_socket(_headers(scope, self._gate))
        except Refusal as refusal:
            await _deny(websocket, refusal.reply())
            return
        try:
            await websocket.accept()
            await self._serve(receive, send, access)
        finally:
            self._gate.limits.streams.release(access)


async def _deny(websocket: WebSocket, reply: Reply) -> None:
    """Answer the handshake with an error."""
    if "websocket.http.response" not in websocket.scope.get("extensions", {}):
        await websocket.close()  # before it was accepted, which makes it a bare 403
        return
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    await websocket.send_denial_response(Response(reply.body, reply.status, headers, reply.content_type.decode()))


class _AsgiSink(Sink):
    """Collects what a stream writes until it can be sent."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
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
        # Once told to wait, the stream waits until it is told to go on, however little it says meanwhile.
        self.paused = self.paused or self.size >= HIGH_WATER_BYTES
        return not self.paused

    def close(self) -> None:
        self.ended = True
        self.something.set()

    def abort(self) -> None:
        self.aborted = True
        if self._task is not None:
            self._task.cancel()

    @property
    def unread_bytes(self) -> int:
        return self.size + self._stream.waiting_bytes

    def cut_off(self, grace: float) -> None:
        if not grace:
            self.abort()
            return
        asyncio.get_running_loop().call_later(grace, self._abort_unless_ended)
        self._stream.too_slow()

    def _abort_unless_ended(self) -> None:
        if self._task is not None and not self._task.done():
            self.abort()


async def _run_stream(stream: Stream, further: Headers, receive: Receive, send: Send, unread: UnreadBytes) -> None:
    headers = [NOSNIFF, (b"content-type", stream.content_type), *stream.headers, *further]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    sink = _AsgiSink(stream)
    gone = asyncio.ensure_future(_wait_for_disconnect(receive, sink))
    try:
        stream.opened(sink)
        while not gone.done():
            await sink.something.wait()
            sink.something.clear()
            while sink.chunks and not gone.done():
                data = sink.chunks[0] if len(sink.chunks) == 1 else b"".join(sink.chunks)
                sink.chunks.clear()
                if sink.paused:
                    # Another answer may be in the buffer of the connection, which the server below counts.
                    unread.add(sink)
                await send({"type": "http.response.body", "body": data, "more_body": True})
                sink.size -= len(data)
                unread.remove(sink)
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
        unread.remove(sink)
        gone.cancel()
        stream.closed()


async def _wait_for_disconnect(receive: Receive, sink: _AsgiSink) -> None:
    message: Any = {}
    while message.get("type") != "http.disconnect":
        message = await receive()
    sink.something.set()
