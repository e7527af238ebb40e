""":class:`Searcher`, the entry point: searches and aggregations over the logs of a server, and the status of their
indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from strandline.engine import Log
from strandline.query.aggregate import AggregateResult, aggregate
from strandline.query.config import SearchConfig
from strandline.query.index import Cover, IndexPlan, Versions, plan_of
from strandline.query.index_files.answers import IndexFiles, IndexFileStatus
from strandline.query.index_files.file import DamagedIndexFile
from strandline.query.index_files.source import IndexSource
from strandline.query.providers import Indexes
from strandline.query.requests import AggregateRequest, SearchRequest
from strandline.query.search import Coverage, Promote, Search, SearchResult


class LogIndexStatus(NamedTuple):
    """The index of a log: index files, and in memory the records after ``after`` up to ``through``, in ``chunks``
    chunks. Sizes are bytes of memory by column: the fields, and the parts of summaries that rollups sum up."""

    plan: IndexPlan
    after: int
    through: int
    chunks: int
    sizes: dict[str, int]
    #: Whether nothing is indexed by this plan yet, but there is an index by an earlier one.
    is_stale: bool
    index_files: IndexFileStatus
    #: All indexed ranges of seqs, in files or in memory; ascending, inclusive.
    ranges: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """The size of the index in memory."""
        return sum(self.sizes.values())

    def size_of(self, name: str) -> int:
        """Return the size of one column, in memory and in files."""
        return self.sizes.get(name, 0) + self.index_files.sizes.get(name, 0)

    @property
    def objects(self) -> int:
        """The number of files and chunks of the index."""
        return self.chunks + len(self.index_files.ranges)

    def covers(self, first: int, last: int) -> bool:
        """Return whether all of these records are indexed."""
        return any(low <= first and last <= high for low, high in self.ranges)


def held(indexes: Indexes, log: Log, config: SearchConfig) -> LogIndexStatus:
    plan = plan_of(config)
    index_files = indexes.described(log, plan)
    cover, others = indexes.held(log, plan)
    if cover is None:
        cover = Cover((), 0, 0)
    sizes: dict[str, int] = {}
    for chunk in cover.chunks:
        for name, column in chunk.columns.items():
            sizes[name] = sizes.get(name, 0) + column.nbytes
    ranges = _joined([*index_files.ranges, *_covered(cover)])
    is_stale = (others or index_files.is_stale) and not ranges
    return LogIndexStatus(plan, cover.after, cover.through, len(cover.chunks), sizes, is_stale, index_files, ranges)


def _covered(cover: Cover) -> Iterable[tuple[int, int]]:
    first = cover.after + 1
    for low, high in cover.gaps:
        if first < low:
            yield first, low - 1
        first = high + 1
    if first <= cover.through:
        yield first, cover.through


def _joined(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merge overlapping and adjacent ranges."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


T = TypeVar("T")


class Searcher:
    """Thread-safe. Searches and aggregations block, possibly for seconds.

    ``versions`` has the first seq of each schema version, ascending. ``deadline`` is a time of ``perf_counter``.
    """

    def __init__(self, budget: int, sources: Sequence[IndexSource] = ()) -> None:
        """``budget`` is the maximum memory of all indexes in bytes. ``sources`` have the index files."""
        self.index_files = IndexFiles(sources)
        self.indexes = Indexes(budget, self.index_files if sources else None)
        #: Called after every search and aggregation with the log, its configuration and versions, and the coverage.
        self.searched: Callable[[Log, SearchConfig, Versions, Coverage], None] = lambda *_: None

    def search(
        self,
        log: Log,
        config: SearchConfig,
        request: SearchRequest,
        versions: Versions,
        promote: Promote,
        deadline: float,
    ) -> SearchResult:
        """Return the best hits. At the deadline, return the hits found so far; the result says that it is
        incomplete."""
        result = self._without_damaged(
            lambda: Search(log, config, request, versions, deadline).run(self.indexes, promote)
        )
        self.searched(log, config, versions, result.coverage)
        return result

    def aggregate(
        self, log: Log, config: SearchConfig, request: AggregateRequest, versions: Versions, deadline: float
    ) -> AggregateResult:
        """Return all groups, over the records indexed at the deadline. The result says how many these are."""
        result = self._without_damaged(lambda: aggregate(self.indexes, log, config, request, versions, deadline))
        self.searched(log, config, versions, result.coverage)
        return result

    def _without_damaged(self, answer: Callable[[], T]) -> T:
        """Return an answer. If index files turn out to be damaged, answer again without them."""
        while True:
            try:
                return answer()
            except DamagedIndexFile as damaged:
                self.index_files.report(damaged)

    def wants_look(self, log: Log, config: SearchConfig) -> bool:
        """Return whether the index files of the log should be checked again. Fast."""
        return self.indexes.is_status_due(log, config)

    def look(self, log: Log, config: SearchConfig, versions: Versions) -> None:
        """Update the information about index files that ``held`` returns."""
        self.indexes.refresh_status(log, config, versions)

    def held(self, log: Log, config: SearchConfig) -> LogIndexStatus:
        """Return the log's index in memory, and the last known index files. Fast: reads and indexes nothing."""
        return held(self.indexes, log, config)

    def forget(self, log: Log) -> None:
        """Release all state of a log that is being dropped."""
        self.indexes.forget(log)
