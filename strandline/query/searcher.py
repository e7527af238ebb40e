"""The door: searches and aggregations over the logs of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strandline.engine import Log
from strandline.query.aggregate import AggregateResult, aggregate
from strandline.query.companions.answers import Companions
from strandline.query.companions.catalog import Shelf
from strandline.query.companions.file import DamagedCompanion
from strandline.query.config import SearchConfig
from strandline.query.index import Versions
from strandline.query.index_status import Held, held
from strandline.query.providers import Indexes
from strandline.query.requests import AggregateRequest, SearchRequest
from strandline.query.search import Promote, Search, SearchResult

T = TypeVar("T")


class Searcher:
    """Safe to use from any thread; everything blocks, for seconds if it must.

    ``versions`` says from which seq on records have which schema version, ascending. ``deadline`` is a time of
    ``perf_counter``.
    """

    def __init__(self, budget: int, shelf: Shelf | None = None) -> None:
        """``budget``: what the indexes may take of the memory, in bytes. ``shelf``: where companions are, if there may
        be any."""
        self.shelf = shelf
        self.indexes = Indexes(budget, None if shelf is None else Companions(shelf))

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
        """An answer without companions that turn out to be damaged when they are looked at."""
        while True:
            try:
                return answer()
            except DamagedCompanion as damaged:
                assert self.shelf is not None, "companions come from there"
                self.shelf.report(damaged.path, damaged)

    def wants_look(self, log: Log) -> bool:
        """Whether it is time to look again for companions of the log. Quick."""
        return self.shelf is not None and (self.shelf.is_due or self.shelf.known(log.epoch) is None)

    def look(self, log: Log, config: SearchConfig, versions: Versions) -> None:
        """Find out which companions there are, for ``held`` to tell."""
        self.indexes.look(log, config, versions)

    def held(self, log: Log, config: SearchConfig) -> Held:
        """What there is of the log's index in memory, and which companions there were when it was last looked. Quick:
        nothing is read, and nothing is indexed."""
        return held(self.indexes, log, config)

    def forget(self, log: Log) -> None:
        """The log is being dropped: keep nothing of it."""
        self.indexes.forget(log)
