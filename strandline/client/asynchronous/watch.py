"""Watches topics: one connection for any number of topics, replaced whenever it breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from strandline.client.asynchronous.event_reader import AsyncEventReader
from strandline.client.asynchronous.topics import tell_loss
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.errors import NotFound, StrandlineError
from strandline.client.topic_types import Arrived, Deleted, Lost, Record, Tombstone
from strandline.client.watch import SILENCE_SECONDS, WatchEvent, WatchState, goes_on

T = TypeVar("T")


class AsyncWatch(AsyncEventReader[WatchEvent[T]]):
    """The events of the watched topics as they arrive: iterate over it. It ends when all topics are deleted.

    When a connection breaks, the watch reconnects and continues after the last event, without missing or repeating
    events. When the server is unreachable for longer than the client's patience, the error is raised; iterate again to
    continue from the same position. Close it, or use it as a context manager.
    """

    def __init__(self, transport: AsyncTransport, state: WatchState[T]) -> None:
        super().__init__(transport)
        self._state = state
        self._waiting: deque[WatchEvent[T]] = deque()

    @property
    def positions(self) -> dict[str, int]:
        """The position in each topic. Pass it to another watch to continue there."""
        return dict(self._state.positions)

    def _is_over(self) -> bool:
        return self._state.over and not self._waiting

    async def _next(self) -> WatchEvent[T] | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._source is not None:
            return await super()._next()
        # A connection without an event is not a success: it could break again and again.
        try:
            await self._connect()
        except StrandlineError as error:
            await self._retry_later(error)
        return None

    async def _take(self) -> WatchEvent[T] | None:
        assert self._source is not None
        return self._state.take(await self._source.next())

    async def _retry_later(self, error: StrandlineError) -> None:
        await super()._retry_later(goes_on(error))

    async def _connect(self) -> None:
        request, gone = self._state.begin(await self._transport.once(self._state.session()))
        self._waiting.extend(gone)
        if not self._state.over:
            self._source = await self._transport.listen(request, SILENCE_SECONDS)


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
