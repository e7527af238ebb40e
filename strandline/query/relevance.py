"""Relevance: tokens and phrases in a column of texts, scored with Okapi BM25.

The constants of BM25 are those of Lucene and tantivy.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strandline.query.bound import AndB, AnyOfB, Bound, EqualB, OrB, PrefixB, TextB
from strandline.query.chunk import Chunk
from strandline.query.columns import Mask, TextColumn
from strandline.query.occurrences import FoundTexts, Occurrences, with_all
from strandline.query.selection import Numbers, united

#: How quickly further occurrences of a token stop adding to the score.
K1 = 1.2
#: How much the length of a value reduces its score.
B = 0.75

_ANY_LENGTH = 1 << 40
#: How much fewer the promising values must be than all values with a word.
_SELECTIVE = 4
#: One in this many values of a column are so few that there is no need to look for fewer.
_FEW = 64
#: If every word of a query is in one of this many values, it is worth trying to find the best hits first.
_FREQUENT = 16
#: The parts of the highest possible score that the best hits of a query with frequent words usually reach.
_GUESSES = (0.75, 0.6)

Term = tuple[str, str, bool]


class Statistics(NamedTuple):
    values: int
    tokens: int


class Relevance:
    """The statistics for the text clauses of one query, and the occurrences found while they were collected."""

    def __init__(self, bound: Bound) -> None:
        self._found: dict[tuple[int, Term], Occurrences] = {}
        self._clauses = list(text_clauses(bound))
        self._fields = {clause.field.name: Statistics(0, 0) for clause in self._clauses}
        #: The number of values with a token, by field, token, and whether the token is a prefix.
        self._having: dict[Term, int] = {term: 0 for clause in self._clauses for term in terms_of(clause)}

    def add(self, chunk: Chunk, mark: int) -> None:
        """Count the values of the chunk up to the seq ``mark``."""
        rows = chunk.ranges.up_to(mark)
        if not rows:
            return
        for name, known in self._fields.items():
            column = chunk.columns[name]
            assert isinstance(column, TextColumn)
            values = rows if column.rows is None else int(np.searchsorted(column.rows, rows))
            gone = _values_gone(chunk, column, values)
            tokens, left = column.tokens_before(values), values
            if gone is not None:
                tokens -= int(column.lengths(np.flatnonzero(gone)).sum(dtype=np.int64))
                left -= int(np.count_nonzero(gone))
            self._fields[name] = Statistics(known.values + left, known.tokens + tokens)
            for term in self._having:
                if term[0] == name:
                    # The chunks and their columns outlive the query.
                    having = self._found[id(column), term] = column.occurrences(term[1], term[2])
                    self._having[term] += having.having(values, gone)

    def occurrences(self, clause: TextB, column: TextColumn) -> list[Occurrences]:
        """Return the occurrences of the terms of a clause."""
        found = []
        for term in terms_of(clause):
            known = self._found.get((id(column), term))
            found.append(column.occurrences(term[1], term[2]) if known is None else known)
        return found

    def scores(self, clause: TextB, column: TextColumn, found: FoundTexts) -> npt.NDArray[np.float64]:
        """Return the scores of the values that were found for this clause."""
        average = self._average(clause)
        lengths = column.lengths(found.values)
        total = np.zeros(len(found.values), np.float64)
        for weight, counts in zip(self._weights(clause), found.counts, strict=True):
            total += _saturated(counts, lengths, average) * weight
        return total * clause.boost

    def most(self, bound: Bound) -> float:
        """Return a score that no record exceeds."""
        match bound:
            case TextB():
                return sum(self._weights(bound)) * (K1 + 1) * bound.boost
            case EqualB(boost=boost) | PrefixB(boost=boost):
                return boost
            case AndB(children) | OrB(children):
                return sum(map(self.most, children))
            case AnyOfB(children):
                return max(map(self.most, children))
            case _:
                return 0.0

    def guesses(self, bound: Bound) -> list[float]:
        """Return scores that the best records may reach, the highest first. There are none if all matching records are
        found as quickly."""
        if not self._having or any(
            self._having[term] * _FREQUENT < self._fields[term[0]].values for term in self._having
        ):
            return []
        most = self.most(bound)
        return [most * part for part in _GUESSES]

    def promising(self, clause: TextB, column: TextColumn, least: float) -> Numbers | None:
        """Return values that include all those that score at least ``least``, ascending; None if they are too many.

        A value that scores well is short, or has a word several times. Few values have a word several times, and these
        are listed in an index file.
        """
        if clause.boost <= 0:
            return None
        average, weights, found = self._average(clause), self._weights(clause), self.occurrences(clause, column)
        least /= clause.boost
        if clause.phrase:
            needs = [least / weights[0]] * len(found)
        else:
            others = sum(weights) * (K1 + 1)
            needs = [(least - others) / weight + K1 + 1 for weight in weights]
        best: Numbers | None = None
        sizes = [each.size for each in found]
        if min(sizes) * _FEW < column.count:
            return None
        for need, each, size in sorted(zip(needs, found, sizes, strict=True), key=lambda term: term[2]):
            if need >= K1 + 1:
                return np.empty(0, np.int64)
            length = _longest(need, average)
            if length >= average:
                continue
            values = column.shortest(length)
            if len(values) * _SELECTIVE < size:
                often, counts = each.repeated(max(_fewest(need, length + 1, average), 2))
                values = united(values, often[_saturated(counts, column.lengths(often), average) >= need])
                if len(values) * _SELECTIVE < size and (best is None or len(values) < len(best)):
                    best = values
            if best is not None and len(best) * _FEW < column.count:
                break
        if best is not None and clause.phrase:
            # Finding positions takes longer than counting.
            lengths = column.lengths(best)
            fewest = np.minimum.reduce([each.counts_at(best) for each in found])
            best = best[_saturated(fewest, lengths, average) >= needs[0]]
        return best

    def _average(self, clause: TextB) -> float:
        """Return the average length of the field's values."""
        values, tokens = self._fields[clause.field.name]
        return tokens / values if tokens else 1.0

    def _weights(self, clause: TextB) -> list[float]:
        """Return the weights of the terms of a clause. A phrase counts as one term that is as rare as all its words
        together."""
        values = self._fields[clause.field.name].values
        rarities = [self._rarity(self._having[term], values) for term in terms_of(clause)]
        return [sum(rarities)] if clause.phrase else rarities

    @staticmethod
    def _rarity(having: int, values: int) -> float:
        return log(1 + (values - having + 0.5) / (having + 0.5))


