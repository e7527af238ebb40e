"""Answer queries from index files: which files are valid for the current log, and which of their records still exist.

The engine knows in memory which records were removed. Restored or amended records are different, because their indexed
values are no longer right. A file states how often records had been rewritten when it was built; if the number has
changed, the log of erasures lists which records these are. They are masked in the file and indexed in memory instead.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import DecodeError

from strandline.engine import Engine, Log
from strandline.engine.operations.erasures import NAME, Erasure, is_told, read_erasure
from strandline.engine.reads.single_records import payloads_at
from strandline.engine.reads.status import live_ranges_of, rewrites_of, sealed_through
from strandline.engine.state.forks import layers
from strandline.query.chunk import Chunk, Ranges, live_part, within
from strandline.query.config import SearchConfig
from strandline.query.index import IndexPlan, Versions, chunks_of
from strandline.query.index_files.builder import plan_id, rollups_id, versions_between
from strandline.query.index_files.file import DamagedIndexFile, IndexFile
from strandline.query.index_files.source import IndexSource
from strandline.query.index_files.table import IndexEntry

_BATCH = 4096
#: After reading this many events, those that left the log of erasures are dropped. Dropping visits all events.
_DROP_AFTER = 65_536
#: A file in which more records than this were rewritten is not used. They are indexed in memory, by a request.
MAX_REWRITTEN = 1024
_REWRITES = ("restore", "amend")


def gets_files(log: Log) -> bool:
    """Return whether the server writes index files of a log. They must not contain what a crash or a power cut takes
    back, and removals that leave no events could not be followed."""
    return is_told(log.name) and log.config.durability != "ephemeral"


def filed_through(log: Log) -> int:
    """Return the seq up to which the records of a log belong in index files: those that are sealed. The others, and all
    of a log without files, are indexed in memory."""
    return sealed_through(log) if gets_files(log) else 0


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

    def between(self, first: int, last: int) -> Sequence[int]:
        """Return the seqs between two seqs that the event may affect."""
        first, last = max(first, self.first), min(last, self.last)
        if self.seqs is None:
            return range(first, last + 1)
        return self.seqs[bisect_left(self.seqs, first) : bisect_left(self.seqs, last + 1)]


class Rewriting:
    """The events of one engine that rewrite records, starting at some seq of the log of erasures."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._begin: int | None = None
        self._through = 0
        #: By the epoch of the log, ascending. Events that left the log of erasures are dropped from time to time.
        self._events: dict[int, list[Rewritten]] = {}
        self._read_since_drop = 0
        self._rewrites: dict[int, int] = {}

    @property
    def through(self) -> int:
        """The last event that was read."""
        return self._through

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
                for event in _later(self._events.get(book.epoch, []), mark)
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
            self._read_since_drop += len(page.seqs)
        if self._read_since_drop >= _DROP_AFTER:
            self._read_since_drop = 0
            floor = events.state().evict_floor
            kept = {epoch: [event for event in known if event.event >= floor] for epoch, known in self._events.items()}
            self._events = {epoch: known for epoch, known in kept.items() if known}


def _later(events: list[Rewritten], mark: int) -> list[Rewritten]:
    return events[bisect_right(events, mark, key=lambda event: event.event) :]


def _concerned(seq: int, event: Erasure) -> Rewritten:
    last = event.bound if event.before is None else min(event.bound, event.before - 1)
    return Rewritten(seq, 1, last, None if event.seqs is None else tuple(sorted(event.seqs)))


class Usable(NamedTuple):
    """An index file that is valid, except for the ``rewritten`` seqs (ascending)."""

    entry: IndexEntry
    source: IndexSource
    rewritten: tuple[int, ...] = ()

    @property
    def first(self) -> int:
        return self.entry.info.first

    @property
    def last(self) -> int:
        return self.entry.info.last


class _Changed(NamedTuple):
    """The records of a file that have changed: all, when the log's rewrites were ``rewrites``, by events up to
    ``through``. ``seqs`` is None if the file is not usable because of them."""

    rewrites: int
    through: int
    seqs: tuple[int, ...] | None


class Served(NamedTuple):
    """The records from ``first`` to ``last``, in chunks; none if none of them is left."""

    first: int
    last: int
    chunks: tuple[Chunk, ...]


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


