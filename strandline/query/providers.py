"""Choose the index for each range of records of a log: index files, or the index in memory.

Where index files are built in the background, a request never indexes many sealed records: a range that waits for its
file is left out of the answer, and the coverage says so.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from time import monotonic, perf_counter
from typing import NamedTuple, Protocol

from strandline.engine import Log
from strandline.engine.errors import UnknownLog
from strandline.engine.reads.sealed_rows import sealed_ranges
from strandline.query.chunk import Chunk, within
from strandline.query.config import SearchConfig
from strandline.query.index import Cover, Index, IndexPlan, Progress, Versions, behind, plan_of
from strandline.query.index_files.answers import IndexFiles, IndexFileStatus, Laid, Served, filed_through

#: Fewer sealed records than this do not get an index file. A request indexes them in memory, in about 30 ms.
MIN_FILE_ROWS = 4096
#: A request indexes up to this number of new records. If more are waiting, it spends only a short time on them.
MAX_REQUEST_ROWS = 16_384
CATCH_UP_SECONDS = 0.03
#: In between, it looks at the clock. With hundreds of fields, this number takes half a second.
CATCH_UP_ROWS = 4096
#: How old the status of a log's index files may be.
STATUS_SECONDS = 1.0


class Key(NamedTuple):
    """Identifies an index in memory: of the records after ``after`` up to ``until`` or, if both are None, of the last
    records that no index file covers."""

    epoch: int
    plan: IndexPlan
    after: int | None
    until: int | None


class Provider(Protocol):
    """Provides records as chunks. Searches and aggregations depend only on this interface."""

    def cover(
        self, log: Log, config: SearchConfig, versions: Versions, head: int, deadline: float
    ) -> tuple[Cover, Progress]:
        """Return chunks for as many of the records up to ``head`` as the deadline allows, and the work that was
        needed."""


class Indexes:
    """Index files where they exist, and indexes in memory of everything else, by log and by plan.

    The indexes in memory take about ``budget`` bytes in total. The least recently used are evicted first; an index that
    is too large by itself loses its oldest records.
    """

    def __init__(self, budget: int, index_files: IndexFiles | None = None) -> None:
        self.budget = budget
        self.index_files = index_files
        #: Whether index files are built in the background, so that requests need not index sealed records.
        self.in_background = False
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Key, Index] = OrderedDict()
        #: When each status was looked up (of ``monotonic``), and the status.
        self._described: dict[tuple[int, IndexPlan], tuple[float, IndexFileStatus]] = {}
        #: Changes whenever the indexed data changes.
        self.changes = 0

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(index.nbytes for index in self._indexes.values())

    def sizes(self) -> dict[int, int]:
        """The memory of the indexes of each log, by epoch, in bytes."""
        sizes: dict[int, int] = {}
        with self._lock:
            for key, index in self._indexes.items():
                sizes[key.epoch] = sizes.get(key.epoch, 0) + index.nbytes
        return sizes

    def __len__(self) -> int:
        return len(self._indexes)

    def cover(
        self, log: Log, config: SearchConfig, versions: Versions, head: int, deadline: float
    ) -> tuple[Cover, Progress]:
        return self._cover(log, config, versions, head, deadline, is_short=self.in_background)

    def catch_up(self, log: Log, config: SearchConfig, versions: Versions, head: int, deadline: float) -> bool:
        """Extend the index in memory to ``head``. Return False if the deadline has passed before."""
        cover, _ = self._cover(log, config, versions, head, deadline, is_short=False)
        # A range that waits for its file may be the last one.
        return cover.through >= head or perf_counter() < deadline

    def through(self, log: Log, config: SearchConfig) -> int:
        """Return the seq up to which the index in memory extends; 0 if there is none."""
        with self._lock:
            index = self._indexes.get(Key(log.epoch, plan_of(config), None, None))
        return 0 if index is None else index.through

    def _cover(
        self, log: Log, config: SearchConfig, versions: Versions, head: int, deadline: float, *, is_short: bool
    ) -> tuple[Cover, Progress]:
        """With ``is_short``, do not spend more than a short time on a long backlog."""
        plan = plan_of(config)
        laid = None
        covering = _Covering(head)
        try:
            if self.index_files is not None:
                laid = self.index_files.lay_out(log, config, plan, versions, deadline)
            for after, until, served in _stretches(laid, head):
                if served is not None:
                    covering.add(served.chunks, served.last)
                    continue
                start = self._start(log, plan, after, until)
                if start > after:
                    covering.leave_out(after, start)
                if start != until:
                    for index in self._in_memory(log, plan, start, until):
                        limits = (_until(index, head, deadline), CATCH_UP_ROWS) if is_short else (deadline, None)
                        self._bring_up(covering, index, start, versions, head, limits)
        except UnknownLog:
            # The log was dropped after the request started, so the index is not needed.
            self.forget(log)
            raise
        if covering.records:
            self.changes += 1
        return covering.cover, covering.progress

    def _bring_up(
        self,
        covering: _Covering,
        index: Index,
        after: int,
        versions: Versions,
        head: int,
        limits: tuple[float, int | None],
    ) -> None:
        cover, progress = index.cover(versions, head, *limits)
        covering.add_index(cover, progress, max(after, covering.through), index.until)
        if progress.records:
            self._make_room(index)

    def _start(self, log: Log, plan: IndexPlan, after: int, until: int | None) -> int:
        """Return the seq after which a range without index files is indexed in memory. The records before it wait for a
        file."""
        filed = filed_through(log)
        if not self.in_background or not filed:
            return after
        limit = until
        if limit is None:
            with self._lock:
                index = self._indexes.get(Key(log.epoch, plan, None, None))
            # What is in memory is used until there is a file.
            limit = filed if index is None else min(index.begin, filed)
        return limit if after < limit and is_file_due(log, after, limit) else after

    def refresh_status(self, log: Log, config: SearchConfig, versions: Versions) -> None:
        """Update the information about the index files of a log, for status displays."""
        if self.index_files is not None:
            plan, now = plan_of(config), monotonic()
            found = self.index_files.describe(log, config, plan, versions)
            if self.described(log, plan) != found:
                self.changes += 1
            self._described[log.epoch, plan] = now, found

    def is_status_due(self, log: Log, config: SearchConfig) -> bool:
        """Return whether the information about the index files of a log should be updated. Never waits."""
        found = self._described.get((log.epoch, plan_of(config)))
        return self.index_files is not None and (found is None or monotonic() - found[0] >= STATUS_SECONDS)

    def described(self, log: Log, plan: IndexPlan) -> IndexFileStatus:
        """Return the last known status. Never waits."""
        found = self._described.get((log.epoch, plan))
        return IndexFileStatus() if found is None else found[1]

    def held(self, log: Log, plan: IndexPlan) -> tuple[Cover | None, bool]:
        """Return the records of the log in memory for this plan, and whether there are some for another plan. Does not
        count as use."""
        with self._lock:
            found = [index for key, index in self._indexes.items() if (key.epoch, key.plan) == (log.epoch, plan)]
            others = any(key.epoch == log.epoch and key.plan != plan for key in self._indexes)
        if not found:
            return None, others
        covering = _Covering(log.head)
        for index in sorted(found, key=lambda index: index.begin):
            if index.begin >= covering.through:
                covering.add_index(index.held(), _NO_PROGRESS, covering.through, index.until)
        return covering.cover, others

    def forget(self, log: Log) -> None:
        """Drop the state of a log that is being dropped."""
        if self.index_files is not None:
            self.index_files.forget(log)
        with self._lock:
            for known in [known for known in self._described if known[0] == log.epoch]:
                del self._described[known]
            for key in [key for key in self._indexes if key.epoch == log.epoch]:
                del self._indexes[key]
                self.changes += 1

    def _in_memory(self, log: Log, plan: IndexPlan, after: int, until: int | None) -> list[Index]:
        """Return the indexes for the records after ``after`` up to ``until``, or without an end."""
        with self._lock:
            if until is not None:
                return [self._index(log, Key(log.epoch, plan, after, until))]
            open_key = Key(log.epoch, plan, None, None)
            index = self._indexes.get(open_key)
            if index is None:
                index = self._indexes[open_key] = Index(log, plan, after)
            self._indexes.move_to_end(open_key)
            if index.begin > after:
                # Index files that covered the records in between no longer do.
                return [self._index(log, Key(log.epoch, plan, after, index.begin)), index]
        if index.begin < after:
            index.begin_behind(after)
            self._drop_covered(open_key, after)
        return [index]

    def _index(self, log: Log, key: Key) -> Index:
        index = self._indexes.get(key)
        if index is None:
            assert key.after is not None
            index = self._indexes[key] = Index(log, key.plan, key.after, key.until)
        self._indexes.move_to_end(key)
        return index

    def _drop_covered(self, open_key: Key, after: int) -> None:
        """Release the memory for records between index files that further index files now cover."""
        with self._lock:
            for key in list(self._indexes):
                if key[:2] == open_key[:2] and key.until is not None and key.until <= after:
                    del self._indexes[key]

    def _make_room(self, latest: Index) -> None:
        with self._lock:
            sizes = {key: index.nbytes for key, index in self._indexes.items()}
            total = sum(sizes.values())
            for key, size in sizes.items():
                if total <= self.budget:
                    return
                if self._indexes[key] is not latest:
                    del self._indexes[key]
                    total -= size
        if total > self.budget:
            latest.shrink(self.budget)


class _Covering:
    """Builds a cover, in the order of the log."""

    def __init__(self, head: int) -> None:
        self._head = head
        self._chunks: list[Chunk] = []
        self._gaps: list[tuple[int, int]] = []
        self.through = 0
        self.records = 0
        self._size = 0
        self._seconds = 0.0

    def add(self, chunks: tuple[Chunk, ...], last: int) -> None:
        """Add the records after ``through`` up to ``last``."""
        self._chunks += chunks
        self.through = last

    def leave_out(self, after: int, last: int) -> None:
        """Leave out the records after ``after`` up to ``last``."""
        self._gaps.append((after + 1, last))
        self.through = last

    def add_index(self, cover: Cover, progress: Progress, after: int, until: int | None) -> None:
        """Add the part of an index with the records after ``after`` up to ``until``."""
        if cover.after > after:
            self._gaps.append((after + 1, cover.after))
        for chunk in cover.chunks:
            kept = chunk if chunk.first > after else behind(chunk, after)
            if kept is not None:
                self._chunks.append(kept)
        self.through = max(cover.through, after)
        if until is not None and self.through < until:
            self._gaps.append((self.through + 1, until))
            self.through = until
        self.records += progress.records
        self._size += progress.size
        self._seconds += progress.seconds

    @property
    def cover(self) -> Cover:
        gaps, through = list(self._gaps), self.through
        if gaps and gaps[-1][1] == through and gaps[-1][0] > 1:
            through = gaps.pop()[0] - 1
        after = 0
        while gaps and gaps[0][0] == after + 1:
            after = gaps.pop(0)[1]
        return Cover(tuple(self._chunks), after, through, tuple(gaps))

    @property
    def progress(self) -> Progress:
        return Progress(self.records, self._size, self._seconds)


_NO_PROGRESS = Progress(0, 0, 0.0)


def _stretches(laid: Laid | None, head: int) -> Iterator[tuple[int, int | None, Served | None]]:
    """Yield the ranges of the log from its start: those that index files answer, and those between and after them.
    Ranges without visible records are skipped."""
    at = 0
    for served in () if laid is None else laid.served:
        assert laid is not None
        if served.first > at + 1 and within(laid.live, at + 1, served.first - 1):
            yield at, served.first - 1, None
        yield served.first - 1, served.last, served
        at = served.last
    if at < head or laid is None:
        yield at, None, None


def is_file_due(log: Log, after: int, last: int) -> bool:
    """Return whether the sealed records after ``after`` up to ``last`` are enough for an index file."""
    rows = 0
    for part in sealed_ranges(log, after):
        if part.first > last:
            break
        rows += min(part.rows, last - part.first + 1)
        if rows >= MIN_FILE_ROWS:
            return True
    return False


def _until(index: Index, head: int, deadline: float) -> float:
    """Return until when a request extends an index."""
    return deadline if head - index.through <= MAX_REQUEST_ROWS else min(deadline, perf_counter() + CATCH_UP_SECONDS)
