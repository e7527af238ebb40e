"""Keyword columns with sorted words, and the values of each word, so that words are looked up instead of scanned for.

They hold the same values as the columns they are made from. They are built once, for records that no longer change.
Numbers are stored in as few bytes as they need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strandline.arrow import pc
from strandline.query.columns import KeywordColumn, Rows, used_words
from strandline.query.selection import Mask, Numbers, Selection
from strandline.query.sorted_words import SortedWords

#: With fewer words than this, a code takes one byte, and comparing all codes is as fast as a lookup.
FEW_WORDS = 256
#: If a range of words has more than one in this many values, comparing all codes is faster than visiting each value.
_DENSE = 16

_NOWHERE = np.empty(0, np.int32)


class PostedKeywordColumn(KeywordColumn):
    """A keyword column whose ``words`` are sorted. The values of word ``i`` are ``order[starts[i]:starts[i + 1]]``,
    ascending. Both arrays are empty if there are few words."""

    __slots__ = ("_sorted", "order", "starts")

    def __init__(self, codes: Numbers, words: Any, rows: Rows | None, order: Numbers, starts: Numbers) -> None:
        super().__init__(codes, words, rows)
        self._sorted = SortedWords(words)
        self.order = order
        self.starts = starts

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.order.nbytes + self.starts.nbytes

    def equal(self, value: str) -> Selection:
        return self._between(*self._sorted.place(value))

    def starting(self, prefix: str) -> Selection:
        return self._between(*self._sorted.starting(prefix))

    @property
    def ranks(self) -> Numbers:
        if self._ranks is None:
            self._ranks = np.arange(len(self.words))
        return self._ranks

    def _between(self, low: int, high: int) -> Selection:
        """Return the values with codes from ``low`` to before ``high``."""
        if low >= high:
            return Selection.nothing(self.count)
        if len(self.starts):
            start, end = int(self.starts[low]), int(self.starts[high])
            if (end - start) * _DENSE < self.count:
                values = self.order[start:end].astype(np.int64)
                return Selection(self.count, rows=values if high - low == 1 else np.sort(values))
        return Selection(self.count, mask=codes_between(self.codes, low, high, len(self.words)))


def codes_between(codes: Numbers, low: int, high: int, words: int) -> Mask:
    """Return which codes are from ``low`` to before ``high``. There are ``words`` codes in total."""
    if high - low == 1:
        return np.asarray(codes == low, np.bool_)
    if low == 0:
        return np.ones(len(codes), np.bool_) if high == words else np.asarray(codes < high, np.bool_)
    if high == words:
        return np.asarray(codes >= low, np.bool_)
    return np.asarray((codes >= low) & (codes < high), np.bool_)


# --- building ----------------------------------------------------------------------------------------------------


def post_keywords(column: KeywordColumn) -> dict[str, Any]:
    """Return the arrays of a keyword column with sorted words."""
    codes, words = sort_words(column.codes, column.words)
    parts = {"codes": narrow(codes, len(words)), "words": words}
    if len(words) > FEW_WORDS:
        # Combine code and position into one number each: numbers are sorted much faster than anything else.
        keys = np.sort(codes.astype(np.int64) << 32 | np.arange(len(codes)))
        parts |= {"order": narrow(keys & 0xFFFFFFFF, len(codes)), "starts": starts_of(codes, len(words))}
    return parts


def sort_words(codes: Numbers, words: Any) -> tuple[Numbers, Any]:
    """Return the same values over sorted words, without unused words."""
    codes, words = used_words(codes, words)
    order = pc.array_sort_indices(words)
    ranks = np.empty(len(words), np.int32)
    ranks[order.to_numpy()] = np.arange(len(words), dtype=np.int32)
    return ranks[codes], words.take(order)


def narrow(numbers: Numbers, below: int) -> Numbers:
    """Return numbers from 0 to before ``below`` in as few bytes as possible."""
    return numbers.astype(smallest(below))


def smallest(below: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest type for numbers from 0 to before ``below``."""
    if below <= 1 << 8:
        return np.uint8
    if below <= 1 << 16:
        return np.uint16
    return np.uint32 if below <= 1 << 32 else np.uint64


def starts_of(codes: Numbers, words: int) -> Numbers:
    """Return where the values of each word start if they are sorted by word, and where the last ones end."""
    starts = np.zeros(words + 1, np.int64)
    np.cumsum(np.bincount(codes, minlength=words), out=starts[1:])
    return narrow(starts, len(codes) + 1)
