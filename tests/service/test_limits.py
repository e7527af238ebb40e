from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.service.access import ALL_SCOPES, FULL_ACCESS, Access
from strandline.service.limits import Limits, Slots

ANN = Access("ann", ALL_SCOPES, ())
BOB = Access("bob", ALL_SCOPES, ())


def test_a_key_gets_as_many_slots_as_it_may_have_and_no_more() -> None:
    slots = Slots(per_key=2)
    assert [slots.acquire(ANN) for _ in range(3)] == [True, True, False]
    assert slots.acquire(BOB)
    assert slots.used == 3


def test_a_released_slot_can_be_taken_again() -> None:
    slots = Slots(per_key=1)
    assert slots.acquire(ANN)
    assert not slots.room(ANN)
    slots.release(ANN)
    assert slots.room(ANN)
    assert slots.acquire(ANN)


def test_all_keys_together_share_the_total() -> None:
    slots = Slots(total=2, per_key=2)
    assert slots.acquire(ANN)
    assert slots.acquire(BOB)
    assert not slots.acquire(ANN)
    assert not slots.acquire(FULL_ACCESS)
    slots.release(BOB)
    assert slots.acquire(ANN)


def test_zero_means_no_bound() -> None:
    slots = Slots()
    assert all(slots.acquire(ANN) for _ in range(1000))
    assert slots.used == 1000


def test_without_a_key_only_the_total_counts() -> None:
    slots = Slots(total=3, per_key=1)
    assert [slots.acquire(FULL_ACCESS) for _ in range(4)] == [True, True, True, False]


def test_a_refused_slot_takes_nothing() -> None:
    slots = Slots(total=1, per_key=1)
    slots.acquire(ANN)
    assert not slots.acquire(BOB)
    slots.release(ANN)
    assert slots.used == 0
    assert slots.acquire(BOB)


def test_releasing_what_was_not_taken_is_an_error_and_changes_nothing() -> None:
    slots = Slots(total=2, per_key=2)
    with pytest.raises(RuntimeError):
        slots.release(FULL_ACCESS)
    slots.acquire(ANN)
    with pytest.raises(RuntimeError, match="bob"):
        slots.release(BOB)
    assert slots.used == 1


def test_requests_and_streams_are_bounded_apart() -> None:
    limits = Limits(max_inflight_per_key=1, max_sse_connections=2, max_sse_connections_per_key=1)
    assert limits.requests.acquire(ANN)
    assert not limits.requests.acquire(ANN)
    assert limits.streams.acquire(ANN)
    assert not limits.streams.acquire(ANN)
    assert limits.streams.acquire(BOB)
    assert not limits.streams.acquire(FULL_ACCESS)
    assert limits.requests.acquire(FULL_ACCESS)


@given(
    st.integers(0, 4),
    st.integers(0, 3),
    st.lists(st.tuples(st.booleans(), st.sampled_from([ANN, BOB, FULL_ACCESS])), max_size=40),
)
def test_no_bound_is_ever_exceeded_and_nothing_is_refused_below_it(
    total: int, per_key: int, steps: list[tuple[bool, Access]]
) -> None:
    slots = Slots(total, per_key)
    held: Counter[str] = Counter()
    for taking, access in steps:
        if taking:
            below_total = not total or held.total() < total
            below_own = not per_key or not access.id or held[access.id] < per_key
            assert slots.acquire(access) == (below_total and below_own)
            held[access.id] += below_total and below_own
        elif held[access.id]:
            slots.release(access)
            held[access.id] -= 1
        assert slots.used == held.total()
