from __future__ import annotations

from strandline.delivery.invalidation.waiters import Interests, Wait


def someone() -> Wait:
    return Wait(
        ids=frozenset(), further=frozenset(), exact=None, kind="fineKey", fine=True, templates=None, tell=lambda _: None
    )


def test_interest_outlives_the_last_who_waits() -> None:
    interests, first, second = Interests(100, 10), someone(), someone()
    interests.join(1, first, 5)
    interests.join(1, second, 7)
    interests.leave(1, first, 0)
    assert (interests.active, interests.in_grace) == (1, 0)
    interests.leave(1, second, 10)
    assert (interests.active, interests.in_grace) == (0, 1)
    interests.sweep(109)
    assert interests.lasts_since(1, 5)
    assert not interests.lasts_since(1, 4)
    interests.sweep(110)
    assert len(interests) == 0


def test_who_comes_back_in_time_has_never_been_away() -> None:
    interests, wait = Interests(100, 10), someone()
    interests.join(1, wait, 5)
    interests.leave(1, wait, 0)
    interests.join(1, wait, 9)
    interests.sweep(1000)
    assert interests.lasts_since(1, 5)
    interests.leave(1, wait, 1000)
    interests.leave(1, wait, 1001)
    interests.sweep(1099)
    assert len(interests) == 1
    interests.sweep(1100)
    assert len(interests) == 0


def test_when_there_are_too_many_those_that_nobody_waits_on_go() -> None:
    interests, wait = Interests(100, 2), someone()
    interests.show(1, 0, 0)
    interests.show(2, 1, 0)
    interests.join(3, wait, 0)
    assert set(interests.by_key) == {2, 3}
    interests.join(4, wait, 0)
    interests.join(5, wait, 0)
    assert set(interests.by_key) == {3, 4, 5}
    assert interests.active == 3
