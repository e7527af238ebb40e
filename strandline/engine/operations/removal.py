"""Removing records: they are weighed first, and then taken out.

Everything that must be read of segments is read before anything is changed: an operation that meets a damaged one, or
a cold tier that cannot be reached, raises and leaves the log as it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from strandline.engine.errors import DamagedFile
from strandline.engine.state.block import by_last
from strandline.engine.state.parts import Part, Run, Segments, Tail

if TYPE_CHECKING:
    from strandline.engine.state.logbook import Logbook


class Doomed(NamedTuple):
    """What is to be removed of one part, and what that weighs: live records, and hidden ones."""

    part: Part
    ranges: list[tuple[int, int]]
    live: tuple[int, int]
    hidden: tuple[int, int]


def doomed_below(book: Logbook, floor: int, segments: Segments) -> list[Doomed]:
    """Everything below ``floor``; runs that go as a whole are not looked into."""
    doomed = []
    for part in book.parts():
        if part.first >= floor:
            break
        if isinstance(part, Run) and part.last < floor:
            hidden = _hidden_of(part, part.first, part.last, segments)
            doomed.append(Doomed(part, [], (part.live, part.live_size), hidden))
        else:
            low, high = max(part.first, book.earliest), min(floor - 1, part.last)
            doomed.append(doom(part, [(low, high)], segments))
    return doomed


def doom(part: Part, ranges: Iterable[tuple[int, int]], segments: Segments) -> Doomed:
    """These seqs of one part, as far as they are in it."""
    within = [(max(first, part.first), min(last, part.last)) for first, last in ranges]
    within = [(first, last) for first, last in within if first <= last]
    overlay = part.overlay
    if overlay is None:
        return Doomed(part, within, part.weigh(within, segments), (0, 0))
    live = part.weigh([piece for first, last in within for piece in overlay.visible(first, last)], segments)
    hidden = part.weigh([piece for first, last in within for piece in overlay.hidden.overlap(first, last)], segments)
    return Doomed(part, within, live, hidden)


def _hidden_of(part: Part, first: int, last: int, segments: Segments) -> tuple[int, int]:
    if part.overlay is None or not part.overlay.hidden:
        return 0, 0
    return part.weigh(list(part.overlay.hidden.overlap(first, last)), segments)


def remove(book: Logbook, doomed: list[Doomed], floor: int, segments: Segments) -> tuple[int, int]:
    """Take everything below ``floor`` out; returns how many records went and their bytes, hidden ones included."""
    book.revision += 1
    count, size = kill(book, doomed)
    book.runs = tuple(run for run in book.runs if run.last >= floor)
    if book.tail is not None and book.tail.blocks and book.tail.first < floor:
        _drop_dead_blocks(book.tail, floor)
    _settle_earliest(book, floor, segments)
    return count, size


def kill(book: Logbook, doomed: Iterable[Doomed]) -> tuple[int, int]:
    """Mark records deleted; returns how many were not so before, and their bytes."""
    gone = (0, 0)
    for part, ranges, live, hidden in doomed:
        book.account(part, -live[0], -live[1])
        for first, last in ranges:
            overlay = part.change()
            overlay.dead.add(first, last)
            if overlay.hidden:
                overlay.hidden.remove(first, last)
            if overlay.amended:
                for seq in [seq for seq in overlay.amended if first <= seq <= last]:
                    del overlay.amended[seq]
        gone = add_up(gone, add_up(live, hidden))
    return gone


def _settle_earliest(book: Logbook, floor: int, segments: Segments) -> None:
    """Move ``earliest`` up to the first record from ``floor`` on that is still there."""
    at = max(floor, book.earliest)
    for part in book.parts():
        if part.last < at:
            continue
        low = max(at, part.first)
        ranges = [(low, part.last)] if part.overlay is None else part.overlay.dead.gaps(low, part.last)
        for first, last in ranges:
            found = _first_there(part, first, last, segments)
            if found is not None:
                book.earliest = found
                book.forget_passed_gaps()
                return
    book.earliest = book.head + 1
    book.forget_passed_gaps()


def _first_there(part: Part, first: int, last: int, segments: Segments) -> int | None:
    if isinstance(part, Run) and part.last - part.first + 1 == part.rows:
        return first
    try:
        return next((block.seq(start) for block, start, _ in part.pieces(first, last, segments)), None)
    except (DamagedFile, OSError):
        return first  # or higher; nobody can tell


def drop_dead_front(book: Logbook, segments: Segments) -> None:
    """Let go of what lies before the first record that is still there."""
    before = book.earliest
    _settle_earliest(book, before, segments)
    if book.earliest > before:
        book.runs = tuple(run for run in book.runs if run.last >= book.earliest)
        if book.tail is not None:
            _drop_dead_blocks(book.tail, book.earliest)


def pass_dead_front(book: Logbook, tail: Tail, segments: Segments) -> None:
    """As ``drop_dead_front``, when the earliest record was in the tail."""
    assert tail.overlay is not None
    first, _ = next(tail.overlay.dead.gaps(book.earliest, tail.last), (0, 0))
    if not first or tail.find(first) is None:
        drop_dead_front(book, segments)
        return
    book.earliest = first
    book.forget_passed_gaps()
    book.runs = ()
    if tail.blocks[0].last < first:
        _drop_dead_blocks(tail, first)


def _drop_dead_blocks(tail: Tail, floor: int) -> None:
    kept = bisect_left(tail.blocks, floor, key=by_last)
    if kept:
        tail.cut(tail.blocks[kept - 1].last)


def add_up(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]
