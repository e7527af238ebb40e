"""Appending: check the available space, and wait for the disk where needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from strandline.engine.commit import Commit
from strandline.engine.errors import BatchTooLarge, LogFull
from strandline.engine.operations.journaled import let_expire, publish
from strandline.engine.record import Appended
from strandline.engine.state.block import Block
from strandline.engine.state.forks import earliest_of
from strandline.engine.state.logbook import Logbook

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

T = TypeVar("T")

#: Stands for "no limit": larger than any possible value.
MAX_CAP = 1 << 63


class Usage:
    """The records and bytes that a step will add to logs. Later appends of the step see the space used by earlier
    ones."""

    def __init__(self) -> None:
        self._added: dict[Logbook, tuple[int, int, int]] = {}
        #: The bytes to be added to all logs together.
        self.size = 0

    def next_seq(self, book: Logbook) -> int:
        added = self._added.get(book)
        return book.assigned + 1 if added is None else added[0]

    def check_room(self, book: Logbook, count: int, size: int) -> None:
        _, records, bytes_ = self._added.get(book, (0, 0, 0))
        check_room(book, count, size, records, bytes_)

    def add(self, book: Logbook, last: int, count: int, size: int) -> None:
        _, records, bytes_ = self._added.get(book, (0, 0, 0))
        self._added[book] = last + 1, records + count, bytes_ + size
        self.size += size


def room_of(book: Logbook) -> tuple[int, int]:
    """Return how many records and bytes fit before the log reaches its retention limits."""
    config = book.config
    return (
        (config.cap_records or MAX_CAP) - book.count - book.pending_count,
        (config.cap_bytes or MAX_CAP) - book.size - book.pending_size,
    )


def check_room(book: Logbook, count: int, size: int, records: int = 0, bytes_: int = 0) -> None:
    """Raise if the log rejects appends when full and these records do not fit after ``records`` and ``bytes_`` of
    earlier appends."""
    config = book.config
    if count > (config.cap_records or MAX_CAP) or size > (config.cap_bytes or MAX_CAP):
        raise BatchTooLarge(book.name, count, size, config.cap_records, config.cap_bytes)
    room = room_of(book)
    if count + records > room[0] or size + bytes_ > room[1]:
        raise LogFull(
            book.name,
            config.cap_records,
            config.cap_bytes,
            book.shown,
            earliest_of(book),
            book.count,
            book.size,
        )


def prepare_append(engine: Engine, book: Logbook) -> None:
    """Raise if the log was dropped, and expire old records."""
    book.check_there()
    let_expire(engine, book)


def publish_later(engine: Engine, book: Logbook, block: Block, size: int, result: T) -> Commit[T]:
    """Make the block visible to readers once it is durable. Until then it counts towards the log's size."""

    def make() -> T:
        book.count_pending(-len(block), -size)
        publish(engine, book, block)
        if book.listeners:
            engine.tell(book)
        return result

    book.count_pending(len(block), size)
    return engine.later((book,), result, make)


def after_pending(engine: Engine, book: Logbook, appended: Appended) -> Commit[Appended]:
    """Return a commit for a duplicate. If the original append still waits for the disk or the
    replica, the duplicate waits with it."""
    if not book.pending and not book.held:
        return Commit.of(appended)
    if book.held:
        engine.check_replica(book)
    return engine.later((book,), appended, None)
