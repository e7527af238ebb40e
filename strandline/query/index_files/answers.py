"""Answer queries from index files: which files are valid for the current log, and which of their records still exist.

The engine knows in memory which records were removed. Restored or amended records are different, because their indexed
values are no longer right. The log of erasures lists these changes, including those from before a restart.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple
from weakref import WeakKeyDictionary

from msgspec import DecodeError

from strandline.engine import Engine, Log
from strandline.engine.operations.erasures import NAME, Erasure, is_told, read_erasure
from strandline.engine.reads.status import live_ranges_of, rewrites_of
from strandline.engine.state.checkpoints import read_manifest
from strandline.engine.state.forks import layers
from strandline.query.chunk import Chunk, Ranges, live_part, within
from strandline.query.config import SearchConfig
from strandline.query.index import IndexPlan, Versions
from strandline.query.index_files.builder import plan_id, rollups_id, versions_between
from strandline.query.index_files.catalog import IndexCatalog, LogEntries
from strandline.query.index_files.file import IndexFile
from strandline.query.index_files.table import IndexEntry

_BATCH = 4096
_REWRITES = ("restore", "amend")


class Rewritten(NamedTuple):
    """The records that an event affects: from ``first`` to ``last``; only those in ``seqs`` (ascending) if given."""

    event: int
    first: int
    last: int
    seqs: tuple[int, ...] | None

    def touches(self, first: int, last: int) -> bool:
        first, last = max(first, self.first), min(last, self.last)
        if first > last or self.seqs is None:
            return first <= last
        at = bisect_left(self.seqs, first)
        return at < len(self.seqs) and self.seqs[at] <= last


class Rewriting:
    """The events of one engine that rewrite records, starting at some seq of the log of erasures."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._begin: int | None = None
        self._through = 0
        self._events: dict[int, list[Rewritten]] = {}
        self._rewrites: dict[int, int] = {}

    def since(self, log: Log, mark: int) -> list[Rewritten] | None:
        """Return the visible records of the log that were rewritten by events after ``mark``. None if this is no longer
        known."""
        events = self._engine.find(NAME)
        if events is None:
            return []
        with self._lock:
            if self._begin is None or mark < self._begin:
                self._begin = self._through = mark
                self._events.clear()
            rewrites = rewrites_of(log)
            if self._rewrites.get(log.epoch) != rewrites:
                # Readers see an event when it is durable, but may see its change earlier.
                events.sync().wait()
                self._rewrites[log.epoch] = rewrites
            if events.state().evict_floor > mark + 1:
                return None
            self._read(events)
            with log.engine.lock:
                shown = layers(log.book)
            return [
                event._replace(first=max(event.first, first), last=min(event.last, last))
                for book, first, last in shown
                for event in self._events.get(book.epoch, ())
                if event.event > mark
            ]

    def _read(self, events: Log) -> None:
        while self._through < events.head:
            page = events.read(self._through, _BATCH)
            for seq, data in zip(page.seqs, page.data, strict=True):
                try:
                    event = read_erasure(data)
                except DecodeError:
                    continue
                if event.kind in _REWRITES:
                    self._events.setdefault(event.epoch, []).append(_concerned(seq, event))
            self._through = page.next_after


def _concerned(seq: int, event: Erasure) -> Rewritten:
    last = event.bound if event.before is None else min(event.bound, event.before - 1)
    return Rewritten(seq, 1, last, None if event.seqs is None else tuple(sorted(event.seqs)))


class Served(NamedTuple):
    """The records from ``first`` to ``last``; ``chunk`` is None if none of them is left."""

    first: int
    last: int
    chunk: Chunk | None


class Laid(NamedTuple):
    """The ranges that index files answer, in the order of the log and without overlaps; and the visible seqs."""

    served: tuple[Served, ...]
    live: Ranges


class IndexFileStatus(NamedTuple):
    """The part of a log that index files cover: ``ranges`` of seqs (inclusive), and the bytes of the files by column,
    with those of rollups under "rollup:NAME"."""

    ranges: tuple[tuple[int, int], ...] = ()
    sizes: Mapping[str, int] = {}
    #: The total bytes of the files.
    size: int = 0
    #: When the latest file was built, in milliseconds.
    built_at: int | None = None
    #: Whether there are index files, but none for this plan.
    is_stale: bool = False


class _Known(NamedTuple):
    """The visible seqs of a log up to ``head``, and the chunks without other records."""

    revision: int
    head: int
    live: Ranges
    chunks: WeakKeyDictionary[IndexFile, tuple[Ranges, Chunk | None]]

    def mask(self, index_file: IndexFile, live: Ranges) -> Chunk | None:
        """Return the visible part of a chunk. The same object is returned while the same records are visible, so that
        cached results stay with it."""
        known = self.chunks.get(index_file)
        if known is None or known[0] != live:
            chunk = index_file.chunk()
            known = self.chunks[index_file] = live, None if chunk is None else live_part(chunk, live)
        return known[1]


