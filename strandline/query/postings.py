"""Columns with sorted words and their positions, so that words are looked up instead of scanned for.

They hold the same values as the columns they are made from. They are built once, for records that no longer change.
Numbers are stored in as few bytes as they need.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import pyarrow.compute as pc

from strandline.query.columns import KeywordColumn, Mask, Numbers, Occurrences, Rows, TextColumn, used_words
from strandline.query.values import Value

#: With fewer words than this, a code takes one byte, and comparing all codes is as fast as a lookup.
FEW_WORDS = 256
#: If a range of words has more than one in this many values, comparing all codes is faster than visiting each value.
_DENSE = 8

NOWHERE = np.empty(0, np.int32)


class PostedKeywordColumn(KeywordColumn):
    """A keyword column whose ``words`` are sorted. The values of word ``i`` are ``order[starts[i]:starts[i + 1]]``,
    ascending. Both arrays are empty if there are few words."""

    __slots__ = ("order", "starts")

    def __init__(self, codes: Numbers, words: Any, rows: Rows | None, order: Numbers, starts: Numbers) -> None:
        super().__init__(codes, words, rows)
        self.order = order
        self.starts = starts

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.order.nbytes + self.starts.nbytes

    def equal(self, value: Value) -> Mask:
        assert isinstance(value, str)
        low = word_place(self.words, value)
        found = low < len(self.words) and self.words[low].as_py() == value
        return self._between(low, low + found)

    def starting(self, prefix: str) -> Mask:
        return self._between(*prefix_places(self.words, prefix))

    @property
    def ranks(self) -> Numbers:
        if self._ranks is None:
            self._ranks = np.arange(len(self.words))
        return self._ranks

    def _between(self, low: int, high: int) -> Mask:
        """Return the values with codes from ``low`` to before ``high``."""
        if low >= high:
            return np.zeros(self.count, np.bool_)
        if len(self.starts):
            start, end = int(self.starts[low]), int(self.starts[high])
            if (end - start) * _DENSE < self.count:
                mask = np.zeros(self.count, np.bool_)
                mask[self.order[start:end]] = True
                return mask
        return codes_between(self.codes, low, high, len(self.words))


class PostedTextColumn(TextColumn):
    """A text column whose ``words`` are sorted. Word ``i`` is in the values ``values[starts[i]:starts[i + 1]]``,
    ascending, and ``counts`` has the number of occurrences in each."""

    __slots__ = ("counts", "starts", "values")

    def __init__(
        self,
        tokens: Numbers,
        words: Any,
        bounds: Numbers,
        rows: Rows | None,
        values: Numbers,
        counts: Numbers,
        starts: Numbers,
    ) -> None:
        super().__init__(tokens, words, bounds, rows)
        self.values = values
        self.counts = counts
        self.starts = starts

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.values.nbytes + self.counts.nbytes + self.starts.nbytes

    def hits(self, token: str, prefix: bool) -> Mask | None:
        low, high = self._places(token, prefix)
        return codes_between(self.tokens, low, high, len(self.words)) if low < high else None

    def occurrences(self, token: str, prefix: bool) -> Occurrences:
        """Return the values with this token, or with a token that starts with it, and how often."""
        low, high = self._places(token, prefix)
        if low >= high:
            return Occurrences(NOWHERE, [NOWHERE])
        start, end = int(self.starts[low]), int(self.starts[high])
        values, counts = self.values[start:end], self.counts[start:end]
        if high - low == 1:
            return Occurrences(values, [counts])
        return self._summed(values, counts)

    def phrase(self, tokens: tuple[str, ...], prefix: bool) -> Occurrences:
        """Return the values in which these tokens are consecutive, and how often."""
        ranges = [self._places(token, prefix and at == len(tokens) - 1) for at, token in enumerate(tokens)]
        if any(low >= high for low, high in ranges):
            return Occurrences(NOWHERE, [NOWHERE])
        candidates = self._with_all([self.occurrences(token, prefix and at == len(tokens) - 1).values
                                     for at, token in enumerate(tokens)])  # fmt: skip
        lengths = self.bounds[candidates + 1] - self.bounds[candidates]
        # A phrase must start where all of its tokens fit.
        rooms = np.maximum(lengths - len(tokens) + 1, 0)
        ends = np.cumsum(rooms)
        total = int(ends[-1]) if len(ends) else 0
        starts = np.repeat(self.bounds[candidates] - (ends - rooms), rooms) + np.arange(total)
        owners = np.repeat(np.arange(len(candidates)), rooms)
        for at, (low, high) in enumerate(ranges):
            kept = codes_between(self.tokens[starts + at], low, high, len(self.words))
            starts, owners = starts[kept], owners[kept]
        counts = np.bincount(owners, minlength=len(candidates))
        found = np.flatnonzero(counts)
        return Occurrences(candidates[found], [counts[found]])

    def _places(self, token: str, prefix: bool) -> tuple[int, int]:
        if prefix:
            return prefix_places(self.words, token)
        low = word_place(self.words, token)
        return low, low + (low < len(self.words) and self.words[low].as_py() == token)

    def _summed(self, values: Numbers, counts: Numbers) -> Occurrences:
        """Combine several words: every value once, with the sum of its counts."""
        if len(values) * _DENSE > self.count:
            sums = np.bincount(values, minlength=self.count)
            # Nearly all values occur once.
            more = np.flatnonzero(counts > 1)
            np.add.at(sums, values[more], counts[more].astype(np.int64) - 1)
            found = np.flatnonzero(sums)
            return Occurrences(found, [sums[found]])
        order = np.argsort(values, kind="stable")
        values, counts = values[order], counts[order]
        firsts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
        return Occurrences(values[firsts], [np.add.reduceat(counts, firsts, dtype=np.int64)])

    @staticmethod
    def _with_all(lists: list[Numbers]) -> Numbers:
        lists.sort(key=len)
        common = lists[0]
        for other in lists[1:]:
            common = common[is_among(common, other)]
        return common.astype(np.int64)


def is_among(values: Numbers, others: Numbers) -> Mask:
    """Return which of the values are among the others. Both ascend without duplicates."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    places = np.searchsorted(others, values)
    places[places == len(others)] = 0
    return np.asarray(others[places] == values, np.bool_)


