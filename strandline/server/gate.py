"""The gate: what every request passes before it gets to its handler, in either lane, in one fixed order.

Whether the server is up, host and origin, key, requests in flight, scope, names, size, media type; then the handler.
What depends on the head of a request alone is decided by :meth:`Gate.admit`, which the fast lane remembers per head.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence

import msgspec

from strandline.protocols.access import FULL_ACCESS, Access, Keys
from strandline.protocols.http import (
    Answer,
    Call,
    ElementLimit,
    Head,
    Later,
    Refusal,
    Reply,
    Route,
    Stream,
    accepts_gzip,
    later_of,
    too_large,
)
from strandline.server.compression import (
    INLINE_BYTES,
    MIN_COMPRESSED_BYTES,
    NotSmall,
    compress,
    compress_in_thread,
    compresses,
    decompress_in_thread,
    decompress_small,
)
from strandline.server.limits import Limits
from strandline.server.origin import Origins
from strandline.server.route_table import Paths

log = logging.getLogger(__name__)

#: The header of a reply after which the server closes the connection.
CLOSE = (b"connection", b"close")
#: The elements of smaller bodies are not counted: making objects of all of them takes a few milliseconds.
COUNTED_FROM_BYTES = 64 << 10


class Status(msgspec.Struct):
    """Whether the server answers: it starts by replaying the journal, and ends by letting requests finish."""

    ready: bool = False
    draining: bool = False
    progress: float = 0.0

    @property
    def serving(self) -> bool:
        """Neither starting nor stopping."""
        return self.ready and not self.draining

    def check(self) -> None:
        if self.draining:
            raise Refusal(503, "shutting_down", "the server is shutting down", retry_after=1)
        if not self.ready:
            raise Refusal(
                503,
                "not_ready",
                "the server is replaying its journal",
                {"replay_progress": round(self.progress, 3)},
                retry_after=1,
            )


class Gate:
    """``keys`` is None when no keys are configured: then everybody may do everything."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        keys: Keys | None,
        limits: Limits,
        status: Status,
        max_body_bytes: int,
        max_body_values: int = 0,
        probe_auth: bool = False,
        origins: Origins | None = None,
    ) -> None:
        self.status = status
        self.keys = keys
        self.limits = limits
        self.origins = Origins(keyed=keys is not None) if origins is None else origins
        self.max_body_bytes = max_body_bytes
        #: For routes that have no limit of their own; None: no bound.
        self._elements = _values_limit(max_body_values) if max_body_values else None
        #: Requests answered so far, by path of the route and status.
        self.answered: dict[tuple[str, int], int] = {}
        self._probe_auth = probe_auth
        self._paths = Paths()
        #: Counts how often routes were added: what was remembered before may be out of date.
        self.generation = 0
        self.add(routes)

    def add(self, routes: Sequence[Route]) -> None:
        for route in routes:
            self._paths.add(route)
        self.generation += 1

    # --- what depends on the head alone --------------------------------------------------------------------

    def find(self, head: Head) -> None:
        """Set the head's route and parameters; leaves the route None when there is none."""
        found = self._paths.find(head.path)
        if found is not None:
            methods, params = found
            route = methods.get(head.method)
            if route is not None:
                head.route, head.params = route, params

    def admit(self, head: Head) -> Reply | None:
        """Find the route and check the head; a reply if the request is refused. Not what changes from moment to
        moment: see ``check_now``."""
        self.find(head)
        if head.route is not None:
            head.further = self.origins.headers(head, head.route)
        try:
            self.origins.check(head)
            self._check_head(head)
        except Refusal as refusal:
            return _refuse(head.route, refusal)
        return None

    def _check_head(self, head: Head) -> None:
        route = head.route
        head.access = self._identify(head)
        if route is None:
            raise self._no_route(head)
        if head.access is None:
            raise Refusal(401, "unauthorized", "a valid API key is required")
        for scope in route.scopes:
            if not head.access.may(scope):
                raise Refusal(403, "forbidden", f"the API key lacks the {scope} scope")
        for name in route.names:
            if not head.access.may_touch(head.params[name]):
                raise Refusal(403, "forbidden", f"the API key may not touch {head.params[name]!r}")
        self._check_length(head)
        if route.stream:
            _check_accept(head)
        elif route.body != "none":
            _check_media_type(head, route)

    def _identify(self, head: Head) -> Access | None:
        if self.keys is None:
            return FULL_ACCESS
        route = head.route
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

    def admit_socket(self, headers: Mapping[bytes, bytes]) -> Access:
        """Who opens a WebSocket: the key must be in a header. Takes one of the streams, or raises Refusal."""
        self.status.check()
        head = Head("GET", "", "", headers)
        self.origins.check(head)
        access = self._identify(head)
        if access is None:
            raise Refusal(401, "unauthorized", "a valid API key is required")
        if not self.limits.streams.acquire(access):
            raise Refusal(429, "throttled", "too many streams are open", retry_after=1)
        return access

    def _no_route(self, head: Head) -> Refusal:
        if head.access is None:
            return Refusal(401, "unauthorized", "a valid API key is required")
        found = self._paths.find(head.path)
        if found is not None:
            words = f"{head.method} is not allowed for {head.path}"
            return Refusal(405, "method_not_allowed", words, allow=", ".join(sorted(found[0])))
        return Refusal(404, "not_found", f"there is nothing at {head.path}")

    def _check_length(self, head: Head) -> None:
        if body_length(head) > self.max_body_bytes:
            raise too_large(self.max_body_bytes)

    def leaves_body(self, head: Head) -> bool:
        """Whether a refused request has a body that the server does not read to its end: a body that is too large, one
        that may be, or one that the client sends only on demand."""
        headers = head.headers
        stated = headers.get(b"content-length", b"0")
        too_long = not stated.isdigit() or int(stated) > self.max_body_bytes
        return too_long or b"transfer-encoding" in headers or b"expect" in headers

    # --- every single request ------------------------------------------------------------------------------

    def check_now(self, head: Head) -> Reply | None:
        """What may differ from one moment to the next: whether the server is up, and what its key has under way. It
        comes before everything else that a head can be refused for. A server that starts does not have all of its
        routes yet, so it can tell neither what is there nor who may have it: clients have to come back later."""
        route = head.route
        try:
            if not self.status.serving and (route is None or not route.always):
                self.status.check()
            if self.keys is not None and head.access is not None and not self.limits.requests.room(head.access):
                raise Refusal(429, "throttled", "too many requests are in flight for this API key", retry_after=1)
        except Refusal as refusal:
            return _refuse(route, refusal)
        return None

    def hold(self, head: Head) -> None:
        """The body is still on its way: that counts as a request in flight. ``check_now`` said that there is room."""
        if self.keys is not None and head.access is not None:
            self.limits.requests.acquire(head.access)

    def let_go(self, head: Head) -> None:
        """The whole body is there, or will never be."""
        if self.keys is not None and head.access is not None:
            self.limits.requests.release(head.access)

    def answer(self, call: Call) -> Answer | Later:
        """What the handler says; later if it takes longer, and then to be given to ``outcome`` when it is settled."""
        head = call.head
        route = head.route
        assert route is not None
        answer: Answer | Later | Awaitable[Answer]
        try:
            if b"content-encoding" in head.headers and not self._decode(call):
                answer = self._answer_large(call, route)
            elif len(call.body) > COUNTED_FROM_BYTES:
                answer = self._handle_large(call, route)
            else:
                answer = route.handler(call)
        except Exception as error:
            return self.failed(call, error)
        if isinstance(answer, Reply):
            return answer
        if isinstance(answer, Later) and self.keys is None:
            return answer
        if isinstance(answer, Stream):
            return answer
        later = answer if isinstance(answer, Later) else later_of(answer)
        # There was room when the request was looked at, and nothing has run since.
        if self.keys is not None and head.access is not None and self.limits.requests.acquire(head.access):
            return self._counted(later, head.access)
        return later

    def _handle_large(self, call: Call, route: Route) -> Answer | Later | Awaitable[Answer]:
        """A body may have more elements than anybody should make objects of. If it looks like that, they are counted
        on another thread first."""
        elements = route.elements or self._elements
        media_type = call.head.headers.get(b"content-type", b"").lower()
        if elements is None or not media_type.startswith(b"application/json"):
            return route.handler(call)
        if not elements.may_be_exceeded(call.body):
            return route.handler(call)
        return self._count_first(call, route, elements)

    async def _count_first(self, call: Call, route: Route, elements: ElementLimit) -> Answer:
        if await asyncio.to_thread(elements.is_exceeded, call.body):
            # Not raised: an exception would keep the body until the collector looks for it.
            return self.failed(call, elements.refuse())
        return await _settled(route.handler(call))

    def _counted(self, later: Later, access: Access) -> Later:
        """The same, with the slot given back before anybody learns of the answer."""
        counted = Later()

        def settled(later: Later) -> None:
            self.limits.requests.release(access)
            try:
                counted.settle(later.result())
            except Exception as error:
                counted.fail(error)

        later.then(settled)
        return counted

    def outcome(self, call: Call, later: Later) -> Answer:
        try:
            return later.result()
        except Exception as error:
            return self.failed(call, error)

    def failed(self, call: Call, error: BaseException) -> Reply:
        route = call.head.route
        if isinstance(error, Refusal):
            return _refuse(route, error)
        reply = route.errors(error) if route is not None and isinstance(error, Exception) else None
        if reply is None:
            log.error("%s %s failed", call.head.method, call.head.path, exc_info=error)
            reply = _refuse(route, Refusal(500, "internal", "an internal error; the server's log has the details"))
        return reply

    def finish(self, head: Head, reply: Reply) -> Reply | Later:
        """Count the reply, give it the headers of its route, and compress it if the client accepts that and it makes
        the reply smaller; a large reply is compressed in a thread. A server that stops ends the connection."""
        route = head.route
        counted = ("" if route is None else route.path, reply.status)
        self.answered[counted] = self.answered.get(counted, 0) + 1
        further = head.further
        if self.status.draining:
            further += (CLOSE,)
        if further:
            reply = Reply(reply.body, reply.status, reply.content_type, reply.headers + further)
        size = len(reply.body)
        if size < MIN_COMPRESSED_BYTES or b"accept-encoding" not in head.headers or not accepts_gzip(head):
            return reply
        if not compresses(reply.content_type) or any(name == b"content-encoding" for name, _ in reply.headers):
            return reply
        if size > INLINE_BYTES:
            return later_of(_compress_large(reply))
        return _compressed(reply, compress(reply.body))

    def _decode(self, call: Call) -> bool:
        """Undo the compression of a body; False if it is left to a thread."""
        encoding = call.head.headers[b"content-encoding"].strip().lower()
        if encoding in (b"", b"identity"):
            return True
        if encoding != b"gzip":
            raise Refusal(415, "unsupported_media_type", "the content encoding must be gzip or identity")
        try:
            call.body = decompress_small(call.body, self.max_body_bytes)
        except NotSmall:
            return False
        return True

    async def _answer_large(self, call: Call, route: Route) -> Answer:
        call.body = await decompress_in_thread(call.body, self.max_body_bytes)
        return await _settled(self._handle_large(call, route))


