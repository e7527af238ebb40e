"""The tail of a stream, over event streams or long-polls, from one connection to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from strandline.client.asynchronous.transport import AsyncEventSource, AsyncTransport
from strandline.client.concurrency import async_sleep
from strandline.client.errors import StrandlineError
from strandline.client.retry import Tries
from strandline.client.stream_calls import SILENCE_SECONDS
from strandline.client.stream_types import StreamPage
from strandline.client.tail import TailState

T = TypeVar("T")


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
