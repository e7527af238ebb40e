from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.routers.router import Hops


def test_records_that_were_not_forwarded_have_no_hops() -> None:
    hops = Hops()
    hops.add(5, [1, 1, 2])
    assert hops.of([3, 4, 5, 6, 7, 8]) == [0, 0, 1, 1, 2, 0]


def test_a_stretch_of_equal_counts_is_one_entry() -> None:
    hops = Hops()
    hops.add(1, [3] * 1000)
    hops.add(1001, [3] * 1000)
    assert len(hops) == 1


def test_what_everybody_has_passed_is_forgotten() -> None:
    hops = Hops()
    hops.add(1, [1, 2])
    hops.forget(1)
    assert hops.of([1, 2]) == [0, 2]
    hops.forget(2)
    assert len(hops) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(1, 8), max_size=5)), max_size=10))
def test_counts_are_those_that_were_added(runs: list[tuple[int, list[int]]]) -> None:
    hops, expected, at = Hops(), dict[int, int](), 1
    for space, counts in runs:
        at += space
        hops.add(at, counts)
        expected.update(enumerate(counts, at))
        at += len(counts)
    seqs = list(range(1, at + 2))
    assert hops.of(seqs) == [expected.get(seq, 0) for seq in seqs]
