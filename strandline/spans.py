"""Spans: what the server records about one request or one piece of background work, and about the parts that take long.

A request that is traced has a span, which is in a context variable while its handler and the tasks of its handler run.
Code that is about to wait or to work for long calls :func:`begin`, which returns None unless the request is traced::

    waiting = begin("commit")
    ...
    if waiting is not None:
        waiting.end()

Without traces, this costs one look at the variable. :mod:`strandline.server.traces` decides which requests are traced,
and sends their spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from random import getrandbits
from time import perf_counter_ns, time_ns
from typing import Protocol

#: A value of an attribute, as OpenTelemetry has it.
Value = str | int | float | bool

#: The maximum number of parts of one span, so that a request that reads for hours stays small. Further parts are
#: counted in the attribute OMITTED.
MAX_PARTS = 100
OMITTED = "strandline.omitted_spans"

#: The names of parts: waiting until a change is durable, waiting for new records, and work on a thread: reading,
#: searching, and everything else.
COMMIT = "commit"
RECORDS = "wait for records"
READ = "read"
SEARCH = "search"
WORK = "work"

#: Receives a span that has ended, on any thread.
Collect = Callable[["Span"], None]


class Span:
    """The record of some work. A span without a parent on this server is a root; its parts are its children."""

    __slots__ = (
        "_begun", "_collect", "_parts", "_root", "attributes", "ended", "error", "is_request", "name", "nanoseconds",
        "parent_id", "span_id", "started", "state", "trace_id",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        trace_id: int,
        parent_id: int,
        collect: Collect,
        *,
        state: str = "",
        is_request: bool = False,
        root: Span | None = None,
        begun: int = 0,
    ) -> None:
        """``parent_id`` is 0 if the span has no parent. ``begun`` is a time of ``perf_counter_ns``; 0: now."""
        self.name = name
        self.trace_id = trace_id
        self.span_id = new_id(64)
        self.parent_id = parent_id
        #: The `tracestate` of the request, which later systems of the same trace get.
        self.state = state
        self.is_request = is_request
        self.attributes: dict[str, Value] = {}
        #: What went wrong; None: nothing did.
        self.error: str | None = None
        self.ended = False
        #: How long the work took, once the span has ended.
        self.nanoseconds = 0
        self._collect = collect
        #: None: this span is the root. It does not refer to itself, so that it is freed without the garbage collector.
        self._root = root
        self._parts = 0
        self._begun = begun or perf_counter_ns()
        #: In nanoseconds since 1970. All times of a trace follow from one look at the system clock, which may be set
        #: meanwhile.
        self.started: int = time_ns() if root is None else root.started + self._begun - root._begun

    @property
    def trace(self) -> str:
        """The id of the trace, as it is written."""
        return f"{self.trace_id:032x}"

    @property
    def id(self) -> str:
        return f"{self.span_id:016x}"

    @property
    def is_over(self) -> bool:
        """Whether the whole request or work has ended."""
        return (self._root or self).ended

    def part(self, name: str, begun: int = 0) -> Span | None:
        """Begin a part of the work; None if the work is over or has too many parts."""
        root = self._root or self
        if root.ended:
            return None
        root._parts += 1
        if root._parts > MAX_PARTS:
            root.attributes[OMITTED] = root._parts - MAX_PARTS
            return None
        return Span(name, self.trace_id, self.span_id, self._collect, state=self.state, root=root, begun=begun)

    def end(self, error: str | None = None) -> None:
        """The work is over. Ending a span again has no effect."""
        if not self.ended:
            self.ended = True
            self.error = error
            self.nanoseconds = perf_counter_ns() - self._begun
            self._collect(self)


class Tracer(Protocol):
    """Decides what is traced."""

    def background(self, name: str) -> Span | None:
        """Begin a span of background work; None if it is not traced."""


_current: ContextVar[Span | None] = ContextVar("span", default=None)


def new_id(bits: int) -> int:
    """A random id. 0 is not valid as an id."""
    return getrandbits(bits) or 1


def current() -> Span | None:
    """The span of the work that is being done, if it is traced. Timers and tasks that outlive a request have none."""
    span = _current.get()
    return None if span is None or span.is_over else span


def begin(name: str) -> Span | None:
    """Begin a part of the work that is being done; None if it is not traced."""
    span = _current.get()
    return None if span is None else span.part(name)


class Inside:
    """A block that does the work of a span, which does not end with the block. Without a span, the work of the block is
    not traced."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = _current.set(self._span)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


@contextmanager
def recorded(span: Span | None) -> Iterator[Span | None]:
    """Do the work of a span, which ends with the block."""
    if span is None:
        yield None
        return
    try:
        with Inside(span):
            yield span
    except BaseException as error:
        span.end(type(error).__name__)
        raise
    span.end()


@contextmanager
def part(name: str) -> Iterator[Span | None]:
    """Do a part of the work. For code that runs seldom, since a block takes a microsecond."""
    with recorded(begin(name)) as span:
        yield span


def background(tracer: Tracer | None, name: str) -> AbstractContextManager[Span | None]:
    """Do background work, which is traced if the tracer says so."""
    return recorded(None if tracer is None else tracer.background(name))
