"""The types that protocols share with both lanes of the server: call, reply, stream and route.

A handler is a plain function from a :class:`Call` to a :class:`Reply`, a :class:`StreamedAnswer`, or an awaitable of
either. It does not depend on the lane that received the request.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any, ClassVar, Literal, Protocol
from urllib.parse import parse_qsl

import msgspec

from strandline.service.access import Access
from strandline.service.element_count import has_more_elements, may_have_more_elements
from strandline.service.problems import Headers, Refusal, error_body, refusal_of, shutting_down
from strandline.service.request_meter import RequestMeter
from strandline.spans import COMMIT, RECORDS, begin

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"

#: Replies with these statuses have no body, and no headers about a body.
BODILESS = frozenset((204, 304))
#: A header of every reply: browsers must not guess the media type of a payload.
NOSNIFF = (b"x-content-type-options", b"nosniff")
#: A header of replies that exist in compressed form as well: a cache must not send one to a client that did not ask for
#: it. A handler that chooses between the forms itself sets this header, and then the gate does not compress.
VARY_ENCODING = (b"vary", b"accept-encoding")


@lru_cache(maxsize=4096)
def quote(text: str) -> bytes:
    """A string as JSON. Cached, because the same few names of logs and nodes recur often."""
    return msgspec.json.encode(text)


class Reply:
    """One complete answer. ``headers`` are the headers besides the content type, with lower-case names."""

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


#: Encodes the structs that a protocol declares in its ``wire.py``.
encode = msgspec.json.Encoder().encode


def json_reply(answer: msgspec.Struct, status: int = 200) -> Reply:
    return Reply(encode(answer), status)


def refuse(refusal: Refusal) -> Reply:
    """The reply to a refused request, in the shape of the server's own routes; some protocols use it as well."""
    return Reply(error_body(refusal), refusal.status, headers=refusal.headers)


def reply_to(error: Exception) -> Reply | None:
    """The reply to an exception; None if clients must not see it."""
    refusal = refusal_of(error)
    return None if refusal is None else refuse(refusal)


class Sink(Protocol):
    """The output of a stream. Use it only on the event loop's thread."""

    def write(self, data: bytes) -> bool:
        """Send data. Returns False if the reader does not keep up: wait until ``StreamedAnswer.resumed`` is called."""

    def close(self) -> None:
        """End the stream, after sending the data that was written."""

    def abort(self) -> None:
        """Drop the unsent data and reset the connection."""

    @property
    def unread_bytes(self) -> int:
        """The number of written bytes that wait for the reader."""


NO_STORE = (b"cache-control", b"no-store")


