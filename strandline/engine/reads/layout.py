"""Where the records of a log are at this moment, for those who want to show it."""

from __future__ import annotations

from typing import NamedTuple

from strandline.engine.log import Log
from strandline.engine.segments.store import UnknownSegment
from strandline.engine.state.forks import layers
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Run


class SealedPart(NamedTuple):
    """The records of the log in one segment. ``size`` is the payload of those that readers see, uncompressed."""

    segment: int
    first: int
    last: int
    size: int
    ts_last: int
    has_keys: bool
    is_cold: bool


class Holdings(NamedTuple):
    """Everything is the log's own: what a fork shares with its source counts with the source. Records that are deleted
    or hidden are not counted."""

    sealed: tuple[SealedPart, ...]
    #: Everything up to this seq is in segments, or no longer there at all.
    sealed_through: int
    #: The same for the cold tier; without one, the segments are where they will ever be.
    cold_through: int
    #: Records that are in the journal only, and their payload.
    tail_records: int
    tail_size: int
    size: int
    #: The time of the last record; 0 when there never was one.
    last_ts: int


def holdings_of(log: Log) -> Holdings:
    """Looks at nothing but memory. Its cost is that of the log's segments, not of its records."""
    engine, book = log.engine, log.book
    has_cold_tier = engine.store.has_cold_tier
    with engine.lock:
        book.check_there()
        runs = book.runs
        tail_records = book.count - sum(run.live for run in runs)
        tail_size = book.size - sum(run.live_size for run in runs)
        through, size, last_ts = sealed_through(log), book.size, book.last_ts
    sealed = tuple(_part(log, run, has_cold_tier) for run in runs)
    return Holdings(sealed, through, cold_through(log, through), tail_records, tail_size, size, last_ts)


def sealed_through(log: Log) -> int:
    """Everything up to this seq is in segments, or no longer there at all."""
    if log.book.base is None:
        return _own_sealed_through(log.book)
    for book, first, last in layers(log.book):
        own = _own_sealed_through(book)
        if own < last:
            return max(own, first - 1)
    return log.head


def cold_through(log: Log, through: int) -> int:
    """How much of what is sealed up to ``through`` is in the cold tier; without one, all of it is where it will be."""
    if not log.engine.store.has_cold_tier:
        return through
    for book, first, last in layers(log.book):
        for run in book.runs:
            if run.first <= last and not _is_cold(log, run.segment):
                return min(max(run.first, first) - 1, through)
    return through


def _part(log: Log, run: Run, has_cold_tier: bool) -> SealedPart:
    is_cold = has_cold_tier and _is_cold(log, run.segment)
    return SealedPart(run.segment, run.first, run.last, run.live_size, run.ts_last, run.key_first is not None, is_cold)


def _own_sealed_through(book: Logbook) -> int:
    tail = book.tail
    return book.head if tail is None or not tail.blocks else tail.first - 1


def _is_cold(log: Log, segment: int) -> bool:
    try:
        return log.engine.store.tier(segment) == "cold"
    except UnknownSegment:  # merged a moment ago
        return False
