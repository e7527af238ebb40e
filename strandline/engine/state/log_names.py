"""The names of all logs in order, for listing. Fast even with a million logs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import islice

#: Names from the first (inclusive) to the second (exclusive); None: to the end.
Span = tuple[str, str | None]

#: Inserting or removing one name moves all names after it, which is fast. For more changes than this, the list is
#: rebuilt.
_ONE_BY_ONE = 64


class Names:
    """A sorted set of names. Adding and removing is cheap; the names are sorted when they are read."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._ordered = sorted(names)
        #: Names that are not in the list yet, and names in the list that were removed.
        self._new: set[str] = set()
        self._gone: set[str] = set()

    def add(self, name: str) -> None:
        if name in self._gone:
            self._gone.discard(name)
        else:
            self._new.add(name)

    def remove(self, name: str) -> None:
        if name in self._new:
            self._new.discard(name)
        else:
            self._gone.add(name)

    def page(self, prefix: str, after: str, limit: int | None) -> list[str]:
        """Return names with the prefix, starting after ``after``."""
        ordered = self._put_in_order()
        at = max(bisect_left(ordered, prefix), bisect_right(ordered, after) if after else 0)
        end = (
            bisect_left(ordered, True, lo=at, key=lambda name: not name.startswith(prefix)) if prefix else len(ordered)
        )
        if not self._gone:
            return ordered[at : end if limit is None else min(end, at + limit)]
        return list(islice((ordered[row] for row in range(at, end) if ordered[row] not in self._gone), limit))

    def slice(self, spans: Iterable[Span], hidden: Sequence[str], position: int, limit: int) -> list[str]:
        """Return ``limit`` names from the ``position``-th on, counted from 0, of those within the spans and not hidden.

        The spans ascend and do not overlap; ``hidden`` are existing names, ascending. The cost does not depend on the
        position.
        """
        ordered, found = self._without_gone(), list[str]()
        for low, high in spans:
            start, end = _between(ordered, low, high)
            first, last = _between(hidden, low, high)
            visible = (end - start) - (last - first)
            if position >= visible:
                position -= visible
                continue

            def rank(row: int, start: int = start, first: int = first, last: int = last) -> int:
                """Return the number of visible names up to a row."""
                return row + 1 - start - (bisect_right(hidden, ordered[row], first, last) - first)

            at = start + bisect_left(range(start, end), position + 1, key=rank)
            shown = (ordered[row] for row in range(at, end) if not _has(hidden, ordered[row]))
            found.extend(islice(shown, limit - len(found)))
            if len(found) == limit:
                break
            position = 0
        return found

    def _put_in_order(self) -> list[str]:
        if self._gone and 2 * len(self._gone) > len(self._ordered):
            self._forget_gone()
        new, ordered = sorted(self._new), self._ordered
        self._new.clear()
        if len(new) <= _ONE_BY_ONE:
            for name in new:
                insort(ordered, name)
        else:
            ordered.extend(new)
            # Two sorted ranges: merging them is a single pass.
            ordered.sort()
        return ordered

    def _without_gone(self) -> list[str]:
        ordered = self._put_in_order()
        if len(self._gone) > _ONE_BY_ONE:
            return self._forget_gone()
        for name in self._gone:
            del ordered[bisect_left(ordered, name)]
        self._gone.clear()
        return ordered

    def _forget_gone(self) -> list[str]:
        ordered, kept, at = self._ordered, list[str](), 0
        for name in sorted(self._gone):
            place = bisect_left(ordered, name, at)
            kept += ordered[at:place]
            at = place + 1
        kept += ordered[at:]
        self._ordered = kept
        self._gone.clear()
        return kept


def _between(names: Sequence[str], low: str, high: str | None) -> tuple[int, int]:
    start = bisect_left(names, low)
    return start, max(start, len(names) if high is None else bisect_left(names, high))


def _has(names: Sequence[str], name: str) -> bool:
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name
