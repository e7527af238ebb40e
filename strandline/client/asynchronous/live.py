"""Live readers: they follow an event stream and continue after broken connections."""

from __future__ import annotations

from typing import TypeVar

from strandline.client.asynchronous.event_reader import AsyncEventReader
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.live import SILENCE_SECONDS, Following

E = TypeVar("E")


class AsyncLive(AsyncEventReader[E]):
    """The rows of a parent and their changes, or the elements of a document: iterate over it. ``cursor`` is its current
    position. Close it, or use it as a context manager."""

    def __init__(self, transport: AsyncTransport, state: Following[E]) -> None:
        super().__init__(transport)
        self._state = state

    @property
    def cursor(self) -> str | None:
        return self._state.cursor

    async def _take(self) -> E | None:
        if self._source is None:
            self._source = await self._transport.listen(self._state.request(), SILENCE_SECONDS)
        return self._state.take(await self._source.next())
