"""A log as readers see it at one moment, for scans without the engine's lock; and reads of hidden records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from strandline.engine.errors import MissingFile
from strandline.engine.reads.page import read_parts
from strandline.engine.record import Page, Record
from strandline.engine.segments.store import UnknownSegment
from strandline.engine.state.forks import chain, earliest_of, layers, revision_of
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Part, Piece, Run, Segments, Tail

if TYPE_CHECKING:
    from strandline.engine.engine import Engine
    from strandline.engine.log import Log

T = TypeVar("T")


class SealedView(NamedTuple):
    """A run, and its visible seqs; None means all."""

    run: Run
    visible: Sequence[tuple[int, int]] | None


class LogView(NamedTuple):
    """The locations of the records of a log, ascending: sealed runs, and pieces of tails, whose blocks do not change.
    ``revision`` is as in :class:`Log`, ``rewrites`` as in :class:`~strandline.engine.reads.status.LiveRanges`."""

    revision: int
    rewrites: int
    earliest: int
    head: int
    parts: list[SealedView | Piece]

    @property
    def sealed(self) -> list[SealedView]:
        return [part for part in self.parts if isinstance(part, SealedView)]

    @property
    def tail(self) -> list[Piece]:
        return [part for part in self.parts if not isinstance(part, SealedView)]


def view_of(log: Log, *, own: bool = False) -> LogView:
    """Return the current view of a log. With ``own``, omit the records that a fork shares with its source."""
    _ = log.revision  # expires old records
    parts: list[SealedView | Piece] = []
    with log.engine.lock:
        book = log.book
        book.check_there()
        shown = layers(book)[-1:] if own else layers(book)
        for part_book, first, last in shown:
            first = max(first, part_book.earliest)
            for part in part_book.parts():
                if part.last < first or part.first > last:
                    continue
                if isinstance(part, Tail):
                    parts.extend(part.visible(first, last, log.engine.store))
                elif isinstance(part, Run) and part.key_first is not None:
                    parts.append(SealedView(part, _visible(part, first, last)))
        rewrites = sum(part_book.rewrites for part_book in chain(book))
        earliest = book.earliest if own else earliest_of(book)
        return LogView(revision_of(book), rewrites, earliest, book.shown, parts)


def with_view(log: Log, use: Callable[[LogView], T], *, own: bool = False) -> T:
    """Return the result of ``use`` on a view of the log. Waits for the disk."""
    while True:
        seen = view_of(log, own=own)
        try:
            return use(seen)
        except (UnknownSegment, MissingFile) as error:
            # A segment was merged during the scan, so the log has other runs now.
            if view_of(log, own=own).sealed == seen.sealed:
                raise error


def _visible(run: Run, first: int, last: int) -> Sequence[tuple[int, int]] | None:
    if run.overlay is None:
        return None if first <= run.first and run.last <= last else [(first, last)]
    return list(run.overlay.visible(max(first, run.first), min(last, run.last)))


def read_hidden(engine: Engine, book: Logbook, seq: int) -> Record | None:
    """See :meth:`Log.read_hidden`."""
    return read_parts(engine, book, True, lambda segments: _find(book, seq, segments))


def _find(book: Logbook, seq: int, segments: Segments) -> Record | None:
    for part in book.parts():
        if part.first <= seq <= part.last and _hides(part, seq):
            for block, start, end in part.pieces(seq, seq, segments):
                page = Page(book.epoch, book.shown, 0)
                block.copy_to(page, start, end)
                record = next(iter(page))
                assert part.overlay is not None
                return record._replace(data=part.overlay.amended.get(seq, record.data))
    return None


def _hides(part: Part, seq: int) -> bool:
    overlay = part.overlay
    return overlay is not None and seq in overlay.hidden and seq not in overlay.dead
