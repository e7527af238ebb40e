# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""The tail of a stream, over event streams or long-polls, from one connection to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from strandline.client.concurrency import sync_sleep
from strandline.client.errors import StrandlineError
from strandline.client.retry import Tries
from strandline.client.stream_calls import SILENCE_SECONDS
from strandline.client.stream_types import StreamPage
from strandline.client.synchronous.transport import EventSource, Transport
from strandline.client.tail import TailState

T = TypeVar("T")


class StreamTail(Generic[T]):
    """Pages of a stream as they come: iterate over it. ``offset`` is always where it has got to. Close it, or use it as
    a context manager."""

    def __init__(self, transport: Transport, state: TailState[T], by_events: bool) -> None:
        self._transport = transport
        self._state = state
        self._by_events = by_events
        self._source: EventSource | None = None
        self._tries = Tries(transport.patience)
        self._closed = False

    @property
    def offset(self) -> str:
        return self._state.offset

    def __enter__(self) -> StreamTail[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._leave()

    def __iter__(self) -> StreamTail[T]:
        return self

    def __next__(self) -> StreamPage[T]:
        while not self._closed and not self._state.over:
            page = self._next()
            if page is not None:
                return page
        self.close()
        raise StopIteration

    def values(self) -> Iterator[T]:
        """The values alone."""
        for page in self:
            yield from page.values

    def _next(self) -> StreamPage[T] | None:
        try:
            page = self._event() if self._by_events else self._poll()
        except StrandlineError as error:
            self._leave()
            wait = self._tries.failed(error)
        else:
            self._tries.succeeded()
            return page
        sync_sleep(wait)
        return None

    def _event(self) -> StreamPage[T] | None:
        if self._source is None:
            self._source = self._transport.listen(self._state.events(), SILENCE_SECONDS)
            self._state.opened(self._source.headers)
        return self._state.take(self._source.next())

    def _poll(self) -> StreamPage[T] | None:
        return self._state.answered(self._transport.once(self._state.poll()))

    def _leave(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
