""":class:`Searcher`, the entry point: searches and aggregations over the logs of a server, and the status of their
indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from strandline.engine import Log
from strandline.query.aggregate import AggregateResult, aggregate
from strandline.query.config import SearchConfig
from strandline.query.index import Cover, IndexPlan, Versions, plan_of
from strandline.query.index_files.answers import IndexFiles, IndexFileStatus
from strandline.query.index_files.catalog import IndexCatalog
from strandline.query.index_files.file import DamagedIndexFile
from strandline.query.providers import Indexes
from strandline.query.requests import AggregateRequest, SearchRequest
from strandline.query.search import Promote, Search, SearchResult


class LogIndexStatus(NamedTuple):
    """What is indexed: by index files, and in memory the records after ``after`` up to ``through``, in ``chunks``
    chunks. Sizes are bytes of memory by column: the fields, and the parts of summaries that rollups add up."""

    plan: IndexPlan
    after: int
    through: int
    chunks: int
    sizes: dict[str, int]
    #: Nothing is indexed by this plan yet, but something is by an earlier one.
    is_stale: bool
    index_files: IndexFileStatus
    #: All seqs that are indexed, by the one or the other, from the first to the last of each stretch; ascending.
    ranges: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """In memory."""
        return sum(self.sizes.values())

    def size_of(self, name: str) -> int:
        """Of one column, in memory and in files."""
        return self.sizes.get(name, 0) + self.index_files.sizes.get(name, 0)

    @property
    def objects(self) -> int:
        """In how many pieces the index is."""
        return self.chunks + len(self.index_files.ranges)

    def covers(self, first: int, last: int) -> bool:
        """Whether all of these records are indexed."""
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
    """Without overlaps, and those side by side as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


T = TypeVar("T")


class Searcher:
    """Safe to use from any thread; everything blocks, for seconds if it must.

    ``versions`` says from which seq on records have which schema version, ascending. ``deadline`` is a time of
    ``perf_counter``.
    """

    def __init__(self, budget: int, catalog: IndexCatalog | None = None) -> None:
        """``budget`` is the maximum memory of all indexes in bytes. ``catalog`` lists the index files of the lake."""
        self.catalog = catalog
        self.indexes = Indexes(budget, None if catalog is None else IndexFiles(catalog))

    def search(
        self,
        log: Log,
        config: SearchConfig,
        request: SearchRequest,
        versions: Versions,
        promote: Promote,
        deadline: float,
    ) -> SearchResult:
        """The best hits. At the deadline whatever was found until then, and it says so."""
        return self._without_damaged(
            lambda: Search(log, config, request, versions, deadline).run(self.indexes, promote)
        )

    def aggregate(
        self, log: Log, config: SearchConfig, request: AggregateRequest, versions: Versions, deadline: float
    ) -> AggregateResult:
        """All groups, over what is indexed at the deadline, and it says how much that is."""
        return self._without_damaged(lambda: aggregate(self.indexes, log, config, request, versions, deadline))

    def _without_damaged(self, answer: Callable[[], T]) -> T:
        """An answer without index files that turn out to be damaged when they are looked at."""
        while True:
            try:
                return answer()
            except DamagedIndexFile as damaged:
                assert self.catalog is not None, "index files come from the catalog"
                self.catalog.report(damaged.path, damaged)

    def wants_look(self, log: Log) -> bool:
        """Whether it is time to look again for index files of the log. Quick."""
        return self.catalog is not None and (self.catalog.is_due or self.catalog.known(log.epoch) is None)

    def refresh_status(self, log: Log, config: SearchConfig, versions: Versions) -> None:
        """Find out which index files there are, for ``held`` to tell."""
        self.indexes.refresh_status(log, config, versions)

    def held(self, log: Log, config: SearchConfig) -> LogIndexStatus:
        """What there is of the log's index in memory, and which index files there were when it was last looked. Quick:
        nothing is read, and nothing is indexed."""
        return held(self.indexes, log, config)

    def forget(self, log: Log) -> None:
        """The log is being dropped: keep nothing of it."""
        self.indexes.forget(log)
