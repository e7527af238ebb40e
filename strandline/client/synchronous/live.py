# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Following a table live, from one connection to the next."""

from __future__ import annotations

from typing import Generic, TypeVar

from strandline.client.concurrency import sync_sleep
from strandline.client.errors import StrandlineError
from strandline.client.live import SILENCE_SECONDS, LiveState
from strandline.client.retry import Tries
from strandline.client.synchronous.transport import EventSource, Transport
from strandline.client.table_types import LiveEvent

T = TypeVar("T")


class Live(Generic[T]):
    """Events of a parent's rows: iterate over it. ``cursor`` is always where it has got to. Close it, or use it as a
    context manager."""

    def __init__(self, transport: Transport, state: LiveState[T]) -> None:
        self._transport = transport
        self._state = state
        self._source: EventSource | None = None
        self._tries = Tries(transport.patience)
        self._closed = False

    @property
    def cursor(self) -> str | None:
        return self._state.cursor

    def __enter__(self) -> Live[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._leave()

    def __iter__(self) -> Live[T]:
        return self

    def __next__(self) -> LiveEvent[T]:
        while not self._closed:
            event = self._next()
            if event is not None:
                return event
        raise StopIteration

    def _next(self) -> LiveEvent[T] | None:
        try:
            if self._source is None:
                self._source = self._transport.listen(self._state.request(), SILENCE_SECONDS)
            event = self._state.take(self._source.next())
        except StrandlineError as error:
            self._leave()
            wait = self._tries.failed(error)
        else:
            self._tries.succeeded()
            return event
        sync_sleep(wait)
        return None

    def _leave(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
