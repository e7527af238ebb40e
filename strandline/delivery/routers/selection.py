"""Which records of a page go on, as ranges of seqs: worked out once for all routers that want the same."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.delivery.routers.definition import Filter
from strandline.engine import Page


class Choice:
    """Some rows of a page. ``rows`` is None when it is all of them."""

    __slots__ = ("ranges", "rows", "seqs")

    def __init__(self, seqs: Sequence[int], rows: Sequence[int] | None) -> None:
        self.seqs = seqs
        self.rows = rows
        self.ranges = ranges_of(seqs)

    def __len__(self) -> int:
        return len(self.seqs)


class Selection:
    """What one page of the source has for its routers. ``lost`` records are gone that would have come before it."""

    def __init__(self, page: Page, position: int) -> None:
        self.page = page
        self.position = position
        self.through = page.next_after
        tombstone = page.tombstone
        self.lost = 0 if tombstone is None else max(0, tombstone.gap_to - max(tombstone.gap_from, position + 1) + 1)
        self._choices: dict[Filter | None, Choice] = {}
        self._rows_of_keys: dict[str, list[int]] | None = None

    def choose(self, filter: Filter | None) -> Choice:
        choice = self._choices.get(filter)
        if choice is None:
            choice = self._choices[filter] = self._choose(filter)
        return choice

    def _choose(self, filter: Filter | None) -> Choice:
        seqs = self.page.seqs
        if filter is None:
            return Choice(seqs, None)
        by_key = self._by_key()
        if filter.prefix is None:
            rows = by_key.get(filter.key or "", [])
        else:
            rows = sorted(row for key, rows in by_key.items() if filter.accepts(key) for row in rows)
        return Choice([seqs[row] for row in rows], rows)

    def _by_key(self) -> dict[str, list[int]]:
        if self._rows_of_keys is None:
            self._rows_of_keys = {}
            for row, key in enumerate(self.page.keys):
                if key is not None:
                    self._rows_of_keys.setdefault(key, []).append(row)
        return self._rows_of_keys

    def narrow(self, choice: Choice, keep: Sequence[bool]) -> Choice:
        """Those of the choice that are to be kept."""
        rows = range(len(self.page)) if choice.rows is None else choice.rows
        kept = [row for row, wanted in zip(rows, keep, strict=True) if wanted]
        return Choice([self.page.seqs[row] for row in kept], kept)

    def first_of(self, choice: Choice, count: int) -> Choice:
        rows = range(count) if choice.rows is None else choice.rows[:count]
        return Choice(choice.seqs[:count], rows)

    def metas(self, choice: Choice) -> list[bytes | None]:
        metas = self.page.metas
        return metas if choice.rows is None else [metas[row] for row in choice.rows]

    def data(self, choice: Choice) -> list[bytes]:
        data = self.page.data
        return data if choice.rows is None else [data[row] for row in choice.rows]


def ranges_of(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending seqs as ranges, both ends inclusive."""
    if not seqs:
        return []
    if seqs[-1] - seqs[0] + 1 == len(seqs):
        return [(seqs[0], seqs[-1])]
    ranges: list[tuple[int, int]] = []
    first = last = seqs[0]
    for seq in seqs:
        if seq > last + 1:
            ranges.append((first, last))
            first = seq
        last = seq
    ranges.append((first, last))
    return ranges
