"""The backlog: what is in the journal and not sealed yet, and how much that may be.

Unsealed records are in memory, and a start replays them. So the budget bounds the memory of a server, the memory that
sealing takes, and the time that a start takes. Appends that would exceed the budget are refused before anything is
written. What frees space, or is the bookkeeping of queues and routers, may use a reserve on top of the budget.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.engine.errors import BatchTooLarge, SealingBehind
from strandline.engine.journal.file import Journal
from strandline.engine.process import memory_limit
from strandline.engine.record import is_internal
from strandline.engine.state.logbook import Logbook

#: The budget is this part of the memory: at the bound, the records take 1.3 times the budget in the server, and the
#: sealing worker takes as much again, so both together stay well below half of the memory.
MEMORY_SHARE = 8
#: Less would make segments so small that merging them costs more than sealing.
MIN_DEFAULT_BYTES = 64 << 20
#: More would only make a start slower: a burst that is larger than this outruns sealing anyway.
MAX_DEFAULT_BYTES = 512 << 20
#: The part of the budget that is added for deletes, acks and bookkeeping. They take some hundred bytes each.
RESERVE_SHARE = 8
#: A round begins at this part of the budget at the latest: the rest of it fills up while the round runs.
ROUND_SHARE = 4
#: Forwarded records are in the journal once and in the tails of many logs: at most this many times the budget.
MAX_COPIED = 4


def default_budget() -> int:
    """The budget where the settings name none."""
    return min(max(memory_limit() // MEMORY_SHARE, MIN_DEFAULT_BYTES), MAX_DEFAULT_BYTES)


class Backlog:
    """Positions count the bytes that were written to the journal since it was opened, so what was replayed at the start
    lies before 0. The engine's lock is held around every change; anyone may read the numbers.
    """

    def __init__(self, journal: Journal, budget: int, replayed: int, copied: int, wake: Callable[[], object]) -> None:
        self._journal = journal
        self._wake = wake
        self.budget = budget
        self.reserve = budget // RESERVE_SHARE
        #: Everything before these positions is sealed.
        self._sealed = -replayed
        self._copies_sealed = -copied
        #: Appends may be written up to this position.
        self.limit = self._sealed + budget
        #: Something was refused that may fit once everything is sealed.
        self.round_wanted = False
        #: The number of changes that were refused.
        self.refused = 0

    @property
    def size(self) -> int:
        """The bytes that are not sealed yet, those included that are being sealed."""
        return self._journal.written - self._sealed

    @property
    def copied(self) -> int:
        """The bytes of unsealed records that the journal refers to instead of holding them once more."""
        return self._journal.copied - self._copies_sealed

    @property
    def share(self) -> float:
        """How full the budget is: 1.0 is all of it, and the reserve comes on top."""
        return max(self.size / self.budget, self.copied / (MAX_COPIED * self.budget))

    def check(self, book: Logbook, count: int, size: int, *, frees: bool = False) -> None:
        """Raise unless this many records and bytes can be appended to the log.

        ``frees``: they belong to a step that removes records.
        """
        position = self._journal.written + size
        if position <= self.limit:
            return
        # Its own bookkeeping must go on: acks end up in such a log.
        if (frees or is_internal(book.name)) and position <= self.limit + self.reserve:
            return
        if size > self.budget:
            raise BatchTooLarge(book.name, count, size, 0, self.budget)
        self._refuse()

    def check_change(self) -> None:
        """Raise unless something small can be written that is no append."""
        if self._journal.written > self.limit + self.reserve:
            self._refuse()

    def check_copies(self) -> None:
        """Raise unless records can be forwarded."""
        if self._journal.written > self.limit or self.copied > MAX_COPIED * self.budget:
            self._refuse()

    def _refuse(self) -> None:
        self.refused += 1
        self.round_wanted = True
        self._wake()
        raise SealingBehind(self.size, self.budget)

    def mark(self) -> tuple[int, int]:
        """The end of the journal, for ``sealed``."""
        return self._journal.written, self._journal.copied

    def sealed(self, mark: tuple[int, int]) -> None:
        """Everything before the mark is sealed, and no longer in memory."""
        self._sealed, self._copies_sealed = mark
        self.limit = self._sealed + self.budget
