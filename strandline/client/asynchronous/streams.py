"""Streams: making, appending, reading, tailing, searching."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from strandline.client import stream_calls as calls
from strandline.client.asynchronous.transport import AsyncEventSource, AsyncTransport
from strandline.client.calls import ALWAYS, Request, delete, get, post
from strandline.client.concurrency import AsyncLock, async_sleep
from strandline.client.errors import BadAnswer, Refused, StrandlineError
from strandline.client.live import TailState
from strandline.client.retry import Tries
from strandline.client.stream_calls import (
    NOW,
    SILENCE_SECONDS,
    START,
    Aggregated,
    Appended,
    Found,
    Hit,
    ProducerState,
    StreamInfo,
    StreamPage,
)
from strandline.client.topic_calls import given

T = TypeVar("T")


class AsyncStream(Generic[T]):
    """One stream. Nothing is asked of the server before a method is called. A stream of JSON has values, any other
    bytes: what is appended to it is bytes or text, and one record."""

    def __init__(self, transport: AsyncTransport, name: str, kind: Any, content_type: str) -> None:
        self._transport = transport
        self.name = name
        self.content_type = content_type
        self._kind = kind
        self._path = calls.path_of(name)
        self._values = calls.values_reading(kind)

    # --- the stream itself -----------------------------------------------------------------------------------------

    async def create(
        self,
        first: Iterable[T] | None = None,
        *,
        ttl: int | str | None = None,
        expires_at: datetime | str | None = None,
        compact: bool | None = None,
        closed: bool = False,
        key: str | None = None,
    ) -> StreamInfo:
        """Make it, with its first records if there are some. That it exists is no error if it is the same. ``ttl`` is a
        sliding window (seconds, or "90m", "12h", "7d"), ``expires_at`` a moment that nothing puts off."""
        values = [] if first is None else list(first)
        body = calls.encode(values, self.content_type) if values else b""
        fields = {
            "stream-ttl": ttl,
            "stream-expires-at": expires_at,
            "stream-compact": compact,
            "stream-closed": closed or None,
            "stream-key": key,
        }
        return calls.info(await self._transport.call(calls.create(self._path, self.content_type, body, fields)))

    async def fork(
        self,
        name: str,
        *,
        offset: str | None = None,
        sub_offset: int | None = None,
        ttl: int | str | None = None,
        expires_at: datetime | str | None = None,
        compact: bool | None = None,
    ) -> AsyncStream[T]:
        """Make another stream that begins with the records of this one, up to an offset (by default its end)."""
        fields = {
            "stream-forked-from": self._path,
            "stream-fork-offset": offset,
            "stream-fork-sub-offset": sub_offset,
            "stream-ttl": ttl,
            "stream-expires-at": expires_at,
            "stream-compact": compact,
        }
        await self._transport.call(calls.create(calls.path_of(name), None, b"", fields))
        return AsyncStream(self._transport, name, self._kind, self.content_type)

    async def head(self) -> StreamInfo:
        """Where it ends, and what is known of it."""
        return calls.info(await self._transport.call(Request("HEAD", self._path, repeatable=ALWAYS)))

    async def delete(self) -> None:
        await self._transport.call(delete(self._path))

    # --- appending -------------------------------------------------------------------------------------------------

    async def append(
        self,
        value: T,
        *,
        key: str | None = None,
        timestamp: datetime | str | None = None,
        stream_seq: str | None = None,
    ) -> Appended:
        """Append one record. It is sent once: if the connection breaks before the answer, Unreachable is raised, and
        nobody knows. Use a ``producer`` where that must not be."""
        return await self._append([value], key, timestamp, stream_seq)

    async def append_many(
        self,
        values: Iterable[T],
        *,
        key: str | None = None,
        timestamp: datetime | str | None = None,
        stream_seq: str | None = None,
    ) -> Appended:
        """Append records of JSON: all of them or none. As safe as ``append``."""
        return await self._append(list(values), key, timestamp, stream_seq)

    async def _append(
        self, values: list[Any], key: str | None, timestamp: datetime | str | None, stream_seq: str | None
    ) -> Appended:
        fields = {"stream-key": key, "stream-timestamp": timestamp, "stream-seq": stream_seq}
        body = calls.encode(values, self.content_type)
        return calls.appended(await self._transport.call(calls.append(self._path, self.content_type, body, fields)))

    def producer(self, id: str | None = None, *, epoch: int | None = None, seq: int = 0) -> AsyncProducer[T]:
        """Somebody who appends exactly once, whatever happens to connections and servers. An ``id`` makes it known:
        the next producer of this id takes over, and fences this one off. ``epoch`` and ``seq`` are for those who keep
        count themselves."""
        return AsyncProducer(self._transport, self._path, self.content_type, ProducerState(id, epoch, seq))

    async def close(self, last: T | None = None) -> Appended:
        """Nothing can be appended any more, but a last record in the same step if one is given."""
        body = b"" if last is None else calls.encode([last], self.content_type)
        request = calls.append(self._path, self.content_type, body, {"stream-closed": True}, 0.0 if body else ALWAYS)
        return calls.appended(await self._transport.call(request))

    # --- reading ---------------------------------------------------------------------------------------------------

    async def page(
        self,
        offset: str = START,
        *,
        key: str | None = None,
        filter: str | None = None,
        since: datetime | str | None = None,
        latest: bool = False,
    ) -> StreamPage[T]:
        """One page of what is behind an offset. ``key``: only records with this routing key; ``since`` counts when
        there is no offset; ``latest``: only the last record of each key."""
        query = given(key=key, filter=filter, since=since, view="latest" if latest else None)
        if since is None or offset != START:
            query["offset"] = offset
        return calls.page(await self._transport.call(calls.read(self._path, **query)), self._values)

    async def pages(
        self,
        offset: str = START,
        *,
        key: str | None = None,
        filter: str | None = None,
        since: datetime | str | None = None,
        latest: bool = False,
    ) -> AsyncIterator[StreamPage[T]]:
        """Pages from an offset to the end as it is when that is reached."""
        while True:
            page: StreamPage[T] = await self.page(offset, key=key, filter=filter, since=since, latest=latest)
            yield page
            if page.up_to_date or page.next_offset == offset:
                return
            offset = page.next_offset

    async def read(
        self,
        offset: str = START,
        *,
        key: str | None = None,
        filter: str | None = None,
        since: datetime | str | None = None,
        latest: bool = False,
    ) -> AsyncIterator[T]:
        """The values of a JSON stream, from an offset to the end. Raises Gone for an offset before records that were
        lost."""
        async for page in self.pages(offset, key=key, filter=filter, since=since, latest=latest):
            for value in page.values:
                yield value

    async def read_bytes(self, offset: str = START, *, key: str | None = None) -> bytes:
        """Everything from an offset to the end, of a stream that is not JSON."""
        parts = []
        async for page in self.pages(offset, key=key):
            parts.append(page.data)
        return b"".join(parts)

    def tail(self, offset: str = NOW, *, key: str | None = None, filter: str | None = None) -> AsyncStreamTail[T]:
        """Pages as they come: those behind the offset first. It goes on over broken connections and restarts of the
        server, misses nothing, repeats nothing, and ends when the stream is closed. ``values`` of it goes through the
        values alone."""
        state: TailState[T] = TailState(self._path, offset, self._values, given(key=key, filter=filter))
        # Event streams can neither filter nor keep every byte of a text as it is.
        by_events = filter is None and self.content_type == calls.JSON_TYPE
        return AsyncStreamTail(self._transport, state, by_events)

    # --- searching -------------------------------------------------------------------------------------------------

    async def search(
        self,
        q: str,
        *,
        sort: Sequence[str] | None = None,
        size: int | None = None,
        search_after: Sequence[Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Found[T]:
        """One page of hits."""
        request = calls.search(self._path, q=q, sort=sort, size=size, search_after=search_after, timeout_ms=timeout_ms)
        return await self._transport.ask(request, calls.found_reading(self._kind))

    async def hits(self, q: str, *, sort: Sequence[str] | None = None, size: int = 100) -> AsyncIterator[Hit[T]]:
        """All hits, page by page."""
        after: Sequence[Any] | None = None
        while True:
            found: Found[T] = await self.search(q, sort=sort, size=size, search_after=after)
            for hit in found.hits:
                yield hit
            after = found.next_search_after
            if after is None:
                return

    async def aggregate(
        self,
        rollup: str,
        *,
        start: datetime | str | int,
        end: datetime | str | int,
        interval: str,
        q: str | None = None,
        group_by: Sequence[str] | None = None,
        measures: Sequence[str] | None = None,
    ) -> Aggregated:
        """Records added up by interval and dimensions. ``start`` counts, ``end`` does not."""
        times = {"from": start, "to": end}
        request = calls.aggregate(
            self._path, rollup=rollup, interval=interval, q=q, group_by=group_by, measures=measures, **times
        )
        return await self._transport.ask(request, calls.AGGREGATED)

    # --- what it holds ---------------------------------------------------------------------------------------------

    async def schema(self) -> dict[str, Any]:
        """The registry: schemas, lenses, search configuration."""
        return await self._transport.ask(get(f"{self._path}/_schema"), calls.ANYTHING)

    async def set_schema(self, update: dict[str, Any]) -> dict[str, Any]:
        """Change the registry; returns what has become of it."""
        return await self._transport.ask(post(f"{self._path}/_schema", update), calls.ANYTHING)

    async def profile(self) -> dict[str, Any]:
        return await self._transport.ask(get(f"{self._path}/_profile"), calls.ANYTHING)

    async def set_profile(self, profile: dict[str, Any]) -> dict[str, Any]:
        """For example ``{"kind": "evlog"}``."""
        return await self._transport.ask(post(f"{self._path}/_profile", {"profile": profile}), calls.ANYTHING)

    async def details(self) -> dict[str, Any]:
        """Everything that the server tells of it."""
        return await self._transport.ask(get(f"{self._path}/_details"), calls.ANYTHING)


# --- producers ------------------------------------------------------------------------------------------------------


class AsyncProducer(Generic[T]):
    """Numbers its appends, so that each is made once however often it is sent. Several may use it at a time; their
    appends go one after the other. Raises Fenced from the moment on when another producer of its id has begun."""

    def __init__(self, transport: AsyncTransport, path: str, content_type: str, state: ProducerState) -> None:
        self._transport = transport
        self._path = path
        self._content_type = content_type
        self._state = state
        self._lock = AsyncLock()

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def epoch(self) -> int | None:
        """None: not known before the first append."""
        return self._state.epoch

    @property
    def seq(self) -> int:
        """The number of the next append."""
        return self._state.seq

    async def append(self, value: T, *, key: str | None = None, timestamp: datetime | str | None = None) -> Appended:
        """Append one record."""
        return await self._append([value], {"stream-key": key, "stream-timestamp": timestamp})

    async def append_many(
        self, values: Iterable[T], *, key: str | None = None, timestamp: datetime | str | None = None
    ) -> Appended:
        """Append records of JSON: all of them or none."""
        return await self._append(list(values), {"stream-key": key, "stream-timestamp": timestamp})

    async def close(self, last: T | None = None) -> Appended:
        """Close the stream, with a last record in the same step if one is given."""
        return await self._append([] if last is None else [last], {"stream-closed": True})

    async def _append(self, values: list[T], fields: dict[str, Any]) -> Appended:
        body = calls.encode(values, self._content_type) if values else b""
        state = self._state
        async with self._lock:
            state.check()
            if state.epoch is None:
                await self._begin(body, fields)
            try:
                answer = await self._transport.call(self._request(body, {**fields, **state.headers()}))
            except BaseException as error:
                state.failed(error)
                raise
            state.succeeded()
        return calls.appended(answer)

    async def _begin(self, body: bytes, fields: dict[str, Any]) -> None:
        """Find out which epoch comes next."""
        try:
            await self._transport.call(self._request(body, {**fields, **self._state.probe()}))
        except Refused as error:
            self._state.learn(error)
        else:
            raise BadAnswer("the server has taken an append whose number cannot be the next one")

    def _request(self, body: bytes, fields: dict[str, Any]) -> Request:
        return calls.append(self._path, self._content_type, body, fields, ALWAYS)


# --- tails ----------------------------------------------------------------------------------------------------------


class AsyncStreamTail(Generic[T]):
    """Pages of a stream as they come: iterate over it. ``offset`` is always where it has got to. Close it, or use it as
    a context manager."""

    def __init__(self, transport: AsyncTransport, state: TailState[T], by_events: bool) -> None:
        self._transport = transport
        self._state = state
        self._by_events = by_events
        self._source: AsyncEventSource | None = None
        self._tries = Tries(transport.patience)
        self._closed = False

    @property
    def offset(self) -> str:
        return self._state.offset

    async def __aenter__(self) -> AsyncStreamTail[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._closed = True
        await self._leave()

    def __aiter__(self) -> AsyncStreamTail[T]:
        return self

    async def __anext__(self) -> StreamPage[T]:
        while not self._closed and not self._state.over:
            page = await self._next()
            if page is not None:
                return page
        await self.aclose()
        raise StopAsyncIteration

    async def values(self) -> AsyncIterator[T]:
        """The values alone."""
        async for page in self:
            for value in page.values:
                yield value

    async def _next(self) -> StreamPage[T] | None:
        try:
            page = await (self._event() if self._by_events else self._poll())
        except StrandlineError as error:
            await self._leave()
            wait = self._tries.failed(error)
        else:
            self._tries.succeeded()
            return page
        await async_sleep(wait)
        return None

    async def _event(self) -> StreamPage[T] | None:
        if self._source is None:
            self._source = await self._transport.listen(self._state.events(), SILENCE_SECONDS)
            self._state.opened(self._source.headers)
        return self._state.take(await self._source.next())

    async def _poll(self) -> StreamPage[T] | None:
        return self._state.answered(await self._transport.once(self._state.poll()))

    async def _leave(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()
