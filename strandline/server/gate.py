"""The gate: every request of both lanes passes it on the way to its handler, and every answer on the way back.

A lane calls :meth:`Gate.enter` when the head of a request is complete, and :meth:`Gate.answer` when its body is. The
gate checks, in this order: server state, host and origin, API key, requests in flight, scopes, names, size, media type.
Then it calls the handler. It turns exceptions into replies, counts them, adds headers and compresses bodies.

:meth:`Gate.check` makes the checks that depend only on the head and stores the result in the head, so that a lane can
cache it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter

import msgspec

from strandline.engine.errors import EngineClosed
from strandline.engine.record import MAX_SEQ
from strandline.server.access_log import AccessLog
from strandline.server.compression import (
    CODINGS,
    ENCODINGS,
    INLINE_BYTES,
    MIN_COMPRESSED_BYTES,
    STREAM_CODINGS,
    NotSmall,
    PieceEncoder,
    compress,
    compresses,
    decompress,
    decompress_small,
    is_quick,
)
from strandline.server.cors import Origins
from strandline.server.route_table import Paths
from strandline.service.access import FULL_ACCESS, Access, KnownKeys
from strandline.service.audit import Audit, is_audited
from strandline.service.content_coding import accepted_coding
from strandline.service.http import (
    NO_STORE,
    VARY_ENCODING,
    Answer,
    Call,
    ElementLimit,
    Head,
    Later,
    Reply,
    Route,
    StreamedAnswer,
    later_of,
    refuse,
)
from strandline.service.limits import Limits
from strandline.service.problems import (
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    NOT_READY,
    PAYLOAD_TOO_LARGE,
    STANDBY,
    THROTTLED,
    UNSUPPORTED_MEDIA_TYPE,
    Headers,
    Refusal,
    Throttled,
    body_too_large,
    internal,
    lacks_scope,
    may_not_touch,
    shutting_down,
    unauthorized,
)
from strandline.service.request_meter import RequestMeter
from strandline.service.workers import Workers

log = logging.getLogger(__name__)

#: The header of a reply after which the server closes the connection.
CLOSE = (b"connection", b"close")
#: The header with how far a server that follows another one is behind, in milliseconds.
LAG = b"strandline-lag-ms"
#: The characters of a wrong value that an answer repeats.
MAX_SHOWN = 40
#: The elements of smaller bodies are not counted, because decoding them takes only a few milliseconds.
COUNTED_FROM_BYTES = 64 << 10


class Status(msgspec.Struct):
    """The state of the server. It may stand by, starts by replaying the journal, and stops by letting requests
    finish."""

    standby: bool = False
    #: While the server stands by, and when it was replaced: the address of the leader, as host:port; empty if unknown.
    leader: str = ""
    #: The text for clients when another server has taken over; empty: none has.
    replaced: str = ""
    ready: bool = False
    draining: bool = False
    progress: float = 0.0

    @property
    def serving(self) -> bool:
        """Whether the server is neither starting nor stopping, and no other server has taken over."""
        return self.ready and not self.draining and not self.replaced

    def check(self) -> None:
        if self.draining:
            raise shutting_down()
        if self.standby or self.replaced:
            where = f"; the leader is {self.leader}" if self.leader else ""
            text = self.replaced or f"the server is a standby{where}"
            raise Refusal(STANDBY, text, {"leader": self.leader} if self.leader else None)
        if not self.ready:
            detail = {"replay_progress": round(self.progress, 3)}
            raise Refusal(NOT_READY, "the server is replaying its journal", detail)


class Gate:
    """``keys`` is None if no API keys are configured: then every client may do everything."""

    #: Whether the fast lane passes on the headers that name the trace of a request, instead of leaving them out.
    keeps_traceparent = False

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        keys: KnownKeys | None,
        limits: Limits,
        status: Status,
        workers: Workers,
        max_body_bytes: int,
        max_body_values: int = 0,
        probe_auth: bool = False,
        origins: Origins | None = None,
    ) -> None:
        self.status = status
        self.keys = keys
        self.limits = limits
        self._workers = workers
        self.origins = Origins(keyed=keys is not None) if origins is None else origins
        self.max_body_bytes = max_body_bytes
        #: For routes without a limit of their own; None: no limit.
        self._elements = _values_limit(max_body_values) if max_body_values else None
        #: Bodies from this size on are checked before the handler runs.
        self._large_from = min(COUNTED_FROM_BYTES, max_body_bytes)
        #: The counters of each route, by its method and path, and those of requests that match no route.
        self._meters: dict[tuple[str, str], RequestMeter] = {}
        self._unknown = RequestMeter()
        #: The audit log, once the engine is open; None: the server has none.
        self.audit: Audit | None = None
        #: Waits until a log has a seq, for requests with ``min_seq``. Set when the engine is open.
        self.reach: Callable[[str, int], Awaitable[None]] | None = None
        #: How far this server is behind its leader, in milliseconds; None: it follows none.
        self.lag_ms: Callable[[], float] | None = None
        #: Writes a line per answer; None: the server has no access log.
        self.access_log: AccessLog | None = None
        self._probe_auth = probe_auth
        self._paths = Paths()
        #: The number of requests so far, admitted or not, and the number of those directly before the last one that
        #: came from the same connection.
        self.entered = self.in_a_row = 0
        #: The connection of the last request.
        self._connection = 0
        #: Increases when routes are added or keys are revoked, which makes cached heads invalid.
        self.generation = 0
        self.add("server", routes)

    def add(self, protocol: str, routes: Sequence[Route]) -> None:
        """Serve the routes, which the metrics count under this protocol."""
        for route in routes:
            self._paths.add(route)
            meter = RequestMeter(protocol, route.method, route.path, audited=is_audited(route))
            self._meters.setdefault((route.method, route.path), meter)
        self.generation += 1

    def forget_heads(self) -> None:
        """Check every head again, because an API key no longer works."""
        self.generation += 1

    def meters(self) -> list[RequestMeter]:
        """The counters of the routes that got a request."""
        return [meter for meter in (self._unknown, *self._meters.values()) if meter.statuses]

    def answered(self) -> dict[tuple[str, int], int]:
        """The number of answers by the path of the route and the status."""
        found: dict[tuple[str, int], int] = {}
        for meter in self.meters():
            for status, count in meter.statuses.items():
                found[meter.path, status] = found.get((meter.path, status), 0) + count
        return found

    # --- checks of the head --------------------------------------------------------------------------------

    def find(self, head: Head) -> None:
        """Set the head's route and parameters if they are not set. The route stays None if the path has none."""
        if head.route is not None:
            return
        found = self._paths.find(head.path)
        if found is not None:
            methods, params = found
            # HEAD is GET without a body. The lanes leave the body out.
            route = methods.get(head.method) or (methods.get("GET") if head.method == "HEAD" else None)
            if route is not None:
                head.route, head.params = route, params
                head.meter = self._meters[route.method, route.path]

    def check(self, head: Head) -> None:
        """Find the route and make all checks that depend only on the head. Sets ``head.refused`` if one fails."""
        self.find(head)
        # If the path exists without this method, its protocol decides the shape and the CORS headers of the refusal.
        route = head.route or self._neighbour(head)
        if route is not None:
            head.further = self.origins.headers(head, route)
        try:
            self.origins.check(head, None if route is None else route.cors)
            self._check_head(head, route)
        except Refusal as refusal:
            head.refused = _refuse(route, refusal)

    def _neighbour(self, head: Head) -> Route | None:
        """A route of another method at the same path."""
        found = self._paths.find(head.path)
        return None if found is None else next(iter(found[0].values()))

    def _check_head(self, head: Head, nearest: Route | None) -> None:
        route = head.route
        head.access = self._identify(head, nearest)
        if route is None:
            raise self._no_route(head)
        if head.access is None:
            raise unauthorized()
        for scope in route.scopes:
            if not head.access.may(scope):
                raise lacks_scope(scope)
        for name in route.names:
            if not head.access.may_touch(head.params[name]):
                raise may_not_touch(head.params[name])
        if "min_seq" in head.query_string:
            head.min_seq = _min_seq(head, route)
        self._check_length(head)
        if route.stream:
            _check_accept(head)
        elif route.body != "none":
            _check_media_type(head, route)

    def _identify(self, head: Head, route: Route | None = None) -> Access | None:
        if self.keys is None:
            return FULL_ACCESS
        authorization = head.headers.get(b"authorization", b"")
        scheme = authorization[:7]
        if route is not None and route.any_case:
            scheme = scheme.title()
        token = authorization[7:].strip() if scheme == b"Bearer " else b""
        if not token and route is not None and route.stream:
            token = head.query.get("token", "").encode()
        access = self.keys.find(token) if token else None
        if route is not None and access is None and (route.public or (route.probe and not self._probe_auth)):
            return FULL_ACCESS
        if route is not None and access is None and route.own_access:
            return NOBODY
        return access

    def open_socket(self, head: Head, peer: str) -> Callable[[int], None]:
        """A client opens a WebSocket. Call the result with the status of the answer."""
        return _no_answer

    def admit_socket(self, head: Head) -> Access:
        """The access of a client that opens a WebSocket. The API key must be in a header. Raises Refusal."""
        self.status.check()
        self.origins.check(head)
        access = self._identify(head)
        if access is None:
            raise unauthorized()
        return access

    def _no_route(self, head: Head) -> Refusal:
        if head.access is None:
            return unauthorized()
        found = self._paths.find(head.path)
        if found is not None:
            words = f"{head.path} does not support {head.method}; see the Allow header"
            methods = {*found[0], "HEAD"} if "GET" in found[0] else set(found[0])
            return Refusal(METHOD_NOT_ALLOWED, words, allow=", ".join(sorted(methods)))
        return Refusal(NOT_FOUND, f"nothing exists at {head.path}")

    def _check_length(self, head: Head) -> None:
        if head.length < 0:
            # The published collections protocol prescribes this message.
            raise Refusal(INVALID_REQUEST, "Invalid Content-Length")
        if head.length > self.max_body_bytes:
            raise body_too_large(self.max_body_bytes)

    def leaves_body(self, head: Head) -> bool:
        """Whether the server does not read the whole body of a refused request: the body is or may be too large, or the
        client waits for permission to send it (`Expect`)."""
        headers = head.headers
        stated = 0 <= head.length <= self.max_body_bytes
        return not stated or b"transfer-encoding" in headers or b"expect" in headers

    # --- a request -----------------------------------------------------------------------------------------

    def enter(self, head: Head, peer: str = "", connection: int = 0, *, awaits_body: bool = False) -> Call | Reply:
        """Admit a request by its head. Returns a reply, ready to be sent, if the request is refused.

        With ``awaits_body`` the body is incomplete, and the request counts as in flight from now on: the caller must
        call ``answer`` or ``leave`` later. ``peer`` is the address at the other end of the connection, ``connection``
        its number, or 0 if it is not known.
        """
        self.entered += 1
        if connection and connection == self._connection:
            self.in_a_row += 1
        else:
            self._connection, self.in_a_row = connection, 0
        if head.route is None and head.refused is None:
            self.check(head)
        if head.refused is not None or self.keys is not None or not self.status.serving:
            refused = self._check_now(head) or head.refused
            if refused is not None:
                return self._refused(head, refused, peer)
        call = Call(head, b"", perf_counter(), peer)
        if awaits_body:
            self._hold(call)
        return call

    def _check_now(self, head: Head) -> Reply | None:
        """The checks whose result changes over time: the state of the server, and the requests in flight of the key.

        They come before the checks of the head. A starting server does not have all of its routes yet, so it answers
        every path with 503 instead of 404.
        """
        route = head.route
        try:
            if not self.status.serving and (route is None or not route.always):
                self.status.check()
            if self.keys is not None and head.access is not None and not self.limits.requests.room(head.access):
                raise Refusal(THROTTLED, "too many requests are in flight for this API key; wait for their answers")
        except Refusal as refusal:
            return _refuse(route, refusal)
        return None

    def _hold(self, call: Call) -> None:
        """Count the request as in flight."""
        access = call.head.access
        if self.keys is not None and access is not None and not call.held:
            call.held = self.limits.requests.acquire(access)

    def leave(self, call: Call) -> None:
        """The request is no longer in flight: the client has disconnected, or the answer is about to be sent."""
        if call.held:
            call.held = False
            self.limits.requests.release(call.access)

    def answer(self, call: Call, body: bytes, send: Send) -> None:
        """Call the handler. ``send`` is called exactly once with the reply or the stream, either before this method
        returns or later on the event loop."""
        call.body = body
        head = call.head
        route = head.route
        assert route is not None
        answer: Answer | Later | Awaitable[Answer]
        try:
            answer = self._answer_reached(call, route) if head.min_seq else self._handle(call, route)
        except Exception as error:
            answer = self._failed(call, error)
        if isinstance(answer, Reply):
            self._reply(call, send, answer)
        elif isinstance(answer, Later) or not isinstance(answer, StreamedAnswer):
            later = answer if isinstance(answer, Later) else later_of(answer)
            if self.keys is not None:
                self._hold(call)
            later.then(partial(self._settled, call, send))
        else:
            self._stream(call, send, answer)

    def _settled(self, call: Call, send: Send, later: Later) -> None:
        answer = later.answer
        if answer is None:
            try:
                answer = later.result()
            except Exception as error:
                answer = self._failed(call, error)
        if self.keys is not None and not self._may_still_read(call, self.keys):
            answer = _refuse(call.head.route, unauthorized())
        if isinstance(answer, Reply):
            self._reply(call, send, answer)
        else:
            self._stream(call, send, answer)

    @staticmethod
    def _may_still_read(call: Call, keys: KnownKeys) -> bool:
        """Whether the answer may be sent: the API key may have been revoked while the request waited. The answer to a
        write says only what was done before."""
        route = call.head.route
        reads = route is not None and ("read" in route.scopes or route.method == "GET")
        return not reads or keys.works(call.access)

    def _reply(self, call: Call, send: Send, reply: Reply) -> None:
        if call.held:
            self.leave(call)
        coding, vary = None, False
        if len(reply.body) >= MIN_COMPRESSED_BYTES or reply.status == 304:
            coding, vary = _negotiated(call.head, reply)
        head = call.head
        meter, seconds = head.meter or self._unknown, perf_counter() - call.started
        meter.add(reply.status, seconds)
        if meter.audited and self.audit is not None:
            self.audit.note(head, reply.status, call.peer)
        if self.access_log is not None:
            self.access_log.note(head, reply.status, call.peer, seconds, len(reply.body))
        reply = self._complete(head, reply, (VARY_ENCODING,) if vary else ())
        if coding is None:
            send(call, reply)
        elif len(reply.body) <= INLINE_BYTES and is_quick(coding):
            send(call, _compressed(reply, compress(reply.body, coding), coding))
        else:
            later_of(self._compress_large(reply, coding)).then(lambda later: send(call, later.answer or reply))

    def _stream(self, call: Call, send: Send, stream: StreamedAnswer) -> None:
        self.leave(call)
        (call.head.meter or self._unknown).count(200)
        if self.access_log is not None:
            self.access_log.note(call.head, 200, call.peer, perf_counter() - call.started)
        if stream.compressible and compresses(stream.content_type):
            coding = accepted_coding(call.head, STREAM_CODINGS)
            if coding is None:
                stream.encode(None, (VARY_ENCODING,))
            else:
                stream.encode(PieceEncoder(coding), (VARY_ENCODING, (b"content-encoding", coding)))
        send(call, stream)

    def _handle(self, call: Call, route: Route) -> Answer | Later | Awaitable[Answer]:
        if b"content-encoding" in call.head.headers and not self._decode(call):
            return self._answer_large(call, route)
        if len(call.body) > self._large_from:
            return self._handle_large(call, route)
        return route.handler(call)

    def _handle_large(self, call: Call, route: Route) -> Answer | Later | Awaitable[Answer]:
        """Refuse a body that is too large. If the body may have too many elements, count them on another thread before
        the handler decodes it."""
        if len(call.body) > self.max_body_bytes:
            raise body_too_large(self.max_body_bytes)
        elements = route.elements or self._elements
        if elements is None or not _says_json(call.head):
            return route.handler(call)
        if not elements.may_be_exceeded(call.body):
            return route.handler(call)
        return self._count_first(call, route, elements)

    async def _answer_reached(self, call: Call, route: Route) -> Answer:
        """Answer when the log of the path has the record that the client asks for."""
        assert self.reach is not None
        await self.reach(call.head.params[route.reads_log], call.head.min_seq)
        return await _settled(self._handle(call, route))

    async def _count_first(self, call: Call, route: Route, elements: ElementLimit) -> Answer:
        if await self._workers.normal.run(elements.is_exceeded, call.body):
            raise elements.refuse()
        return await _settled(route.handler(call))

    def _failed(self, call: Call, error: Exception) -> Reply:
        route = call.head.route
        try:
            if isinstance(error, Refusal):
                return _refuse(route, error)
            try:
                reply = None if route is None else route.errors(error)
            except Exception as failure:  # the client waits for an answer
                error, reply = failure, None
            if reply is None:
                log.error("%s %s failed", call.head.method, call.head.path, exc_info=error)
                reply = _refuse(route, internal())
            return reply
        finally:
            _forget_frames(error)

    def _refused(self, head: Head, reply: Reply, peer: str) -> Reply:
        """Count a reply that the head alone caused, and complete it."""
        meter = head.meter or self._unknown
        meter.count(reply.status)
        if meter.audited and self.audit is not None:
            self.audit.note(head, reply.status, peer)
        if self.access_log is not None:
            self.access_log.note(head, reply.status, peer, 0.0, len(reply.body))
        return self._complete(head, reply)

    def _complete(self, head: Head, reply: Reply, further: Headers = ()) -> Reply:
        """Add further headers and those of the route. A stopping server also closes the connection."""
        further += head.further
        if self.lag_ms is not None:
            further += ((LAG, b"%d" % self.lag_ms()),)
        if self.status.draining:
            further += (CLOSE,)
        if further:
            reply = Reply(reply.body, reply.status, reply.content_type, reply.headers + further)
        return reply

    async def _compress_large(self, reply: Reply, coding: bytes) -> Answer:
        try:
            return _compressed(reply, await self._workers.normal.run(compress, reply.body, coding), coding)
        except (Throttled, EngineClosed):
            return reply  # send it uncompressed

    def _decode(self, call: Call) -> bool:
        """Decompress the body. Returns False if a thread has to do it."""
        encoding = call.head.headers[b"content-encoding"].strip().lower()
        if encoding in (b"", b"identity"):
            return True
        if encoding not in ENCODINGS:
            raise Refusal(UNSUPPORTED_MEDIA_TYPE, "Content-Encoding must be gzip, deflate or identity")
        try:
            call.body = decompress_small(call.body, encoding, self.max_body_bytes)
        except NotSmall:
            return False
        return True

    async def _answer_large(self, call: Call, route: Route) -> Answer:
        encoding = call.head.headers[b"content-encoding"].strip().lower()
        call.body = await self._workers.normal.run(decompress, call.body, encoding, self.max_body_bytes)
        return await _settled(self._handle_large(call, route))


