"""Reservations: no crash may make a seq be handed out twice.

On a ``fsync`` log the flush before the acknowledgement sees to that. The others are acknowledged before the flush, so
the journal says ahead of time up to where their seqs may have been handed out. Only an append beyond what is durably
reserved has to wait. After a power cut the seqs up to the reservation are a gap that readers are told of.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, takewhile

from strandline.engine.journal.file import Journal
from strandline.engine.journal.frame import FrameType, encode
from strandline.engine.record import Durability
from strandline.engine.state.logbook import Logbook

#: Seqs that a log may hand out before the next flush says so durably; doubled whenever they ran out.
MIN_RESERVE = 256
MAX_RESERVE = 1 << 20
#: An ephemeral log writes nothing else, so it reserves in larger steps.
EPHEMERAL_RESERVE = 1 << 16
#: Quiet logs whose reservations are taken back in one go, while the engine's lock is held.
SETTLE_AT_ONCE = 1000


class Reservations:
    """The engine's lock is held around everything in here."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        #: What the frames written since the last flush began say.
        self._written: dict[Logbook, int] = {}
        #: Logs with a durable reservation, those that have been quiet for longest in front.
        self._unsettled: dict[Logbook, None] = {}

    def wanted(self, book: Logbook, last: int, count: int) -> tuple[bool, int]:
        """Whether an append of ``count`` records up to ``last`` must wait for the flush, and what it is to reserve."""
        durability = book.config.durability
        if durability == "fsync":
            return True, last
        waits = last > book.reserved_durable or book.pending > 0
        if not waits and last + (book.reserve_step >> 1) <= book.reserved and book.reserve_step >= 4 * count:
            # As below, for nearly every append.
            return False, book.reserved
        step = max(book.reserve_step, _minimum(durability), 4 * count)
        if waits and not book.pending:
            # They ran out before a flush came by; the first one that has to wait for it sees to that.
            step = min(2 * step, max(MAX_RESERVE, 4 * count))
        if last + step // 2 <= book.reserved:
            return waits, book.reserved
        book.reserve_step = step
        return waits, last + step

    def after(self, book: Logbook, durability: Durability) -> int:
        """What a configuration with this class is to reserve."""
        if durability == "fsync":
            return book.assigned
        return max(book.reserved, book.assigned + _minimum(durability))

    def written(self, book: Logbook, reserved: int) -> None:
        """A frame that says so is in the journal."""
        book.reserved = reserved
        self._written[book] = reserved

    def write(self, book: Logbook, reserved: int, now: int) -> None:
        """Say so in a frame of its own, unless it was said before."""
        if reserved != book.reserved:
            self._journal.write(encode(FrameType.RESERVE, book.epoch, book.assigned, now, reserved=reserved))
            self.written(book, reserved)

    def begin_flush(self) -> dict[Logbook, int]:
        """What will be durable when the flush that begins now is done."""
        written, self._written = self._written, {}
        return written

    def flushed(self, written: dict[Logbook, int]) -> None:
        for book, reserved in written.items():
            book.reserved_durable = min(reserved, book.reserved)
            # To the end: those in front have been quiet for longest.
            self._unsettled.pop(book, None)
            self._unsettled[book] = None

    def settle(self, now: int, quiet_since: int | None, touch: Callable[[Logbook], None]) -> bool:
        """Take back the reservations of logs without an append since then (None: of all): a crash leaves no gap there.

        Tells whether anything was written.
        """
        quiet = takewhile(lambda book: quiet_since is None or book.active_ts <= quiet_since, self._unsettled)
        books = list(quiet if quiet_since is None else islice(quiet, SETTLE_AT_ONCE))
        for book in books:
            if not (book.dropped or book.reserved <= book.assigned or book.pending):
                self._journal.write(encode(FrameType.RESERVE, book.epoch, book.assigned, now, reserved=book.assigned))
                touch(book)
                book.reserved = book.reserved_durable = book.assigned
                book.reserve_step = 0
            del self._unsettled[book]
        return bool(books)


def _minimum(durability: Durability) -> int:
    return EPHEMERAL_RESERVE if durability == "ephemeral" else MIN_RESERVE
