"""The client of a server and its standbys, for all protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from strandline.client import stream_calls
from strandline.client import topic_calls as calls
from strandline.client.asynchronous.topics import AsyncRouter, AsyncTopic
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import Answer, any_request, get
from strandline.client.connection import Servers
from strandline.client.retry import Patience
from strandline.client.stream_calls import StreamRow
from strandline.client.topic_calls import Match, Write
from strandline.client.topic_types import ConsumerPosition, RouterState, TopicRow, Written

if TYPE_CHECKING:
    import httpx

    from strandline.client.asynchronous.collections import AsyncCollections
    from strandline.client.asynchronous.queues import AsyncQueue
    from strandline.client.asynchronous.streams import AsyncStream
    from strandline.client.asynchronous.tables import AsyncTable
    from strandline.client.asynchronous.watch import AsyncWatch
    from strandline.client.credentials import Credentials
    from strandline.client.watch import Start

T = TypeVar("T")


class AsyncClient:
    """A client of a Strandline server, with a pool of connections. Close it, or use it as a context manager.

    ``url`` may be several URLs, as a list or as a text with commas in between: those of a server and of its standbys.
    The client uses one of them until it cannot be reached or answers that it is a standby or cannot write. It then
    tries the others, and continues with the one that answers. An error names all servers that the client tried.

    ``key`` is an API key. ``user`` is the user on whose behalf the client calls tables. ``timeout`` limits each attempt
    of a request, in seconds. ``patience`` is for how many seconds the client repeats a failed request. It repeats a
    request only where that is safe: the server refused it because it was busy or not ready, the request was never
    sent, or repeating it has no further effect. ``patience=0`` disables retries: the client
    tries each server once. Pass a ``transport`` to configure
    proxies and certificates.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        user: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float | Patience = 20.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if not isinstance(patience, Patience):
            patience = Patience(patience)
        self.transport = AsyncTransport(Servers(url, key, user, headers), timeout, patience, transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.transport.aclose()

    @property
    def url(self) -> str:
        """The URL of the server that the client uses now."""
        return self.transport.servers.current.url

    async def ready(self) -> bool:
        """Whether the server, or one of several, answers and is ready. Asks each once, without retries."""
        return await self.transport.ready()

    async def call(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, Any] | None = None
    ) -> Answer:
        """Send any request, for routes without a method here. ``body`` is sent as JSON. GET, HEAD, PUT and DELETE are
        repeated like all idempotent requests."""
        return await self.transport.call(any_request(method, path, body, query))

    # --- topics ----------------------------------------------------------------------------------------------------

    @overload
    def topic(self, name: str) -> AsyncTopic[Any]: ...

    @overload
    def topic(self, name: str, type: type[T]) -> AsyncTopic[T]: ...

    def topic(self, name: str, type: Any = Any) -> AsyncTopic[Any]:
        """A topic. Data is decoded as ``type``: a msgspec Struct, a dataclass, or any other type msgspec supports."""
        return AsyncTopic(self.transport, name, type)

    async def topics(self, prefix: str = "") -> AsyncIterator[TopicRow]:
        """All topics whose names start with ``prefix``, ordered by name."""
        cursor: str | None = None
        while True:
            query = {"prefix": prefix or None, "page_size": 1000, "cursor": cursor}
            page = await self.transport.ask(get("/v0/topics", query), calls.LIST)
            for row in page.topics:
                yield row
            cursor = page.next_cursor
            if cursor is None:
                return

    async def write(self, writes: Iterable[Write], *, idempotency_key: str | None = None) -> list[Written]:
        """Write to several topics atomically."""
        request = calls.multi_write(writes, idempotency_key)
        return (await self.transport.ask(request, calls.MULTI_WRITTEN)).writes

    @overload
    def watch(
        self,
        topics: Mapping[str, Start | int | None],
        *,
        match: Match | None = None,
        without_nodes: str | Sequence[str] | None = None,
        strong: bool = False,
    ) -> AsyncWatch[Any]: ...

    @overload
    def watch(
        self,
        topics: Mapping[str, Start | int | None],
        type: type[T],
        *,
        match: Match | None = None,
        without_nodes: str | Sequence[str] | None = None,
        strong: bool = False,
    ) -> AsyncWatch[T]: ...

    def watch(
        self,
        topics: Mapping[str, Start | int | None],
        type: Any = Any,
        *,
        match: Match | None = None,
        without_nodes: str | Sequence[str] | None = None,
        strong: bool = False,
    ) -> AsyncWatch[Any]:
        """Watch topics over one connection. For each topic, give the seq to start after, or None to receive only new
        records. A name that ends in ``*`` matches all topics with that prefix, including topics created later."""
        options = calls.watch_options(without_nodes, strong, match)
        from strandline.client.asynchronous.watch import AsyncWatch
        from strandline.client.watch import WatchState

        return AsyncWatch(self.transport, WatchState(topics, type, options))

    # --- queues ----------------------------------------------------------------------------------------------------

    @overload
    def queue(self, name: str, *, node: str | None = None) -> AsyncQueue[Any]: ...

    @overload
    def queue(self, name: str, type: type[T], *, node: str | None = None) -> AsyncQueue[T]: ...

    def queue(self, name: str, type: Any = Any, *, node: str | None = None) -> AsyncQueue[Any]:
        """A queue. Job data is decoded as ``type``. ``node`` identifies this program; the default is a unique name."""
        from strandline.client.asynchronous.queues import AsyncQueue

        return AsyncQueue(self.transport, name, type, node)

    # --- streams ---------------------------------------------------------------------------------------------------

    @overload
    def stream(self, name: str, *, content_type: str = stream_calls.JSON_TYPE) -> AsyncStream[Any]: ...

    @overload
    def stream(self, name: str, type: type[T], *, content_type: str = stream_calls.JSON_TYPE) -> AsyncStream[T]: ...

    def stream(self, name: str, type: Any = Any, *, content_type: str = stream_calls.JSON_TYPE) -> AsyncStream[Any]:
        """A stream. The values of a JSON stream are decoded as ``type``; set ``content_type`` for other streams."""
        from strandline.client.asynchronous.streams import AsyncStream

        return AsyncStream(self.transport, name, type, content_type)

    async def streams(self, prefix: str = "") -> AsyncIterator[StreamRow]:
        """All streams whose names start with ``prefix``, ordered by name."""
        after: str | None = None
        while True:
            rows = await self.transport.ask(stream_calls.list_streams(prefix, after, 1000), stream_calls.ROWS)
            for row in rows:
                yield row
            if not rows:
                return
            after = rows[-1].name

    # --- collections -----------------------------------------------------------------------------------------------

    def collections(self, credentials: Credentials | None = None, *, namespace: str | None = None) -> AsyncCollections:
        """The collections of the server, or of one namespace. Without ``credentials`` requests are anonymous, which is
        enough for public collections. If ``credentials`` is a function, it is called for every request."""
        from strandline.client.asynchronous.collections import AsyncCollections

        return AsyncCollections(self.transport, credentials, namespace)

    # --- tables ----------------------------------------------------------------------------------------------------

    @overload
    def table(self, name: str, *, public: bool = False) -> AsyncTable[Any]: ...

    @overload
    def table(self, name: str, type: type[T], *, public: bool = False) -> AsyncTable[T]: ...

    def table(self, name: str, type: Any = Any, *, public: bool = False) -> AsyncTable[Any]:
        """A table. Payloads are decoded as ``type``. ``public``: reads return only rows that everyone may see."""
        from strandline.client.asynchronous.tables import AsyncTable

        return AsyncTable(self.transport, name, type, public)

    async def consumers(self, prefix: str = "") -> AsyncIterator[ConsumerPosition]:
        """The named consumers of all topics whose names start with ``prefix``, ordered by topic and name."""
        cursor: str | None = None
        while True:
            query = {"prefix": prefix or None, "page_size": 1000, "cursor": cursor}
            page = await self.transport.ask(get("/v0/consumers", query), calls.ALL_CONSUMERS)
            for row in page.consumers:
                yield row
            cursor = page.next_cursor
            if cursor is None:
                return

    # --- routers ---------------------------------------------------------------------------------------------------

    def router(self, name: str) -> AsyncRouter:
        return AsyncRouter(self.transport, name)

    async def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> AsyncIterator[RouterState]:
        """All routers whose names start with ``prefix``, optionally only those with this source or destination."""
        cursor: str | None = None
        while True:
            query = {"prefix": prefix or None, "source": source, "dest": dest, "page_size": 1000, "cursor": cursor}
            page = await self.transport.ask(get("/v0/routers", query), calls.ROUTERS)
            for row in page.routers:
                yield row
            cursor = page.next_cursor
            if cursor is None:
                return
