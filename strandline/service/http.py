"""The types that all protocols share with both lanes of the server: calls, replies, streams, routes.

A handler is a plain function from a :class:`Call` to a :class:`Reply`, a :class:`Stream`, or an awaitable of either.
It does not depend on the lane that the request came through.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from strandline.service.access import Access
from strandline.service.element_count import has_more_elements, may_have_more_elements
from strandline.service.problems import Headers, Refusal, error_body, refusal_of, shutting_down

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"

#: Replies with these statuses have no body and no headers that describe one.
BODILESS = frozenset((204, 304))
#: A header of every reply: browsers must not guess the type of a payload.
NOSNIFF = (b"x-content-type-options", b"nosniff")


@lru_cache(maxsize=4096)
def quote(text: str) -> bytes:
    """A string as JSON, cached, since the same names of logs and nodes are quoted often."""
    return msgspec.json.encode(text)


class Reply:
    """One answer. ``headers`` are additional headers, with lower-case names."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        content_type: bytes = JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = headers


#: Encodes the structs that protocols declare in ``wire.py``.
encode = msgspec.json.Encoder().encode


def json_reply(answer: msgspec.Struct, status: int = 200) -> Reply:
    return Reply(encode(answer), status)


def refuse(refusal: Refusal) -> Reply:
    """The error reply of routes that belong to no protocol, and of protocols that use the same shape."""
    return Reply(error_body(refusal), refusal.status, headers=refusal.headers)


def reply_to(error: Exception) -> Reply | None:
    """The reply to an exception that has a code; None for any other exception."""
    refusal = refusal_of(error)
    return None if refusal is None else refuse(refusal)


class Sink(Protocol):
    """Where a stream writes. Only used on the event loop's thread."""

    def write(self, data: bytes) -> bool:
        """Send more. False if the reader is too slow: wait until ``Stream.resumed`` is called."""

    def close(self) -> None:
        """End the stream. Data that was written is still sent."""

    def abort(self) -> None:
        """Drop the connection, with the data that the reader has not read."""

    @property
    def unread_bytes(self) -> int:
        """How many written bytes the reader has not read."""


NO_STORE = (b"cache-control", b"no-store")


class Stream(ABC):
    """An answer of unknown length. All methods are called on the event loop's thread."""

    __slots__ = ()
    content_type = EVENT_STREAM
    headers: tuple[tuple[bytes, bytes], ...] = (NO_STORE, (b"x-accel-buffering", b"no"))

    @abstractmethod
    def opened(self, sink: Sink) -> None:
        """The connection is open and the headers are sent."""

    @abstractmethod
    def resumed(self) -> None:
        """The reader has read what was written; writing can continue."""

    @abstractmethod
    def closed(self) -> None:
        """The connection is closed. Called exactly once for every ``opened``."""

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the stream itself holds back for a slow reader."""
        return 0

    @abstractmethod
    def too_slow(self, grace: float) -> None:
        """The reader is too slow: send the last message, if the protocol has one, and close. Reset the connection
        after ``grace`` seconds."""


class Holder(Protocol):
    """A connection, or a part of one, that holds data that its client has not read."""

    @property
    def unread_bytes(self) -> int:
        """How many bytes it holds now."""

    def cut_off(self, grace: float) -> None:
        """Close the connection, after the last message of its protocol if there is one. Drop everything after ``grace``
        seconds."""


class Unread(Protocol):
    """The data that all clients together have not read yet."""

    def add(self, holder: Holder) -> None:
        """The client is too slow."""

    def remove(self, holder: Holder) -> None:
        """The client has caught up, or its connection is closed."""


Answer = Reply | Stream


class Later:
    """An answer that comes later. Cheaper than a future: waiting functions are called at once, not in the next turn of
    the event loop. Settled exactly once, on the event loop's thread."""

    __slots__ = ("_error", "_waiting", "answer")

    def __init__(self) -> None:
        #: None until it is settled; it stays None if it failed.
        self.answer: Answer | None = None
        self._error: Exception | None = None
        self._waiting: Callable[[Later], None] | None = None

    def settle(self, answer: Answer) -> None:
        self.answer = answer
        if self._waiting is not None:
            self._waiting(self)

    def fail(self, error: Exception) -> None:
        self._error = error
        if self._waiting is not None:
            self._waiting(self)

    def then(self, waiting: Callable[[Later], None]) -> None:
        """Call the function when this is settled, or at once if it already is."""
        self._waiting = waiting
        if self.answer is not None or self._error is not None:
            waiting(self)

    def result(self) -> Answer:
        if self._error is not None:
            raise self._error
        assert self.answer is not None
        return self.answer

    def __await__(self) -> Generator[Any, None, Answer]:
        if self.answer is None and self._error is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(lambda _: None if future.done() else future.set_result(None))
            yield from future
        return self.result()


Handler = Callable[["Call"], "Answer | Later | Awaitable[Answer]"]


class Cors(msgspec.Struct, frozen=True):
    """What web pages of other origins may do with a route, if the server allows their origin.

    ``exposed`` is the header that lists the response headers that pages may read; ``preflight`` are the headers that
    say what they may send. ``origins`` are allowed at this route in addition to the origins that the server allows.
    """

    exposed: tuple[bytes, bytes]
    preflight: Headers
    origins: frozenset[str] = frozenset()


def preflight(call: Call) -> Reply:
    """Answer OPTIONS. The gate adds the headers that say what a page may send, if its origin is allowed."""
    return Reply(b"", 204)


class ElementLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum number of elements in the JSON body of a request, checked before it is decoded.

    It is a coarse limit; the handler enforces the exact one. ``depth`` is the depth down to which elements become
    objects; deeper elements are kept as bytes.
    """

    most: int
    depth: int = 1 << 30
    #: The least bytes of an element, with its comma. Shorter bodies are not counted.
    least_bytes: int = 2
    #: Whether a body that is not an array is a single element.
    arrays_only: bool = False
    #: The error of a request that exceeds the limit.
    refuse: Callable[[], Refusal]

    def may_be_exceeded(self, body: bytes) -> bool:
        """A check that is fast for bodies of ordinary size."""
        return len(body) > self.least_bytes * self.most and may_have_more_elements(body, self.most)

    def is_exceeded(self, body: bytes) -> bool:
        """Takes up to a second for the largest bodies, so it must not run on the event loop."""
        if self.arrays_only and body.lstrip(b" \t\r\n")[:1] != b"[":
            return False
        return has_more_elements(body, self.most, self.depth)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A handler, its path, and the access that its callers need.

    ``path`` has parameters in braces. A caller needs all ``scopes``. ``names`` are the parameters that are names of
    logs or routers, which a key may be limited to. ``fast`` routes are answered from the parser's callback.
    """

    method: str
    path: str
    handler: Handler
    scopes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    #: Whether the request has a JSON body. ``optional``: the body may be empty, and then needs no media type. ``any``:
    #: the handler checks the media type.
    body: str = "none"
    #: Whether the answer is an event stream. The client must accept one, and may send its key in the query string.
    stream: bool = False
    fast: bool = False
    #: The maximum number of elements in a JSON body; None: the limit of the server.
    elements: ElementLimit | None = None
    #: Answered without an API key, unless the server is configured to require one.
    probe: bool = False
    #: Always answered without an API key.
    public: bool = False
    #: Whether the word Bearer before a key may have any case, as HTTP allows.
    any_case: bool = False
    #: Answered also while the server starts or stops.
    always: bool = False
    #: The handler checks access itself; the gate only identifies the key.
    own_access: bool = False
    #: Requests are signed with a certificate that the handler must see. No two heads are alike, so none is remembered.
    certified: bool = False
    #: The parameter that may span several segments of the path, if any; the rest of the path is matched from the end.
    spans: str = ""
    #: Headers of every reply, including errors.
    headers: Headers = ()
    #: What pages of other origins may do; None: nothing, whatever their origin.
    cors: Cors | None = None
    #: Makes a reply from an exception, with the codes and the shape of the protocol; None if the exception has no code.
    errors: Callable[[Exception], Reply | None] = reply_to
    #: Makes a reply from a refusal, with the codes and the shape of the protocol.
    refuse: Callable[[Refusal], Reply] = refuse


class Head:
    """A request without its body."""

    __slots__ = (
        "_query", "access", "further", "headers", "length", "memo", "method", "params", "path", "query_string",
        "refused", "route",
    )  # fmt: skip

    def __init__(self, method: str, path: str, query_string: str, headers: Mapping[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        #: By lower-case name. If a header is repeated, the last one counts.
        self.headers = headers
        stated = headers.get(b"content-length") or b"0"
        #: The declared length of the body; 0: none is declared, -1: it is not a number.
        self.length = int(stated) if stated.isdigit() else -1
        self.route: Route | None = None
        self.params: Mapping[str, str] = {}
        self.access: Access | None = None
        #: Why all requests with this head are refused; None if they are not. Set by the gate.
        self.refused: Reply | None = None
        #: Headers of every reply: those of the route, and those for browsers.
        self.further: Headers = ()
        #: What the handler derived from the head, kept for later requests with the same head.
        self.memo: Any = None
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the query string. If one is repeated, the first one counts."""
        if self._query is None:
            self._query = {}
            if self.query_string:
                for name, value in parse_qsl(self.query_string, keep_blank_values=True):
                    self._query.setdefault(name, value)
        return self._query


class Call:
    """One request, from either lane."""

    __slots__ = ("body", "head", "held", "peer", "started")

    def __init__(self, head: Head, body: bytes, started: float, peer: str = "") -> None:
        self.head = head
        self.body = body
        self.started = started
        #: Whether it counts as a request in progress of its API key. Only the gate sets it.
        self.held = False
        #: The address at the other end of the connection: of the client, or of a proxy in front of it. Empty: unknown.
        self.peer = peer

    def param(self, name: str) -> str:
        return self.head.params[name]

    @property
    def query(self) -> dict[str, str]:
        return self.head.query

    @property
    def access(self) -> Access:
        access = self.head.access
        assert access is not None, "the gate sets it"
        return access

    def flag(self, name: str, default: bool) -> bool:
        """A boolean of the query string: true/1/false/0; anything else is the default."""
        return _FLAGS.get(self.head.query.get(name, ""), default) if self.head.query_string else default

    def elapsed_ms(self) -> float:
        return (perf_counter() - self.started) * 1000


_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def accepts_gzip(head: Head) -> bool:
    """Whether the client accepts a gzip-compressed body."""
    for offer in head.headers.get(b"accept-encoding", b"").split(b","):
        name, _, parameters = offer.partition(b";")
        if name.strip() in (b"gzip", b"*"):
            return parameters.strip().replace(b" ", b"") not in (b"q=0", b"q=0.0")
    return False


def later_of(awaitable: Awaitable[Answer]) -> Later:
    """Run a coroutine, and get its answer as a :class:`Later`."""
    later = Later()

    def done(future: asyncio.Future[Answer]) -> None:
        if future.cancelled():
            later.fail(shutting_down())
            return
        error = future.exception()
        if error is None:
            later.settle(future.result())
        else:
            later.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    asyncio.ensure_future(awaitable).add_done_callback(done)
    return later
