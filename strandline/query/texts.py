"""Tokens and phrases in a column of texts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strandline.query.columns import Mask, Occurrences, TextColumn
from strandline.query.postings import PostedTextColumn, is_among

#: If more than one in so many tokens is a hit, counting over all tokens is quicker than looking each hit up.
_DENSE = 32

Places = npt.NDArray[np.int64]


def occurrences(column: TextColumn, token: str, prefix: bool) -> Occurrences:
    """Where this token is, or, with ``prefix``, any that begins with it."""
    if isinstance(column, PostedTextColumn):
        return column.occurrences(token, prefix)
    hits = column.hits(token, prefix)
    if hits is None:
        return Occurrences(np.empty(0, np.int64), [np.empty(0, np.int64)])
    return _by_value(column, hits)


def with_all(found: list[Occurrences]) -> Occurrences:
    """The values in which all of these are."""
    if len(found) == 1:
        return found[0]
    fewest, *others = sorted((each.values for each in found), key=len)
    values = fewest
    for other in others:
        values = values[is_among(values, other)]
    counts = [each.counts[0][np.searchsorted(each.values, values)] for each in found]
    return Occurrences(values, counts)


def phrase(column: TextColumn, tokens: tuple[str, ...], prefix: bool) -> Occurrences:
    """Where these tokens stand one behind the other in one value; with ``prefix`` the last is a beginning."""
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
    # An empty value begins where the next one does: to the right of both is the one that has the token.
    owners = np.searchsorted(column.bounds, np.flatnonzero(hits), "right") - 1
    values, counts = np.unique(owners, return_counts=True)
    return Occurrences(values, [counts])