def word_place(words: Any, word: str) -> int:
    """Return the index of the first word that is not less, by code point, which is also the order of UTF-8."""
    return bisect_left(range(len(words)), word, key=lambda place: words[place].as_py())


def prefix_places(words: Any, prefix: str) -> tuple[int, int]:
    """Return the start and end of the words that start with the prefix."""
    low = word_place(words, prefix)
    places = range(len(words))
    return low, bisect_left(places, True, lo=low, key=lambda place: not words[place].as_py().startswith(prefix))


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


def post_keywords(column: KeywordColumn) -> PostedKeywordColumn:
    codes, words = sort_words(column.codes, column.words)
    order = starts = NOWHERE
    if len(words) > FEW_WORDS:
        # Combine code and position into one number each: numbers are sorted much faster than anything else.
        keys = np.sort(codes.astype(np.int64) << 32 | np.arange(len(codes)))
        order = (keys & 0xFFFFFFFF).astype(np.int32)
        starts = _starts(codes, len(words))
    return PostedKeywordColumn(narrow(codes, len(words)), words, column.rows, order, starts)


def post_texts(column: TextColumn) -> PostedTextColumn:
    tokens, words = sort_words(column.tokens, column.words)
    owners = np.repeat(np.arange(column.count), np.diff(column.bounds))
    keys = np.sort(tokens.astype(np.int64) << 32 | owners)
    firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else np.empty(0, np.int64)
    counts = np.diff(np.append(firsts, len(keys)))
    keys = keys[firsts]
    values = (keys & 0xFFFFFFFF).astype(np.int32)
    starts = _starts(keys >> 32, len(words))
    most = int(counts.max()) + 1 if len(counts) else 0
    return PostedTextColumn(
        narrow(tokens, len(words)), words, column.bounds, column.rows, values, narrow(counts, most), starts
    )


def sort_words(codes: Numbers, words: Any) -> tuple[Numbers, Any]:
    """Return the same values over sorted words, without unused words."""
    codes, words = used_words(codes, words)
    order = pc.array_sort_indices(words)
    ranks = np.empty(len(words), np.int32)
    ranks[order.to_numpy()] = np.arange(len(words), dtype=np.int32)
    return ranks[codes], words.take(order)


def narrow(numbers: Numbers, below: int) -> Numbers:
    """Return numbers from 0 to before ``below`` in as few bytes as possible."""
    return numbers.astype(np.uint8 if below <= 1 << 8 else np.uint16 if below <= 1 << 16 else np.int32)


def _starts(codes: Numbers, words: int) -> Numbers:
    starts = np.zeros(words + 1, np.int64)
    np.cumsum(np.bincount(codes, minlength=words), out=starts[1:])
    return starts
