"""Dividing jobs among the claims of a cohort."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from strandline.delivery.queues.selection import divide, shares, turns

wishes = st.lists(st.integers(0, 20), max_size=12)


@given(st.integers(0, 200), wishes)
def test_everything_is_given_away_and_nobody_gets_more_than_they_wish(available: int, wanted: list[int]) -> None:
    given_away = shares(available, wanted)
    assert sum(given_away) == min(available, sum(wanted))
    assert all(got <= wish for got, wish in zip(given_away, wanted, strict=True))


@given(st.integers(0, 200), wishes)
def test_who_wishes_for_more_never_gets_less(available: int, wanted: list[int]) -> None:
    given_away = shares(available, wanted)
    ordered = sorted(zip(wanted, given_away, strict=True))
    for (wish, got), (more, got_more) in pairwise(ordered):
        assert got_more >= got or wish == more
        assert abs(got_more - got) <= 1 or wish != more


@given(st.integers(0, 200), wishes)
def test_nobody_goes_empty_while_there_is_one_for_each(available: int, wanted: list[int]) -> None:
    if available >= len(wanted):
        assert all(got for got, wish in zip(shares(available, wanted), wanted, strict=True) if wish)


@given(st.integers(0, 200), wishes)
def test_shares_are_in_proportion_to_the_wishes(available: int, wanted: list[int]) -> None:
    asking = sum(1 for wish in wanted if wish)
    if asking <= available < sum(wanted):
        for got, wish in zip(shares(available, wanted), wanted, strict=True):
            if wish:
                exact = 1 + (available - asking) * (wish - 1) / (sum(wanted) - asking)
                assert abs(got - exact) < 1


def test_ten_workers_that_wish_for_ten_of_fifty_get_five_each() -> None:
    assert shares(50, [10] * 10) == [5] * 10


def test_who_wishes_for_three_times_as_much_gets_about_that() -> None:
    assert shares(20, [30, 10]) == [15, 5]


@given(st.lists(st.integers(0, 9), max_size=6))
def test_everybody_has_as_many_turns_as_jobs(counts: list[int]) -> None:
    had = Counter(turns(counts))
    assert [had[index] for index in range(len(counts))] == counts


def test_turns_go_round() -> None:
    assert list(turns([2, 2, 2])) == [0, 1, 2, 0, 1, 2]
    assert list(turns([4, 2])) == [0, 1, 0, 0, 1, 0]


@given(st.integers(0, 60), wishes)
def test_every_job_goes_to_one_claim_and_everybody_gets_theirs_in_order(available: int, wanted: list[int]) -> None:
    jobs = list(range(min(available, sum(wanted))))
    parts = divide(jobs, wanted)
    assert sorted(job for part in parts for job in part) == jobs
    assert [len(part) for part in parts] == shares(len(jobs), wanted)
    assert all(part == sorted(part) for part in parts)


def test_the_most_urgent_jobs_are_spread_over_the_cohort() -> None:
    assert divide([1, 2, 3, 4, 5, 6], [3, 3, 3]) == [[1, 4], [2, 5], [3, 6]]
