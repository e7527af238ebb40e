# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Watching topics: one connection for any number of them, and another one whenever it breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from strandline.client.concurrency import sync_sleep
from strandline.client.errors import NotFound, RecordsLost, StrandlineError
from strandline.client.retry import Tries
from strandline.client.synchronous.transport import EventSource, Transport
from strandline.client.topic_types import Arrived, Deleted, Lost, Record, Tombstone
from strandline.client.watch import SILENCE_SECONDS, WatchEvent, WatchState, goes_on

T = TypeVar("T")


class Watch(Generic[T]):
    """Events of the watched topics, as they come: iterate over it. It ends when none of the topics is left.

    A connection that breaks is made anew, and the watch goes on behind the last event: none is missed, none comes
    twice. When the server stays away for longer than the client's patience the error is raised; whoever iterates again
    goes on where it was. Close it, or use it as a context manager.
    """

    def __init__(self, transport: Transport, state: WatchState[T]) -> None:
        self._transport = transport
        self._state = state
        self._source: EventSource | None = None
        self._waiting: deque[WatchEvent[T]] = deque()
        self._tries = Tries(transport.patience)
        self._closed = False

    @property
    def positions(self) -> dict[str, int]:
        """How far each topic has been told, to begin another watch there."""
        return dict(self._state.positions)

    def __enter__(self) -> Watch[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._leave()

    def __iter__(self) -> Watch[T]:
        return self

    def __next__(self) -> WatchEvent[T]:
        while not self._closed:
            if self._waiting:
                return self._waiting.popleft()
            if self._state.over:
                break
            event = self._next()
            if event is not None:
                return event
        self.close()
        raise StopIteration

    def _next(self) -> WatchEvent[T] | None:
        """One step: connect, or take what the server says."""
        try:
            if self._source is None:
                self._connect()
                return None
            event = self._state.take(self._source.next())
        except StrandlineError as error:
            self._leave()
            wait = self._tries.failed(goes_on(error))
        else:
            self._tries.succeeded()
            return event
        sync_sleep(wait)
        return None

    def _connect(self) -> None:
        request, gone = self._state.begin(self._transport.once(self._state.session()))
        self._waiting.extend(gone)
        if not self._state.over:
            self._source = self._transport.listen(request, SILENCE_SECONDS)

    def _leave(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()


class Tail(Generic[T]):
    """The records of one topic, as they come: iterate over it.

    Records that are gone although nobody deleted them are told to ``on_loss``, or raise RecordsLost where there is
    none. If the topic is deleted, NotFound is raised.
    """

    def __init__(self, watch: Watch[T], on_loss: Callable[[Tombstone], None] | None) -> None:
        self._watch = watch
        self._on_loss = on_loss
        self._records: deque[Record[T]] = deque()

    def __enter__(self) -> Tail[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._records.clear()
        self._watch.close()

    def __iter__(self) -> Tail[T]:
        return self

    def __next__(self) -> Record[T]:
        while not self._records:
            event = self._watch.__next__()
            if isinstance(event, Arrived):
                self._records.extend(event.records)
            elif isinstance(event, Lost):
                tell_loss(event.tombstone, self._on_loss)
            elif isinstance(event, Deleted):
                self.close()
                raise NotFound(404, "topic_not_found", f"the topic {event.topic!r} was deleted", {"topic": event.topic})
        return self._records.popleft()


def tell_loss(tombstone: Tombstone, on_loss: Callable[[Tombstone], None] | None) -> None:
    if on_loss is None:
        raise RecordsLost(f"{tombstone}; give on_loss to go on all the same", tombstone, tombstone.after)
    on_loss(tombstone)
