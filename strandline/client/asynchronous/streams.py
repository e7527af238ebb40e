"""Streams: making, appending, reading, tailing, searching."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from strandline.client import stream_calls as calls
from strandline.client.asynchronous.producer import AsyncProducer
from strandline.client.asynchronous.tail import AsyncStreamTail
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import ALWAYS, Request, delete, get, post
from strandline.client.producer import ProducerState
from strandline.client.stream_types import NOW, START, Aggregated, Appended, Found, Hit, StreamInfo, StreamPage
from strandline.client.tail import TailState
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