class _Known:
    """The visible seqs of a log up to ``head``, and the chunks without other records."""

    def __init__(self, revision: int, head: int, live: Ranges) -> None:
        self.revision = revision
        self.head = head
        self.live = live
        self._masked: WeakKeyDictionary[IndexFile, tuple[object, Chunk | None]] = WeakKeyDictionary()
        self._rewritten: WeakKeyDictionary[IndexFile, tuple[object, tuple[Chunk, ...]]] = WeakKeyDictionary()

    def move(self, revision: int, head: int, live: Ranges) -> None:
        self.revision, self.head, self.live = revision, head, live

    def masked(self, index_file: IndexFile, live: Ranges, rewritten: tuple[int, ...]) -> Chunk | None:
        """Return the visible part of a file. The same object is returned while the same records are visible, so that
        cached results stay with it."""
        seen = live, rewritten
        known = self._masked.get(index_file)
        if known is None or known[0] != seen:
            chunk = index_file.chunk()
            known = self._masked[index_file] = seen, None if chunk is None else _masked(chunk, live, rewritten)
        return known[1]

    def rewritten(
        self, index_file: IndexFile, log: Log, plan: IndexPlan, versions: Versions, seqs: tuple[int, ...]
    ) -> tuple[Chunk, ...]:
        """Return the current values of these records."""
        seen = seqs, rewrites_of(log), self.revision
        known = self._rewritten.get(index_file)
        if known is None or known[0] != seen:
            found = list(payloads_at(log, seqs))
            chunks = chunks_of(plan, [seq for seq, _ in found], [data for _, data in found], versions)
            known = self._rewritten[index_file] = seen, tuple(chunks)
        return known[1]


def _masked(chunk: Chunk, live: Ranges, rewritten: tuple[int, ...]) -> Chunk | None:
    found = live_part(chunk, live)
    if found is None or not rewritten:
        return found
    gone = np.isin(found.seqs, rewritten, assume_unique=True)
    gone = gone if found.gone is None else gone | found.gone
    return None if gone.all() else found.without(gone)


class IndexFiles:
    """The index files of the logs of one server. Thread-safe. May wait for disks."""

    def __init__(self, sources: Sequence[IndexSource]) -> None:
        self.sources = tuple(sources)
        self._lock = threading.Lock()
        self._rewriting: Rewriting | None = None
        self._logs: dict[int, _Known] = {}
        #: By log, and by the path of a file and its last event: the records that have changed since.
        self._changed: dict[int, dict[tuple[str, int], _Changed]] = {}

    def lay_out(
        self, log: Log, config: SearchConfig, plan: IndexPlan, versions: Versions, deadline: float
    ) -> Laid | None:
        """Return the index files to answer from; None if no index file is valid for the log."""
        opened = self._open(log, config, plan, versions, deadline)
        if not opened:
            return None
        known = self._known(log, min(opened[-1][3], log.head))
        served = []
        for index_file, file, first, last in opened:
            rewritten = file.rewritten[bisect_left(file.rewritten, first) : bisect_left(file.rewritten, last + 1)]
            chunk = known.masked(index_file, within(known.live, first, last), rewritten)
            chunks: tuple[Chunk, ...] = () if chunk is None else (chunk,)
            if rewritten:
                chunks += known.rewritten(index_file, log, plan, versions, rewritten)
            served.append(Served(first, last, chunks))
        return Laid(tuple(served), known.live)

    def _open(
        self, log: Log, config: SearchConfig, plan: IndexPlan, versions: Versions, deadline: float
    ) -> list[tuple[IndexFile, Usable, int, int]]:
        """Return the files to answer from, and the first and last seq that each answers for."""
        rollups = rollups_id(config)
        unopened: set[str] = set()
        while True:
            # Files may be merged while they are opened; then the merged one is there.
            usable = [file for file in self.usable(log, plan, versions) if file.entry.path not in unopened]
            chosen = choose(usable, rollups, log.head)
            opened, missed = _opened(chosen, perf_counter())
            if missed:
                # Wait for files of the lake only if no others have their records.
                others = choose([file for file in usable if file.entry.path not in missed], rollups, log.head)
                if _count(others) < _count(chosen):
                    opened, missed = _opened(chosen, deadline)
            if not missed:
                return opened
            unopened |= missed

    def usable(self, log: Log, plan: IndexPlan, versions: Versions) -> list[Usable]:
        """Return the index files that are valid for the log."""
        if not is_told(log.name):  # its removals leave no events
            return []
        name, directory, rewrites = plan_id(plan), log.engine.maintenance.manifest.id, rewrites_of(log)
        found, older = [], []
        for source in self.sources:
            listed, broken = source.entries_of(log.epoch), source.broken
            for entry in listed.entries:
                info = entry.info
                if (info.plan, info.directory) != (name, directory) or entry.path in broken:
                    continue
                if versions_between(versions, info.first, info.last) != info.versions:
                    continue
                if info.rewrites == rewrites:
                    found.append(Usable(entry, source))
                else:
                    older.append((max(info.erasures, listed.erasures), Usable(entry, source)))
        return [*found, *self._older(log, rewrites, older)] if older else found

    def _older(self, log: Log, rewrites: int, older: list[tuple[int, Usable]]) -> Iterator[Usable]:
        """Yield the files that are valid except for some records. ``older`` are files with the last event that was
        applied in each. What is known of a file is kept, so that later calls look at later events only."""
        before, now = self._changed.get(log.epoch, {}), {}
        rewriting = self._rewriting_of(log.engine)
        for mark, file in older:
            known = before.get((file.entry.path, mark)) or _Changed(-1, mark, ())
            if known.rewrites != rewrites and known.seqs is not None:
                through = rewriting.through
                events = rewriting.since(log, max(mark, known.through))
                seqs = None if events is None else _rewritten(file.entry, known.seqs, events)
                known = _Changed(rewrites, through, seqs)
            now[file.entry.path, mark] = known
            if known.seqs is not None:
                yield file._replace(rewritten=known.seqs)
        self._changed[log.epoch] = now

    def _rewriting_of(self, engine: Engine) -> Rewriting:
        with self._lock:
            if self._rewriting is None:
                self._rewriting = Rewriting(engine)
            return self._rewriting

    def _known(self, log: Log, through: int) -> _Known:
        """Return the visible part of the log, at least up to the seq ``through``."""
        known = self._logs.get(log.epoch)
        if known is None or known.revision != log.revision or known.head < through:
            head = log.head
            live = live_ranges_of(log)
            if known is None:
                known = self._logs[log.epoch] = _Known(live.revision, head, live.ranges)
            else:
                known.move(live.revision, head, live.ranges)
        return known

    def describe(self, log: Log, config: SearchConfig, plan: IndexPlan, versions: Versions) -> IndexFileStatus:
        """Describe the current index files of the log. Opens the files without reading their contents."""
        chosen = choose(self.usable(log, plan, versions), rollups_id(config), log.head)
        sizes: Counter[str] = Counter()
        total = 0
        ranges: list[tuple[int, int]] = []
        for file, first, last in chosen:
            index_file = file.source.open(file.entry, perf_counter())
            if index_file is not None or file.entry.path not in file.source.broken:
                ranges.append((first, last))
                sizes.update({} if index_file is None else index_file.sizes())
                total += file.entry.size
        built_at = max((file.entry.built_at for file, _, _ in chosen), default=None)
        listed = any(source.entries_of(log.epoch).entries for source in self.sources)
        return IndexFileStatus(tuple(ranges), sizes, total, built_at, listed and not chosen)

    def report(self, damaged: DamagedIndexFile) -> None:
        """Do not use a damaged file again."""
        for source in self.sources:
            if source.lists(damaged.path):
                source.report(damaged.path, damaged)

    def forget(self, log: Log) -> None:
        """Drop the state of a log that is being dropped."""
        self._logs.pop(log.epoch, None)
        self._changed.pop(log.epoch, None)
        for source in self.sources:
            source.forget(log.epoch)


