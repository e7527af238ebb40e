"""Seqs as ranges are the same seqs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strandline.query.chunk import Seqs


@given(st.sets(st.integers(1, 60), min_size=1), st.integers(0, 70), st.data())
def test_seqs_are_the_same_as_ranges(found: set[int], seq: int, data: st.DataObject) -> None:
    expected = sorted(found)
    seqs = Seqs.of(np.array(expected, np.int64))
    assert seqs.all().tolist() == expected
    assert (seqs.first, seqs.last, seqs.count) == (expected[0], expected[-1], len(expected))
    rows = data.draw(st.lists(st.sampled_from(range(len(expected)))))
    assert seqs.at(np.array(rows, np.int32)).tolist() == [expected[row] for row in rows]
    assert seqs.up_to(seq) == len([each for each in expected if each <= seq])


def test_seqs_without_gaps_take_no_memory_for_each() -> None:
    assert Seqs.of(np.arange(7, 100_007)).nbytes == 16
    assert Seqs.of(np.empty(0, np.int64)).all().tolist() == []
