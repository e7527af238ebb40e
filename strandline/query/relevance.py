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
from strandline.query.columns import Mask, Numbers, Occurrences, TextColumn
from strandline.query.postings import PostedTextColumn, is_among

#: If more than one in this many tokens is a hit, counting over all tokens is faster than looking up each hit.
_DENSE = 32

Places = npt.NDArray[np.int64]


def occurrences(column: TextColumn, token: str, prefix: bool) -> Occurrences:
    """Return the occurrences of this token or, with ``prefix``, of tokens that start with it."""
    if isinstance(column, PostedTextColumn):
        return column.occurrences(token, prefix)
    hits = column.hits(token, prefix)
    if hits is None:
        return Occurrences(np.empty(0, np.int64), [np.empty(0, np.int64)])
    return _by_value(column, hits)


def with_all(found: list[Occurrences]) -> Occurrences:
    """Return the values that contain all of these."""
    if len(found) == 1:
        return found[0]
    fewest, *others = sorted((each.values for each in found), key=len)
    values = fewest
    for other in others:
        values = values[is_among(values, other)]
    counts = [each.counts[0][np.searchsorted(each.values, values)] for each in found]
    return Occurrences(values, counts)


def phrase(column: TextColumn, tokens: tuple[str, ...], prefix: bool) -> Occurrences:
    """Return the values in which these tokens are consecutive. With ``prefix``, the last one is a prefix."""
    if isinstance(column, PostedTextColumn):
        return column.phrase(tokens, prefix)
    nothing = Occurrences(np.empty(0, np.int64), [np.empty(0, np.int64)])
    starts: Places | None = None
    for at, token in enumerate(tokens):
        hits = column.hits(token, prefix and at == len(tokens) - 1)
        if hits is None:
            return nothing
        if starts is None:
            starts = np.flatnonzero(hits)
            starts = starts[starts + len(tokens) <= len(column.tokens)]
        else:
            starts = starts[hits[starts + at]]
    assert starts is not None
    owners = np.searchsorted(column.bounds, starts, "right") - 1
    owners = owners[starts + len(tokens) <= column.bounds[owners + 1]]
    values, counts = np.unique(owners, return_counts=True)
    return Occurrences(values, [counts])


def _by_value(column: TextColumn, hits: Mask) -> Occurrences:
    if np.count_nonzero(hits) * _DENSE > len(hits):
        before = np.zeros(len(hits) + 1, np.int64)
        np.cumsum(hits, out=before[1:])
        counts = before[column.bounds[1:]] - before[column.bounds[:-1]]
        values = np.flatnonzero(counts)
        return Occurrences(values, [counts[values]])
    # An empty value starts where the next one does. The rightmost of them contains the token.
    owners = np.searchsorted(column.bounds, np.flatnonzero(hits), "right") - 1
    values, counts = np.unique(owners, return_counts=True)
    return Occurrences(values, [counts])


#: How quickly further occurrences of a token stop adding to the score.
K1 = 1.2
#: How much the length of a value reduces its score.
B = 0.75

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
        rows = int(np.searchsorted(chunk.seqs, mark, "right"))
        if not rows:
            return
        for name, known in self._fields.items():
            column = chunk.columns[name]
            assert isinstance(column, TextColumn)
            values = rows if column.rows is None else int(np.searchsorted(column.rows, rows))
            gone = _values_gone(chunk, column, values)
            tokens = int(column.bounds[values])
            if gone is not None:
                tokens -= int(np.diff(column.bounds[: values + 1])[gone].sum())
            left = values if gone is None else values - int(np.count_nonzero(gone))
            self._fields[name] = Statistics(known.values + left, known.tokens + tokens)
            for term in self._having:
                if term[0] == name:
                    having = occurrences(column, term[1], term[2])
                    # The chunks and their columns outlive the query.
                    self._found[id(column), term] = having
                    counted = having.values[: int(np.searchsorted(having.values, values))]
                    self._having[term] += len(counted) if gone is None else int(np.count_nonzero(~gone[counted]))

    def find(self, clause: TextB, column: TextColumn) -> Occurrences:
        """Like ``find_text``, but reuses earlier results."""
        if clause.phrase:
            return find_text(clause, column)
        found = []
        for term in terms_of(clause):
            known = self._found.get((id(column), term))
            found.append(occurrences(column, term[1], term[2]) if known is None else known)
        return with_all(found)

    def scores(self, clause: TextB, column: TextColumn, found: Occurrences) -> npt.NDArray[np.float64]:
        """Return the scores of the values that were found for this clause."""
        name = clause.field.name
        values, tokens = self._fields[name]
        average = tokens / values if tokens else 1.0
        lengths = column.bounds[found.values + 1] - column.bounds[found.values]
        total = np.zeros(len(found.values), np.float64)
        for weight, counts in self._weighed(clause, found, values):
            total += _saturated(counts, lengths, average) * weight
        return total * clause.boost

    def _weighed(self, clause: TextB, found: Occurrences, values: int) -> Iterator[tuple[float, npt.NDArray[np.int64]]]:
        rarities = [self._rarity(self._having[term], values) for term in terms_of(clause)]
        if clause.phrase:
            # A phrase counts as one term that is as rare as all its words together.
            yield sum(rarities), found.counts[0]
        else:
            yield from zip(rarities, found.counts, strict=True)

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
    return np.asarray(table.ravel()[counts.astype(np.int64) * width + lengths])


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


def find_text(clause: TextB, column: TextColumn) -> Occurrences:
    """Return the values that match the clause, and how often its terms (or the whole phrase) occur in each."""
    if clause.phrase:
        return phrase(column, clause.tokens, clause.prefix)
    return with_all([occurrences(column, token, prefix) for _, token, prefix in terms_of(clause)])