#: Files, and the first and last seq that each answers for.
_Chosen = list[tuple[Usable, int, int]]


def _opened(chosen: _Chosen, deadline: float) -> tuple[list[tuple[IndexFile, Usable, int, int]], set[str]]:
    """Open files. Return also the paths of those that cannot be opened until the deadline."""
    opened: list[tuple[IndexFile, Usable, int, int]] = []
    missed: set[str] = set()
    for file, first, last in chosen:
        index_file = file.source.open(file.entry, deadline)
        if index_file is None:
            missed.add(file.entry.path)
        else:
            opened.append((index_file, file, first, last))
    return opened, missed


def _count(chosen: _Chosen) -> int:
    return sum(last - first + 1 for _, first, last in chosen)


def _rewritten(entry: IndexEntry, known: tuple[int, ...], events: Iterable[Rewritten]) -> tuple[int, ...] | None:
    """Return the seqs of the file that events have rewritten, and the known ones, ascending; None if these are too
    many."""
    first, last = entry.info.first, entry.info.last
    seqs = set(known)
    for event in events:
        if event.touches(first, last):
            inside = event.between(first, last)
            if len(inside) <= MAX_REWRITTEN:
                seqs.update(inside)
            if max(len(seqs), len(inside)) > MAX_REWRITTEN:
                return None
    return tuple(sorted(seqs))


def choose(files: Sequence[Usable], rollups: str, head: int) -> _Chosen:
    """Return index files, and the first and last seq that each answers for, so that each record is answered once.

    If several files are possible, prefer one with these rollups, then one that is used from its start, then one that
    reaches further, then one with fewer rewritten records.
    """
    chosen: _Chosen = []
    waiting = sorted(files, key=lambda file: file.first, reverse=True)
    able: list[Usable] = []
    at = 1
    while at <= head:
        while waiting and waiting[-1].first <= at:
            able.append(waiting.pop())
        able = [file for file in able if file.last >= at]
        if not able:
            if not waiting:
                break
            at = waiting[-1].first
            continue
        best = max(able, key=lambda file: _merit(file, rollups, at))
        last = best.last
        if best.entry.info.rollups != rollups:
            # A better file may start in the middle of this one.
            better = (file.first for file in reversed(waiting) if file.entry.info.rollups == rollups)
            last = min(last, next(better, last + 1) - 1)
        chosen.append((best, at, last))
        at = last + 1
    return chosen


def _merit(file: Usable, rollups: str, at: int) -> tuple[bool, bool, int, int]:
    return file.entry.info.rollups == rollups, file.first == at, file.last, -len(file.rewritten)
