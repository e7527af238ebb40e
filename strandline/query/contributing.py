"""Which records contribute to a rollup: only as a whole, so that everything that it adds up is of the same records.

A record must match the rollup's query, have exactly one timestamp, at most one value per dimension and exactly one
number for everything that is summed up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strandline.query.chunk import Chunk
from strandline.query.columns import Mask, NumberColumn
from strandline.query.config import Measure
from strandline.query.evaluating import evaluate
from strandline.query.index import part_name
from strandline.query.requests import AggregateRequest

Rows = npt.NDArray[np.int64]
#: Times in milliseconds from the first to before the end of each.
Windows = Sequence[tuple[int, int]]


def contributing(chunk: Chunk, request: AggregateRequest, windows: Windows) -> Rows | None:
    """The rows of a chunk that contribute and whose time is in one of the windows; None if a look at its times tells
    that there are none."""
    timestamps = chunk.columns[request.rollup.timestamp_field]
    assert isinstance(timestamps, NumberColumn)
    if timestamps.bounds is None:
        return None
    least, greatest = timestamps.bounds
    windows = [(first, end) for first, end in windows if first <= greatest and least < end]
    if not windows:
        return None
    total = len(chunk)
    values = timestamps.values
    inside = np.zeros(len(values), np.bool_)
    for first, end in windows:
        inside |= (values >= first) & (values < end)
    mask: Mask = timestamps.rows_where(inside, total) & timestamps.lone(total)
    if chunk.gone is not None:
        mask = mask & ~chunk.gone
    for bound in (request.include, request.query):
        if bound is not None:
            mask = mask & evaluate(bound, chunk).mask
    for name in request.rollup.dimensions:
        mask = mask & chunk.columns[name].at_most_one(total)
    for measure in request.rollup.measures.values():
        for name in summed_columns(measure):
            mask = mask & chunk.columns[name].lone(total)
    return np.flatnonzero(mask)


def summed_columns(measure: Measure) -> Sequence[str]:
    """The columns of which a contributing record has exactly one number."""
    if measure.field is not None:
        return (measure.field,)
    return [part_name(pointer) for pointer in (measure.pointers or ())[:4]]