class StreamEncoder(Protocol):
    """Compresses an answer that is sent in pieces."""

    def encoded(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The compressed pieces. The reader can decompress each of them without the next one."""


class StreamedAnswer(ABC):
    """An answer that is sent in pieces while the client reads. All methods are called on the event loop's thread."""

    __slots__ = ()
    #: Whether the answer has an end of its own. A server that stops waits for it, and the connection can be used again
    #: afterwards. If the server must end it early, it resets the connection, because the reader would take a clean
    #: close for the end of the data.
    finite: ClassVar[bool] = False
    #: Whether the answer is compressed for clients that accept it. Then it implements ``encode``.
    compressible: ClassVar[bool] = False
    content_type = EVENT_STREAM
    headers: tuple[tuple[bytes, bytes], ...] = (NO_STORE, (b"x-accel-buffering", b"no"))

    def encode(self, encoder: StreamEncoder | None, headers: Headers) -> None:
        """Add headers about the compression, and compress all pieces if there is an encoder. Called before ``opened``,
        only if the answer is compressible."""
        raise NotImplementedError

    @abstractmethod
    def opened(self, sink: Sink) -> None:
        """The headers are sent, and the stream may write to the sink."""

    @abstractmethod
    def resumed(self) -> None:
        """The reader has caught up, and the stream may write again."""

    @abstractmethod
    def closed(self) -> None:
        """The connection is closed. Called exactly once for every ``opened``."""

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that the stream itself buffers for a reader that does not keep up."""
        return 0

    @abstractmethod
    def too_slow(self, grace: float) -> None:
        """The reader does not keep up: send the last message, if the protocol has one, and close. Reset the connection
        after ``grace`` seconds."""

    @abstractmethod
    def disconnect(self) -> None:
        """An administrator ends the connection: send the last message, if the protocol has one, and close."""


class Holder(Protocol):
    """A connection, or a part of one, that buffers data which its client has not read."""

    @property
    def unread_bytes(self) -> int:
        """The number of buffered bytes."""

    def cut_off(self, grace: float) -> None:
        """End the connection, with the last message of its protocol if there is one. Reset it after ``grace``
        seconds."""


class Unread(Protocol):
    """The data that all clients together have not read yet."""

    def add(self, holder: Holder) -> None:
        """The client does not keep up."""

    def remove(self, holder: Holder) -> None:
        """The client has caught up or disconnected."""


Answer = Reply | StreamedAnswer


class Later:
    """An answer that is not ready yet. Cheaper than a future: settling it calls the waiting function directly, not in
    the next turn of the loop. Settle it exactly once, on the loop's thread."""

    __slots__ = ("_error", "_waiting", "answer")
    #: What the request waits for, as its trace names it; empty: the handler's tasks say so themselves.
    part: ClassVar[str] = ""

    def __init__(self) -> None:
        #: None until settled; stays None after ``fail``.
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
        """Call the function when the answer is settled; at once if it is settled already."""
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
            waiting = begin(self.part) if self.part else None
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(lambda _: None if future.done() else future.set_result(None))
            yield from future
            if waiting is not None:
                waiting.end()
        return self.result()


class LaterCommitted(Later):
    """An answer that is ready once a change is durable."""

    __slots__ = ()
    part = COMMIT


class LaterRecords(Later):
    """An answer that waits for new records."""

    __slots__ = ()
    part = RECORDS


Handler = Callable[["Call"], "Answer | Later | Awaitable[Answer]"]


class Cors(msgspec.Struct, frozen=True):
    """The CORS headers of a route, for pages of origins that the server allows.

    ``exposed`` is the header that lists the response headers which a page may read. ``preflight`` are the headers of
    the reply to a preflight request. ``origins`` are allowed at this route in addition to the origins in the settings.
    """

    exposed: tuple[bytes, bytes]
    preflight: Headers
    origins: frozenset[str] = frozenset()


def preflight(call: Call) -> Reply:
    """The reply to a preflight request (OPTIONS). The gate adds the CORS headers if the origin is allowed."""
    return Reply(b"", 204)


class ElementLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How many elements the JSON body of a request may have. The gate checks this before the body is decoded.

    The bound is coarse; the handler checks the exact one. Elements down to ``depth`` count, because decoding creates an
    object for each of them. Anything nested more deeply is kept as raw bytes.
    """

    most: int
    depth: int = 1 << 30
    #: The minimum size of an element with its comma. Bodies that are too short to exceed the limit are not scanned.
    least_bytes: int = 2
    #: Whether a body that is not an array counts as one element.
    arrays_only: bool = False
    #: Creates the refusal of a request that exceeds the limit.
    refuse: Callable[[], Refusal]

    def may_be_exceeded(self, body: bytes) -> bool:
        """A quick check that takes hardly any time for a body of ordinary size."""
        return len(body) > self.least_bytes * self.most and may_have_more_elements(body, self.most)

    def is_exceeded(self, body: bytes) -> bool:
        """The exact check. It takes up to a second for the largest bodies, so do not call it on the event loop."""
        if self.arrays_only and body.lstrip(b" \t\r\n")[:1] != b"[":
            return False
        return has_more_elements(body, self.most, self.depth)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The method and path of a handler, and the permissions that its caller needs.

    ``path`` has parameters in braces. The caller needs all ``scopes``. ``names`` are the parameters that are names of
    logs or routers: the gate checks them against the prefixes of the API key. The fast lane answers ``fast`` routes
    directly from the parser's callback.
    """

    method: str
    path: str
    handler: Handler
    scopes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    #: The body of the request. ``none``: no body is expected; ``required``: a JSON body; ``optional``: a JSON
    #: body may be sent, and an empty one needs no media type; ``any``: the handler checks the media type.
    body: str = "none"
    #: The answer is an event stream: the client must accept one, and may send its API key in the query string.
    stream: bool = False
    fast: bool = False
    #: How many elements a JSON body may have; None: the server's default limit applies.
    elements: ElementLimit | None = None
    #: Needs no API key unless the setting `server.probe_auth` requires one.
    probe: bool = False
    #: Never needs an API key.
    public: bool = False
    #: The scheme `Bearer` is not case-sensitive, as in the HTTP standard.
    any_case: bool = False
    #: Also available while the server starts or stops.
    always: bool = False
    #: The handler checks permissions itself; the gate only identifies the caller.
    own_access: bool = False
    #: An administrative change, which the audit log records, although it needs neither the scope `admin` nor `delete`.
    audited: bool = False
    #: What the client waits for: ``jobs`` of a queue, ``records`` that make a long poll return, or nothing.
    waits: Literal["", "records", "jobs"] = ""
    #: Each request carries its own certificate in a header: the handler needs the header, and heads do not repeat.
    certified: bool = False
    #: The parameter that may span several path segments, if any. The segments after it are matched from the end.
    spans: str = ""
    #: Another form of the path before the parameter that spans segments, with as many segments; empty: there is none.
    alias: str = ""
    #: Headers of every reply, including errors.
    headers: Headers = ()
    #: The CORS headers; None: pages of other origins cannot use the route.
    cors: Cors | None = None
    #: Turns an exception into a reply with the protocol's codes and shape; None if clients must not see it.
    errors: Callable[[Exception], Reply | None] = reply_to
    #: Turns a refusal into a reply with the protocol's codes and shape.
    refuse: Callable[[Refusal], Reply] = refuse

    @property
    def reads_log(self) -> str:
        """The parameter with the log that the route reads; empty: it reads none, or several."""
        return self.names[0] if "read" in self.scopes and self.names[:1] in (("topic",), ("name",)) else ""


class Head:
    """A request without its body."""

    __slots__ = (
        "_query", "access", "further", "headers", "length", "memo", "meter", "method", "min_seq", "params", "path",
        "query_string", "refused", "route", "takes_chunks",
    )  # fmt: skip

    def __init__(self, method: str, path: str, query_string: str, headers: Mapping[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        #: By lower-case name. The last value of a repeated header counts.
        self.headers = headers
        stated = headers.get(b"content-length") or b"0"
        #: The Content-Length; 0 if it is missing, -1 if it is not a number.
        self.length = int(stated) if stated.isdigit() else -1
        #: Whether an answer may be sent in chunks. Not in HTTP/1.0, where a broken answer would look complete.
        self.takes_chunks = True
        self.route: Route | None = None
        self.params: Mapping[str, str] = {}
        #: The counters of the route; None if no route matches.
        self.meter: RequestMeter | None = None
        self.access: Access | None = None
        #: The reply to every request with this head, if the head alone causes a refusal. The gate sets it.
        self.refused: Reply | None = None
        #: Headers of every reply to this head: the headers of the route, and CORS headers.
        self.further: Headers = ()
        #: The log must have this seq before the request is answered; 0: any.
        self.min_seq = 0
        #: A value that the handler derived from the head, reused when the same head arrives again.
        self.memo: Any = None
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the query string. The first value of a repeated parameter counts."""
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
        #: Whether the request counts as one in flight for its API key. Only the gate sets it.
        self.held = False
        #: The address of the client, or of the proxy in front of it; empty if unknown.
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
        """A boolean of the query string: true, 1, false or 0. Any other value means the default."""
        return _FLAGS.get(self.head.query.get(name, ""), default) if self.head.query_string else default

    def elapsed_ms(self) -> float:
        return (perf_counter() - self.started) * 1000


_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def later_of(awaitable: Awaitable[Answer]) -> Later:
    """Run a coroutine as a task; the result settles with its answer."""
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
