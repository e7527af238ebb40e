"""Selections combine as sets, in whichever form they are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strandline.query.selection import Selection

TOTAL = 100
sets = st.sets(st.integers(0, TOTAL - 1))


def selected(rows: set[int], as_mask: bool) -> Selection:
    if not as_mask:
        return Selection(TOTAL, rows=np.array(sorted(rows), np.int64))
    mask = np.zeros(TOTAL, np.bool_)
    mask[list(rows)] = True
    return Selection(TOTAL, mask=mask)


@given(sets, sets, st.booleans(), st.booleans())
def test_selections_combine_as_sets(one: set[int], other: set[int], first: bool, second: bool) -> None:
    left, right = selected(one, first), selected(other, second)
    for found, expected in (
        (left & right, one & other),
        (left | right, one | other),
        (~left, set(range(TOTAL)) - one),
        (left, one),
    ):
        assert found.rows.tolist() == sorted(expected)
        assert np.flatnonzero(found.mask).tolist() == sorted(expected)
        assert len(found) == len(expected)
