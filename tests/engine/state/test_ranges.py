from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strandline.engine.state.ranges import SeqRanges, inside

pairs = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
changes = st.lists(st.tuples(st.sampled_from(["add", "remove"]), pairs), max_size=25)


def built(steps: list[tuple[str, tuple[int, int]]]) -> tuple[SeqRanges, set[int]]:
    ranges, members = SeqRanges(), set[int]()
    for what, (first, last) in steps:
        getattr(ranges, what)(first, last)
        span = set(range(first, last + 1))
        members = members | span if what == "add" else members - span
    return ranges, members


@given(changes)
def test_it_has_the_members_that_a_set_would_have(steps: list[tuple[str, tuple[int, int]]]) -> None:
    ranges, members = built(steps)
    assert {seq for first, last in ranges for seq in range(first, last + 1)} == members
    assert all((seq in ranges) == (seq in members) for seq in range(80))


@given(changes)
def test_ranges_are_ascending_and_never_touch(steps: list[tuple[str, tuple[int, int]]]) -> None:
    ranges, _ = built(steps)
    kept = list(ranges)
    assert all(first <= last for first, last in kept)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(kept))


@given(changes, pairs)
def test_overlap_and_gaps_divide_a_stretch(steps: list[tuple[str, tuple[int, int]]], stretch: tuple[int, int]) -> None:
    ranges, members = built(steps)
    span = set(range(stretch[0], stretch[1] + 1))
    inside = {seq for first, last in ranges.overlap(*stretch) for seq in range(first, last + 1)}
    outside = {seq for first, last in ranges.gaps(*stretch) for seq in range(first, last + 1)}
    assert inside == members & span
    assert outside == span - members


@given(st.lists(st.integers(0, 80)), st.lists(pairs))
def test_which_seqs_are_inside_of_ranges_in_whatever_order(seqs: list[int], ranges: list[tuple[int, int]]) -> None:
    expected = [any(first <= seq <= last for first, last in ranges) for seq in seqs]
    assert inside(np.array(seqs, np.int64), ranges).tolist() == expected


def test_the_last_member_is_known() -> None:
    ranges = SeqRanges([(1, 3), (7, 9)])
    assert ranges.last == 9
    ranges.remove(8, 9)
    assert ranges.last == 7
    assert SeqRanges().last == 0
