"""A change of a log is journaled first, and then made. What caps and time take meanwhile is written down as well."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError
from strandline.engine.journal.bodies import Floor, Select, pack
from strandline.engine.journal.frame import FrameType, encode
from strandline.engine.state.block import Block
from strandline.engine.state.forks import chain
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.retention import expire, is_stale
from strandline.engine.state.volatile import has_durable

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

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
    """Journal a change and make it: at once, or on a ``fsync`` log, or if it must wait, when it is durable.

    ``erased``, if those are to be told who keep copies, is called after ``body`` and tells which records are meant.
    """
    with engine.lock:
        engine.check_writable()
        book.check_there()
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
        if book.config.durability == "fsync" or book.pending or must_wait:
            commit = engine.later((book,), None, lambda: evicting(engine, book, make))
            engine.erasures.publish(events)
            return commit
        engine.erasures.publish(events)
        engine.flush_in_time()
        return Commit.of(evicting(engine, book, make))


def publish(engine: Engine, book: Logbook, block: Block) -> None:
    """Let readers see the block."""
    if book.config.durability == "ephemeral":
        evicting(engine, book, lambda: book.publish(block, engine.store))
    else:
        book.publish(block, engine.store)


def evicting(engine: Engine, book: Logbook, make: Callable[[], T]) -> T:
    """Make a change that may evict records. Replaying does the same by itself, except on an ephemeral log."""
    floor, had_durable = book.evict_floor, has_durable(book)
    result = make()
    if book.config.durability == "ephemeral" and had_durable and book.evict_floor > floor:
        _write_floors(engine, book, engine.now())
    return result


def let_expire(engine: Engine, book: Logbook, now: int | None = None) -> None:
    """Let time take what is too old, and write down that it did: a clock set back must not bring it again."""
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
    """As ``let_expire``, of everything that readers of the log see: a fork shares records with other logs."""
    for part in chain(book):
        let_expire(engine, part)


def _write_floors(engine: Engine, book: Logbook, now: int) -> None:
    body = pack(Floor(book.ttl_floor, book.cap_floor))
    # A reader must not fail because the disk is full: the next start lets time take it again.
    with suppress(EngineError):
        engine.journal.write(encode(FrameType.FLOOR, book.epoch, book.assigned, now, body, reserved=book.reserved))
        engine.flush_in_time()
