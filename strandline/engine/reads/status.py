"""The state of a log in numbers: where its records are stored, which ranges of seqs are live, and how far logs extend.

Every function but ``live_ranges_of`` reads memory only. The cost grows with the number of segments or logs, not with
the number of records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from strandline.engine.engine import Engine
from strandline.engine.errors import DamagedFile, MissingFile
from strandline.engine.log import Log
from strandline.engine.operations.erasures import NAME as ERASURES
from strandline.engine.ownership import REGISTRY
from strandline.engine.record import is_internal
from strandline.engine.segments.store import UnknownSegment
from strandline.engine.state.forks import chain, layers, revision_of
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Run
from strandline.engine.state.ranges import SeqRanges


class SealedPart(NamedTuple):
    """The records of the log in one segment. ``size`` is the uncompressed payload of the visible records."""

    segment: int
    first: int
    last: int
    size: int
    ts_last: int
    has_keys: bool
    is_cold: bool


class LogStatus(NamedTuple):
    """Where the log's own records are stored. Records that a fork shares count for its source. Deleted and hidden
    records do not count."""

    sealed: tuple[SealedPart, ...]
    #: Every record up to this seq is in segments or removed.
    sealed_through: int
    #: The same for the cold tier. Without a cold tier, equal to ``sealed_through``.
    cold_through: int
    #: The number of records that are only in the journal, and their payload bytes.
    tail_records: int
    tail_size: int
    size: int
    #: The time of the last record; 0 if there never was one.
    last_ts: int


def status_of(log: Log) -> LogStatus:
    """Return the status. Reads memory only. The cost grows with the number of segments of the log, not with its
    records."""
    engine, book = log.engine, log.book
    with engine.lock:
        book.check_there()
        runs = book.runs
        tail_records = book.count - sum(run.live for run in runs)
        tail_size = book.size - sum(run.live_size for run in runs)
        through, size, last_ts = sealed_through(log), book.size, book.last_ts
    sealed = tuple(_part(log, run) for run in runs)
    return LogStatus(sealed, through, cold_through(log, through), tail_records, tail_size, size, last_ts)


def sealed_through(log: Log) -> int:
    """Return the seq up to which every record is in segments or removed."""
    if log.book.base is None:
        return min(_own_sealed_through(log.book), log.head)
    for book, first, last in layers(log.book):
        own = _own_sealed_through(book)
        if own < last:
            return max(own, first - 1)
    return log.head


def cold_through(log: Log, through: int) -> int:
    """Return the seq up to which the records sealed up to ``through`` are in the cold tier. Without a cold tier, return
    ``through``."""
    if not log.engine.store.has_cold_tier:
        return through
    for book, first, last in layers(log.book):
        for run in book.runs:
            if run.first <= last and not is_cold(log, run.segment):
                return min(max(run.first, first) - 1, through)
    return through


def _part(log: Log, run: Run) -> SealedPart:
    has_keys, cold = run.key_first is not None, is_cold(log, run.segment)
    return SealedPart(run.segment, run.first, run.last, run.live_size, run.ts_last, has_keys, cold)


def _own_sealed_through(book: Logbook) -> int:
    tail = book.tail
    return book.head if tail is None or not tail.blocks else tail.first - 1


def is_cold(log: Log, segment: int) -> bool:
    """Return whether a segment is in the cold tier."""
    try:
        return log.engine.store.has_cold_tier and log.engine.store.tier(segment) == "cold"
    except UnknownSegment:  # merged a moment ago
        return False


class LiveRanges(NamedTuple):
    """The live seqs of a log at one moment.

    While ``rewrites`` stays the same, records are only removed: what was read of a seq in one of the ``ranges`` is
    still valid. The ranges are ascending and inclusive, and may contain seqs that never held a record. ``revision`` is
    as in :class:`Log`. In the cold tier, or in a damaged segment, they may also contain seqs whose records were removed
    before they were sealed or merged.
    """

    revision: int
    rewrites: int
    ranges: list[tuple[int, int]]


def live_ranges_of(log: Log) -> LiveRanges:
    """Return the live ranges. The cost grows with the log's segments and removed ranges.

    Sealing and merging drop removed records, and what is known of their removal. Where a segment lacks seqs, its column
    of seqs is read, once for each segment.
    """
    _ = log.revision  # expires old records
    store, lock = log.engine.store, log.engine.lock
    unreadable: set[tuple[int, int]] = set()
    while True:
        missing: list[Run] = []

        def seqs_of(run: Run, missing: list[Run] = missing) -> SeqRanges | None:
            if run.rows == run.last - run.first + 1 or (run.segment, run.row) in unreadable:
                return None
            known = store.known_seqs(run.segment, run.row)
            if known is None and not is_cold(log, run.segment):
                missing.append(run)
            return known

        with lock:
            log.book.check_there()
            found = LiveRanges(revision_of(log.book), rewrites_of(log), live_ranges(log.book, seqs_of))
        if not missing:
            return found
        for run in missing:
            try:
                store.read_seqs(run.segment, run.row, run.rows)
            except (UnknownSegment, MissingFile, DamagedFile):  # merged a moment ago, or reported where it is read
                unreadable.add((run.segment, run.row))


def known_live_ranges_of(log: Log) -> LiveRanges:
    """The same, but the ranges may also contain seqs whose records were removed before they were sealed or merged.
    Reads memory only."""
    _ = log.revision
    with log.engine.lock:
        log.book.check_there()
        return LiveRanges(revision_of(log.book), rewrites_of(log), live_ranges(log.book))


def live_ranges(book: Logbook, seqs_of: Callable[[Run], SeqRanges | None] | None = None) -> list[tuple[int, int]]:
    """Return the visible seqs, and some that hold no record. ``seqs_of`` returns the seqs of a run, or None if they are
    not known. The caller holds the engine's lock, if there is one."""
    ranges: list[tuple[int, int]] = []
    for layer, first, last in layers(book):
        first = max(first, layer.earliest)
        for part in layer.parts():
            low, high = max(first, part.first), min(last, part.last)
            if low > high:
                continue
            visible = [(low, high)] if part.overlay is None else list(part.overlay.visible(low, high))
            seqs = seqs_of(part) if seqs_of is not None and isinstance(part, Run) else None
            if seqs is not None:
                visible = [inner for start, end in visible for inner in seqs.overlap(start, end)]
            ranges += visible
    return ranges


