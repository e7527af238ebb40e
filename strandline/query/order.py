"""The order of hits: by score, position in the log, or the first value of a field. Records without a value come last.

The best hits of each chunk are found with whole arrays, key by key, without sorting the others. The remaining hits, one
page per chunk, are sorted by Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from strandline.arrow import pa, pc
from strandline.query.chunk import Chunk
from strandline.query.columns import KeywordColumn, Mask, NumberColumn
from strandline.query.config import Field
from strandline.query.evaluator import Matches
from strandline.query.selection import Selection

SCORE, OFFSET = "_score", "offset"

#: The number of rows sampled to estimate where the first hits end, and the margin beyond that estimate.
_SAMPLE = 4096
_MARGIN = 16

Rows = npt.NDArray[np.integer[Any]]
#: The values of a hit under the sort keys; None where it has no value.
SortValues = tuple[Any, ...]


class SortKey(Struct, frozen=True):
    """``name`` is "_score", "offset", or the name of ``field``."""

    name: str
    descending: bool
    field: Field | None = None


class Hit(NamedTuple):
    seq: int
    score: float
    sort: SortValues


def best_hits(
    chunk: Chunk,
    matches: Matches,
    keys: Sequence[SortKey],
    after: SortValues | None,
    size: int,
    before: SortValues | None = None,
) -> list[Hit]:
    """Return the first ``size`` matches of a chunk that come after ``after`` and not after ``before``, unordered."""
    rows = matches.found.rows if before is None else _not_clearly_behind(chunk, matches, keys[0], before[0])
    if after is not None and len(rows):
        rows = rows[_is_behind(chunk, matches, keys, after, rows)]
    if before is not None and len(rows) > size:
        rows = rows[~_is_behind(chunk, matches, keys, before, rows)]
    rows = np.sort(_first(chunk, matches, keys, rows, size))
    values = [_values(chunk, matches, key, rows) for key in keys]
    seqs = chunk.ranges.at(rows).tolist()
    scores = _scores(chunk, matches, rows).tolist()
    return list(map(Hit, seqs, scores, zip(*values, strict=True)))


def in_order(hits: list[Hit], keys: Sequence[SortKey]) -> list[Hit]:
    """Sort by all keys, starting with the last one, because sorting is stable."""
    for at in reversed(range(len(keys))):
        with_value = [hit for hit in hits if hit.sort[at] is not None]
        without = [hit for hit in hits if hit.sort[at] is None]
        with_value.sort(key=lambda hit: hit.sort[at], reverse=keys[at].descending)
        hits = with_value + without
    return hits


def _first(chunk: Chunk, matches: Matches, keys: Sequence[SortKey], rows: Rows, size: int) -> Rows:
    """Return the rows that come first: all rows clearly within the first ``size``, and of those that tie for the last
    place, the first by the next key."""
    taken: list[Rows] = []
    for key in keys:
        if len(rows) <= size or not size:
            break
        if key.name == OFFSET:
            # These are in the order of the log.
            rows = rows[-size:] if key.descending else rows[:size]
            break
        ranks, missing = _ranks(chunk, matches, key, rows)
        if missing is not None:
            present = ~missing
            count = int(np.count_nonzero(present))
            if count <= size:
                taken.append(rows[present])
                size -= count
                rows = rows[missing]
                continue
            rows, ranks = rows[present], ranks[present]
        rows, ranks = _promising(rows, ranks, size)
        limit = np.partition(ranks, size - 1)[size - 1]
        before = rows[ranks < limit]
        taken.append(before)
        size -= len(before)
        rows = rows[ranks == limit]
    return np.concatenate([*taken, rows[:size]])


def _promising(rows: Rows, ranks: npt.NDArray[Any], size: int) -> tuple[Rows, npt.NDArray[Any]]:
    """Drop most of the rows that cannot be among the first ``size``. A sample shows about where these end."""
    step = len(rows) // _SAMPLE
    if step < 2 or size * 4 > len(rows):
        return rows, ranks
    sample = np.sort(ranks[::step])
    limit = sample[min(2 * size // step + _MARGIN, len(sample) - 1)]
    kept = np.flatnonzero(ranks <= limit)
    return (rows[kept], ranks[kept]) if size <= len(kept) < len(rows) else (rows, ranks)


def _not_clearly_behind(chunk: Chunk, matches: Matches, key: SortKey, value: Any) -> Rows:
    """Return the matches without most of those that this key alone sorts after a hit with this value. Uses whole
    arrays, before rows are selected."""
    if key.name == SCORE and key.descending and value > 0:
        if matches.scores is None:
            return np.empty(0, np.int64)
        return np.asarray(matches.scores.rows[matches.scores.values >= value])
    column = None if key.field is None else chunk.columns[key.field.name]
    if isinstance(column, NumberColumn) and column.rows is None and value is not None:
        near = column.compare(">=" if key.descending else "<=", value)
        return (matches.found & Selection(len(chunk), mask=near)).rows
    return matches.found.rows


def _is_behind(chunk: Chunk, matches: Matches, keys: Sequence[SortKey], after: SortValues, rows: Rows) -> Mask:
    """Return which rows come strictly after a hit with these values."""
    behind = np.zeros(len(rows), np.bool_)
    level = np.ones(len(rows), np.bool_)
    for key, value in zip(keys, after, strict=True):
        later, same = _compare(chunk, matches, key, rows, value)
        behind |= level & later
        level &= same
        if not level.any():
            break
    return behind


def _compare(chunk: Chunk, matches: Matches, key: SortKey, rows: Rows, value: Any) -> tuple[Mask, Mask]:
    """Return which rows come later by one key than a hit with this value, and which are equal to it."""
    column = None if key.field is None else chunk.columns[key.field.name]
    missing: Mask | None = None
    if column is not None and not column.count:
        missing = np.ones(len(rows), np.bool_)
        later = same = np.zeros(len(rows), np.bool_)
    elif isinstance(column, KeywordColumn):
        places, missing = column.places(rows)
        if value is not None:
            scalar = pa.scalar(value, pa.string())
            compare = pc.less if key.descending else pc.greater
            later = column.marked(compare(column.words, scalar))[places]
            same = column.marked(pc.equal(column.words, scalar))[places]
    elif column is not None:
        assert isinstance(column, NumberColumn)
        places, missing = column.places(rows)
        if value is not None:
            later, same = _compare_numbers(column.take(places), value, key.descending)
    else:
        numbers = _own(chunk, matches, key, rows)
        later, same = _compare_numbers(numbers, value, key.descending)
    absent = np.zeros(len(rows), np.bool_) if missing is None else missing
    if value is None:
        return np.zeros(len(rows), np.bool_), absent
    return later | absent, same & ~absent


def _compare_numbers(numbers: npt.NDArray[Any], value: Any, descending: bool) -> tuple[Mask, Mask]:
    later = numbers < value if descending else numbers > value
    return np.asarray(later, np.bool_), np.asarray(numbers == value, np.bool_)


def _ranks(chunk: Chunk, matches: Matches, key: SortKey, rows: Rows) -> tuple[npt.NDArray[Any], Mask | None]:
    """Return numbers that ascend in the order of a key, and which rows have no value."""
    missing: Mask | None = None
    if key.field is None:
        numbers = _own(chunk, matches, key, rows)
    else:
        column = chunk.columns[key.field.name]
        places, missing = column.places(rows)
        if not column.count:
            return np.zeros(len(rows)), missing
        if isinstance(column, KeywordColumn):
            numbers = column.ranks[column.codes[places]]
        else:
            assert isinstance(column, NumberColumn)
            is_all = column.rows is None and len(places) == column.count
            numbers = column.values if is_all else column.take(places)
            if column.is_general:
                numbers = np.unique(numbers, return_inverse=True)[1]
    if not key.descending:
        return numbers, missing
    # The bitwise complement reverses the order of integers and booleans, and never overflows.
    return (-numbers if numbers.dtype.kind == "f" else ~numbers), missing


def _values(chunk: Chunk, matches: Matches, key: SortKey, rows: Rows) -> list[Any]:
    if key.field is None:
        own: list[Any] = _own(chunk, matches, key, rows).tolist()
        return own
    column = chunk.columns[key.field.name]
    places, missing = column.places(rows)
    if not column.count:
        return [None] * len(rows)
    if isinstance(column, KeywordColumn):
        values: list[Any] = column.words.take(pa.array(column.codes[places])).to_pylist()
    else:
        assert isinstance(column, NumberColumn)
        values = column.take(places).tolist()
    if missing is not None:
        values = [None if absent else value for value, absent in zip(values, missing.tolist(), strict=True)]
    return values


def _own(chunk: Chunk, matches: Matches, key: SortKey, rows: Rows) -> npt.NDArray[Any]:
    """Return the values of a key that is not a field: the position in the log, or the score."""
    if key.name == OFFSET:
        return chunk.ranges.at(rows)
    return _scores(chunk, matches, rows)


def _scores(chunk: Chunk, matches: Matches, rows: Rows) -> npt.NDArray[np.float64]:
    return np.zeros(len(rows)) if matches.scores is None else matches.scores.of(rows, len(chunk))
