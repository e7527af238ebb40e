from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.collections.errors import CollectionError
from strandline.collections.nonces import SLICE_MS, Nonces
from strandline.collections.settings import SKEW_MS

NOW = 1_714_000_000_000


def test_a_request_is_taken_once() -> None:
    nonces = Nonces(10)
    assert nonces.take("alice", "n1", NOW, NOW)
    assert not nonces.take("alice", "n1", NOW, NOW)
    assert not nonces.take("alice", "n1", NOW + 1, NOW + 1), "nor with another time"


def test_signers_do_not_share_their_nonces() -> None:
    nonces = Nonces(10)
    assert nonces.take("alice", "n1", NOW, NOW)
    assert nonces.take("bob", "n1", NOW, NOW)


def test_one_signer_may_make_more_than_4096_requests() -> None:
    nonces = Nonces(1_000_000)
    assert all(nonces.take("alice", str(number), NOW + number, NOW + number) for number in range(10_000))
    assert not nonces.take("alice", "0", NOW, NOW + 10_000)


def test_what_can_no_longer_be_replayed_is_forgotten() -> None:
    nonces = Nonces(10)
    nonces.take("alice", "n1", NOW, NOW)
    later = NOW + SKEW_MS + SLICE_MS
    nonces.take("alice", "n2", later, later)
    assert len(nonces) == 1


def test_a_full_memory_says_when_there_is_room_again() -> None:
    nonces = Nonces(2)
    nonces.take("alice", "n1", NOW, NOW)
    nonces.take("alice", "n2", NOW, NOW)
    with pytest.raises(CollectionError) as caught:
        nonces.take("alice", "n3", NOW, NOW)
    assert not nonces.take("alice", "n1", NOW, NOW), "a replay is one, full or not"
    assert caught.value.code == "nonces_full"
    assert caught.value.retry_after_ms is not None
    later = NOW + caught.value.retry_after_ms
    assert nonces.take("alice", "n3", later, later)


def test_a_clock_that_is_turned_back_does_not_make_room_for_replays() -> None:
    nonces = Nonces(10)
    nonces.take("alice", "n1", NOW, NOW)
    later = NOW + 2 * SKEW_MS
    nonces.take("alice", "n2", later, later)
    assert not nonces.take("alice", "n1", NOW, NOW)


def test_a_clock_that_was_in_another_century_does_not_lock_signers_out() -> None:
    nonces = Nonces(10)
    nonces.take("alice", "n1", NOW, NOW)
    far = NOW + 75 * 365 * 86_400_000
    assert nonces.take("alice", "n2", far, far)
    assert not nonces.take("alice", "n1", NOW, NOW + 2), "it was forgotten, and may have been taken"
    later = NOW + SLICE_MS
    assert nonces.take("alice", "n3", later, later)


def test_any_text_can_be_a_nonce() -> None:
    nonces = Nonces(10)
    for nonce in ("", "\ud800", "\x00", "é" * 1000):
        assert nonces.take("alice", nonce, NOW, NOW)
        assert not nonces.take("alice", nonce, NOW, NOW)


moves = st.lists(
    st.tuples(
        st.integers(-60_000, 400_000),  # how far the clock goes on
        st.integers(-SKEW_MS, SKEW_MS),  # how far the client is off
        st.integers(0, 3),  # which of a few nonces, so that there are replays
    ),
    max_size=40,
)


@given(moves)
def test_no_request_is_ever_taken_twice(steps: list[tuple[int, int, int]]) -> None:
    nonces, now = Nonces(1000), NOW
    #: The latest that it has been: what was forgotten then stays so when the clock is turned back.
    latest = NOW
    #: When each nonce can be forgotten.
    taken: dict[int, int] = {}
    seen = set[tuple[int, int]]()
    for on, off, nonce in steps:
        now += on
        latest = max(latest, now)
        ts = now + off
        if nonces.take("alice", str(nonce), ts, now):
            assert (nonce, ts) not in seen, "the very same request"
            assert taken.get(nonce, 0) < latest, "nor its nonce while it is remembered"
            seen.add((nonce, ts))
            taken[nonce] = ts + SKEW_MS
        # Every request that was taken is offered again.
        assert not any(nonces.take("alice", str(old), at, now) for old, at in seen if abs(at - now) <= SKEW_MS)
