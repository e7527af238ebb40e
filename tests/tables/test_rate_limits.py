from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables_in_process import NOW, Bed, Vote

from strandline.tables import Item, RateLimit, Table, TableError, make_log
from strandline.tables.declaration import SlidingWindow


@pytest.fixture
def votes(plain_bed: Bed) -> Table:
    return plain_bed.bind(make_log("vote", parent="room", schema=Vote, rate_limit=RateLimit(3, 1000)))["vote"]


def is_limited(votes: Table, count: int = 1, user: str = "u") -> bool:
    try:
        votes.append_bulk("r", [Vote(0)] * count, user=user).wait()
        return False
    except TableError as error:
        if error.code != "RATE_LIMITED":
            raise
        return True


def test_every_row_of_a_bulk_counts(votes: Table) -> None:
    assert not is_limited(votes, 2)
    assert is_limited(votes, 2)
    assert not is_limited(votes, 1)
    assert is_limited(votes, 1)
    assert len(votes.list("r").rows) == 3


def test_a_bulk_that_could_never_pass_is_not_valid(votes: Table) -> None:
    with pytest.raises(TableError) as error:
        votes.append_bulk("r", [Vote(0)] * 4, user="u")
    assert error.value.code == "VALIDATION_FAILED"
    assert error.value.more["limit"]["max"] == 3
    assert str(error.value).endswith("vote accepts 3 rows per user in 1 s, not 4 at once")


def test_the_time_to_wait_is_that_of_the_whole_bulk(plain_bed: Bed, votes: Table) -> None:
    for at in (0, 300, 600):
        plain_bed.clock.set(NOW + at)
        assert not is_limited(votes)
    plain_bed.clock.set(NOW + 700)
    with pytest.raises(TableError) as error:
        votes.append_bulk("r", [Vote(0)] * 2, user="u")
    assert error.value.retry_after == 600
    plain_bed.clock.set(NOW + 1299)
    assert is_limited(votes, 2)
    plain_bed.clock.set(NOW + 1300)
    assert not is_limited(votes, 2)


def test_repetitions_cost_nothing_and_are_never_refused(votes: Table) -> None:
    for _ in range(10):
        votes.append("r", Vote(0), user="u", idempotency_key="k").wait()
    votes.append_bulk("r", [Item(Vote(0), "l"), Item(Vote(0), "l"), Item(Vote(0), "k"), Vote(1)], user="u").wait()
    assert is_limited(votes)
    assert not votes.append("r", Vote(0), user="u", idempotency_key="k").wait().created


def test_what_is_refused_costs_nothing(votes: Table) -> None:
    for _ in range(5):
        with pytest.raises(TableError):
            votes.append("r", {"optionIdx": "x"}, user="u")
    assert not is_limited(votes, 3)


def test_the_limit_is_per_user_over_all_parents(votes: Table) -> None:
    for parent in "abc":
        votes.append(parent, Vote(0), user="u").wait()
    assert is_limited(votes)
    assert not is_limited(votes, user="v")


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from("uv"), st.integers(1, 3)), max_size=60))
def test_there_are_never_more_than_the_limit_in_any_window(attempts: list[tuple[int, str, int]]) -> None:
    window, taken, now = SlidingWindow(RateLimit(3, 1000), "t"), defaultdict[str, list[int]](list), 0
    for wait, user, count in attempts:
        now += wait
        recent = [at for at in taken[user] if at > now - 1000]
        try:
            window.check(user, count, now)
        except TableError as error:
            assert len(recent) + count > 3
            later = now + (error.retry_after or 0)
            assert sum(at > later - 1000 for at in taken[user]) + count <= 3
            assert sum(at > later - 1001 for at in taken[user]) + count > 3
            continue
        assert len(recent) + count <= 3
        window.add(user, count, now)
        taken[user] += [now] * count


def test_users_who_have_not_appended_for_a_while_are_forgotten() -> None:
    window = SlidingWindow(RateLimit(1, 10), "t")
    for number in range(100_000):
        window.add(f"user {number}", 1, number)
    assert len(window._times) < 3000


def test_every_row_of_a_user_counts_in_a_step_of_several_users(votes: Table) -> None:
    users = ["ann", "ann", "bob", "ann", "ann"]
    results = votes.append_each("r", [(Item(Vote(0)), user) for user in users]).wait()
    codes = [result.code if isinstance(result, TableError) else None for result in results]
    assert codes == [None, None, None, None, "RATE_LIMITED"]
    assert is_limited(votes, user="ann")
    assert not is_limited(votes, 2, user="bob")