def _saturated(counts: Numbers, lengths: Numbers, average: float) -> npt.NDArray[np.float64]:
    """Return the weight of occurrences in values of these lengths, before their rarity is applied."""
    width, height = (int(numbers.max()) + 1 if len(numbers) else 1 for numbers in (lengths, counts))
    if width * height > len(counts):
        return _bm25(counts, lengths, average)
    # There are few different counts and lengths, so each pair is computed once.
    table = _bm25(np.arange(height)[:, None], np.arange(width)[None, :], average)
    places = counts.astype(np.int64)
    places *= width
    places += lengths
    return np.asarray(table.ravel()[places])


def _longest(need: float, average: float) -> int:
    """Return the greatest length of a value in which one occurrence weighs at least ``need``; 0 if there is none."""
    if need <= 0:
        return _ANY_LENGTH
    return max(min(int(((K1 + 1) / need - 1 - K1 * (1 - B)) / (K1 * B) * average), _ANY_LENGTH), 0)


def _fewest(need: float, length: int, average: float) -> int:
    """Return the least number of occurrences that weigh at least ``need`` in values of this length or more."""
    if need <= 0:
        return 1
    return max(int(need * K1 * (1 - B + B * length / average) / (K1 + 1 - need)), 1)


def _bm25(counts: Numbers, lengths: Numbers, average: float) -> npt.NDArray[np.float64]:
    return np.asarray((K1 + 1) * counts / (counts + K1 * (1 - B + B * lengths / average)))


def _values_gone(chunk: Chunk, column: TextColumn, values: int) -> Mask | None:
    """Return which of the first values belong to records that are gone; None if none of them does."""
    if chunk.gone is None:
        return None
    return chunk.gone[:values] if column.rows is None else chunk.gone[column.rows[:values]]


def mark_of(head: int) -> int:
    """Return the seq up to which records count for the statistics: the head with its last binary digits cleared."""
    drop = max(head.bit_length() - 4, 0)
    return head >> drop << drop


def text_clauses(bound: Bound) -> Iterator[TextB]:
    """Yield the clauses that score by their text. Clauses under NOT do not."""
    match bound:
        case TextB():
            yield bound
        case AndB(children) | OrB(children) | AnyOfB(children):
            for child in children:
                yield from text_clauses(child)
        case _:
            pass


def is_scored(bound: Bound) -> bool:
    """Return whether some records can match better than others."""
    match bound:
        case TextB():
            return True
        case EqualB(boost=boost) | PrefixB(boost=boost):
            return boost > 0
        case AndB(children) | OrB(children) | AnyOfB(children):
            return any(map(is_scored, children))
        case _:
            return False


def terms_of(clause: TextB) -> list[Term]:
    """Return the field's tokens in a clause, each once."""
    name, tokens = clause.field.name, clause.tokens
    terms = [(name, token, False) for token in tokens[:-1]]
    return list(dict.fromkeys([*terms, (name, tokens[-1], clause.prefix)]))


def find_text(
    clause: TextB, column: TextColumn, found: list[Occurrences] | None = None, within: Numbers | None = None
) -> FoundTexts:
    """Return the values that match the clause. ``found`` are the occurrences of its terms, if they are known. Values
    that are not in ``within``, which ascends, may be left out."""
    if clause.phrase:
        values, counts = column.phrase(clause.tokens, clause.prefix, within)
        return FoundTexts(values, [counts])
    if found is None:
        found = [column.occurrences(token, prefix) for _, token, prefix in terms_of(clause)]
    return with_all(found, within)
