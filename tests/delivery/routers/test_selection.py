from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.routers import RouterFilter
from strandline.delivery.routers.plan import PageSelection, ranges_of
from strandline.engine import Page
from strandline.engine.record import Tombstone


def page_of(keys: dict[int, str | None], next_after: int = 100) -> Page:
    page = Page(1, 100, 1)
    page.seqs = list(keys)
    page.keys = list(keys.values())
    page.next_after = next_after
    return page


@given(st.sets(st.integers(1, 40)))
def test_ranges_cover_exactly_the_seqs_and_never_touch(chosen: set[int]) -> None:
    ranges = ranges_of(sorted(chosen))
    assert [seq for first, last in ranges for seq in range(first, last + 1)] == sorted(chosen)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


keys = st.dictionaries(st.integers(1, 30), st.sampled_from([None, "", "a", "ab", "b"]))
filters = st.one_of(
    st.builds(RouterFilter, key=st.sampled_from(["", "a", "ab"])),
    st.builds(RouterFilter, prefix=st.sampled_from(["", "a", "c"])),
)


@given(keys, filters)
def test_a_filter_chooses_the_records_whose_key_it_accepts(keys: dict[int, str | None], filter: RouterFilter) -> None:
    keys = dict(sorted(keys.items()))
    choice = PageSelection(page_of(keys), 0).choose(filter)
    assert list(choice.seqs) == [seq for seq, key in keys.items() if key is not None and filter.accepts(key)]


def test_routers_that_want_the_same_share_one_choice() -> None:
    selection = PageSelection(page_of({1: "a", 2: "b"}), 0)
    assert selection.choose(RouterFilter(key="a")) is selection.choose(RouterFilter(key="a"))
    assert selection.choose(None) is selection.choose(None)


def test_a_loss_counts_from_where_the_routers_are() -> None:
    page = page_of({})
    page.tombstone = Tombstone(4, 9, "cap", 10, 100)
    assert PageSelection(page, 3).lost == 6
    assert PageSelection(page, 6).lost == 3
