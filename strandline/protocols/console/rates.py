"""The append rate of each log, measured at a bounded cost.

Periodically, the logs that changed recently are compared with their previous positions. The number of tracked logs is
limited: while more logs change, the busiest stay tracked, and some of the others are picked at random. Appends do no
extra work.
"""

from __future__ import annotations

from heapq import nlargest, nsmallest
from random import Random
from typing import NamedTuple

from strandline.engine import Engine
from strandline.engine.state.logbook import Logbook
from strandline.service.access import Access

#: The maximum number of tracked logs. Measuring one takes about two microseconds.
MAX_KNOWN = 5_000
#: The maximum number of logs that are added per measurement.
MAX_NEW = 2_000
#: How many measurements one point of the recent rates averages, and how many points are kept of a log: two minutes.
POINT_MEASUREMENTS = 5
MAX_POINTS = 24
#: The number of busiest logs in an answer.
BUSIEST = 10


class Rate(NamedTuple):
    """Rates per second."""

    log: str
    appends: float
    bytes: float


class _Mark:
    """The position of a log at the last measurement."""

    __slots__ = ("appends", "book", "head", "recent", "revision", "size", "sum")

    def __init__(self, book: Logbook, is_new: bool) -> None:
        self.book = book
        #: Appends per second at the last measurement.
        self.appends = 0.0
        #: The sum of the rates since the last point, and the points. A point replaces the tuple, because other threads
        #: read it.
        self.sum = 0.0
        self.recent: tuple[float, ...] = ()
        self.note()
        if is_new:
            base = book.base
            self.head, self.size = 0 if base is None else base.through, 0

    def note(self) -> None:
        book = self.book
        self.head, self.size, self.revision = book.head, book.size, book.revision

    def add_point(self) -> None:
        self.recent = (*self.recent[1 - MAX_POINTS :], round(self.sum / POINT_MEASUREMENTS, 1))
        self.sum = 0.0

    def step(self) -> tuple[int, int]:
        """Records and bytes since the last measurement."""
        book = self.book
        records = max(book.head - self.head, 0)
        if not records:
            self.note()
            return 0, 0
        if book.revision == self.revision:
            size = max(book.size - self.size, 0)
        else:
            # Records were removed in between: assume that new records have the average size.
            size = book.size * records // max(book.count, 1)
        self.note()
        return records, size


class Rates:
    """Measured by one thread at a time. Any thread may read the last results."""

    def __init__(self, engine: Engine, max_known: int = MAX_KNOWN, max_new: int = MAX_NEW) -> None:
        self._engine = engine
        self._max_known = max_known
        self._max_new = max_new
        self._marks: dict[int, _Mark] = {}
        self._chance = Random(0)
        self._measured_at: int | None = None
        self._frames = 0
        self._next_epoch = 0
        self._steps = 0
        #: The rates of logs with appends, by name.
        self.now: dict[str, Rate] = {}
        #: The rate of all logs together.
        self.total = Rate("", 0.0, 0.0)

    def of(self, name: str) -> float:
        """Appends per second to a log."""
        rate = self.now.get(name)
        return 0.0 if rate is None else rate.appends

    def recent(self, epoch: int) -> tuple[float, ...]:
        """Appends per second to a log in the last two minutes, oldest first; empty if there were none."""
        mark = self._marks.get(epoch)
        return mark.recent if mark is not None and any(mark.recent) else ()

    def busiest(self, access: Access) -> list[Rate]:
        """The busiest logs that the caller may see."""
        allowed = (rate for rate in self.now.values() if access.may_touch(rate.log))
        return nlargest(BUSIEST, allowed, key=lambda rate: (rate.appends, rate.bytes, rate.log))

    def measure(self, now: int, frames: int) -> None:
        """Measure. ``frames`` is the number of frames that the journal has written so far."""
        seconds = None if self._measured_at is None else (now - self._measured_at) / 1000
        if seconds is not None and seconds <= 0:
            return
        new, everything = self._look_around()
        if seconds is not None:
            self._step(seconds, 0 if everything else frames - self._frames)
        self._forget_some(new)
        self._measured_at, self._frames = now, frames

    def _step(self, seconds: float, least: int) -> None:
        """Measure all tracked logs. All logs together have at least ``least`` new records."""
        found: dict[str, Rate] = {}
        records = size = 0
        self._steps += 1
        for epoch, mark in list(self._marks.items()):
            if mark.book.dropped:
                del self._marks[epoch]
                continue
            step = mark.step()
            mark.appends = step[0] / seconds
            mark.sum += mark.appends
            if self._steps % POINT_MEASUREMENTS == 0:
                mark.add_point()
            if step[0]:
                found[mark.book.name] = Rate(mark.book.name, mark.appends, step[1] / seconds)
                records, size = records + step[0], size + step[1]
        self.now = found
        self.total = Rate("", max(records, least) / seconds, size / seconds)

    def _look_around(self) -> tuple[set[int], bool]:
        """Start tracking logs that changed. Returns their epochs, and whether all changed logs are tracked now. For
        untracked logs, the only known fact is that every frame of the journal contains at least one record."""
        unknown = [
            book
            for book in self._engine.changed_lately()
            if book.epoch not in self._marks and not book.dropped and book.name[0] != "_"
        ]
        everything = len(unknown) <= self._max_new
        if not everything:
            unknown = self._chance.sample(unknown, self._max_new)
        new = set[int]()
        for book in unknown:
            # A log that was created since the last measurement started at a known position.
            is_new = self._measured_at is not None and book.epoch >= self._next_epoch
            self._marks[book.epoch] = _Mark(book, is_new)
            new.add(book.epoch)
        self._next_epoch = self._engine.next_epoch
        return new, everything

    def _forget_some(self, new: set[int]) -> None:
        """Stop tracking the least busy logs if there are too many, except those that were never measured."""
        excess = len(self._marks) - self._max_known
        if excess > 0:
            known = [(mark.appends, epoch) for epoch, mark in self._marks.items() if epoch not in new]
            for _, epoch in nsmallest(excess, known):
                del self._marks[epoch]
