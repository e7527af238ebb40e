"""Read a log from its end: the last records before a seq, and the last record of a key."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from strandline.engine.errors import BadRequest
from strandline.engine.reads.page import read_parts, size_of
from strandline.engine.record import Page
from strandline.engine.state.block import Block
from strandline.engine.state.forks import ForkLayer, earliest_of, layers
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Part, Segments

if TYPE_CHECKING:
    from strandline.engine.engine import Engine

#: Rows of a block, and the part of the log that contains it.
Stretch = tuple[Part, Block, int, int]


def read_back(
    engine: Engine, book: Logbook, wait: bool, before: int | None, limit: int, max_bytes: int | None
) -> Page | None:
    """See :meth:`Log.read_back` or, without ``wait``, :meth:`Log.read_back_resident`."""
    if before is not None and before < 0:
        raise BadRequest(f"before must be 0 or more, not {before}")
    if limit < 1:
        raise BadRequest(f"limit must be 1 or more, not {limit}")
    if max_bytes is not None and max_bytes < 1:
        raise BadRequest(f"max_bytes must be 1 or more, not {max_bytes}")
    return read_parts(engine, book, wait, lambda segments: _page(book, before, limit, max_bytes, segments))


def find_key(engine: Engine, book: Logbook, wait: bool, key: str) -> int | None:
    """See :meth:`Log.find_key`. Without ``wait``, return None if the answer is not known without the disk, and 0 if no
    record has the key."""
    return read_parts(engine, book, wait, lambda segments: _last_with(book, key, segments))


def _page(book: Logbook, before: int | None, limit: int, max_bytes: int | None, segments: Segments) -> Page:
    page = Page(book.epoch, book.shown, earliest_of(book))
    last = book.shown if before is None else min(before - 1, book.shown)
    taken: list[Stretch] = []
    page.caught_up = True
    for part, block, start, end in _newest_first(layers(book), last, limit + 1, segments):
        first = max(start, end - limit)
        if max_bytes is not None:
            first, max_bytes = _fitting(part, block, first, end, max_bytes, not taken)
        if first < end:
            taken.append((part, block, first, end))
            limit -= end - first
        if first > start:
            page.caught_up = False
            break
    for part, block, start, end in reversed(taken):
        _copy(page, part, block, start, end)
    page.next_after = page.seqs[-1] if page.seqs else max(last, 0)
    return page


def _newest_first(shown: Sequence[ForkLayer], last: int, window: int, segments: Segments) -> Iterator[Stretch]:
    """Yield the rows that readers see up to the seq ``last``, newest first. About ``window`` records are examined at a
    time."""
    for book, low, high in reversed(shown):
        for part in reversed(tuple(book.parts())):
            first, end = max(low, part.first, book.earliest), min(high, part.last, last)
            if first > end:
                continue
            ranges = [(first, end)] if part.overlay is None else list(part.overlay.visible(first, end))
            for start, stop in reversed(ranges):
                yield from _backwards(part, start, stop, window, segments)


def _backwards(part: Part, start: int, stop: int, window: int, segments: Segments) -> Iterator[Stretch]:
    while stop >= start:
        low = max(start, stop - window + 1)
        found = list(part.pieces(low, stop, segments))
        for block, first, end in reversed(found):
            yield part, block, first, end
        if not found:
            # Skip rows that merging removed. There may be many of them.
            window *= 2
        stop = low - 1


def _fitting(part: Part, block: Block, first: int, end: int, budget: int, is_last: bool) -> tuple[int, int]:
    """Return the first row from which all rows fit, and the remaining budget. The last record always fits, however
    large it is."""
    row, amended = end, {} if part.overlay is None else part.overlay.amended
    while row > first:
        size = size_of(block, row - 1, amended)
        if size > budget and not (is_last and row == end):
            break
        budget -= size
        row -= 1
    return row, budget


def _copy(page: Page, part: Part, block: Block, start: int, end: int) -> None:
    at = len(page.seqs)
    block.copy_to(page, start, end)
    amended = None if part.overlay is None else part.overlay.amended
    if amended:
        for index in range(at, len(page.seqs)):
            page.data[index] = amended.get(page.seqs[index], page.data[index])


def _last_with(book: Logbook, key: str, segments: Segments) -> int:
    for layer, low, high in reversed(layers(book)):
        for part in reversed(tuple(layer.parts())):
            first, last = max(low, part.first, layer.earliest), min(high, part.last)
            if first > last:
                continue
            found = part.seqs_with_key(key, False, segments)
            dead = None if part.overlay is None else part.overlay.dead
            for at in range(bisect_right(found, last) - 1, -1, -1):
                if found[at] < first:
                    break
                if dead is None or found[at] not in dead:
                    return found[at]
    return 0