def hidden_ranges_of(log: Log) -> list[tuple[int, int]]:
    """Return the hidden seqs of a log, ascending, and some that never held a record. A fork only has its own. Reads
    memory only."""
    ranges: list[tuple[int, int]] = []
    with log.engine.lock:
        log.book.check_there()
        for part in log.book.parts():
            if part.overlay is not None:
                for first, last in part.overlay.hidden:
                    ranges += part.overlay.dead.gaps(first, last)
    return ranges


def rewrites_of(log: Log) -> int:
    """Return a number that changes whenever records are restored or amended."""
    return sum(book.rewrites for book in chain(log.book))


class EngineExtent(NamedTuple):
    """Comparable with an earlier extent of the same engine. ``records`` and ``erasures`` are also comparable across a
    restart."""

    #: The number of assigned seqs, over all logs that survive a restart.
    records: int = 0
    #: The head of the log of erasures.
    erasures: int = 0
    #: Changes when the schema registry of any log changes.
    registries: int = 0
    #: Bytes written to the journal since the engine was opened.
    written: int = 0


def extent_of(engine: Engine) -> EngineExtent:
    """Return the extent. The cost grows with the number of logs. A log that grows in the meantime counts as before or
    after the growth."""
    written = engine.journal.written
    records = registries = 0
    for book in list(engine.by_epoch.values()):
        if is_internal(book.name) or book.config.durability == "ephemeral":
            continue
        records += book.head
        if book.notes is not None:
            registry = book.notes.packed.get(REGISTRY)
            if registry is not None:
                # Python caches the hash of each bytes object.
                registries ^= hash((book.epoch, registry))
    erasures = engine.find(ERASURES)
    return EngineExtent(records, 0 if erasures is None else erasures.head, registries, written)
