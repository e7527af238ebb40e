"""What readers of a log see at one moment, so that it can be gone through without the engine's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from strandline.engine.errors import MissingFile
from strandline.engine.segments.store import UnknownSegment
from strandline.engine.state.forks import chain, earliest_of, layers, revision_of
from strandline.engine.state.parts import Piece, Run, Tail

if TYPE_CHECKING:
    from strandline.engine.log import Log

T = TypeVar("T")


class Sealed(NamedTuple):
    """A run, and the seqs of it that readers see; None: all."""

    run: Run
    visible: Sequence[tuple[int, int]] | None


class Seen(NamedTuple):
    """Where the records with keys are, ascending: sealed runs, and pieces of tails, whose blocks do not change.
    ``revision`` is as in :class:`Log`, ``rewrites`` as in :class:`~strandline.engine.reads.remaining.Standing`."""

    revision: int
    rewrites: int
    earliest: int
    head: int
    parts: list[Sealed | Piece]

    @property
    def sealed(self) -> list[Sealed]:
        return [part for part in self.parts if isinstance(part, Sealed)]

    @property
    def tail(self) -> list[Piece]:
        return [part for part in self.parts if not isinstance(part, Sealed)]


def look(log: Log, *, own: bool = False) -> Seen:
    """What there is now; with ``own``, without what a fork shares with the log that it was forked from."""
    _ = log.revision  # what time has taken is gone
    parts: list[Sealed | Piece] = []
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
                    parts.append(Sealed(part, _visible(part, first, last)))
        rewrites = sum(part_book.rewrites for part_book in chain(book))
        earliest = book.earliest if own else earliest_of(book)
        return Seen(revision_of(book), rewrites, earliest, book.head, parts)


def looking(log: Log, use: Callable[[Seen], T], *, own: bool = False) -> T:
    """What ``use`` makes of what there is. It waits for the disk."""
    while True:
        seen = look(log, own=own)
        try:
            return use(seen)
        except (UnknownSegment, MissingFile) as error:
            # It was merged while it was looked at: then the log has other runs now.
            if look(log, own=own).sealed == seen.sealed:
                raise error


def _visible(run: Run, first: int, last: int) -> Sequence[tuple[int, int]] | None:
    if run.overlay is None:
        return None if first <= run.first and run.last <= last else [(first, last)]
    return list(run.overlay.visible(max(first, run.first), min(last, run.last)))
