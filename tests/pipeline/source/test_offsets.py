from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.pipeline.source.offsets import MAX_DROPPED, Offset, Position, allotted, dropped, lag, shares
from strandline.pipeline.source.options import TriggerLimits

COUNTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 50), max_size=12)


@settings(deadline=None)
@given(COUNTS, st.integers(1, 100))
def test_a_budget_is_used_up_and_nobody_gets_less_than_others_who_need_as_much(
    counts: dict[str, int], budget: int
) -> None:
    given_out = shares(counts, budget, 0)
    assert sum(given_out.values()) == min(budget, sum(counts.values()))
    assert all(0 < count <= counts[name] for name, count in given_out.items())
    unmet = [given_out.get(name, 0) for name, count in counts.items() if given_out.get(name, 0) < count]
    assert not unmet or max(given_out.values(), default=0) <= min(unmet) + 1


@settings(deadline=None)
@given(COUNTS, st.integers(1, 10))
def test_everybody_is_served_in_the_end_however_small_the_budget(counts: dict[str, int], budget: int) -> None:
    left, turn, rounds = dict(counts), 0, 0
    while any(left.values()):
        for name, count in shares(left, budget, turn).items():
            left[name] -= count
            turn += count
        rounds += 1
    assert rounds == -(-sum(counts.values()) // budget)


def test_when_there_is_not_one_for_each_it_is_the_turn_of_others_next() -> None:
    counts = dict.fromkeys("abcde", 100)
    served: list[str] = []
    for _ in range(5):
        served += shares(counts, 2, len(served))
    assert sorted(served) == sorted("abcde" * 2)


def test_equal_offsets_are_equal_text() -> None:
    one = Offset("d", {"b": Position(2, 5), "a": Position(1, 3, 0)}).document()
    other = Offset("d", {"a": Position(1, 3, 0), "b": Position(2, 5)}).document()
    assert json.dumps(one) == json.dumps(other)
    assert one == {"directory": "d", "logs": {"a": {"epoch": 1, "seq": 3, "begin": 0}, "b": {"epoch": 2, "seq": 5}}}
    assert Offset.of(json.loads(json.dumps(one))).logs["a"] == Position(1, 3, 0)


@settings(deadline=None)
@given(COUNTS, st.integers(1, 40), st.integers(1, 400), st.integers(1, 30))
def test_both_limits_hold_and_something_is_always_read(
    counts: dict[str, int], offsets: int, size: int, each: int
) -> None:
    sizes = dict.fromkeys(counts, float(each))
    taken = allotted(counts, TriggerLimits(max_offsets=offsets, max_bytes=size), sizes, 3)
    total = sum(taken.values())
    assert total <= offsets
    assert total * each <= size or total == 1
    assert bool(total) == any(counts.values())
    assert all(count <= counts[name] for name, count in taken.items())


def test_logs_that_are_gone_are_remembered_the_named_ones_all_and_the_newest_of_others() -> None:
    before = {f"l{number}": Position(number, 5, 2) for number in range(1, MAX_DROPPED + 10)}
    kept = dropped(before, {"l20"}, ["l1"])
    assert kept["l1"] == Position(1, 5)
    assert len(kept) == MAX_DROPPED + 1
    assert not {"l20", "l2"} & set(kept)
    assert f"l{MAX_DROPPED + 9}" in kept


def test_lag_is_summed_up_over_logs() -> None:
    assert lag({"a": 3, "b": 0, "c": 9}, {"a": 10.0, "b": 1.0, "c": 2.5}) == {
        "offsetsBehindLatest": 12, "bytesBehindLatest": 52, "minOffsetsBehindLatest": 0, "avgOffsetsBehindLatest": 4.0,
        "maxOffsetsBehindLatest": 9, "furthestBehind": "c",
    }  # fmt: skip
    assert lag({}, {})["furthestBehind"] is None