class IndexFiles:
    """The index files of the logs of one server. Thread-safe. May wait for disks."""

    def __init__(self, catalog: IndexCatalog) -> None:
        self.catalog = catalog
        self._lock = threading.Lock()
        self._directory: str | None = None
        self._rewriting: Rewriting | None = None
        self._logs: dict[int, _Known] = {}

    def lay_out(
        self, log: Log, config: SearchConfig, plan: IndexPlan, versions: Versions, deadline: float
    ) -> Laid | None:
        """Return the index files to answer from; None if no index file is valid for the log."""
        if not is_told(log.name):  # its removals leave no events
            return None
        listed = self.catalog.entries_of(log.epoch)
        chosen = choose(self._holding(log, listed, plan, versions), rollups_id(config), log.head)
        if not chosen:
            return None
        known = self._known(log, min(chosen[-1][2], log.head))
        served = []
        for entry, first, last in chosen:
            index_file = self.catalog.open(entry, deadline)
            if index_file is not None:
                served.append(Served(first, last, known.mask(index_file, within(known.live, first, last))))
        return Laid(tuple(served), known.live)

    def _holding(self, log: Log, listed: LogEntries, plan: IndexPlan, versions: Versions) -> list[IndexEntry]:
        name, directory = plan_id(plan), self._directory_of(log.engine)
        entries = [entry for entry in listed.entries if entry.info.plan == name and entry.info.directory == directory]
        if not entries:
            return []
        rewriting = self._rewriting
        assert rewriting is not None, "set together with the catalog"
        marks = [max(entry.info.erasures, listed.erasures) for entry in entries]
        events = rewriting.since(log, min(marks))
        found = []
        for entry, mark in zip(entries, marks, strict=True):
            known = events if events is not None else rewriting.since(log, mark)
            if known is not None and _holds(entry, mark, known, versions):
                found.append(entry)
        return found

    def _directory_of(self, engine: Engine) -> str:
        with self._lock:
            if self._directory is None:
                manifest = read_manifest(engine.disk)
                self._directory = "" if manifest is None else manifest.id
                self._rewriting = Rewriting(engine)
            return self._directory

    def _known(self, log: Log, through: int) -> _Known:
        """Return the visible part of the log, at least up to the seq ``through``."""
        known = self._logs.get(log.epoch)
        if known is None or known.revision != log.revision or known.head < through:
            head = log.head
            live = live_ranges_of(log)
            chunks = WeakKeyDictionary() if known is None else known.chunks
            known = self._logs[log.epoch] = _Known(live.revision, head, live.ranges, chunks)
        return known

    def describe(self, log: Log, config: SearchConfig, plan: IndexPlan, versions: Versions) -> IndexFileStatus:
        """Describe the current index files of the log. Opens the files without reading their contents."""
        listed = self.catalog.entries_of(log.epoch)
        chosen = choose(self._holding(log, listed, plan, versions), rollups_id(config), log.head)
        sizes: Counter[str] = Counter()
        total = 0
        ranges: list[tuple[int, int]] = []
        for entry, first, last in chosen:
            index_file = self.catalog.open(entry, perf_counter())
            if index_file is not None or entry.path not in self.catalog.broken:
                ranges.append((first, last))
                sizes.update({} if index_file is None else index_file.sizes())
                total += entry.size
        built_at = max((entry.built_at for entry, _, _ in chosen), default=None)
        return IndexFileStatus(tuple(ranges), sizes, total, built_at, bool(listed.entries) and not chosen)

    def forget(self, log: Log) -> None:
        """Drop the state of a log that is being dropped."""
        self._logs.pop(log.epoch, None)
        self.catalog.forget(log.epoch)


def _holds(entry: IndexEntry, mark: int, events: Iterable[Rewritten], versions: Versions) -> bool:
    info = entry.info
    if versions_between(versions, info.first, info.last) != info.versions:
        return False
    return not any(event.event > mark and event.touches(info.first, info.last) for event in events)


def choose(entries: Sequence[IndexEntry], rollups: str, head: int) -> list[tuple[IndexEntry, int, int]]:
    """Return index files, and the first and last seq that each answers for, so that each record is answered once.

    If several files are possible, prefer one with these rollups, then one that is used from its start, then one that
    reaches further.
    """
    chosen: list[tuple[IndexEntry, int, int]] = []
    at = 1
    while at <= head:
        able = [entry for entry in entries if entry.info.first <= at <= entry.info.last]
        if not able:
            later = [entry.info.first for entry in entries if entry.info.first > at]
            if not later:
                break
            at = min(later)
            continue
        best = max(able, key=lambda entry: _merit(entry, rollups, at))
        last = best.info.last
        if best.info.rollups != rollups:
            # A better file may start in the middle of this one.
            better = [e.info.first for e in entries if e.info.rollups == rollups and at < e.info.first <= last]
            last = min(better, default=last + 1) - 1
        chosen.append((best, at, last))
        at = last + 1
    return chosen


def _merit(entry: IndexEntry, rollups: str, at: int) -> tuple[bool, bool, int]:
    return entry.info.rollups == rollups, entry.info.first == at, entry.info.last
