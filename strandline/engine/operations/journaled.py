"""Journal a change before applying it, and record what retention removes in the meantime.

Records of an ephemeral log are only in memory. A log can become ephemeral and later durable again. Its older records
stay durable, and changes to them are journaled. The volatile records are written when the log becomes durable again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError
from strandline.engine.journal.bodies import Floor, Select, pack
from strandline.engine.journal.frame import Encoded, FrameType, encode, encode_append
from strandline.engine.record import FLUSHED
from strandline.engine.state.block import Block
from strandline.engine.state.checkpoints import BookState, state_frame
from strandline.engine.state.forks import chain
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Overlay
from strandline.engine.state.retention import expire, is_stale

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


def begin_volatile(book: Logbook) -> None:
    """Keep all records assigned from now on in memory only."""
    if not book.volatile_from:
        book.volatile_from = book.assigned + 1
        if book.tail is not None:
            book.tail.join_no_further()


def has_durable(book: Logbook) -> bool:
    """Return whether the log has records that survive a restart."""
    return book.config.durability != "ephemeral" or book.earliest < (book.volatile_from or book.assigned + 1)


def frames_of_volatile(book: Logbook, now: int) -> list[Encoded]:
    """Return the frames to write when a log stops being ephemeral: its records and its state."""
    tail, epoch = book.tail, book.epoch
    frames: list[Encoded] = []
    if book.volatile_from and tail is not None:
        first, last, taken, overlay = book.volatile_from, tail.last, book.reserved, tail.overlay or Overlay()
        frames += [
            encode_append(epoch, block.cut(low - block.first, high - block.first + 1), now, taken, None)
            for block in tail.uniform_blocks(first)
            for low, high in overlay.dead.gaps(block.first, block.last)
        ]
        hidden = [seq for low, high in overlay.hidden.overlap(first, last) for seq in range(low, high + 1)]
        if hidden:
            frames.append(encode(FrameType.HIDE, epoch, 0, now, pack(Select(last, seqs=hidden)), reserved=taken))
        amended = [(seq, data) for seq, data in overlay.amended.items() if seq >= first]
        frames += [encode(FrameType.AMEND, epoch, seq, now, data) for seq, data in amended]
    return [*frames, state_frame(epoch, BookState.of(book), now)]


T = TypeVar("T")


def change(
    engine: Engine,
    book: Logbook,
    type: FrameType,
    body: Callable[[], bytes],
    make: Callable[[], T],
    first: int | None = None,
    must_wait: bool = False,
    erased: Callable[[], Select] | None = None,
) -> Commit[T]:
    """Journal a change and apply it. On a ``fsync`` log, or with ``must_wait``, it is applied when it is durable,
    otherwise immediately.

    ``erased``, if given, is called after ``body`` and returns the selected records for an erasure event.
    """
    with engine.lock:
        engine.check_writable()
        book.check_there()
        engine.check_replica(book)
        engine.backlog.check_change()
        now = engine.now()
        let_expire(engine, book, now)
        if (
            book.config.durability != "ephemeral"
            or type is FrameType.CURSOR
            or (type is not FrameType.GAP and has_durable(book))
        ):
            at = book.assigned if first is None else first
            frame = encode(type, book.epoch, at, now, body(), reserved=book.reserved)
        else:
            body()
            frame = None
        events = None
        if erased is not None:
            events = engine.erasures.write([] if frame is None else [frame], [(book, type, erased())], now)
        elif frame is not None:
            engine.journal.write(frame)
        engine.touch(book)
        if book.config.durability in FLUSHED or book.pending or book.held or must_wait:
            commit = engine.later((book,), None, lambda: evicting(engine, book, make))
            engine.erasures.publish(events)
            return commit
        engine.erasures.publish(events)
        engine.flush_in_time()
        return Commit.of(evicting(engine, book, make))


def publish(engine: Engine, book: Logbook, block: Block) -> None:
    """Make the block visible to readers."""
    if book.config.durability == "ephemeral":
        evicting(engine, book, lambda: book.publish(block, engine.store))
    else:
        book.publish(block, engine.store)


def evicting(engine: Engine, book: Logbook, make: Callable[[], T]) -> T:
    """Make a change that may evict records. A replay evicts the same records, so only ephemeral logs journal the
    eviction."""
    floor, had_durable = book.evict_floor, has_durable(book)
    result = make()
    if book.config.durability == "ephemeral" and had_durable and book.evict_floor > floor:
        _write_floors(engine, book, engine.now())
    return result


def let_expire(engine: Engine, book: Logbook, now: int | None = None) -> None:
    """Expire old records and journal it, so that a clock that is set back does not make them visible again."""
    if not book.config.ttl_ms:
        return
    if now is None:
        now = engine.now()
    if not is_stale(book, now):
        return
    engine.touch(book)
    had_durable = has_durable(book)
    if expire(book, now, engine.store) and had_durable and engine.writable:
        _write_floors(engine, book, now)


def let_all_expire(engine: Engine, book: Logbook) -> None:
    """Like ``let_expire``, for everything that readers of the log see: a fork shares records with other logs."""
    for part in chain(book):
        let_expire(engine, part)


def _write_floors(engine: Engine, book: Logbook, now: int) -> None:
    body = pack(Floor(book.ttl_floor, book.cap_floor))
    # A read must not fail because the disk is full. The next start expires the records again.
    with suppress(EngineError):
        engine.journal.write(encode(FrameType.FLOOR, book.epoch, book.assigned, now, body, reserved=book.reserved))
        engine.flush_in_time()
