"""Changing the notes of a log, with a frame of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strandline.engine.commit import Commit
from strandline.engine.errors import BadRequest
from strandline.engine.journal.bodies import Extras, pack
from strandline.engine.journal.frame import Encoded, FrameType, encode
from strandline.engine.operations.append import after_pending
from strandline.engine.operations.journaled import let_expire
from strandline.engine.record import Appended, Producer
from strandline.engine.state.idempotency import check_extras, find_duplicate
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.notes import check_fits

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


def note(engine: Engine, book: Logbook, changes: Mapping[str, Any], producer: Producer | None) -> Commit[Appended]:
    """See :meth:`Log.note`."""
    if not changes and producer is None:
        raise BadRequest("there is nothing to note")
    extras = check_extras(None, producer, changes)
    assert extras.notes is not None
    with engine.lock:
        engine.check_writable()
        book.check_there()
        now = engine.now()
        duplicate = find_duplicate(book, None, producer, now)
        if duplicate is not None:
            return after_pending(engine, book, duplicate)
        check_fits(book.notes, extras.notes)
        engine.backlog.check_change()
        let_expire(engine, book, now)
        engine.journal.write(note_frame(book, extras, now))
        engine.touch(book)
        appended = book.note(extras, now)
        if book.config.durability != "fsync" and not book.pending:
            engine.flush_in_time()
            engine.tell(book)
            return Commit.of(appended)

        def tell() -> Appended:
            engine.tell(book)
            return appended

        return engine.later((book,), None, tell)


def note_frame(book: Logbook, extras: Extras, now: int) -> Encoded:
    return encode(FrameType.NOTE, book.epoch, book.assigned, now, pack(extras), reserved=book.reserved)
