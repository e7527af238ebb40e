"""The backlog: the part of the journal that is not sealed yet, and its budget.

Unsealed records are in memory, and a start replays them. The budget therefore bounds the memory of a server, the memory
for sealing, and the duration of a start. Appends that would exceed the budget are refused before anything is written.
Changes that free space, and the bookkeeping of queues and routers, may use a reserve on top of the budget.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.engine.errors import BatchTooLarge, SealingBehind
from strandline.engine.journal.file import Journal
from strandline.engine.process import memory_limit
from strandline.engine.record import is_internal
from strandline.engine.state.logbook import Logbook

#: The budget is the memory divided by this number. At the limit, the records take 1.3 times the budget in the server,
#: and the sealing worker takes the same again, so both together stay well below half of the memory.
MEMORY_SHARE = 8
#: A smaller budget would make segments so small that merging them costs more than sealing.
MIN_DEFAULT_BYTES = 64 << 20
#: A larger budget would only make a start slower: a larger burst outruns sealing anyway.
MAX_DEFAULT_BYTES = 512 << 20
#: The reserve for deletes, acknowledgements and bookkeeping is the budget divided by this number. Each takes a few
#: hundred bytes.
RESERVE_SHARE = 8
#: A round begins at the latest when the backlog reaches the budget divided by this number. The rest of the budget fills
#: up during the round.
ROUND_SHARE = 4
#: Forwarded records are in the journal once and in the tails of many logs. The tails may hold at most this many times
#: the budget.
MAX_COPIED = 4


def default_budget() -> int:
    """Return the budget if the settings do not specify one."""
    return min(max(memory_limit() // MEMORY_SHARE, MIN_DEFAULT_BYTES), MAX_DEFAULT_BYTES)


class Backlog:
    """Measures the backlog in positions: bytes written to the journal since it was opened. Replayed records have
    positions below 0. Changes require the engine's lock; any thread may read the numbers."""

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
        #: Whether a round is due whatever the size: an append was refused that may fit once everything is sealed, or
        #: something else waits for it.
        self.round_wanted = False
        #: The number of refused changes.
        self.refused = 0

    @property
    def size(self) -> int:
        """The unsealed bytes, including those being sealed."""
        return self._journal.written - self._sealed

    @property
    def copied(self) -> int:
        """The bytes of unsealed records that the journal refers to instead of containing them again."""
        return self._journal.copied - self._copies_sealed

    @property
    def share(self) -> float:
        """How full the budget is: 1.0 is full, and the reserve is on top of it."""
        return max(self.size / self.budget, self.copied / (MAX_COPIED * self.budget))

    def check(self, book: Logbook, count: int, size: int, *, frees: bool = False) -> None:
        """Raise unless this many records and bytes can be appended to the log.

        ``frees``: the append is part of a step that removes records.
        """
        position = self._journal.written + size
        if position <= self.limit:
            return
        # The server's own bookkeeping must continue: acknowledgements are written to these logs.
        if (frees or is_internal(book.name)) and position <= self.limit + self.reserve:
            return
        if size > self.budget:
            raise BatchTooLarge(book.name, count, size, 0, self.budget)
        self._refuse()

    def check_change(self) -> None:
        """Raise unless a small change other than an append can be written."""
        if self._journal.written > self.limit + self.reserve:
            self._refuse()

    def check_copies(self) -> None:
        """Raise unless records can be forwarded."""
        if self._journal.written > self.limit or self.copied > MAX_COPIED * self.budget:
            self._refuse()

    def _refuse(self) -> None:
        self.refused += 1
        self.want_round()
        raise SealingBehind(self.size, self.budget)

    def want_round(self) -> None:
        """Have everything sealed that is in the journal now, however little."""
        self.round_wanted = True
        self._wake()

    def mark(self) -> tuple[int, int]:
        """Return the end of the journal, for ``sealed``."""
        return self._journal.written, self._journal.copied

    def sealed(self, mark: tuple[int, int]) -> None:
        """Record that everything before the mark is sealed and no longer in memory."""
        self._sealed, self._copies_sealed = mark
        self.limit = self._sealed + self.budget