#: Somebody without a valid key, at a route that says by itself who may call it.
NOBODY = Access("", frozenset(), ())


def body_length(head: Head) -> int:
    """The length that the request states for its body; 0 if it states none."""
    stated = head.headers.get(b"content-length") or b"0"
    if not stated.isdigit():
        raise Refusal(400, "invalid_request", "Invalid Content-Length")
    return int(stated)


async def _settled(answer: Answer | Later | Awaitable[Answer]) -> Answer:
    """What a handler has answered, waited for if it takes longer."""
    return answer if isinstance(answer, Reply | Stream) else await answer


async def _compress_large(reply: Reply) -> Answer:
    return _compressed(reply, await compress_in_thread(reply.body))


def _compressed(reply: Reply, body: bytes | None) -> Reply:
    if body is None:
        return reply
    headers = (*reply.headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return Reply(body, reply.status, reply.content_type, headers)


def _values_limit(most: int) -> ElementLimit:
    message = f"the body has more than {most} values; send it in smaller parts"
    return ElementLimit(most=most, refuse=lambda: Refusal(413, "payload_too_large", message, {"max_values": most}))


def _refuse(route: Route | None, refusal: Refusal) -> Reply:
    return refusal.reply() if route is None else route.refuse(refusal)


def _check_accept(head: Head) -> None:
    accept = head.headers.get(b"accept", b"*/*")
    if b"text/event-stream" not in accept and b"*/*" not in accept:
        raise Refusal(406, "not_acceptable", "this is an event stream: accept text/event-stream")


def _check_media_type(head: Head, route: Route) -> None:
    if route.body == "any" or head.headers.get(b"content-type", b"").startswith(b"application/json"):
        return
    has_body = body_length(head) > 0 or b"transfer-encoding" in head.headers
    if has_body or route.body == "required":
        raise Refusal(415, "unsupported_media_type", "the content type must be application/json")
