"""Streams: create, append, read, tail, search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from strandline.client import stream_calls as calls
from strandline.client.asynchronous.event_reader import AsyncEventReader
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import ALWAYS, Request, delete, get, post
from strandline.client.errors import BadAnswer, Refused
from strandline.client.live import TailState
from strandline.client.search_types import Aggregated, Found, Hit, IndexProgress, SearchConfig
from strandline.client.stream_calls import (
    NOW,
    SILENCE_SECONDS,
    START,
    Appended,
    ProducerState,
    StreamInfo,
    StreamPage,
)
from strandline.client.task_concurrency import AsyncLock
from strandline.client.topic_calls import given

T = TypeVar("T")


class AsyncStream(Generic[T]):
    """One stream. Requests are sent only when a method is called. A JSON stream holds values. Any other stream holds
    bytes: each append takes bytes or text and adds one record."""

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
        retain_until_in_lake: bool | None = None,
        closed: bool = False,
        key: str | None = None,
    ) -> StreamInfo:
        """Create the stream, optionally with its first records. If the same stream exists already, nothing happens.
        ``ttl`` is a sliding window (seconds, or "90m", "12h", "7d"); ``expires_at`` is a fixed time."""
        values = [] if first is None else list(first)
        body = calls.encode(values, self.content_type) if values else b""
        fields = {
            "stream-ttl": ttl,
            "stream-expires-at": expires_at,
            "stream-compact": compact,
            "stream-retain-until-in-lake": retain_until_in_lake,
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
        retain_until_in_lake: bool | None = None,
    ) -> AsyncStream[T]:
        """Create a stream that starts with the records of this one, up to ``offset`` (default: the end)."""
        fields = {
            "stream-forked-from": self._path,
            "stream-fork-offset": offset,
            "stream-fork-sub-offset": sub_offset,
            "stream-ttl": ttl,
            "stream-expires-at": expires_at,
            "stream-compact": compact,
            "stream-retain-until-in-lake": retain_until_in_lake,
        }
        await self._transport.call(calls.create(calls.path_of(name), None, b"", fields))
        return AsyncStream(self._transport, name, self._kind, self.content_type)

    async def head(self) -> StreamInfo:
        """The end offset and the properties of the stream."""
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
        """Append one record. The request is sent once: if the connection breaks before the answer, Unreachable is
        raised and the record may or may not have been appended. Use a ``producer`` to append exactly once."""
        return await self._append([value], key, timestamp, stream_seq)

    async def append_many(
        self,
        values: Iterable[T],
        *,
        key: str | None = None,
        timestamp: datetime | str | None = None,
        stream_seq: str | None = None,
    ) -> Appended:
        """Append JSON records atomically, with the same guarantees as ``append``."""
        return await self._append(list(values), key, timestamp, stream_seq)

    async def _append(
        self, values: list[Any], key: str | None, timestamp: datetime | str | None, stream_seq: str | None
    ) -> Appended:
        fields = {"stream-key": key, "stream-timestamp": timestamp, "stream-seq": stream_seq}
        body = calls.encode(values, self.content_type)
        return calls.appended(await self._transport.call(calls.append(self._path, self.content_type, body, fields)))

    def producer(self, id: str | None = None, *, epoch: int | None = None, seq: int = 0) -> AsyncProducer[T]:
        """A producer, which appends exactly once across broken connections and server restarts. If you give an ``id``,
        the next producer with this id takes over and fences this one. Set ``epoch`` and ``seq`` only if you count
        them yourself."""
        return AsyncProducer(self._transport, self._path, self.content_type, ProducerState(id, epoch, seq))

    async def close(self, last: T | None = None) -> Appended:
        """Close the stream for appends, optionally with a last record in the same step."""
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
        """One page of the records after ``offset``. ``key`` selects records with this routing key. ``since`` applies
        only without an offset. ``latest`` returns only the last record of each key."""
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
        """The pages from ``offset`` to the current end."""
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
        """The values of a JSON stream, from ``offset`` to the end. Raises Gone if records after the offset were
        lost."""
        async for page in self.pages(offset, key=key, filter=filter, since=since, latest=latest):
            for value in page.values:
                yield value

    async def read_bytes(self, offset: str = START, *, key: str | None = None) -> bytes:
        """The bytes from ``offset`` to the end, for a stream that is not JSON."""
        parts = []
        async for page in self.pages(offset, key=key):
            parts.append(page.data)
        return b"".join(parts)

    def tail(self, offset: str = NOW, *, key: str | None = None, filter: str | None = None) -> AsyncStreamTail[T]:
        """The pages after ``offset``, then new pages as they arrive. The tail survives broken connections and server
        restarts without missing or repeating records, and ends when the stream is closed. Its ``values`` method
        iterates over values instead of pages."""
        state: TailState[T] = TailState(self._path, offset, self._values, given(key=key, filter=filter))
        # Event streams support no filter, and do not preserve every byte of a text.
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
        """One page of search hits."""
        request = calls.search(self._path, q=q, sort=sort, size=size, search_after=search_after, timeout_ms=timeout_ms)
        return await self._transport.ask(request, calls.found_reading(self._kind))

    async def hits(self, q: str, *, sort: Sequence[str] | None = None, size: int = 100) -> AsyncIterator[Hit[T]]:
        """All search hits, fetched page by page."""
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
        """Aggregate records by interval and dimensions, from ``start`` (inclusive) to ``end`` (exclusive)."""
        times = {"from": start, "to": end}
        request = calls.aggregate(
            self._path, rollup=rollup, interval=interval, q=q, group_by=group_by, measures=measures, **times
        )
        return await self._transport.ask(request, calls.AGGREGATED)

    # --- schema, profile and details -------------------------------------------------------------------------------

    async def schema(self) -> dict[str, Any]:
        """The schema registry: schemas, lenses and search configuration."""
        return await self._transport.ask(get(f"{self._path}/_schema"), calls.ANYTHING)

    async def set_schema(self, update: dict[str, Any]) -> dict[str, Any]:
        """Change the schema registry. Returns the new registry."""
        return await self._transport.ask(post(f"{self._path}/_schema", update), calls.ANYTHING)

    async def search_config(self) -> SearchConfig | None:
        """The search configuration of the log; None if it has none."""
        return (await self._transport.ask(get(f"{self._path}/_schema"), calls.REGISTRY)).search

    async def set_search_config(self, config: SearchConfig | None) -> SearchConfig | None:
        """Install, replace or remove (None) the search configuration, also on a log that has records. Returns it as
        the server stores it."""
        return (await self._transport.ask(post(f"{self._path}/_schema", {"search": config}), calls.REGISTRY)).search

    async def index_progress(self) -> IndexProgress | None:
        """How far the log is indexed; None if it has no search configuration, or the server does not report it."""
        return (await self._transport.ask(get(f"{self._path}/_index_status"), calls.INDEX_STATUS)).progress

    async def profile(self) -> dict[str, Any]:
        return await self._transport.ask(get(f"{self._path}/_profile"), calls.ANYTHING)

    async def set_profile(self, profile: dict[str, Any]) -> dict[str, Any]:
        """Set the profile, for example ``{"kind": "evlog"}``."""
        return await self._transport.ask(post(f"{self._path}/_profile", {"profile": profile}), calls.ANYTHING)

    async def details(self) -> dict[str, Any]:
        """Everything that the server reports about the stream."""
        return await self._transport.ask(get(f"{self._path}/_details"), calls.ANYTHING)


# --- producers ------------------------------------------------------------------------------------------------------


class AsyncProducer(Generic[T]):
    """Numbers its appends, so that each is applied once however often it is sent. Concurrent callers may share a
    producer; their appends run one after the other. Raises Fenced once another producer with the same id has
    started."""

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
        """None before the first append."""
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
        """Append JSON records atomically."""
        return await self._append(list(values), {"stream-key": key, "stream-timestamp": timestamp})

    async def close(self, last: T | None = None) -> Appended:
        """Close the stream, optionally with a last record in the same step."""
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
        """Find out the next epoch."""
        try:
            await self._transport.call(self._request(body, {**fields, **self._state.probe()}))
        except Refused as error:
            self._state.learn(error)
        else:
            raise BadAnswer(f"the server accepted an append with the impossible producer sequence {calls.FAR_SEQ}")

    def _request(self, body: bytes, fields: dict[str, Any]) -> Request:
        return calls.append(self._path, self._content_type, body, fields, ALWAYS)


# --- tails ----------------------------------------------------------------------------------------------------------


class AsyncStreamTail(AsyncEventReader[StreamPage[T]]):
    """The pages of a stream as they arrive: iterate over it. ``offset`` is its current position. Close it, or use it
    as a context manager."""

    def __init__(self, transport: AsyncTransport, state: TailState[T], by_events: bool) -> None:
        super().__init__(transport)
        self._state = state
        self._by_events = by_events

    @property
    def offset(self) -> str:
        return self._state.offset

    async def values(self) -> AsyncIterator[T]:
        """Iterate over the values instead of the pages."""
        async for page in self:
            for value in page.values:
                yield value

    def _is_over(self) -> bool:
        return self._state.over

    async def _take(self) -> StreamPage[T] | None:
        return await (self._event() if self._by_events else self._poll())

    async def _event(self) -> StreamPage[T] | None:
        if self._source is None:
            self._source = await self._transport.listen(self._state.events(), SILENCE_SECONDS)
            self._state.opened(self._source.headers)
        return self._state.take(await self._source.next())

    async def _poll(self) -> StreamPage[T] | None:
        return self._state.answered(await self._transport.once(self._state.poll()))
