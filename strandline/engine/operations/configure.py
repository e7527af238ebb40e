"""Giving a log another configuration: what it holds is kept by the rules it was written under until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.engine.commit import Commit
from strandline.engine.journal.bodies import Configure, pack
from strandline.engine.journal.frame import Encoded, FrameType, encode
from strandline.engine.operations.journaled import evicting, let_expire
from strandline.engine.record import Config, LogState
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.retention import evict_over_caps
from strandline.engine.state.volatile import frames_of_volatile

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


def configure(engine: Engine, book: Logbook, config: Config) -> Commit[LogState]:
    """See :meth:`Log.configure`."""
    while True:
        with engine.lock:
            engine.check_writable()
            book.check_there()
            if not book.pending:
                return _configure(engine, book, config)
        engine.flush()


def _configure(engine: Engine, book: Logbook, config: Config) -> Commit[LogState]:
    now = engine.now()
    let_expire(engine, book, now)
    ceases = book.config.durability == "ephemeral" != config.durability
    for frame in frames_of_volatile(book, now) if ceases else ():
        engine.journal.write(frame)
    engine.touch(book)
    reserved = engine.reservations.after(book, config.durability)
    engine.journal.write(config_frame(book, config, now, reserved))
    engine.reservations.written(book, reserved)
    if config.durability != "ephemeral":
        book.volatile_from = 0
    # What was volatile is written anew: nothing from before is to be referred to.
    book.journal_index = 0
    if book.tail is not None:
        book.tail.join_no_further()
    book.totals.count(book.config.durability, -1)
    book.totals.count(config.durability, 1)
    book.config = config
    engine.note_compaction(book)
    evicting(engine, book, lambda: evict_over_caps(book, engine.store))
    let_expire(engine, book, now)
    return engine.later((book,), book.state(), None)


def config_frame(book: Logbook, config: Config, now: int, reserved: int) -> Encoded:
    """Also what makes a log that is new."""
    body = pack(Configure(book.name, config, None if book.base is None else book.base.point))
    return encode(FrameType.CONFIGURE, book.epoch, book.assigned, now, body, reserved=reserved)
