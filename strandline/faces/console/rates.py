"""How much is appended to which log, per second: measured from outside, at a cost that has a bound.

Every now and then it is looked at the logs that have changed lately, and compared with how far they had come. Only so
many logs are known at a time, those first that were appended to last; while more than that change, the others are
looked at in turns. Nothing is added to what an append does.
"""

from __future__ import annotations

from heapq import nlargest
from typing import NamedTuple

from strandline.engine import Engine, Log
from strandline.faces.access import Access

#: Logs that are known at a time. Looking at one takes about half a microsecond.
MAX_KNOWN = 10_000
#: Logs that are looked for at a time, beside those.
WINDOW = 5_000
#: So many are told of.
BUSIEST = 10


class Rate(NamedTuple):
    """Per second."""

    log: str
    appends: float
    bytes: float


class _Mark:
    """How far a log had come."""

    __slots__ = ("head", "log", "revision", "size")

    def __init__(self, log: Log, is_new: bool) -> None:
        self.log = log
        self.note()
        if is_new:
            base = log.book.base
            self.head, self.size = 0 if base is None else base.through, 0

    def note(self) -> None:
        book = self.log.book
        self.head, self.size, self.revision = book.head, book.size, book.revision

    def step(self) -> tuple[int, int]:
        """Records and bytes since the last time."""
        book = self.log.book
        records = max(book.head - self.head, 0)
        if not records:
            self.note()
            return 0, 0
        if book.revision == self.revision:
            size = max(book.size - self.size, 0)
        else:
            # Some have gone meanwhile: the new ones are taken for as large as those that are there.
            size = book.size * records // max(book.count, 1)
        self.note()
        return records, size


class Rates:
    """Used by one thread at a time; what was measured last may be read by any."""

    def __init__(self, engine: Engine, max_known: int = MAX_KNOWN, window: int = WINDOW) -> None:
        self._engine = engine
        self._max_known = max_known
        self._window = window
        self._marks: dict[int, _Mark] = {}
        self._start = 0
        self._measured_at: int | None = None
        self._frames = 0
        self._next_epoch = engine.next_epoch
        #: By name, of those that were appended to.
        self.now: dict[str, Rate] = {}
        #: Of all logs together.
        self.total = Rate("", 0.0, 0.0)

    def of(self, name: str) -> float:
        """Appends per second to a log."""
        rate = self.now.get(name)
        return 0.0 if rate is None else rate.appends

    def busiest(self, access: Access) -> list[Rate]:
        """Of the logs that somebody may know of."""
        allowed = (rate for rate in self.now.values() if access.may_touch(rate.log))
        return nlargest(BUSIEST, allowed, key=lambda rate: (rate.appends, rate.bytes, rate.log))

    def measure(self, now: int, frames: int) -> None:
        """Look again. ``frames`` is how many the journal has written so far."""
        seconds = None if self._measured_at is None else (now - self._measured_at) / 1000
        if seconds is not None and seconds <= 0:
            return
        everything = self._look_around()
        found: dict[str, Rate] = {}
        records = size = 0
        for epoch, mark in list(self._marks.items()):
            if mark.log.dropped:
                del self._marks[epoch]
                continue
            step = mark.step()
            if step[0] and seconds is not None:
                # Those that were appended to last are forgotten last.
                del self._marks[epoch]
                self._marks[epoch] = mark
                found[mark.log.name] = Rate(mark.log.name, step[0] / seconds, step[1] / seconds)
                records, size = records + step[0], size + step[1]
        if seconds is not None:
            if not everything:
                # Of the logs that are not known it can be said only that every frame has at least a record.
                records = max(records, frames - self._frames)
            self.total = Rate("", records / seconds, size / seconds)
        self.now = found
        self._measured_at, self._frames = now, frames

    def _look_around(self) -> bool:
        """Get to know logs that have changed; whether all of those are known now."""
        logs = self._engine.some_unsealed(self._start, self._window)
        everything = self._start == 0 and len(logs) < self._window
        self._start = self._start + self._window if len(logs) == self._window else 0
        for log in logs:
            if log.epoch not in self._marks and not log.dropped and not log.name.startswith("_"):
                # Of a log that is new since the last time it is known where it began.
                self._marks[log.epoch] = _Mark(log, log.epoch >= self._next_epoch)
        self._next_epoch = self._engine.next_epoch
        for epoch in list(self._marks)[: max(len(self._marks) - self._max_known, 0)]:
            del self._marks[epoch]
        return everything
