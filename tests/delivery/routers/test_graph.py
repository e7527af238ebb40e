from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.routers.router import closes_cycle, on_cycles


def test_a_router_back_to_where_a_log_comes_from_closes_a_cycle() -> None:
    assert closes_cycle({"b": "a"}, "b", "a") == ["b", "a", "b"]
    assert closes_cycle({"b": "a", "c": "b"}, "c", "a") == ["c", "a", "b", "c"]


def test_routers_that_lead_onwards_close_none() -> None:
    assert closes_cycle({"b": "a", "c": "b"}, "c", "d") is None
    assert closes_cycle({"b": "a"}, "a", "c") is None
    assert closes_cycle({}, "a", "b") is None


def test_the_way_up_ends_in_a_cycle_that_is_there_already() -> None:
    assert closes_cycle({"a": "b", "b": "a", "c": "b"}, "c", "d") is None


def test_only_logs_that_come_back_to_themselves_are_on_a_cycle() -> None:
    assert on_cycles({"b": "a", "c": "b"}) == set()
    assert on_cycles({"a": "b", "b": "a", "c": "b", "d": "c"}) == {"a", "b"}


names = st.sampled_from("abcdefg")


@given(st.dictionaries(names, names), names, names)
def test_a_cycle_is_told_as_the_way_that_records_take(sources: dict[str, str], source: str, dest: str) -> None:
    sources = {into: out for into, out in sources.items() if into != out}
    if source == dest or sources.get(dest, source) != source:
        return
    cycle = closes_cycle(sources, source, dest)
    after = {**sources, dest: source}
    assert (cycle is not None) == ({source, dest} <= on_cycles(after))
    if cycle is not None:
        assert cycle[0] == cycle[-1] == source
        assert cycle[1] == dest
        assert all(after[into] == out for out, into in pairwise(cycle))


@given(st.dictionaries(names, names))
def test_on_a_cycle_is_who_meets_itself_going_up(sources: dict[str, str]) -> None:
    expected = set()
    for start in sources:
        at = sources.get(start)
        for _ in range(len(sources)):
            if at == start:
                expected.add(start)
            at = sources.get(at) if at is not None else None
    assert on_cycles(sources) == expected
