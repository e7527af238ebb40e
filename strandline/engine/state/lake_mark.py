"""The lake mark of a log: the seq up to which the lake has every record that readers see.

A log with ``retain_until_in_lake`` keeps its records until the mark has passed them. Everything that removes records by
itself, by count, bytes or age or because a later record replaces them, asks :func:`removable_through`. Deletion by a
caller does not.

The mark is a note, so it is journaled, and a replay removes the records that were removed before. It is 0 until the
engine's user reports what the lake has, and never later than that report: a record that is restored or amended moves
the mark back, because the lake does not have the record as it is now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from strandline.engine.journal.bodies import Extras, pack
from strandline.engine.record import MAX_SEQ, Config
from strandline.engine.state.notes import NOTHING, changed

if TYPE_CHECKING:
    from strandline.engine.state.logbook import Logbook

#: The name of the note.
NOTE = "lake"


def lake_mark(book: Logbook) -> int:
    return 0 if book.notes is None else book.notes.values.get(NOTE, 0)


def removable_through(book: Logbook) -> int:
    """Return the last seq that retention and compaction may remove."""
    return lake_mark(book) if book.config.retain_until_in_lake else MAX_SEQ


def extras_of(through: int) -> Extras:
    """Return what a frame says that moves the mark."""
    return Extras(notes={NOTE: Raw(pack(through))})


def moves_mark(extras: Extras) -> bool:
    return extras.notes is not None and NOTE in extras.notes


def move_back(book: Logbook, before: int) -> None:
    """Move the mark below a seq, if it is not below it yet."""
    if lake_mark(book) >= before:
        book.notes = changed(book.notes, {NOTE: Raw(pack(before - 1))})


def forget_unless_kept(book: Logbook, config: Config) -> None:
    """Forget the mark unless the log keeps records for the lake both before and after a change of its configuration.
    Nothing maintains it in between."""
    if not (book.config.retain_until_in_lake and config.retain_until_in_lake):
        book.notes = changed(book.notes, {NOTE: Raw(NOTHING)})
