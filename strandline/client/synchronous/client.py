# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""The client: one server, all protocols."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import httpx

from strandline.client import stream_calls
from strandline.client import topic_calls as calls
from strandline.client.calls import Answer, any_request, get
from strandline.client.connection import Address
from strandline.client.credentials import Credentials
from strandline.client.retry import Patience
from strandline.client.stream_calls import StreamRow
from strandline.client.synchronous.collections import Collections
from strandline.client.synchronous.queues import Queue
from strandline.client.synchronous.streams import Stream
from strandline.client.synchronous.tables import Table
from strandline.client.synchronous.topics import Router, Topic
from strandline.client.synchronous.transport import Transport
from strandline.client.synchronous.watch import Watch
from strandline.client.topic_calls import Match, Write
from strandline.client.topic_types import RouterState, TopicRow, Written
from strandline.client.watch import Start, WatchState

T = TypeVar("T")


class Client:
    """A Strandline server, spoken to over a pool of connections. Close it, or use it as a context manager.

    ``key`` is an API key, ``user`` for whom this client acts where tables ask. ``timeout`` is how many seconds one try
    of a request may take, ``patience`` how many it is tried again where that is safe: when it was refused because the
    server is busy or not ready, when it never left, or when doing it twice is the same as doing it once. With
    ``patience=0`` nothing is tried twice. ``transport`` is for proxies and certificates.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        user: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float | Patience = 20.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not isinstance(patience, Patience):
            patience = Patience(patience)
        self.transport = Transport(Address(url, key, user, headers), timeout, patience, transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.transport.close()

    @property
    def url(self) -> str:
        return self.transport.address.url

    def ready(self) -> bool:
        """Whether the server answers and is ready; asked once, without patience."""
        return self.transport.ready()

    def call(self, method: str, path: str, body: object = None, *, query: Mapping[str, Any] | None = None) -> Answer:
        """Any request, for what has no method of its own here; ``body`` is sent as JSON. GET, PUT and DELETE are tried
        again like all that may be done twice."""
        return self.transport.call(any_request(method, path, body, query))

    # --- topics ----------------------------------------------------------------------------------------------------

    @overload
    def topic(self, name: str) -> Topic[Any]: ...

    @overload
    def topic(self, name: str, type: type[T]) -> Topic[T]: ...

    def topic(self, name: str, type: Any = Any) -> Topic[Any]:
        """A topic, whose data is read as ``type``: a msgspec Struct, a dataclass, anything msgspec knows."""
        return Topic(self.transport, name, type)

    def topics(self, prefix: str = "") -> Iterator[TopicRow]:
        """All topics whose names begin like this, in the order of their names."""
        cursor: str | None = None
        while True:
            query = {"prefix": prefix or None, "page_size": 1000, "cursor": cursor}
            page = self.transport.ask(get("/v0/topics", query), calls.LIST)
            yield from page.topics
            cursor = page.next_cursor
            if cursor is None:
                return

    def write(self, writes: Iterable[Write], *, idempotency_key: str | None = None) -> list[Written]:
        """Write to several topics in one step: all of it happens or nothing."""
        request = calls.multi_write(writes, idempotency_key)
        return (self.transport.ask(request, calls.MULTI_WRITTEN)).writes

    @overload
    def watch(
        self,
        topics: Mapping[str, Start | int | None],
        *,
        match: Match | None = None,
        without_nodes: str | Sequence[str] | None = None,
        strong: bool = False,
    ) -> Watch[Any]: ...

    @overload
    def watch(
        self,
        topics: Mapping[str, Start | int | None],
        type: type[T],
        *,
        match: Match | None = None,
        without_nodes: str | Sequence[str] | None = None,
        strong: bool = False,
    ) -> Watch[T]: ...

    def watch(
        self,
        topics: Mapping[str, Start | int | None],
        type: Any = Any,
        *,
        match: Match | None = None,
        without_nodes: str | Sequence[str] | None = None,
        strong: bool = False,
    ) -> Watch[Any]:
        """Watch topics over one connection: for each the seq behind which to begin, or None for what is written from
        now on. A name that ends in ``*`` stands for all topics that begin like it, those made later included."""
        options = calls.watch_options(without_nodes, strong, match)
        return Watch(self.transport, WatchState(topics, type, options))

    # --- queues ----------------------------------------------------------------------------------------------------

    @overload
    def queue(self, name: str, *, node: str | None = None) -> Queue[Any]: ...

    @overload
    def queue(self, name: str, type: type[T], *, node: str | None = None) -> Queue[T]: ...

    def queue(self, name: str, type: Any = Any, *, node: str | None = None) -> Queue[Any]:
        """A queue, whose jobs are read as ``type``. ``node`` is who this program is to it; by default a name that no
        other has."""
        return Queue(self.transport, name, type, node)

    # --- streams ---------------------------------------------------------------------------------------------------

    @overload
    def stream(self, name: str, *, content_type: str = stream_calls.JSON_TYPE) -> Stream[Any]: ...

    @overload
    def stream(self, name: str, type: type[T], *, content_type: str = stream_calls.JSON_TYPE) -> Stream[T]: ...

    def stream(self, name: str, type: Any = Any, *, content_type: str = stream_calls.JSON_TYPE) -> Stream[Any]:
        """A stream: of JSON, whose values are read as ``type``, or of another content type."""
        return Stream(self.transport, name, type, content_type)

    def streams(self, prefix: str = "") -> Iterator[StreamRow]:
        """All streams whose names begin like this, in the order of their names."""
        after: str | None = None
        while True:
            rows = self.transport.ask(stream_calls.list_streams(prefix, after, 1000), stream_calls.ROWS)
            yield from rows
            if not rows:
                return
            after = rows[-1].name

    # --- collections -----------------------------------------------------------------------------------------------

    def collections(self, credentials: Credentials | None = None, *, namespace: str | None = None) -> Collections:
        """The collections of the server, or of one of its namespaces. Without ``credentials`` as nobody in particular,
        which is enough for those that are public. What gives credentials is called for every request."""
        return Collections(self.transport, credentials, namespace)

    # --- tables ----------------------------------------------------------------------------------------------------

    @overload
    def table(self, name: str, *, public: bool = False) -> Table[Any]: ...

    @overload
    def table(self, name: str, type: type[T], *, public: bool = False) -> Table[T]: ...

    def table(self, name: str, type: Any = Any, *, public: bool = False) -> Table[Any]:
        """A table, whose payloads are read as ``type``. ``public``: reads show what everybody may see."""
        return Table(self.transport, name, type, public)

    # --- routers ---------------------------------------------------------------------------------------------------

    def router(self, name: str) -> Router:
        return Router(self.transport, name)

    def routers(self, prefix: str = "", *, source: str | None = None, dest: str | None = None) -> Iterator[RouterState]:
        """All routers whose names begin like this; only those from or to a topic, if one is given."""
        cursor: str | None = None
        while True:
            query = {"prefix": prefix or None, "source": source, "dest": dest, "page_size": 1000, "cursor": cursor}
            page = self.transport.ask(get("/v0/routers", query), calls.ROUTERS)
            yield from page.routers
            cursor = page.next_cursor
            if cursor is None:
                return
