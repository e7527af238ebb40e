"""Check a logbook: compare everything it says with its rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise

from strandline.engine.segments.footer import RunInfo
from strandline.engine.segments.segment import Segment
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Part, Run, Segments, Tail


def check_book(book: Logbook, order: Mapping[int, int], segments: Segments) -> Iterator[str]:
    """Yield all problems of a logbook whose segments are all readable, as sentences.

    ``order`` has the position of every segment in the manifest.
    """
    problems = list(_check_runs(book, order, segments))
    yield from (f"Log {book.name!r}: {problem}." for problem in problems)
    if problems:
        return  # further checks would repeat the same problem
    for problem in (
        *_check_base(book),
        *_check_order(book),
        *_recount(book, segments),
        *_check_floors(book, segments),
        *_check_gaps(book),
    ):
        yield f"Log {book.name!r}: {problem}."


def info_of(run: Run, epoch: int, segment: Segment) -> RunInfo | None:
    """Return the segment footer's entry for a run; None if the footer has no such run."""
    at = bisect_right(segment.runs, run.row, key=lambda info: info.row) - 1
    found = segment.runs[at] if at >= 0 else None
    return found if found is not None and (found.row, found.epoch) == (run.row, epoch) else None


def live_of(part: Part, segments: Segments) -> tuple[int, int]:
    """Count the visible records of a part and their bytes, row by row."""
    whole = [(part.first, part.last)]
    return part.weigh(whole if part.overlay is None else part.overlay.visible(*whole[0]), segments)


def first_retained(book: Logbook, segments: Segments) -> int:
    """Return the seq of the first record that is neither deleted nor evicted; head + 1 if there is none."""
    for part in book.parts():
        ranges = [(part.first, part.last)] if part.overlay is None else part.overlay.dead.gaps(part.first, part.last)
        for first, last in ranges:
            for block, start, _ in part.pieces(first, last, segments):
                return block.seq(start)
    return book.head + 1


def recount(book: Logbook, segments: Segments) -> None:
    """Correct the counters of a logbook from its records."""
    book.count = book.size = 0
    for part in book.parts():
        live, live_size = live_of(part, segments)
        book.count, book.size = book.count + live, book.size + live_size
        if isinstance(part, Run):
            part.live, part.live_size = live, live_size
    book.earliest = first_retained(book, segments)
    book.cap_floor, book.ttl_floor = min(book.cap_floor, book.earliest), min(book.ttl_floor, book.earliest)


def _check_runs(book: Logbook, order: Mapping[int, int], segments: Segments) -> Iterator[str]:
    for run in book.runs:
        where = f"its run {run.first} to {run.last} in segment {run.segment}"
        if run.segment not in order:
            yield f"{where} is in a segment that the manifest does not name"
            continue
        info = info_of(run, book.epoch, segments.segment(run.segment))
        if info is None:
            yield f"{where} is not in the segment's footer"
            continue
        for what in ("name", "first", "last", "rows", "ts_first", "ts_last", "key_first", "key_last"):
            kept = book.name if what == "name" else getattr(run, what)
            if kept != getattr(info, what):
                yield f"{where} has {what} {kept!r}; the segment's footer says {getattr(info, what)!r}"
    for before, after in pairwise(book.runs):
        if order.get(before.segment, -1) >= order.get(after.segment, -1):
            yield f"its runs in segments {before.segment} and {after.segment} are not in the order of the manifest"


def _check_base(book: Logbook) -> Iterator[str]:
    base = book.base
    if base is None or base.book is None:
        return
    if base.through > base.book.assigned:
        yield f"it was forked from {base.book.name!r} at seq {base.through}, which has only {base.book.assigned}"
    first = next((part.first for part in book.parts()), base.through + 1)
    if first <= base.through:
        yield f"its own record {first} is not after seq {base.through}, where it was forked"


def _check_order(book: Logbook) -> Iterator[str]:
    edges = [(part.first, part.last) for part in book.runs]
    for block in book.tail.blocks if isinstance(book.tail, Tail) else ():
        edges.append((block.first, block.last))
    for one, other in pairwise(edges):
        if other[0] <= one[1]:
            yield f"seqs {other[0]} to {other[1]} come after seqs {one[0]} to {one[1]}"
    if edges and edges[-1][1] > book.assigned:
        yield f"it has a record {edges[-1][1]}, but the highest assigned seq is {book.assigned}"


def _recount(book: Logbook, segments: Segments) -> Iterator[str]:
    count = size = 0
    for part in book.parts():
        live, live_size = live_of(part, segments)
        count, size = count + live, size + live_size
        if isinstance(part, Run) and (live, live_size) != (part.live, part.live_size):
            yield (
                f"its run {part.first} to {part.last} in segment {part.segment} has {live} live records "
                f"of {live_size} bytes; expected {part.live} of {part.live_size}"
            )
    if count != book.count:
        yield f"it has {count} live records; expected {book.count}"
    if size != book.size:
        yield f"its live records have {size} bytes; expected {book.size}"


def _check_floors(book: Logbook, segments: Segments) -> Iterator[str]:
    if book.evict_floor > book.earliest:
        yield f"its floor {book.evict_floor} is above its earliest record {book.earliest}"
    first = first_retained(book, segments)
    if first != book.earliest:
        yield f"its earliest record is {first}; expected {book.earliest}"


def _check_gaps(book: Logbook) -> Iterator[str]:
    for one, other in pairwise(book.gaps):
        if other.first <= one.last:
            yield f"its gaps {one.first} to {one.last} and {other.first} to {other.last} are out of order"
    for gap in book.gaps:
        if not 1 <= gap.first <= gap.last <= book.assigned:
            yield f"its gap {gap.first} to {gap.last} extends beyond the assigned seqs"
