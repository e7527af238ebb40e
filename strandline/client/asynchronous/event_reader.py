"""The common part of readers that follow a log: one connection at a time, which is replaced whenever it breaks."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from strandline.client.asynchronous.transport import AsyncEventSource, AsyncTransport
from strandline.client.errors import StrandlineError
from strandline.client.retry import Tries
from strandline.client.task_concurrency import async_sleep

E = TypeVar("E")


class AsyncEventReader(Generic[E]):
    """Events as they arrive: iterate over it. Close it, or use it as a context manager."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._source: AsyncEventSource | None = None
        self._tries = Tries(transport.patience, servers=len(transport.servers))
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._closed = True
        await self._leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        while not self._closed and not self._is_over():
            event = await self._next()
            if event is not None:
                return event
        await self.aclose()
        raise StopAsyncIteration

    def _is_over(self) -> bool:
        """Whether no event can follow."""
        return False

    async def _take(self) -> E | None:
        """Connect if there is no connection, and return the next event; None if the reader does not get it."""
        raise NotImplementedError

    async def _next(self) -> E | None:
        try:
            event = await self._take()
        except StrandlineError as error:
            await self._retry_later(error)
            return None
        self._tries.succeeded()
        return event

    async def _retry_later(self, error: StrandlineError) -> None:
        """Disconnect and wait. Raises the error if it cannot be repeated, or has been for longer than the patience."""
        await self._leave()
        await async_sleep(self._tries.failed(error))

    async def _leave(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()
