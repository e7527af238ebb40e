"""When a standby takes over, with a clock that is moved by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import Term
from strandline.engine.replica.leader import Leader, read_leader, request_takeover, write_leader
from strandline.engine.replica.standby import MAX_PAUSE_SECONDS, Standby
from strandline.engine.replica.store import ObjectStoreReplica
from strandline.engine.replica.takeover import START_LEASE_MS


class HandClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStoreReplica:
    return ObjectStoreReplica(str(tmp_path / "replica"))


@pytest.fixture
def standby(store: ObjectStoreReplica, clock: HandClock) -> Standby:
    return Standby(store, clock)


def begin_term(store: ObjectStoreReplica, leader: Leader) -> None:
    chain = Chain(store)
    chain.find_end()
    chain.take_over(Term(leader.address, 0))
    write_leader(store, leader)


def test_it_waits_while_the_leader_gives_signs_of_life(
    standby: Standby, store: ObjectStoreReplica, clock: HandClock
) -> None:
    begin_term(store, Leader(1, "a:1", 1500))
    assert not standby.look()
    assert standby.leader == Leader(1, "a:1", 1500)
    assert standby.pause == 0.5
    for beat in range(1, 10):
        clock.now += 1.4
        write_leader(store, Leader(1, "a:1", 1500, beat))
        assert not standby.look()
    clock.now += 1.5
    assert not standby.look(), "the promised time has not passed"
    clock.now += 0.1
    assert standby.look()
    assert standby.term == 1


def test_a_leader_without_a_promise_is_replaced_on_request_only(
    standby: Standby, store: ObjectStoreReplica, clock: HandClock
) -> None:
    request_takeover(store)
    begin_term(store, Leader(1, "a:1"))
    assert not standby.look(), "the request is from before"
    assert standby.pause == MAX_PAUSE_SECONDS
    clock.now += 1e6
    assert not standby.look()
    request_takeover(store)
    assert standby.look()
    assert not standby.look(), "one request is for one takeover"


def test_an_empty_replica_has_no_leader_to_wait_for(
    standby: Standby, store: ObjectStoreReplica, clock: HandClock
) -> None:
    assert not standby.look()
    clock.now += 1e6
    assert not standby.look()
    assert standby.leader is None
    request_takeover(store)
    assert standby.look()
    assert standby.term == 0


def test_the_time_begins_again_when_the_replica_could_not_be_reached(
    standby: Standby, store: ObjectStoreReplica, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader could not reach it either, so its sign of life is old without its fault."""
    begin_term(store, Leader(1, "a:1", 1000))
    assert not standby.look()

    def away(name: str) -> bytes | None:
        raise OSError(5, "away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "read", away)
        clock.now += 60
        with pytest.raises(OSError, match="away"):
            standby.look()
    assert not standby.look()
    clock.now += 0.9
    assert not standby.look()
    clock.now += 0.2
    assert standby.look()


def test_the_expected_term_is_that_of_the_chain(standby: Standby, store: ObjectStoreReplica, clock: HandClock) -> None:
    begin_term(store, Leader(1, "a:1", 1000))
    assert not standby.look()
    # Another server took over and failed before it could say so.
    chain = Chain(store)
    chain.find_end()
    chain.take_over(Term("b:1", 0))
    clock.now += 2
    assert standby.look()
    assert standby.term == 1, "the takeover fails, because the chain has another term"
    standby.forget()
    assert not standby.look()
    assert standby.term == 2
    clock.now += 2
    assert standby.look()


def test_a_new_leader_gets_its_own_time(standby: Standby, store: ObjectStoreReplica, clock: HandClock) -> None:
    begin_term(store, Leader(1, "a:1", 1000))
    assert not standby.look()
    clock.now += 2
    begin_term(store, Leader(2, "b:1", 5000))
    assert not standby.look()
    assert standby.term == 2
    clock.now += 4.9
    assert not standby.look()
    clock.now += 0.2
    assert standby.look()


def test_a_takeover_that_failed_is_given_back(standby: Standby, store: ObjectStoreReplica, clock: HandClock) -> None:
    begin_term(store, Leader(1, "own:1", START_LEASE_MS))
    standby.give_back("other:1", 1000)
    assert read_leader(store) == Leader(1, "own:1", START_LEASE_MS)
    standby.give_back("own:1", 1000)
    assert not standby.look()
    clock.now += 2
    assert standby.look()
