"""A bound query on a chunk: which records it is true of, and how well they match."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strandline.query.binding import AndB, AnyOfB, Bound, EqualB, HasB, NotB, OrB, PrefixB, RangeB, TextB
from strandline.query.chunk import Chunk
from strandline.query.columns import KeywordColumn, Mask, NumberColumn, TextColumn
from strandline.query.relevance import Relevance, find_text

Scores = npt.NDArray[np.float64]


class Matches(NamedTuple):
    """``mask`` is true of the records that match; ``scores`` is None where every score is 0, and 0 where there is no
    match."""

    mask: Mask
    scores: Scores | None


def evaluate(bound: Bound, chunk: Chunk, relevance: Relevance | None = None) -> Matches:
    """Without ``relevance`` nothing is scored."""
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
            return Matches(mask, mask * np.float64(boost) if boost and relevance is not None else None)


def _plain(bound: HasB | EqualB | RangeB | PrefixB, chunk: Chunk) -> Mask:
    column = chunk.columns[bound.field.name]
    if isinstance(bound, HasB):
        return column.present(len(chunk))
    assert not isinstance(column, TextColumn), "the binder asks texts for tokens"
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
    scores = np.zeros(len(chunk), np.float64)
    found = relevance.scores(bound, column, occurrences)
    if column.rows is None:
        scores[owners] = found
    else:
        # A record is as good as its best value.
        np.maximum.at(scores, owners, found)
    return Matches(mask, scores)


def _all(matches: list[Matches]) -> Matches:
    mask = matches[0].mask
    for other in matches[1:]:
        mask = mask & other.mask
    scores = _sum([each.scores for each in matches if each.scores is not None])
    return Matches(mask, None if scores is None else scores * mask)


def _any(matches: list[Matches], best: bool) -> Matches:
    mask = matches[0].mask
    for other in matches[1:]:
        mask = mask | other.mask
    scored = [each.scores for each in matches if each.scores is not None]
    if best and scored:
        return Matches(mask, np.maximum.reduce(scored))
    return Matches(mask, _sum(scored))


def _sum(scores: list[Scores]) -> Scores | None:
    if not scores:
        return None
    total = scores[0]
    for other in scores[1:]:
        total = total + other
    return total
