"""Evaluate a bound query on a chunk: which records match, and how well."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strandline.query.bound import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB
from strandline.query.chunk import Chunk
from strandline.query.columns import KeywordColumn, Mask, NumberColumn, TextColumn
from strandline.query.relevance import Relevance, find_text

#: If more than one in this many records scores, an array over all records is faster than a list of the scoring ones.
_DENSE = 16


class Scores(NamedTuple):
    """The records that score, as ascending rows of their chunk, and their scores. All others score 0."""

    rows: npt.NDArray[np.integer[Any]]
    values: npt.NDArray[np.float64]

    def of(self, rows: npt.NDArray[np.integer[Any]], total: int) -> npt.NDArray[np.float64]:
        """Return the scores of these ascending records of a chunk with ``total`` records."""
        if len(rows) == len(self.rows) and bool((rows == self.rows).all()):
            return self.values
        if len(self.rows) * _DENSE > total:
            everything: npt.NDArray[np.float64] = np.zeros(total)
            everything[self.rows] = self.values
            return np.asarray(everything[rows])
        found = np.zeros(len(rows))
        if len(self.rows):
            places = np.searchsorted(self.rows, rows)
            places[places == len(self.rows)] = 0
            known = self.rows[places] == rows
            found[known] = self.values[places[known]]
        return found

    def where(self, mask: Mask) -> Scores:
        """Return the scores of the marked records."""
        kept = mask[self.rows]
        return self if kept.all() else Scores(self.rows[kept], self.values[kept])


class Matches(NamedTuple):
    """``mask`` is true for the records that match; ``scores`` is None if every score is 0. Records that do not match
    have no score."""

    mask: Mask
    scores: Scores | None


def evaluate(bound: Bound, chunk: Chunk, relevance: Relevance | None = None) -> Matches:
    """Evaluate a query. Without ``relevance``, nothing is scored."""
    mask, scores = _evaluate(bound, chunk, relevance)
    if chunk.gone is not None:
        mask = mask & ~chunk.gone
    return Matches(mask, scores)


def _evaluate(bound: Bound, chunk: Chunk, relevance: Relevance | None) -> Matches:
    match bound:
        case AndB(children):
            return _all([_evaluate(child, chunk, relevance) for child in children])
        case OrB(children):
            return _any([_evaluate(child, chunk, relevance) for child in children], best=False)
        case AnyOfB(children):
            return _any([_evaluate(child, chunk, relevance) for child in children], best=True)
        case NotB(child):
            return Matches(~_evaluate(child, chunk, None).mask, None)
        case TextB():
            return _text(bound, chunk, relevance)
        case _:
            mask = _plain(bound, chunk)
            boost = bound.boost if isinstance(bound, EqualB | PrefixB) else 0.0
            if not boost or relevance is None:
                return Matches(mask, None)
            rows = np.flatnonzero(mask)
            return Matches(mask, Scores(rows, np.full(len(rows), boost)))


def _plain(bound: HasB | EqualB | RangeB | PrefixB, chunk: Chunk) -> Mask:
    column = chunk.columns[bound.field.name]
    if isinstance(bound, HasB):
        return column.present(len(chunk))
    assert not isinstance(column, TextColumn), "text fields are only searched for tokens"
    if isinstance(bound, EqualB):
        values = column.equal(bound.value)
    elif isinstance(bound, RangeB):
        assert isinstance(column, NumberColumn)
        values = column.compare(bound.op, bound.value)
    else:
        assert isinstance(column, KeywordColumn)
        values = column.starting(bound.prefix)
    return column.rows_where(values, len(chunk))


def _text(bound: TextB, chunk: Chunk, relevance: Relevance | None) -> Matches:
    column = chunk.columns[bound.field.name]
    assert isinstance(column, TextColumn)
    occurrences = find_text(bound, column) if relevance is None else relevance.find(bound, column)
    owners = occurrences.values if column.rows is None else column.rows[occurrences.values]
    mask = np.zeros(len(chunk), np.bool_)
    mask[owners] = True
    if relevance is None or not len(owners):
        return Matches(mask, None)
    found = relevance.scores(bound, column, occurrences)
    if column.rows is None:
        return Matches(mask, Scores(owners, found))
    # A record scores as its best value, and its values are adjacent.
    firsts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    return Matches(mask, Scores(owners[firsts], np.maximum.reduceat(found, firsts)))


def _all(matches: list[Matches]) -> Matches:
    mask = matches[0].mask
    for other in matches[1:]:
        mask = mask & other.mask
    # Usually few records match all children, so there is little to add up.
    left = [each.scores.where(mask) for each in matches if each.scores is not None]
    return Matches(mask, _combined(left, len(mask), best=False))


def _any(matches: list[Matches], best: bool) -> Matches:
    mask = matches[0].mask
    for other in matches[1:]:
        mask = mask | other.mask
    return Matches(mask, _combined([each.scores for each in matches if each.scores is not None], len(mask), best))


def _combined(scored: list[Scores], total: int, best: bool) -> Scores | None:
    """Combine the scores that several clauses give each record: their sum, or the best one."""
    scored = [each for each in scored if len(each.rows)]
    if len(scored) < 2:
        return scored[0] if scored else None
    if sum(len(each.rows) for each in scored) * _DENSE > total:
        everything = np.zeros(total)
        for each in scored:
            before = everything[each.rows]
            everything[each.rows] = np.maximum(before, each.values) if best else before + each.values
        rows = np.flatnonzero(everything)
        return Scores(rows, everything[rows])
    rows = np.concatenate([each.rows for each in scored])
    # A stable sort, so that scores are added in the same order everywhere.
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], np.concatenate([each.values for each in scored])[order]
    firsts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    return Scores(rows[firsts], (np.maximum if best else np.add).reduceat(values, firsts))
