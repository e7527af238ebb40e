"""Live readers: they follow an event stream and continue after broken connections."""

from __future__ import annotations

from typing import Generic, TypeVar

from strandline.client.asynchronous.transport import AsyncEventSource, AsyncTransport
from strandline.client.concurrency import async_sleep
from strandline.client.errors import StrandlineError
from strandline.client.live import SILENCE_SECONDS, Following
from strandline.client.retry import Tries

E = TypeVar("E")


class AsyncLive(Generic[E]):
    """The rows of a parent and their changes, or the elements of a document: iterate over it. ``cursor`` is its current
    position. Close it, or use it as a context manager."""

    def __init__(self, transport: AsyncTransport, state: Following[E]) -> None:
        self._transport = transport
        self._state = state
        self._source: AsyncEventSource | None = None
        self._tries = Tries(transport.patience)
        self._closed = False

    @property
    def cursor(self) -> str | None:
        return self._state.cursor

    async def __aenter__(self) -> AsyncLive[E]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._closed = True
        await self._leave()

    def __aiter__(self) -> AsyncLive[E]:
        return self

    async def __anext__(self) -> E:
        while not self._closed:
            event = await self._next()
            if event is not None:
                return event
        raise StopAsyncIteration

    async def _next(self) -> E | None:
        try:
            if self._source is None:
                self._source = await self._transport.listen(self._state.request(), SILENCE_SECONDS)
            event = self._state.take(await self._source.next())
        except StrandlineError as error:
            await self._leave()
            wait = self._tries.failed(error)
        else:
            self._tries.succeeded()
            return event
        await async_sleep(wait)
        return None

    async def _leave(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()
