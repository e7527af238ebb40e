"""The assignment of shares: one owner each, evenly divided, and as few moves as possible."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strandline.delivery.consumer_groups import ConsumerGroup, LeaseNumbers, quotas
from strandline.engine import ManualClock
from strandline.engine.record import MAX_SEQ

LEASE_MS = 1000
NODES = ["a", "b", "c", "d", "e"]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=20), st.integers(1, 256))
def test_quotas_are_even_and_complete(held: list[int], of: int) -> None:
    wanted = quotas(held, of)
    assert sum(wanted) == of
    assert max(wanted) - min(wanted) <= 1


def group(of: int, clock: ManualClock, resumed: int | None = None) -> ConsumerGroup:
    return ConsumerGroup(of, LeaseNumbers(clock.now()), clock.now, resumed)


def attend(group: ConsumerGroup, node: str, held: dict[int, int] | None = None) -> dict[int, int]:
    """What a member does that has processed everything: it gives back at once what it should."""
    group.renew(node, LEASE_MS)
    for share, lease in (held or {}).items():
        group.holds(node, share, lease)
    assignment = group.assign(node)
    for share in assignment.give_back:
        group.give_back(node, share)
    return {share: lease for share, lease in assignment.shares.items() if share not in assignment.give_back}


class Membership(RuleBasedStateMachine):
    """Members come, go and die. A model keeps what each of them may believe."""

    @initialize(of=st.integers(1, 20))
    def begin(self, of: int) -> None:
        self.clock = ManualClock(1_800_000_000_000)
        self.group = group(of, self.clock)
        #: What the members that are in touch have, and until when they may believe it.
        self.held: dict[str, dict[int, int]] = {}
        self.until: dict[str, int] = {}

    @rule(node=st.sampled_from(NODES))
    def attends(self, node: str) -> None:
        if self.until.get(node, 0) <= self.clock.now():
            self.held.pop(node, None)
        held = attend(self.group, node, self.held.get(node))
        assert all(held.get(share, lease) == lease for share, lease in self.held.get(node, {}).items())
        self.held[node], self.until[node] = held, self.clock.now() + LEASE_MS

    @rule(node=st.sampled_from(NODES))
    def leaves(self, node: str) -> None:
        if self.group.has_member(node):
            self.group.leave(node)
        self.held.pop(node, None)
        self.until.pop(node, None)

    @rule(milliseconds=st.integers(1, LEASE_MS))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule()
    def all_attend(self) -> None:
        """After all have been there twice, the shares are divided evenly, and stay where they are."""
        alive = [node for node, until in self.until.items() if until > self.clock.now()]
        for _ in range(2):
            for node in alive:
                self.attends(node)
        if alive:
            counts = [len(self.held[node]) for node in alive]
            assert sum(counts) == self.group.of
            assert max(counts) - min(counts) <= 1
            before = {node: dict(self.held[node]) for node in alive}
            for node in alive:
                self.attends(node)
            assert {node: self.held[node] for node in alive} == before

    @invariant()
    def no_two_members_have_a_share(self) -> None:
        alive = [node for node, until in self.until.items() if until > self.clock.now()]
        owned = [share for node in alive for share in self.held[node]]
        assert len(owned) == len(set(owned))


Membership.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMembership = Membership.TestCase


def test_a_new_member_gets_shares_when_others_have_given_them_back() -> None:
    clock = ManualClock(1000)
    shared = group(16, clock)
    assert len(attend(shared, "a")) == 16
    shared.renew("b", LEASE_MS)
    assert shared.assign("b").shares == {}
    shared.renew("a", LEASE_MS)
    # Until it has finished them, they are its own.
    assert shared.assign("a").give_back == list(range(8, 16))
    assert shared.assign("b").shares == {}
    attend(shared, "a")
    assert sorted(attend(shared, "b")) == list(range(8, 16))


def test_a_lease_that_has_ended_is_not_taken_up_again() -> None:
    clock = ManualClock(1000)
    shared = group(2, clock)
    held = attend(shared, "a")
    clock.advance(LEASE_MS)
    assert list(shared.members()) == []
    shared.renew("a", LEASE_MS)
    assert not shared.holds("a", 0, held[0])
    assert all(lease > held[1] for lease in attend(shared, "a").values())


def test_after_a_restart_members_keep_their_shares_and_others_wait() -> None:
    clock = ManualClock(1000)
    held = attend(group(4, clock), "a")
    clock.advance(10)
    restarted = group(4, clock, clock.now())
    assert attend(restarted, "b") == {}
    assert attend(restarted, "a", {0: held[0], 1: held[1]}) == {0: held[0], 1: held[1]}
    clock.advance(LEASE_MS - 1)
    assert attend(restarted, "b") == {}
    attend(restarted, "a")
    clock.advance(1)
    assert sorted(attend(restarted, "b")) == [2, 3]
    # Too late: another member may have had the share.
    assert not restarted.holds("a", 2, held[2])


def test_after_a_restart_the_later_lease_counts() -> None:
    clock = ManualClock(1000)
    before = group(1, clock)
    old = attend(before, "a")
    before.leave("a")
    new = attend(before, "b")
    restarted = group(1, clock, clock.now())
    assert attend(restarted, "a", old) == old
    assert attend(restarted, "b", new) == new
    assert attend(restarted, "a", old) == {}


def test_a_made_up_lease_does_not_use_up_the_numbers_of_other_groups() -> None:
    clock = ManualClock(1_800_000_000_000)
    numbers = LeaseNumbers(clock.now())
    resumed = ConsumerGroup(1, numbers, clock.now, clock.now())
    resumed.renew("a", LEASE_MS)
    assert not resumed.holds("a", 0, MAX_SEQ)
    assert resumed.holds("a", 0, (clock.now() - 1) * 1000)
    other = ConsumerGroup(1, numbers, clock.now)
    assert attend(other, "b")[0] < MAX_SEQ
