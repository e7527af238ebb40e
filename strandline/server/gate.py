"""The gate: what every request passes before it gets to its handler, in either lane, in one fixed order.

Host and origin, key, requests in flight, scope, names, size, media type; then the handler. What depends on the head of
a request alone is decided by :meth:`Gate.admit`, which the fast lane remembers per head.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Mapping, Sequence

import msgspec

from strandline.faces.access import FULL_ACCESS, Access, Keys
from strandline.faces.web import (
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
)
from strandline.server.limits import Limits
from strandline.server.origin import Origins
from strandline.server.paths import Paths

log = logging.getLogger(__name__)

#: Smaller replies are not worth compressing.
GZIP_FROM_BYTES = 1024
#: The fastest level: who asks for compression has a slow line, but everybody shares the loop.
GZIP_LEVEL = 1
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
        if route.stream:
            _check_accept(head)
        elif route.body != "none":
            self._check_body(head, route)

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
        head = Head("GET", "", "", headers)
        self.origins.check(head)
        access = self._identify(head)
        if access is None:
            raise Refusal(401, "unauthorized", "a valid API key is required")
        self.status.check()
        if not self.limits.streams.acquire(access):
            raise Refusal(429, "throttled", "too many streams are open", retry_after=1)
        return access

    def _no_route(self, head: Head) -> Refusal:
        if head.access is None:
            return Refusal(401, "unauthorized", "a valid API key is required")
        # Before the server is ready it does not have all of its routes yet.
        self.status.check()
        found = self._paths.find(head.path)
        if found is not None:
            words = f"{head.method} is not allowed for {head.path}"
            return Refusal(405, "method_not_allowed", words, allow=", ".join(sorted(found[0])))
        return Refusal(404, "not_found", f"there is nothing at {head.path}")

    def _check_body(self, head: Head, route: Route) -> None:
        stated = head.headers.get(b"content-length") or b"0"
        if not stated.isdigit():
            raise Refusal(400, "invalid_request", "Invalid Content-Length")
        length = int(stated)
        if length > self.max_body_bytes:
            raise too_large(self.max_body_bytes)
        if route.body == "any" or head.headers.get(b"content-type", b"").startswith(b"application/json"):
            return
        has_body = length > 0 or b"transfer-encoding" in head.headers
        if has_body or route.body == "required":
            raise Refusal(415, "unsupported_media_type", "the content type must be application/json")

    # --- every single request ------------------------------------------------------------------------------

    def check_now(self, head: Head) -> Reply | None:
        """What may differ from one moment to the next: whether the server is up, and what its key has under way. It
        comes before everything else that a head can be refused for, but not before asking who it is from."""
        route = head.route
        if head.access is None:
            return None
        try:
            if not self.status.serving and (route is None or not route.always):
                self.status.check()
            if self.keys is not None and not self.limits.requests.room(head.access):
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
        try:
            if b"content-encoding" in head.headers:
                self._decode(call)
            if len(call.body) > COUNTED_FROM_BYTES:
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
        answer = route.handler(call)
        return answer if isinstance(answer, Reply | Stream) else await answer

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

    def finish(self, head: Head, reply: Reply) -> Reply:
        """Count the reply, give it the headers of its route, and compress it if the client asked for that, it is worth
        it, and nobody has done so."""
        route = head.route
        counted = ("" if route is None else route.path, reply.status)
        self.answered[counted] = self.answered.get(counted, 0) + 1
        if head.further:
            reply = Reply(reply.body, reply.status, reply.content_type, reply.headers + head.further)
        if len(reply.body) >= GZIP_FROM_BYTES and b"accept-encoding" in head.headers and accepts_gzip(head):
            if any(name == b"content-encoding" for name, _ in reply.headers):
                return reply
            compressor = zlib.compressobj(GZIP_LEVEL, wbits=31)
            body = compressor.compress(reply.body) + compressor.flush()
            headers = (*reply.headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
            return Reply(body, reply.status, reply.content_type, headers)
        return reply

    def _decode(self, call: Call) -> None:
        encoding = call.head.headers[b"content-encoding"].strip().lower()
        if encoding in (b"", b"identity"):
            return
        if encoding != b"gzip":
            raise Refusal(415, "unsupported_media_type", "the content encoding must be gzip or identity")
        call.body = _unzip(call.body, self.max_body_bytes)


#: Somebody without a valid key, at a route that says by itself who may call it.
NOBODY = Access("", frozenset(), ())


def too_large(limit: int) -> Refusal:
    return Refusal(413, "payload_too_large", f"the body is larger than {limit} bytes", {"max": limit})


def _values_limit(most: int) -> ElementLimit:
    message = f"the body has more than {most} values; send it in smaller parts"
    return ElementLimit(most=most, refuse=lambda: Refusal(413, "payload_too_large", message, {"max_values": most}))


def _unzip(data: bytes, limit: int) -> bytes:
    """What was compressed, in one piece or in several behind one another."""
    body = b""
    while True:
        decompressor = zlib.decompressobj(wbits=31)
        try:
            body += decompressor.decompress(data, limit + 1 - len(body))
        except zlib.error as error:
            raise Refusal(400, "invalid_request", f"the body is not valid gzip: {error}") from None
        if len(body) > limit:
            raise too_large(limit)
        if not decompressor.eof:
            raise Refusal(400, "invalid_request", "the gzip body is cut off")
        data = decompressor.unused_data
        if not data:
            return body


def _refuse(route: Route | None, refusal: Refusal) -> Reply:
    return refusal.reply() if route is None else route.refuse(refusal)


def _check_accept(head: Head) -> None:
    accept = head.headers.get(b"accept", b"*/*")
    if b"text/event-stream" not in accept and b"*/*" not in accept:
        raise Refusal(406, "not_acceptable", "this is an event stream: accept text/event-stream")
