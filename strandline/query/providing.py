"""Who answers for which records of a log."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

from strandline.engine import Log
from strandline.engine.errors import UnknownLog
from strandline.query.config import SearchConfig
from strandline.query.index import Cover, Index, Plan, Progress, Versions, plan_of


class Provider(Protocol):
    """Something that has records as chunks, to be asked whole. Searches and aggregations know no more than this."""

    def cover(
        self, log: Log, config: SearchConfig, versions: Versions, head: int, deadline: float
    ) -> tuple[Cover, Progress]:
        """Chunks for as many of the records up to ``head`` as there is time for, and what it took."""


class Indexes:
    """The indexes in memory, by log and by what is indexed. Covers whole logs as long as they fit.

    All together they take about ``budget`` bytes. Those that were asked least recently go first, and of one that is
    too large by itself the oldest records.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._indexes: OrderedDict[tuple[int, Plan], Index] = OrderedDict()
        #: Another number whenever something else is indexed than before.
        self.changes = 0

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(index.nbytes for index in self._indexes.values())

    def sizes(self) -> dict[int, int]:
        """The bytes of memory that the indexes of each log take, by its epoch."""
        sizes: dict[int, int] = {}
        with self._lock:
            for (epoch, _), index in self._indexes.items():
                sizes[epoch] = sizes.get(epoch, 0) + index.nbytes
        return sizes

    def __len__(self) -> int:
        return len(self._indexes)

    def cover(
        self, log: Log, config: SearchConfig, versions: Versions, head: int, deadline: float
    ) -> tuple[Cover, Progress]:
        index = self._index(log, plan_of(config))
        try:
            answer = index.cover(versions, head, deadline)
        except UnknownLog:
            # Dropped after it was asked for: the index was made for nothing.
            self.forget(log)
            raise
        if answer[1].records:
            self._make_room(index)
            self.changes += 1
        return answer

    def held(self, log: Log, plan: Plan) -> tuple[Cover | None, bool]:
        """What is indexed of the log by this plan, and whether something is by another. It does not count as use."""
        with self._lock:
            index = self._indexes.get((log.epoch, plan))
            others = any(epoch == log.epoch and other != plan for epoch, other in self._indexes)
        return None if index is None else index.held(), others

    def forget(self, log: Log) -> None:
        """The log is being dropped."""
        with self._lock:
            for key in [key for key in self._indexes if key[0] == log.epoch]:
                del self._indexes[key]
                self.changes += 1

    def _index(self, log: Log, plan: Plan) -> Index:
        key = log.epoch, plan
        with self._lock:
            index = self._indexes.get(key)
            if index is None:
                index = self._indexes[key] = Index(log, plan)
            self._indexes.move_to_end(key)
            return index

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
