"""Watches topics: one connection for any number of topics, replaced whenever it breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from strandline.client.asynchronous.transport import AsyncEventSource, AsyncTransport
from strandline.client.concurrency import async_sleep
from strandline.client.errors import NotFound, RecordsLost, StrandlineError
from strandline.client.retry import Tries
from strandline.client.topic_types import Arrived, Deleted, Lost, Record, Tombstone
from strandline.client.watch import SILENCE_SECONDS, WatchEvent, WatchState, goes_on

T = TypeVar("T")


class AsyncWatch(Generic[T]):
    """The events of the watched topics as they arrive: iterate over it. It ends when all topics are deleted.

    When a connection breaks, the watch reconnects and continues after the last event, without missing or repeating
    events. When the server is unreachable for longer than the client's patience, the error is raised; iterate again to
    continue from the same position. Close it, or use it as a context manager.
    """

    def __init__(self, transport: AsyncTransport, state: WatchState[T]) -> None:
        self._transport = transport
        self._state = state
        self._source: AsyncEventSource | None = None
        self._waiting: deque[WatchEvent[T]] = deque()
        self._tries = Tries(transport.patience)
        self._closed = False

    @property
    def positions(self) -> dict[str, int]:
        """The position in each topic. Pass it to another watch to continue there."""
        return dict(self._state.positions)

    async def __aenter__(self) -> AsyncWatch[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._closed = True
        await self._leave()

    def __aiter__(self) -> AsyncWatch[T]:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        while not self._closed:
            if self._waiting:
                return self._waiting.popleft()
            if self._state.over:
                break
            event = await self._next()
            if event is not None:
                return event
        await self.aclose()
        raise StopAsyncIteration

    async def _next(self) -> WatchEvent[T] | None:
        """Connect, or process the next event."""
        try:
            if self._source is None:
                await self._connect()
                return None
            event = self._state.take(await self._source.next())
        except StrandlineError as error:
            await self._leave()
            wait = self._tries.failed(goes_on(error))
        else:
            self._tries.succeeded()
            return event
        await async_sleep(wait)
        return None

    async def _connect(self) -> None:
        request, gone = self._state.begin(await self._transport.once(self._state.session()))
        self._waiting.extend(gone)
        if not self._state.over:
            self._source = await self._transport.listen(request, SILENCE_SECONDS)

    async def _leave(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()


class AsyncTail(Generic[T]):
    """The records of one topic as they arrive: iterate over it.

    ``on_loss`` is called for records that retention or a crash removed before the tail read them. Without ``on_loss``
    RecordsLost is raised. NotFound is raised when the topic is deleted.
    """

    def __init__(self, watch: AsyncWatch[T], on_loss: Callable[[Tombstone], None] | None) -> None:
        self._watch = watch
        self._on_loss = on_loss
        self._records: deque[Record[T]] = deque()

    async def __aenter__(self) -> AsyncTail[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._records.clear()
        await self._watch.aclose()

    def __aiter__(self) -> AsyncTail[T]:
        return self

    async def __anext__(self) -> Record[T]:
        while not self._records:
            event = await self._watch.__anext__()
            if isinstance(event, Arrived):
                self._records.extend(event.records)
            elif isinstance(event, Lost):
                tell_loss(event.tombstone, self._on_loss)
            elif isinstance(event, Deleted):
                await self.aclose()
                raise NotFound(404, "topic_not_found", f"topic {event.topic!r} was deleted", {"topic": event.topic})
        return self._records.popleft()


def tell_loss(tombstone: Tombstone, on_loss: Callable[[Tombstone], None] | None) -> None:
    if on_loss is None:
        raise RecordsLost(f"{tombstone}; pass on_loss to continue after lost records", tombstone, tombstone.after)
    on_loss(tombstone)
