"""Which records came back or were changed, and after which erasure: what was indexed of them before is not so any more.

Records that were taken away are another matter: what still stands is known in memory. The log of erasures tells of all
that happens on purpose, also from before a restart.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import NamedTuple

from msgspec import DecodeError

from strandline.engine import Engine, Log
from strandline.engine.erasures import NAME, Erasure, read_erasure
from strandline.engine.forks import layers
from strandline.engine.standing import rewrites_of

_BATCH = 4096
_REWRITES = ("restore", "amend")


class Rewritten(NamedTuple):
    """What an event concerns: records from ``first`` to ``last``, of them those in ``seqs`` (ascending) if given."""

    event: int
    first: int
    last: int
    seqs: tuple[int, ...] | None

    def touches(self, first: int, last: int) -> bool:
        first, last = max(first, self.first), min(last, self.last)
        if first > last or self.seqs is None:
            return first <= last
        at = bisect_left(self.seqs, first)
        return at < len(self.seqs) and self.seqs[at] <= last


class Rewriting:
    """The events of one engine that rewrite records, from some seq of the log of erasures on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._begin: int | None = None
        self._through = 0
        self._events: dict[int, list[Rewritten]] = {}
        self._rewrites: dict[int, int] = {}

    def since(self, log: Log, mark: int) -> list[Rewritten] | None:
        """What was rewritten of the records that readers of the log see, by events behind ``mark``. None: that cannot
        be told any more."""
        events = self._engine.find(NAME)
        if events is None:
            return []
        with self._lock:
            if self._begin is None or mark < self._begin:
                self._begin = self._through = mark
                self._events.clear()
            rewrites = rewrites_of(log)
            if self._rewrites.get(log.epoch) != rewrites:
                # An event shows when it is durable; the change it tells of may be seen before.
                events.sync().wait()
                self._rewrites[log.epoch] = rewrites
            if events.state().evict_floor > mark + 1:
                return None
            self._read(events)
            with log.engine.lock:
                shown = layers(log.book)
            return [
                event._replace(first=max(event.first, first), last=min(event.last, last))
                for book, first, last in shown
                for event in self._events.get(book.epoch, ())
                if event.event > mark
            ]

    def forget_before(self, mark: int) -> None:
        """Nobody will ask for what happened up to ``mark``."""
        with self._lock:
            if self._begin is not None and self._begin < mark <= self._through:
                self._begin = mark
                for epoch, found in list(self._events.items()):
                    self._events[epoch] = [event for event in found if event.event > mark]

    def _read(self, events: Log) -> None:
        while self._through < events.head:
            page = events.read(self._through, _BATCH)
            for seq, data in zip(page.seqs, page.data, strict=True):
                try:
                    event = read_erasure(data)
                except DecodeError:
                    continue
                if event.kind in _REWRITES:
                    self._events.setdefault(event.epoch, []).append(_concerned(seq, event))
            self._through = page.next_after


def _concerned(seq: int, event: Erasure) -> Rewritten:
    last = event.bound if event.before is None else min(event.bound, event.before - 1)
    return Rewritten(seq, 1, last, None if event.seqs is None else tuple(sorted(event.seqs)))
