"""What there is of a log's index, for those who want to show it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.engine import Log
from strandline.query.companions.answers import Described
from strandline.query.config import SearchConfig
from strandline.query.index import Cover, Plan, plan_of
from strandline.query.providers import Indexes


class Held(NamedTuple):
    """What is indexed: by companions, and in memory the records from behind ``after`` up to ``through``, in so many
    ``chunks``. Sizes are bytes of memory by column: the fields, and the parts of summaries that rollups add up."""

    plan: Plan
    after: int
    through: int
    chunks: int
    sizes: dict[str, int]
    #: Nothing is indexed by this plan yet, but something is by an earlier one.
    is_stale: bool
    companions: Described
    #: All seqs that are indexed, by the one or the other, from the first to the last of each stretch; ascending.
    ranges: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """In memory."""
        return sum(self.sizes.values())

    def size_of(self, name: str) -> int:
        """Of one column, in memory and in files."""
        return self.sizes.get(name, 0) + self.companions.sizes.get(name, 0)

    @property
    def objects(self) -> int:
        """In how many pieces the index is."""
        return self.chunks + len(self.companions.ranges)

    def covers(self, first: int, last: int) -> bool:
        """Whether all of these records are indexed."""
        return any(low <= first and last <= high for low, high in self.ranges)


def held(indexes: Indexes, log: Log, config: SearchConfig) -> Held:
    plan = plan_of(config)
    companions = indexes.described(log, plan)
    cover, others = indexes.held(log, plan)
    if cover is None:
        cover = Cover((), 0, 0)
    sizes: dict[str, int] = {}
    for chunk in cover.chunks:
        for name, column in chunk.columns.items():
            sizes[name] = sizes.get(name, 0) + column.nbytes
    ranges = _joined([*companions.ranges, *_covered(cover)])
    is_stale = (others or companions.is_stale) and not ranges
    return Held(plan, cover.after, cover.through, len(cover.chunks), sizes, is_stale, companions, ranges)


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
