"""Appending: whether there is room, what waits for the disk, and several logs in one step.

After any crash all of a step is there, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from strandline.engine.block import Block
from strandline.engine.bodies import Extras
from strandline.engine.commit import Commit
from strandline.engine.duplicates import check_extras, find_duplicate
from strandline.engine.errors import BadRequest, BatchTooLarge, LogFull
from strandline.engine.forks import earliest_of
from strandline.engine.frame import MAX_GROUP, Encoded, encode_append
from strandline.engine.journaling import let_expire, publish
from strandline.engine.logbook import Logbook
from strandline.engine.record import Appended, Batch
from strandline.engine.volatile import begin_volatile

if TYPE_CHECKING:
    from strandline.engine.engine import Engine
    from strandline.engine.log import Log

T = TypeVar("T")

#: No cap: more than there can be.
MAX_CAP = 1 << 63


class Append(NamedTuple):
    """What goes into one log; as the arguments of ``Log.append``."""

    log: Log
    batch: Batch
    idempotency_key: str | None = None


class Member(NamedTuple):
    """One append of the step, checked and ready to be made."""

    log: Log
    book: Logbook
    block: Block
    size: int
    extras: Extras | None
    reserved: int


class Usage:
    """What is to be added to logs, before any of it is: later members of a step count on the earlier ones."""

    def __init__(self) -> None:
        self._added: dict[Logbook, tuple[int, int, int]] = {}

    def next_seq(self, book: Logbook) -> int:
        added = self._added.get(book)
        return book.assigned + 1 if added is None else added[0]

    def check_room(self, book: Logbook, count: int, size: int) -> None:
        _, records, bytes_ = self._added.get(book, (0, 0, 0))
        check_room(book, count, size, records, bytes_)

    def add(self, book: Logbook, last: int, count: int, size: int) -> None:
        _, records, bytes_ = self._added.get(book, (0, 0, 0))
        self._added[book] = last + 1, records + count, bytes_ + size


def room_of(book: Logbook) -> tuple[int, int]:
    """How many records and bytes fit before the log is at its caps."""
    config = book.config
    return (
        (config.cap_records or MAX_CAP) - book.count - book.pending_count,
        (config.cap_bytes or MAX_CAP) - book.size - book.pending_size,
    )


def check_room(book: Logbook, count: int, size: int, records: int = 0, bytes_: int = 0) -> None:
    """Raise unless a log that rejects what is over its caps takes this, with ``records`` and ``bytes_`` before it."""
    config = book.config
    if count > (config.cap_records or MAX_CAP) or size > (config.cap_bytes or MAX_CAP):
        raise BatchTooLarge(book.name, count, size, config.cap_records, config.cap_bytes)
    room = room_of(book)
    if count + records > room[0] or size + bytes_ > room[1]:
        raise LogFull(
            book.name,
            config.cap_records,
            config.cap_bytes,
            book.head,
            earliest_of(book),
            book.count,
            book.size,
        )


def prepare_append(engine: Engine, book: Logbook) -> None:
    """Raise if the log is gone, and let time take what is too old."""
    book.check_there()
    let_expire(engine, book)


def publish_later(engine: Engine, book: Logbook, block: Block, size: int, result: T) -> Commit[T]:
    """Let readers see the block once it is durable. Until then it takes room."""

    def make() -> T:
        book.pending_count -= len(block)
        book.pending_size -= size
        publish(engine, book, block)
        if book.listeners:
            engine.tell(book)
        return result

    book.pending_count += len(block)
    book.pending_size += size
    return engine.later((book,), result, make)


def after_pending(engine: Engine, book: Logbook, appended: Appended) -> Commit[Appended]:
    """A duplicate of an append that still waits for the disk must wait with it."""
    if not book.pending:
        return Commit.of(appended)
    return engine.later((book,), appended, None)


def append_all(engine: Engine, appends: Sequence[Append]) -> Commit[list[Appended]]:
    """See :meth:`Engine.append_all`."""
    if len(appends) >= MAX_GROUP:
        raise BadRequest(f"there are {len(appends)} appends, the limit is {MAX_GROUP - 1}")
    checked = []
    for log, batch, key in appends:
        engine.check_own(log)
        size = batch.check(engine.options.max_record_bytes)
        checked.append((log, batch, size, None if key is None else check_extras(key, None)))
    with engine.lock:
        engine.check_writable()
        for log in {id(append.log): append.log for append in appends}.values():
            prepare_append(engine, log.book)
        step = _Step(engine)
        results = [step.plan(*append) for append in checked]
        return step.make(results)


class _Step:
    """The engine's lock is held from the first plan to the end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._now = engine.now()
        self._usage = Usage()
        self._members: list[Member] = []
        self._keys: dict[tuple[int, str], Appended] = {}
        self._waits = False

    def plan(self, log: Log, batch: Batch, size: int, extras: Extras | None) -> Appended:
        """What the append will give. Changes nothing, and raises if it cannot be made."""
        book = log.book
        key = None if extras is None else extras.idempotency_key
        if key is not None:
            duplicate = self._keys.get((book.epoch, key)) or find_duplicate(book, key, None, self._now)
            if duplicate is not None:
                # One that still waits for the disk must wait with it.
                self._waits = self._waits or book.pending > 0
                return duplicate.again()
        if book.config.discard == "reject":
            self._usage.check_room(book, len(batch), size)
        ts = book.time_of(self._now)
        block = Block.of_batch(self._usage.next_seq(book), ts, batch)
        waits, reserved = self._engine.reservations.wanted(book, block.last, len(batch))
        self._waits = self._waits or waits
        self._members.append(Member(log, book, block, size, extras, reserved))
        self._usage.add(book, block.last, len(batch), size)
        appended = Appended(block.first, block.last, ts)
        if key is not None:
            self._keys[book.epoch, key] = appended
        return appended

    def make(self, results: list[Appended]) -> Commit[list[Appended]]:
        engine, now, members = self._engine, self._now, self._members
        self._journal()
        for _, book, block, _, extras, reserved in members:
            engine.touch(book)
            if book.config.durability == "ephemeral":
                begin_volatile(book)
            else:
                engine.reservations.written(book, reserved)
                engine.note_place(book, block.first)
            book.assign(block, block.timestamp(0), extras, now)
        if self._waits:
            for _, book, block, size, _, _ in members:
                book.pending_count += len(block)
                book.pending_size += size
            return engine.later(
                tuple({member.book for member in members}), None, lambda: self._publish_pending(results)
            )
        self._publish()
        engine.flush_in_time()
        return Commit.of(results)

    def _journal(self) -> None:
        engine, now = self._engine, self._now
        frames: list[Encoded] = []
        for _, book, block, _, extras, reserved in self._members:
            if book.config.durability == "ephemeral":
                engine.reservations.write(book, reserved, now)
            else:
                frames.append(encode_append(book.epoch, block, now, reserved, extras))
        if frames:
            engine.journal.write_all(frames)

    def _publish_pending(self, results: list[Appended]) -> list[Appended]:
        for _, book, block, size, _, _ in self._members:
            book.pending_count -= len(block)
            book.pending_size -= size
            self._engine.touch(book)
        self._publish()
        return results

    def _publish(self) -> None:
        for _, book, block, _, _, _ in self._members:
            publish(self._engine, book, block)
        for book in {member.book: None for member in self._members}:
            if book.listeners:
                self._engine.tell(book)
