"""The store of subscriptions: a log of events, and the secret from which signatures and tokens are derived.

From time to time the store writes the whole state again and deletes the older events. Repeating an event has no effect,
so a crash in between does no harm.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from strandline.delivery.subscriptions.events import Event, MadeEvent, RemovedEvent, decode, encode
from strandline.delivery.subscriptions.subscription import Subscription
from strandline.delivery.subscriptions.webhook_signatures import SEED_BYTES
from strandline.engine import Append, Batch, Commit, Config, Engine, Log
from strandline.engine.errors import EngineError
from strandline.engine.state.notes import SECRET

log = logging.getLogger(__name__)

NAME = "__subscriptions__"
_CONFIG = Config(durability="fsync")
_SEED = SECRET + "_seed"
_PAGE = 1000

#: The log is compacted when it has more events than this, and more than this many per link.
COMPACT_EVENTS = 4096
COMPACT_RATIO = 4
#: Events per append, which keeps batches small.
_EVENTS_PER_APPEND = 100


class SubscriptionStore:
    """Used on the event loop only. The log is created with the first subscription; then ``seed`` never changes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._log: Log | None = engine.find(NAME)
        self._events = 0 if self._log is None else self._log.state().count
        #: Done when the seed is durable.
        self.opened: Commit[Any] = Commit.of(None)
        #: Done when all events so far are durable.
        self.last: Commit[Any] = Commit.of(None)

    @property
    def seed(self) -> bytes:
        found: bytes = self._open().notes[_SEED]
        return found

    def _open(self) -> Log:
        if self._log is None:
            self._engine.create(NAME, _CONFIG)
            self._log = self._engine.log(NAME)
        if _SEED not in self._log.notes:
            self.opened = self._log.note({_SEED: secrets.token_bytes(SEED_BYTES)})
        return self._log

    def load(self) -> dict[str, Subscription]:
        """Rebuild the subscriptions from the events."""
        found: dict[str, Subscription] = {}
        for event in self._read():
            if isinstance(event, MadeEvent):
                if event.id not in found:
                    found[event.id] = Subscription(event)
            elif isinstance(event, RemovedEvent):
                found.pop(event.id, None)
            elif event.id in found:
                found[event.id].apply(event)
        return found

    def _read(self) -> Iterator[Event]:
        if self._log is None:
            return
        after, caught_up = 0, False
        while not caught_up:
            page = self._log.read(after, _PAGE)
            for seq, data in zip(page.seqs, page.data, strict=True):
                try:
                    yield decode(data)
                except msgspec.MsgspecError as error:
                    log.error("skipped the unreadable event %d of %s: %s", seq, NAME, error)
            after, caught_up = page.next_after, page.caught_up

    def write(self, events: Sequence[Event], others: Sequence[Append] = ()) -> Commit[Any]:
        """Append events, in one transaction with the appends to other logs. Raises EngineError if that fails; then
        nothing was written."""
        log, batch = self._open(), Batch([encode(event) for event in events])
        if others:
            commit: Commit[Any] = self._engine.append_all([Append(log, batch), *others])
        else:
            commit = log.append(batch)
        self._events += len(batch)
        self.last = commit
        return commit

    def compact(self, subscriptions: Mapping[str, Subscription]) -> None:
        """Write the current state again and delete the older events, if the log is much longer than the state."""
        if self._events <= COMPACT_EVENTS:
            return
        size = sum(1 + len(subscription.links) for subscription in subscriptions.values())
        if self._events <= COMPACT_RATIO * size:
            return
        # The operation that led to this is complete. If the disk is full, a later operation reports it.
        with suppress(EngineError):
            log = self._open()
            first, self._events = log.next_seq, 0
            for chunk in _chunks(subscriptions.values()):
                self.write(chunk)
            log.delete(before=first)


def _chunks(subscriptions: Iterable[Subscription]) -> Iterator[list[Event]]:
    chunk: list[Event] = []
    for subscription in subscriptions:
        for event in subscription.restate():
            chunk.append(event)
            if len(chunk) == _EVENTS_PER_APPEND:
                yield chunk
                chunk = []
    if chunk:
        yield chunk
