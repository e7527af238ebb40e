"""Columns: the canonical values of one field in many records, as arrays that are compared as a whole.

A column has its values in the order of the records, and in their order within each record. ``rows`` has the record of
each value; it is None if every record has exactly one. The work is done by numpy and Arrow, which release the
interpreter's lock.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from strandline.arrow import pa, pc
from strandline.query.occurrences import Occurrences
from strandline.query.selection import Mask as Mask
from strandline.query.selection import Numbers as Numbers
from strandline.query.selection import Selection
from strandline.query.values import Value

Rows: TypeAlias = npt.NDArray[np.int32]

COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
#: The numpy types of the values of each kind. Larger integers and dates are Python objects in an object array.
DTYPES: dict[str, type] = {"integer": np.int64, "date": np.int64, "float": np.float64, "bool": np.bool_}


#: If more than one in this many tokens is a hit, counting over all tokens is faster than looking up each hit.
_DENSE = 32


class Column:
    """The common base of all columns."""

    __slots__ = ("_lone", "count", "rows")

    def __init__(self, count: int, rows: Rows | None) -> None:
        self.count = count
        self.rows = rows
        self._lone: Mask | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self.rows is None else self.rows.nbytes

    def rows_where(self, values: Mask, total: int) -> Mask:
        """Return which of ``total`` records have at least one of the marked values."""
        if self.rows is None:
            return values
        found = np.zeros(total, np.bool_)
        found[self.rows[values]] = True
        return found

    def records_with(self, values: Selection, total: int) -> Selection:
        """Like ``rows_where``, for a selection of values."""
        if self.rows is None:
            return values
        if not values.is_sparse:
            return Selection(total, mask=self.rows_where(values.mask, total))
        # The values of a record are adjacent.
        owners = self.rows[values.rows]
        return Selection(total, rows=owners[np.flatnonzero(np.diff(owners, prepend=-1))])

    def present(self, total: int) -> Mask:
        """Return which records have a value."""
        if self.rows is None:
            return np.ones(total, np.bool_)
        found = np.zeros(total, np.bool_)
        found[self.rows] = True
        return found

    def lone(self, total: int) -> Mask:
        """Return which records have exactly one value."""
        if self.rows is None:
            return np.ones(total, np.bool_)
        if self._lone is None or len(self._lone) != total:
            self._lone = np.bincount(self.rows, minlength=total) == 1
        return self._lone

    def at_most_one(self, total: int) -> Mask:
        """Return which records have at most one value."""
        if self.rows is None:
            return np.ones(total, np.bool_)
        return self.lone(total) | ~self.present(total)

    def places(self, rows: Numbers) -> tuple[Numbers, Mask | None]:
        """Return the index of the first value of each of these records, and which of them have none (None: all have
        one)."""
        if self.rows is None:
            return rows, None
        if not len(self.rows):
            return np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        places = np.searchsorted(self.rows, rows)
        missing = places == len(self.rows)
        places[missing] = 0
        missing |= self.rows[places] != rows
        return places, missing if missing.any() else None

    def values_of(self, records: Mask) -> Mask:
        """Return which values belong to the marked records."""
        return records if self.rows is None else records[self.rows]

    def rows_of(self, records: Mask) -> Rows | None:
        """Return the rows of the values of the marked records, renumbered without the other records."""
        if self.rows is None:
            return None
        places = (np.cumsum(records) - 1).astype(np.int32)
        return places[self.rows[records[self.rows]]]


class NumberColumn(Column):
    """Integers, dates, floats or booleans. ``bounds`` are the minimum and maximum, None if there are no values."""

    __slots__ = ("_values", "bounds")

    def __init__(self, values: Numbers, rows: Rows | None, bounds: tuple[Any, Any] | None = None) -> None:
        super().__init__(len(values), rows)
        self._values = values
        if bounds is None and len(values):
            bounds = values.min(), values.max()
        self.bounds = bounds

    @property
    def values(self) -> Numbers:
        return self._values

    @property
    def nbytes(self) -> int:
        each = 64 if self.is_general else self._values.itemsize
        return super().nbytes + each * len(self._values)

    @property
    def is_general(self) -> bool:
        """Whether there are numbers too large for 64 bits."""
        return bool(self._values.dtype == np.object_)

    def take(self, places: Numbers) -> Numbers:
        """Return the values at these places."""
        return self._values[places]

    def equal(self, value: Value) -> Mask:
        return np.asarray(self._values == value, np.bool_)

    def compare(self, op: str, value: Value) -> Mask:
        return np.asarray(COMPARE[op](self._values, value), np.bool_)

    def only(self, records: Mask) -> NumberColumn:
        """Return the column of the marked records."""
        return NumberColumn(machine_numbers(self.values[self.values_of(records)]), self.rows_of(records))

    @staticmethod
    def join(columns: Sequence[NumberColumn], totals: Sequence[int]) -> NumberColumn:
        return NumberColumn(np.concatenate([column.values for column in columns]), join_rows(columns, totals))


class KeywordColumn(Column):
    """Strings: ``codes`` are indexes into ``words``, which has no duplicates."""

    __slots__ = ("_ranks", "codes", "words")

    def __init__(self, codes: npt.NDArray[np.int32], words: Any, rows: Rows | None) -> None:
        super().__init__(len(codes), rows)
        self.codes = codes
        self.words = words
        self._ranks: Numbers | None = None

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.codes.nbytes + int(self.words.nbytes)

    def equal(self, value: str) -> Selection:
        code = pc.index(self.words, pa.scalar(value, pa.string())).as_py()
        if code < 0:
            return Selection.nothing(self.count)
        return Selection(self.count, mask=np.asarray(self.codes == code, np.bool_))

    def starting(self, prefix: str) -> Selection:
        return Selection(self.count, mask=self.marked(pc.starts_with(self.words, prefix)))

    def marked(self, words: Any) -> Mask:
        """Return the values whose words are marked in a boolean Arrow array."""
        table = np.asarray(words.to_numpy(zero_copy_only=False), np.bool_)
        return table[self.codes] if len(table) else np.zeros(self.count, np.bool_)

    @property
    def ranks(self) -> Numbers:
        """The rank of each word by code point."""
        if self._ranks is None:
            order = pc.array_sort_indices(self.words).to_numpy()
            ranks = np.empty(len(order), np.int64)
            ranks[order] = np.arange(len(order))
            self._ranks = ranks
        return self._ranks

    def only(self, records: Mask) -> KeywordColumn:
        """Return the column of the marked records, without words that only others have."""
        codes, words = used_words(self.codes[self.values_of(records)], self.words)
        return KeywordColumn(codes, words, self.rows_of(records))

    @staticmethod
    def join(columns: Sequence[KeywordColumn], totals: Sequence[int]) -> KeywordColumn:
        codes, words = join_words([(column.codes, column.words) for column in columns])
        return KeywordColumn(codes, words, join_rows(columns, totals))


class TextColumn(Column, ABC):
    """Texts as tokens, which are indexes into ``words``."""

    __slots__ = ("words",)

    def __init__(self, count: int, words: Any, rows: Rows | None) -> None:
        super().__init__(count, rows)
        self.words = words

    @abstractmethod
    def lengths(self, values: Numbers) -> Numbers:
        """Return the number of tokens in each of these values."""

    @abstractmethod
    def tokens_before(self, values: int) -> int:
        """Return the number of tokens in the first ``values`` values."""

    @abstractmethod
    def shortest(self, length: int) -> Numbers:
        """Return the values with at most this many tokens."""

    @abstractmethod
    def occurrences(self, token: str, prefix: bool) -> Occurrences:
        """Return the occurrences of this token or, with ``prefix``, of tokens that start with it."""

    @abstractmethod
    def phrase(self, tokens: tuple[str, ...], prefix: bool, within: Numbers | None) -> tuple[Numbers, Numbers]:
        """Return the values in which these tokens are consecutive, and how often. With ``prefix``, the last one is a
        prefix. Other values than those in ``within``, which ascend, may be left out."""

    @abstractmethod
    def plain(self) -> TokenColumn:
        """Return the same values as they are in memory."""

    def only(self, records: Mask) -> TokenColumn:
        """Return the column of the marked records, without words that only others have."""
        return self.plain().only(records)


class TokenColumn(TextColumn):
    """Texts in memory: the tokens of value ``i`` are ``tokens[bounds[i]:bounds[i + 1]]``."""

    __slots__ = ("bounds", "tokens")

    def __init__(
        self, tokens: npt.NDArray[np.int32], words: Any, bounds: npt.NDArray[np.int64], rows: Rows | None
    ) -> None:
        super().__init__(len(bounds) - 1, words, rows)
        self.tokens = tokens
        self.bounds = bounds

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.tokens.nbytes + self.bounds.nbytes + int(self.words.nbytes)

    def plain(self) -> TokenColumn:
        return self

    def lengths(self, values: Numbers) -> Numbers:
        return np.asarray(self.bounds[values + 1] - self.bounds[values])

    def tokens_before(self, values: int) -> int:
        return int(self.bounds[values])

    def shortest(self, length: int) -> Numbers:
        return np.flatnonzero(np.diff(self.bounds) <= length)

    def occurrences(self, token: str, prefix: bool) -> Occurrences:
        hits = self._hits(token, prefix)
        if hits is None:
            return Occurrences.nowhere(self.count)
        if np.count_nonzero(hits) * _DENSE > len(hits):
            before = np.zeros(len(hits) + 1, np.int64)
            np.cumsum(hits, out=before[1:])
            return Occurrences.dense(before[self.bounds[1:]] - before[self.bounds[:-1]])
        # An empty value starts where the next one does. The rightmost of them contains the token.
        owners = np.searchsorted(self.bounds, np.flatnonzero(hits), "right") - 1
        return Occurrences(self.count, *np.unique(owners, return_counts=True))

    def phrase(self, tokens: tuple[str, ...], prefix: bool, within: Numbers | None) -> tuple[Numbers, Numbers]:
        starts: npt.NDArray[np.int64] | None = None
        for at, token in enumerate(tokens):
            hits = self._hits(token, prefix and at == len(tokens) - 1)
            if hits is None:
                return np.empty(0, np.int64), np.empty(0, np.int64)
            if starts is None:
                starts = np.flatnonzero(hits)
                starts = starts[starts + len(tokens) <= len(self.tokens)]
            else:
                starts = starts[hits[starts + at]]
        assert starts is not None
        owners = np.searchsorted(self.bounds, starts, "right") - 1
        values, counts = np.unique(owners[starts + len(tokens) <= self.bounds[owners + 1]], return_counts=True)
        return values, counts

    def _hits(self, token: str, prefix: bool) -> Mask | None:
        """Return the positions in ``tokens`` of this token, or of tokens that start with it; None if there are none."""
        if not len(self.tokens):
            return None
        if not prefix:
            code = pc.index(self.words, pa.scalar(token, pa.string())).as_py()
            return None if code < 0 else np.asarray(self.tokens == code, np.bool_)
        marked = np.asarray(pc.starts_with(self.words, token).to_numpy(zero_copy_only=False), np.bool_)
        return marked[self.tokens] if marked.any() else None

    def only(self, records: Mask) -> TokenColumn:
        """Return the column of the marked records, without words that only others have."""
        values = self.values_of(records)
        lengths = np.diff(self.bounds)
        codes, words = used_words(self.tokens[np.repeat(values, lengths)], self.words)
        bounds = np.zeros(int(np.count_nonzero(values)) + 1, np.int64)
        np.cumsum(lengths[values], out=bounds[1:])
        return TokenColumn(codes, words, bounds, self.rows_of(records))

    @staticmethod
    def join(columns: Sequence[TokenColumn], totals: Sequence[int]) -> TokenColumn:
        tokens, words = join_words([(column.tokens, column.words) for column in columns])
        bounds, base = [np.zeros(1, np.int64)], 0
        for column in columns:
            bounds.append(column.bounds[1:] + base)
            base += len(column.tokens)
        return TokenColumn(tokens, words, np.concatenate(bounds), join_rows(columns, totals))


class HistogramColumn(KeywordColumn):
    """Histograms: the values are buckets, by name, and ``weights`` has the count of each."""

    __slots__ = ("weights",)

    def __init__(
        self, codes: npt.NDArray[np.int32], words: Any, weights: npt.NDArray[np.float64], rows: Rows | None
    ) -> None:
        super().__init__(codes, words, rows)
        self.weights = weights

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.weights.nbytes

    def only(self, records: Mask) -> HistogramColumn:
        values = self.values_of(records)
        codes, words = used_words(self.codes[values], self.words)
        return HistogramColumn(codes, words, self.weights[values], self.rows_of(records))

    @staticmethod
    def join(columns: Sequence[KeywordColumn], totals: Sequence[int]) -> HistogramColumn:
        joined = KeywordColumn.join(columns, totals)
        weights = np.concatenate([column.weights for column in columns if isinstance(column, HistogramColumn)])
        return HistogramColumn(joined.codes, joined.words, weights, joined.rows)


AnyColumn = NumberColumn | KeywordColumn | TextColumn


def join_columns(columns: Sequence[AnyColumn], totals: Sequence[int]) -> AnyColumn:
    """Join the columns of one field in consecutive ranges of records, with ``totals`` records each."""
    kind: Any = type(columns[0])
    joined: AnyColumn = kind.join(columns, totals)
    return joined


def join_rows(columns: Sequence[Column], totals: Sequence[int]) -> Rows | None:
    if all(column.rows is None for column in columns):
        return None
    joined, base = [], 0
    for column, total in zip(columns, totals, strict=True):
        own = np.arange(total, dtype=np.int32) if column.rows is None else column.rows
        joined.append(own + np.int32(base))
        base += total
    return np.concatenate(joined)


def join_words(pieces: Sequence[tuple[npt.NDArray[np.int32], Any]]) -> tuple[npt.NDArray[np.int32], Any]:
    """Concatenate codes with different words into codes over one set of words."""
    arrays = [pa.DictionaryArray.from_arrays(pa.array(codes), words) for codes, words in pieces]
    joined = pa.chunked_array(arrays).unify_dictionaries().combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.chunk(0)
    return joined.indices.to_numpy(), joined.dictionary


def encode_words(strings: Any) -> tuple[npt.NDArray[np.int32], Any]:
    """Return codes and words for an Arrow array of strings without nulls."""
    encoded = pc.dictionary_encode(strings)
    return encoded.indices.to_numpy(), encoded.dictionary


def used_words(codes: Numbers, words: Any) -> tuple[npt.NDArray[np.int32], Any]:
    """Return the same values with only the words that are used."""
    used = np.zeros(len(words), np.bool_)
    used[codes] = True
    if used.all():
        return codes.astype(np.int32, copy=False), words
    places = (np.cumsum(used) - 1).astype(np.int32)
    return places[codes], words.filter(pa.array(used))


def machine_numbers(values: Numbers) -> Numbers:
    """Convert integers of any size to 64 bits, if they fit."""
    if values.dtype != np.object_:
        return values
    try:
        return values.astype(np.int64)
    except OverflowError:
        return values
