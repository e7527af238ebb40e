"""Evaluate a bound query on a chunk: which records match, and how well.

If only the best records are needed, those that cannot score enough are left out before they are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strandline.query.bound import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB
from strandline.query.chunk import Chunk
from strandline.query.columns import NumberColumn, TextColumn
from strandline.query.relevance import Relevance, find_text
from strandline.query.selection import Mask, Numbers, Selection, is_among

#: If more than one in this many records scores, an array over all records is faster than a list of the scoring ones.
_DENSE = 16
#: The relative error that sums of scores stay below.
_ROUNDING = 1e-9


class Scores(NamedTuple):
    """The records that score, as ascending rows of their chunk, and their scores. All others score 0."""

    rows: npt.NDArray[np.integer[Any]]
    values: npt.NDArray[np.float64]

    def of(self, rows: npt.NDArray[np.integer[Any]], total: int) -> npt.NDArray[np.float64]:
        """Return the scores of these ascending records of a chunk with ``total`` records."""
        if len(rows) == len(self.rows) and bool((rows == self.rows).all()):
            return self.values
        if min(len(self.rows), len(rows)) * _DENSE > total:
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

    def where(self, found: Selection) -> Scores:
        """Return the scores of the selected records."""
        if found.is_listed and found.rows is self.rows:
            return self
        kept = is_among(self.rows, found.rows) if found.is_sparse else found.mask[self.rows]
        return self if kept.all() else Scores(self.rows[kept], self.values[kept])


class Matches(NamedTuple):
    """``found`` are the records that match; ``scores`` is None if every score is 0. Records that do not match have no
    score."""

    found: Selection
    scores: Scores | None

    @property
    def mask(self) -> Mask:
        """True for the records that match."""
        return self.found.mask


def evaluate(bound: Bound, chunk: Chunk, relevance: Relevance | None = None, least: float | None = None) -> Matches:
    """Evaluate a query. Without ``relevance``, nothing is scored. Records that score less than ``least`` may be left
    out."""
    # Scores are rounded, so that a sum may be slightly more than the sum of what its parts can be.
    floor = None if least is None or relevance is None else least * (1 - _ROUNDING)
    found, scores = _Evaluation(chunk, relevance).of(bound, floor)
    if chunk.gone is not None:
        found = found & Selection(len(chunk), mask=~chunk.gone)
        scores = None if scores is None else scores.where(found)
    return Matches(found, scores)


class _Evaluation:
    """The evaluation of a query on a chunk. Clauses that are needed anyway narrow the others down: these are evaluated
    only for the records in ``within``."""

    def __init__(self, chunk: Chunk, relevance: Relevance | None) -> None:
        self._chunk = chunk
        self._total = len(chunk)
        self._relevance = relevance

    def of(self, bound: Bound, least: float | None, within: Selection | None = None) -> Matches:
        match bound:
            case AndB(children):
                return self._together(children, range(len(children)), least, within)
            case OrB(children):
                return self._any(children, least, within)
            case AnyOfB(children):
                return _either([self.of(child, least, within) for child in children], best=True)
            case NotB(child):
                return Matches(~_Evaluation(self._chunk, None).of(child, None).found, None)
            case TextB():
                return self._text(bound, least, within)
            case _:
                return self._plain(bound)

    def _plain(self, bound: HasB | EqualB | RangeB | PrefixB) -> Matches:
        found = self._selected(bound)
        boost = bound.boost if isinstance(bound, EqualB | PrefixB) else 0.0
        if not boost or self._relevance is None:
            return Matches(found, None)
        return Matches(found, Scores(found.rows, np.full(len(found), boost)))

    def _selected(self, bound: HasB | EqualB | RangeB | PrefixB) -> Selection:
        column = self._chunk.columns[bound.field.name]
        if isinstance(bound, HasB):
            return Selection(self._total, mask=column.present(self._total))
        assert not isinstance(column, TextColumn), "text fields are only searched for tokens"
        if isinstance(column, NumberColumn):
            assert not isinstance(bound, PrefixB)
            mask = column.equal(bound.value) if isinstance(bound, EqualB) else column.compare(bound.op, bound.value)
            return column.records_with(Selection(column.count, mask=mask), self._total)
        if isinstance(bound, EqualB):
            assert isinstance(bound.value, str)
            return column.records_with(column.equal(bound.value), self._total)
        assert isinstance(bound, PrefixB)
        return column.records_with(column.starting(bound.prefix), self._total)

    def _text(self, bound: TextB, least: float | None, within: Selection | None) -> Matches:
        column = self._chunk.columns[bound.field.name]
        assert isinstance(column, TextColumn)
        relevance = self._relevance
        values = within.rows if within is not None and column.rows is None else None
        if relevance is None:
            return Matches(self._owners(column, find_text(bound, column, None, values).values), None)
        if least is not None and least > 0:
            promising = relevance.promising(bound, column, least)
            if promising is not None:
                values = promising if values is None else values[is_among(values, promising)]
        texts = find_text(bound, column, relevance.occurrences(bound, column), values)
        found = self._owners(column, texts.values)
        if not len(texts.values):
            return Matches(found, None)
        scores = relevance.scores(bound, column, texts)
        if column.rows is not None:
            # A record scores as its best value, and its values are adjacent.
            scores = np.maximum.reduceat(scores, _firsts(column.rows[texts.values]))
        return Matches(found, Scores(found.rows, scores))

    def _owners(self, column: TextColumn, values: Numbers) -> Selection:
        if column.rows is not None:
            owners = column.rows[values]
            values = owners[_firsts(owners)] if len(owners) else owners
        return Selection(self._total, rows=values)

    def _any(self, children: Sequence[Bound], least: float | None, within: Selection | None) -> Matches:
        if least is not None and self._relevance is not None:
            # Without some children, no record scores enough.
            most = [self._relevance.most(child) for child in children]
            needed = [at for at, each in enumerate(most) if least > sum(most) - each]
            if needed:
                return self._together(children, needed, least, within)
        return _either([self.of(child, None, within) for child in children], best=False)

    def _together(
        self, children: Sequence[Bound], needed: Sequence[int], least: float | None, within: Selection | None
    ) -> Matches:
        """Return the records that match all needed children. The others only add to their scores."""
        most = None if least is None or self._relevance is None else [self._relevance.most(child) for child in children]
        found = within
        matches: dict[int, Matches] = {}
        for at in sorted(needed, key=lambda at: self._cost(children[at])):
            # What a child must score at least if the others score as much as they can.
            left = None if least is None or most is None else least - sum(most) + most[at]
            matches[at] = self.of(children[at], left, found if found is not None and found.is_listed else None)
            found = matches[at].found if found is None else found & matches[at].found
        assert found is not None, "at least one child is needed"
        for at, child in enumerate(children):
            if at not in matches:
                matches[at] = self.of(child, None, found if found.is_listed else None)
        # Scores are added in the order of the query, so that the sums are the same everywhere.
        scored = [each for at in range(len(children)) if (each := matches[at].scores) is not None]
        return Matches(found, _combined([each.where(found) for each in scored], self._total, best=False))

    def _cost(self, bound: Bound) -> int:
        """Return the order in which clauses are evaluated: texts last, those with few occurrences first."""
        if not isinstance(bound, TextB):
            return 0 if isinstance(bound, HasB | EqualB | RangeB | PrefixB) else self._total + 1
        if self._relevance is None:
            return 1
        column = self._chunk.columns[bound.field.name]
        assert isinstance(column, TextColumn)
        return 1 + min(each.size for each in self._relevance.occurrences(bound, column))


def _either(matches: list[Matches], best: bool) -> Matches:
    found = matches[0].found
    for other in matches[1:]:
        found = found | other.found
    return Matches(found, _combined([each.scores for each in matches if each.scores is not None], found.total, best))


def _firsts(owners: Numbers) -> Numbers:
    """Return the places where a number differs from the one before."""
    return np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))


def _combined(scored: list[Scores], total: int, best: bool) -> Scores | None:
    """Combine the scores that several clauses give each record: their sum, or the best one."""
    scored = [each for each in scored if len(each.rows)]
    if len(scored) < 2:
        return scored[0] if scored else None
    first = scored[0].rows
    if all(len(each.rows) == len(first) and bool((each.rows == first).all()) for each in scored[1:]):
        add = np.maximum if best else np.add
        return Scores(first, reduce(add, [each.values for each in scored]))
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
    firsts = _firsts(rows)
    return Scores(rows[firsts], (np.maximum if best else np.add).reduceat(values, firsts))
