"""What there is of a log's index, for those who want to show it."""

from __future__ import annotations

from typing import NamedTuple

from strandline.engine import Log
from strandline.query.config import SearchConfig
from strandline.query.index import Plan, plan_of
from strandline.query.providing import Indexes


class Held(NamedTuple):
    """The records from behind ``after`` up to ``through`` are indexed. Sizes are bytes of memory by column: the fields,
    and the parts of summaries that rollups add up."""

    plan: Plan
    after: int
    through: int
    chunks: int
    sizes: dict[str, int]
    #: Nothing is indexed by this plan yet, but something is by an earlier one.
    is_stale: bool

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


def held(indexes: Indexes, log: Log, config: SearchConfig) -> Held:
    plan = plan_of(config)
    cover, others = indexes.held(log, plan)
    if cover is None:
        return Held(plan, 0, 0, 0, {}, others)
    sizes: dict[str, int] = {}
    for chunk in cover.chunks:
        for name, column in chunk.columns.items():
            sizes[name] = sizes.get(name, 0) + column.nbytes
    return Held(plan, cover.after, cover.through, len(cover.chunks), sizes, others and not cover.through)