#: Receives the answer to a request: a finished reply or a stream.
Send = Callable[[Call, Answer], None]

#: The access of a caller without a valid API key, at a route that checks permissions itself.
NOBODY = Access("", frozenset(), ())


def _no_answer(status: int) -> None:
    """Nothing records the answer."""


def _forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of an error that is answered. Their frames refer to the request and to the answer, which
    refers to the error: such a cycle would keep the body of the request in memory until the garbage collector runs."""
    while error is not None and error.__traceback__ is not None:  # causes may be cyclic
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


async def _settled(answer: Answer | Later | Awaitable[Answer]) -> Answer:
    """Wait for the answer of a handler."""
    return answer if isinstance(answer, Reply | StreamedAnswer) else await answer


def _negotiated(head: Head, reply: Reply) -> tuple[bytes | None, bool]:
    """The coding that the client wants for a reply, and whether caches must learn of the choice. There is no choice if
    the content is compressed already or the handler has made it."""
    headers = reply.headers
    for header in headers:
        if header[0] == b"content-encoding" or header == VARY_ENCODING:
            return None, False
    if not compresses(reply.content_type):
        return None, False
    coding = accepted_coding(head, CODINGS)
    vary = coding is not None or (head.method != "POST" and NO_STORE not in headers and NO_STORE not in head.further)
    return None if reply.status == 304 else coding, vary


def _compressed(reply: Reply, body: bytes | None, coding: bytes) -> Reply:
    if body is None:
        return reply
    return Reply(body, reply.status, reply.content_type, (*reply.headers, (b"content-encoding", coding)))


def _min_seq(head: Head, route: Route) -> int:
    """The seq that the log of the path must have before the request is answered; 0 if the request says none."""
    text = head.query.get("min_seq")
    if text is None:
        return 0
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_SEQ)) and int(text) <= MAX_SEQ
    if not route.reads_log or not is_number:
        expected = "a sequence number" if route.reads_log else "no min_seq, because the request reads no single log"
        raise Refusal(INVALID_REQUEST, f"min_seq is {text[:MAX_SHOWN]!r}; expected {expected}")
    return int(text)


def _values_limit(most: int) -> ElementLimit:
    message = f"the body has more than {most} values; send it in smaller parts"
    return ElementLimit(most=most, refuse=lambda: Refusal(PAYLOAD_TOO_LARGE, message, {"max_values": most}))


def _refuse(route: Route | None, refusal: Refusal) -> Reply:
    return refuse(refusal) if route is None else route.refuse(refusal)


def _check_accept(head: Head) -> None:
    accept = head.headers.get(b"accept", b"*/*")
    if b"text/event-stream" not in accept and b"*/*" not in accept:
        raise Refusal(NOT_ACCEPTABLE, "the answer is an event stream; send Accept: text/event-stream")


def _says_json(head: Head) -> bool:
    return head.headers.get(b"content-type", b"").lower().startswith(b"application/json")


def _check_media_type(head: Head, route: Route) -> None:
    if route.body == "any" or _says_json(head):
        return
    has_body = head.length > 0 or b"transfer-encoding" in head.headers
    if has_body or route.body == "required":
        raise Refusal(UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")
