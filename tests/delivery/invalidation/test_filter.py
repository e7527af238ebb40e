from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.invalidation.touch_journal import TouchFilter

ids = st.integers(0, (1 << 32) - 1)


@given(st.lists(st.sets(ids, max_size=40), max_size=8), st.integers(1, 8))
def test_a_key_that_was_touched_later_is_never_denied(generations: list[set[int]], k: int) -> None:
    filter = TouchFilter(10, k)
    last: dict[int, int] = {}
    for generation, keys in enumerate(generations, 1):
        filter.set(keys, generation)
        last |= dict.fromkeys(keys, generation)
    for key, generation in last.items():
        for before in range(generation):
            assert filter.touched_after([key], before)
    assert not filter.touched_after(list(last), len(generations))


@given(st.sets(ids, min_size=30, max_size=60), st.sets(ids, min_size=30, max_size=60))
def test_many_keys_are_asked_for_as_one_by_one(touched: set[int], asked: set[int]) -> None:
    filter = TouchFilter(10, 4)
    filter.set(touched, 1)
    assert filter.touched_after(asked, 0) == any(filter.touched_after([key], 0) for key in asked)


def test_keys_that_were_not_touched_are_seldom_taken_for_touched() -> None:
    filter = TouchFilter(16, 4)
    filter.set(range(1000), 1)
    assert sum(filter.touched_after([key], 0) for key in range(1_000_000, 1_010_000)) < 10
