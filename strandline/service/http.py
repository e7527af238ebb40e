"""What all protocols share with both lanes of the server: a call, a reply, a stream, a route.

A handler is a plain function from a :class:`Call` to a :class:`Reply`, a :class:`Stream`, or an awaitable of either.
It knows nothing of how the request came in.
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

#: Replies of these statuses have no body, and say nothing of one.
BODILESS = frozenset((204, 304))
#: A header of every reply: no browser is to guess what a payload might be.
NOSNIFF = (b"x-content-type-options", b"nosniff")


@lru_cache(maxsize=4096)
def quote(text: str) -> bytes:
    """A string as JSON. Names of logs and nodes are few and come often."""
    return msgspec.json.encode(text)


class Reply:
    """One answer. ``headers`` are further ones, by lower-case name."""

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


#: The JSON of what a protocol declares in its ``wire.py``.
encode = msgspec.json.Encoder().encode


def json_reply(answer: msgspec.Struct, status: int = 200) -> Reply:
    return Reply(encode(answer), status)


def refuse(refusal: Refusal) -> Reply:
    """The reply of routes that belong to no protocol, and of protocols that have this shape."""
    return Reply(error_body(refusal), refusal.status, headers=refusal.headers)


def reply_to(error: Exception) -> Reply | None:
    """The reply to an exception that clients can get."""
    refusal = refusal_of(error)
    return None if refusal is None else refuse(refusal)


class Sink(Protocol):
    """Where a stream writes to. Only used on the event loop's thread."""

    def write(self, data: bytes) -> bool:
        """Send more. False: the reader does not keep up; wait until ``Stream.resumed`` is called."""

    def close(self) -> None:
        """The stream has ended. What was written is still sent."""

    def abort(self) -> None:
        """The reader will never take what was written: drop it, and the connection."""

    @property
    def unread_bytes(self) -> int:
        """How much of what was written waits for the reader."""


class Stream(ABC):
    """An answer without an end. All its methods are called on the event loop's thread."""

    __slots__ = ()
    content_type = EVENT_STREAM
    headers: tuple[tuple[bytes, bytes], ...] = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))

    @abstractmethod
    def opened(self, sink: Sink) -> None:
        """The reader is there and the headers are sent."""

    @abstractmethod
    def resumed(self) -> None:
        """The reader has caught up with what was written."""

    @abstractmethod
    def closed(self) -> None:
        """The connection is gone. Called exactly once for every ``opened``."""

    @property
    def waiting_bytes(self) -> int:
        """What the stream itself holds for a reader that does not keep up."""
        return 0

    @abstractmethod
    def too_slow(self, grace: float) -> None:
        """The reader does not keep up: send the last message, if the protocol has one, and close. Reset the connection
        after ``grace`` seconds."""


class Holder(Protocol):
    """A connection, or a part of one, that holds what its client has not read."""

    @property
    def unread_bytes(self) -> int:
        """How much it holds now."""

    def cut_off(self, grace: float) -> None:
        """End the connection, with the last message of its protocol if there is one. Drop everything after ``grace``
        seconds."""


class Unread(Protocol):
    """What all clients together have not read yet."""

    def add(self, holder: Holder) -> None:
        """The client does not keep up."""

    def remove(self, holder: Holder) -> None:
        """The client has caught up, or is gone."""


Answer = Reply | Stream


class Later:
    """An answer that takes a little longer. Cheaper than a future: whoever waits is called at once, not in the next
    turn of the loop. Settled exactly once, on the loop's thread."""

    __slots__ = ("_error", "_waiting", "answer")

    def __init__(self) -> None:
        #: None while it is not settled, and for good if it failed.
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
        """Have the function called once this is settled; at once if it is."""
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
    """What pages of other origins may do with a route, if the server allows their origin.

    ``exposed`` is the header with the response headers that they may read; ``preflight`` are the headers that say
    what they may send. ``origins`` are allowed at this route beside those that the server allows everywhere.
    """

    exposed: tuple[bytes, bytes]
    preflight: Headers
    origins: frozenset[str] = frozenset()


def preflight(call: Call) -> Reply:
    """OPTIONS: what a page may send. The gate adds the headers that say it, if the page's origin is allowed."""
    return Reply(b"", 204)


class ElementLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How many elements the JSON body of a request may have before anything is made of them.

    Only a coarse bound: whoever makes records of the body knows the exact one. ``depth`` is how deep elements are
    nested that become objects one by one; what is in them is kept as it came.
    """

    most: int
    depth: int = 1 << 30
    #: What an element takes at least, with its comma: shorter bodies are not looked at.
    least_bytes: int = 2
    #: Whether a body that is not an array is a single element.
    arrays_only: bool = False
    #: What such a request is refused with.
    refuse: Callable[[], Refusal]

    def may_be_exceeded(self, body: bytes) -> bool:
        """A look that takes no time for a body of ordinary size."""
        return len(body) > self.least_bytes * self.most and may_have_more_elements(body, self.most)

    def is_exceeded(self, body: bytes) -> bool:
        """Takes up to a second for the largest bodies, so it is not for an event loop."""
        if self.arrays_only and body.lstrip(b" \t\r\n")[:1] != b"[":
            return False
        return has_more_elements(body, self.most, self.depth)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where a handler is found and what its caller must be allowed to do.

    ``path`` has parameters in braces. ``scopes`` are all needed. ``names`` are the parameters that are names of logs
    or routers, which a key may be limited to. ``fast`` routes are answered from the parser's callback.
    """

    method: str
    path: str
    handler: Handler
    scopes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    #: Whether the request has a JSON body; ``optional``: it may be empty, and then needs no media type; ``any``: the
    #: handler looks at the media type.
    body: str = "none"
    #: An event stream: the client must accept one, and its key may come in the query string.
    stream: bool = False
    fast: bool = False
    #: How many elements a JSON body may have; None: what the server has for all of them.
    elements: ElementLimit | None = None
    #: Answered without a key, unless the server is told to ask for one there too.
    probe: bool = False
    #: Answered without a key, whatever the server is told.
    public: bool = False
    #: The word Bearer in front of a key may be written in any case, as HTTP has it.
    any_case: bool = False
    #: Answered also while the server starts or stops.
    always: bool = False
    #: Says by itself who may call it: the gate only looks who asks.
    own_access: bool = False
    #: Requests come with a certificate of their own: the handler needs to see it, and no two of them are alike.
    certified: bool = False
    #: The parameter that may span several segments of the path, if one may; what follows it is found from the end.
    spans: str = ""
    #: Headers of every reply, also of one that refuses.
    headers: Headers = ()
    #: What pages of other origins may do here; None: nothing, whatever their origin.
    cors: Cors | None = None
    #: Makes a reply of an exception, with the codes and the shape of the protocol; None if clients must not get it.
    errors: Callable[[Exception], Reply | None] = reply_to
    #: Makes a reply of a refusal, with the codes and the shape of the protocol.
    refuse: Callable[[Refusal], Reply] = refuse


class Head:
    """Everything of a request but its body."""

    __slots__ = (
        "_query", "access", "further", "headers", "memo", "method", "params", "path", "query_string", "refused",
        "route",
    )  # fmt: skip

    def __init__(self, method: str, path: str, query_string: str, headers: Mapping[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        #: By lower-case name; of a repeated header the last.
        self.headers = headers
        self.route: Route | None = None
        self.params: Mapping[str, str] = {}
        self.access: Access | None = None
        #: Why every request with this head is refused; None if it is not. The gate sets it.
        self.refused: Reply | None = None
        #: Headers of every reply to it: those of the route, and what browsers may do with the reply.
        self.further: Headers = ()
        #: What the route's handler made of the head. A head that comes again need not be looked at again.
        self.memo: Any = None
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query string's parameters; of a repeated one the first."""
        if self._query is None:
            self._query = {}
            if self.query_string:
                for name, value in parse_qsl(self.query_string, keep_blank_values=True):
                    self._query.setdefault(name, value)
        return self._query


class Call:
    """One request, whichever lane it came in by."""

    __slots__ = ("body", "head", "held", "peer", "started")

    def __init__(self, head: Head, body: bytes, started: float, peer: str = "") -> None:
        self.head = head
        self.body = body
        self.started = started
        #: Whether it counts as a request in flight of its API key. Only the gate sets it.
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
    """Whether the client takes a body that is compressed."""
    for offer in head.headers.get(b"accept-encoding", b"").split(b","):
        name, _, parameters = offer.partition(b";")
        if name.strip() in (b"gzip", b"*"):
            return parameters.strip().replace(b" ", b"") not in (b"q=0", b"q=0.0")
    return False


def later_of(awaitable: Awaitable[Answer]) -> Later:
    """Let a coroutine run by itself."""
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
