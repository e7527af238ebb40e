"""Reservations prevent a crash from causing a seq to be assigned twice.

A ``fsync`` or ``replicated`` log is flushed before each acknowledgement, so it needs no reservation. Other logs
acknowledge before the flush, so the journal records in advance up to which seq they may have assigned. Only an append
beyond the durable reservation has to wait. After a power cut, the seqs up to the reservation become a gap, and readers
get a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, takewhile

from strandline.engine.journal.file import Journal
from strandline.engine.journal.frame import FrameType, encode
from strandline.engine.record import FLUSHED, Durability
from strandline.engine.state.logbook import Logbook

#: The number of seqs that a log may assign before the next flush extends the reservation. It doubles whenever it runs
#: out.
MIN_RESERVE = 256
MAX_RESERVE = 1 << 20
#: An ephemeral log writes nothing else, so it reserves in larger steps.
EPHEMERAL_RESERVE = 1 << 16
#: The number of idle logs whose reservations are released each time the engine's lock is taken.
SETTLE_AT_ONCE = 1000


class Reservations:
    """The reservations of all logs. The caller holds the engine's lock."""

    def __init__(self, journal: Journal, check_replica: Callable[[Logbook], None]) -> None:
        """``check_replica`` raises if a log of the durability ``replicated`` cannot accept an append now."""
        self._journal = journal
        self.check_replica = check_replica
        #: The reservations in frames written since the last flush began.
        self._written: dict[Logbook, int] = {}
        #: Logs with a durable reservation, the longest idle first.
        self._unsettled: dict[Logbook, None] = {}

    def wanted(self, book: Logbook, last: int, count: int) -> tuple[bool, int]:
        """Return whether an append of ``count`` records up to ``last`` must wait for the flush, and the reservation it
        writes."""
        durability = book.config.durability
        if durability == "fsync":
            return True, last
        if durability == "replicated":
            self.check_replica(book)
            return True, last
        waits = last > book.reserved_durable or book.pending > 0 or book.held > 0
        if not waits and last + (book.reserve_step >> 1) <= book.reserved and book.reserve_step >= 4 * count:
            # The same result as below, for nearly every append.
            return False, book.reserved
        step = max(book.reserve_step, _minimum(durability), 4 * count)
        if waits and not book.pending and not book.held:
            # The reservation ran out before a flush. The first append that has to wait doubles the step.
            step = min(2 * step, max(MAX_RESERVE, 4 * count))
        if last + step // 2 <= book.reserved:
            return waits, book.reserved
        book.reserve_step = step
        return waits, last + step

    def after(self, book: Logbook, durability: Durability) -> int:
        """Return the reservation to write with a configuration of this durability."""
        if durability in FLUSHED:
            return book.assigned
        return max(book.reserved, book.assigned + _minimum(durability))

    def written(self, book: Logbook, reserved: int) -> None:
        """Note that a frame with this reservation is in the journal."""
        book.reserved = reserved
        self._written[book] = reserved

    def write(self, book: Logbook, reserved: int, now: int) -> None:
        """Write the reservation in its own frame, unless it is already in the journal."""
        if reserved != book.reserved:
            self._journal.write(encode(FrameType.RESERVE, book.epoch, book.assigned, now, reserved=reserved))
            self.written(book, reserved)

    def begin_flush(self) -> dict[Logbook, int]:
        """Return the reservations that will be durable after the flush that begins now."""
        written, self._written = self._written, {}
        return written

    def flushed(self, written: dict[Logbook, int]) -> None:
        for book, reserved in written.items():
            book.reserved_durable = min(reserved, book.reserved)
            # Move to the end: the longest idle logs are first.
            self._unsettled.pop(book, None)
            self._unsettled[book] = None

    def settle(self, now: int, quiet_since: int | None, touch: Callable[[Logbook], None]) -> bool:
        """Release the reservations of logs without an append since ``quiet_since`` (None: of all logs), so that a crash
        leaves no gap.

        Returns whether anything was written.
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
