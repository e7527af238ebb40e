"""The names of all logs in order, for listing: quick with a million of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import islice


class Names:
    """Adding and removing costs next to nothing; the order is made when somebody asks."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._ordered: list[str] = []
        #: Not in the list yet, and in the list but not to be shown.
        self._new = set(names)
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
        """Names with the prefix, from behind ``after`` on."""
        ordered = self._put_in_order()
        at = max(bisect_left(ordered, prefix), bisect_right(ordered, after) if after else 0)
        end = (
            bisect_left(ordered, True, lo=at, key=lambda name: not name.startswith(prefix)) if prefix else len(ordered)
        )
        if not self._gone:
            return ordered[at : end if limit is None else min(end, at + limit)]
        return list(islice((ordered[row] for row in range(at, end) if ordered[row] not in self._gone), limit))

    def _put_in_order(self) -> list[str]:
        if self._gone and 2 * len(self._gone) > len(self._ordered):
            self._ordered = [name for name in self._ordered if name not in self._gone]
            self._gone.clear()
        if self._new:
            self._ordered.extend(sorted(self._new))
            # Two sorted stretches: merging them is a single pass.
            self._ordered.sort()
            self._new.clear()
        return self._ordered
