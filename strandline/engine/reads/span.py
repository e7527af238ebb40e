"""How far an answer of limited size reaches, decided before its first record is read; and whether its records are still
there when they are read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from strandline.engine.log import Log
from strandline.engine.reads.page import losses, read_parts
from strandline.engine.record import MAX_SEQ
from strandline.engine.state.forks import layers, revision_of
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Budget, Part, Segments


class ReadSpan(NamedTuple):
    """The visible records after the seq ``after`` up to the seq ``through``, at one moment.

    ``records`` is their number, ``head`` the head of the log, and ``revision`` as in :class:`Log`. Appends do not
    change a span.
    """

    after: int
    through: int
    records: int
    head: int
    revision: int


def span_of(log: Log, after: int, budget: Budget, key: str | None = None, through: int = MAX_SEQ) -> ReadSpan:
    """Return the longest span within the budget, up to the seq ``through``, that ends before the next lost records. It
    may be empty. Waits for the disk.

    The end is found from the sizes of blocks, without reading payloads, so deleted records count as well, and the bytes
    are approximate. With a ``key``, only the records with the key count, with the mean size of all records around them.
    """
    book = log.book

    def find(segments: Segments) -> ReadSpan:
        last = max(after, min(through, _reached(book, after, budget, key, segments)))
        return ReadSpan(after, last, _count(book, after, last, segments), book.shown, revision_of(book))

    span = read_parts(log.engine, book, True, find)
    assert span is not None
    return span


def rest_of(log: Log, span: ReadSpan, after: int) -> ReadSpan | None:
    """Return the rest of the span after the seq ``after``, or None if a record of the span has been removed since. What
    was read of the span before this call was complete, unless the result is None. Waits for the disk."""
    book = log.book

    def find(segments: Segments) -> ReadSpan | None:
        revision = revision_of(book)
        if revision != span.revision and _count(book, span.after, span.through, segments) != span.records:
            return None
        records = span.records - _count(book, span.after, after, segments)
        return span._replace(after=after, records=records, revision=revision)

    return read_parts(log.engine, book, True, find)


def _reached(book: Logbook, after: int, budget: Budget, key: str | None, segments: Segments) -> int:
    end = next((loss.first - 1 for loss in losses(layers(book), after + 1)), book.shown)
    for part, first, last in parts_between(book, after, end):
        if key is None:
            reached, used = part.fitting(first, last, budget, segments)
        else:
            reached, used = _keyed_fitting(part, key, first, last, budget, segments)
        if reached < last:
            return max(reached, after)
        budget = budget.less(used)
    return end


def _keyed_fitting(
    part: Part, key: str, first: int, last: int, budget: Budget, segments: Segments
) -> tuple[int, Budget]:
    """Like ``Part.fitting``, for the records with the key."""
    seqs = part.seqs_with_key(key, False, segments)
    start, end = bisect_left(seqs, first), bisect_right(seqs, last)
    mean = part.mean_size
    rows = min(end - start, budget.rows, budget.size // mean if mean else budget.rows)
    return last if start + rows == end else seqs[start + rows] - 1, Budget(rows, rows * mean)


def _count(book: Logbook, after: int, through: int, segments: Segments) -> int:
    count = 0
    for part, first, last in parts_between(book, after, through):
        ranges = [(first, last)] if part.overlay is None else part.overlay.visible(first, last)
        count += sum(part.rows_between(low, high, segments) for low, high in ranges)
    return count


def parts_between(book: Logbook, after: int, through: int) -> Iterator[tuple[Part, int, int]]:
    """Yield the parts with retained records of the range, and the range of seqs in each."""
    for layer, first, last in layers(book):
        low, high = max(first, after + 1, layer.evict_floor), min(last, through)
        for part in layer.parts():
            if part.last >= low and part.first <= high:
                yield part, max(low, part.first), min(high, part.last)
