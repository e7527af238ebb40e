"""Forks: a log that starts with the records of another log, by reference.

A fork stores nothing of the shared part. Readers see *layers*: the source up to the fork point (the source may itself
be a fork), and then the fork's own records. Any change to a shared record in its source, including a move to another
file, therefore applies to the fork as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from strandline.engine.journal.bodies import ForkPoint
from strandline.engine.state.parts import Run, Segments, Tail
from strandline.engine.state.retention import last_retained_below as last_retained_in

if TYPE_CHECKING:
    from strandline.engine.state.logbook import Logbook

by_first = attrgetter("first")


class ForkBase:
    """The source of a fork. ``book`` is None only while the logbooks of a directory are loaded."""

    __slots__ = ("book", "point", "through")

    def __init__(self, point: ForkPoint, book: Logbook | None = None) -> None:
        self.point = point
        self.through = point.through
        self.book = book


class ForkLayer(NamedTuple):
    """A range of seqs of a log whose records belong to one logbook."""

    book: Logbook
    first: int
    last: int


def chain(book: Logbook) -> Iterator[Logbook]:
    """Yield the logbook, its source, the source of that, and so on."""
    while True:
        yield book
        if book.base is None:
            return
        assert book.base.book is not None
        book = book.base.book


def layers(book: Logbook) -> list[ForkLayer]:
    """Return the layers that readers see, oldest first. The last layer is the log's own, even if it is empty."""
    if book.base is None:
        return [ForkLayer(book, 1, book.shown)]
    found: list[ForkLayer] = []
    last = book.shown
    for part in chain(book):
        first = 1 if part.base is None else part.base.through + 1
        if first <= last or not found:
            found.append(ForkLayer(part, first, last))
        last = min(last, first - 1)
    found.reverse()
    return found


def earliest_of(book: Logbook) -> int:
    """Return the first seq that readers can see; head + 1 if there is none."""
    if book.base is None:
        return book.earliest
    return next((layer.book.earliest for layer in layers(book) if layer.book.earliest <= layer.last), book.shown + 1)


def evict_floor_of(book: Logbook) -> int:
    """Return the floor: all records below it were lost to retention. Losses in later layers count only if everything
    before them is lost; otherwise they are in the middle and are reported to readers as gaps."""
    if book.base is None:
        return min(book.evict_floor, book.shown + 1)
    floor = 1
    for part, _, last in layers(book):
        floor = max(floor, min(part.evict_floor, last + 1))
        if floor <= last:
            break
    return floor


def revision_of(book: Logbook) -> int:
    return sum(part.revision for part in chain(book))


def seq_since(book: Logbook, ts: int, segments: Segments, *, closely: bool = False) -> int:
    """Return the seq of the first record, deleted or not, with time ``ts`` or later; head + 1 if there is none. See
    :meth:`Logbook.seq_since`."""
    for part, _, last in layers(book):
        seq = part.seq_since(ts, segments, closely=closely)
        if seq <= last:
            return seq
    return book.shown + 1


def last_retained_below(book: Logbook, floor: int, segments: Segments) -> int | None:
    """Return the highest existing seq below ``floor`` that is not deleted."""
    for part, first, last in reversed(layers(book)):
        if first < floor:
            found = last_retained_in(part, min(floor, last + 1), segments)
            if found is not None:
                return found
    return None


def time_at(book: Logbook, seq: int) -> int:
    """Return an upper bound for the times of the records up to ``seq``, as tight as possible without reading the
    disk."""
    if not seq:
        return 0
    for layer in reversed(layers(book)):
        last = min(seq, layer.last)
        for part in reversed(tuple(layer.book.parts())):
            if part.first <= last and isinstance(part, Run):
                # A record from the future at the end says nothing about the other records.
                return min(part.ts_last, layer.book.last_ts)
            if part.first <= last and isinstance(part, Tail) and part.blocks:
                return _time_in(part, last)
    return book.last_ts


def _time_in(tail: Tail, last: int) -> int:
    block = tail.blocks[bisect_right(tail.blocks, last, key=by_first) - 1]
    return block.timestamp(min(last, block.last) - block.first)


def link(book: Logbook, books: Mapping[int, Logbook]) -> bool:
    """Link a fork to its source. If the source is missing, the log stops being a fork."""
    assert book.base is not None
    source = books.get(book.base.point.epoch)
    if source is None or source.epoch >= book.epoch:
        book.lose_base()
        return False
    book.base.book = source
    source.forks += 1
    return True
