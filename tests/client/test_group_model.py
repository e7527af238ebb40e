"""Members and the server's side of a group, without connections: whatever is lost and whoever dies, no record is
skipped, no two members work on a share, and nothing that was committed is delivered again."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.client.group_calls import GrantedShare, GroupAnswer, MemberShares, Report
from strandline.client.topic_types import Page, Record
from strandline.delivery.consumer_groups import Assignment, ConsumerGroup, LeaseNumbers
from strandline.engine import ManualClock
from strandline.key_share import share_of

LEASE_MS = 1000
NODES = st.sampled_from(["a", "b", "c"])
TAGS = st.sampled_from(["x", "y", "z", None])


class Member:
    def __init__(self) -> None:
        self.shares: MemberShares[int] = MemberShares()
        self.deadline = 0
        #: The records that the program got and has not finished.
        self.hand: list[Record[int]] = []


class GroupMachine(RuleBasedStateMachine):
    @initialize(of=st.integers(1, 5))
    def begin(self, of: int) -> None:
        self.of = of
        self.clock = ManualClock(1_800_000_000_000)
        self.leases = LeaseNumbers(self.clock.now())
        self.group = ConsumerGroup(of, self.leases, self.clock.now)
        self.positions = [0] * of
        self.log: list[Record[int]] = []
        self.members: dict[str, Member] = {}
        self.processed: set[int] = set()

    # --- the server ------------------------------------------------------------------------------------------------

    def attend(self, node: str, report: Report, leave: bool = False) -> GroupAnswer:
        """What the server does with a report."""
        self.group.renew(node, LEASE_MS)
        lost = []
        for entry in report.held:
            share = entry["share"]
            if not self.group.holds(node, share, entry["lease"]):
                lost.append(share)
                continue
            self.positions[share] = max(self.positions[share], entry["seq"])
            if entry["release"]:
                self.group.give_back(node, share)
        if leave:
            self.group.leave(node)
        assigned = Assignment({}, []) if leave else self.group.assign(node)
        granted = [GrantedShare(share, lease, self.positions[share]) for share, lease in assigned.shares.items()]
        return GroupAnswer(self.of, LEASE_MS, granted, assigned.give_back, lost)

    def page(self, after: int, only: list[int], limit: int) -> Page[int]:
        found = [each for each in self.log[after:] if self.share(each) in only]
        head = len(self.log)
        end = found[limit - 1].seq if len(found) >= limit else head
        return Page("topic", found[:limit], end, head, 1, end == head, head - end)

    def share(self, record: Record[int]) -> int:
        return share_of(record.tag, record.seq, self.of)

    # --- the members -----------------------------------------------------------------------------------------------

    def report(self, node: str) -> None:
        member = self.members[node]
        report = member.shares.report()
        member.shares.accept(self.attend(node, report), report)
        member.deadline = self.clock.now() + LEASE_MS

    def delivered(self, node: str, found: list[Record[int]]) -> None:
        member = self.members[node]
        for record in found:
            share = self.share(record)
            assert record.seq > self.positions[share], "it was committed"
            before = {each.seq for each in self.log[: record.seq - 1] if self.share(each) == share}
            assert before <= self.processed | {each.seq for each in member.hand}, "records before it were skipped"
            for other in self.members.values():
                if other is not member and other.deadline > self.clock.now():
                    assert share not in map(self.share, other.hand), "another member works on the share"
            member.hand.append(record)

    @rule(tags=st.lists(TAGS, min_size=1, max_size=6))
    def write(self, tags: list[str | None]) -> None:
        for tag in tags:
            self.log.append(Record(len(self.log) + 1, 0, 0, tag=tag))

    @rule(node=NODES)
    def joins(self, node: str) -> None:
        if node not in self.members:
            self.members[node] = Member()
            self.report(node)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), limit=st.integers(1, 4), size=st.integers(1, 5))
    def asks_for_the_next(self, data: Any, limit: int, size: int) -> None:
        """As the loop of a member does."""
        node = data.draw(st.sampled_from(sorted(self.members)))
        member = self.members[node]
        self.processed |= {record.seq for record in member.hand}
        member.hand = []
        member.shares.finish()
        for _ in range(3):
            if self.clock.now() >= member.deadline:
                self.report(node)
            found = member.shares.take(limit)
            if found:
                self.delivered(node, found)
                return
            if member.shares.unreported:
                self.report(node)
            wanted = member.shares.next_read()
            if wanted is None:
                self.report(node)
                continue
            member.shares.fill(self.page(wanted.after, wanted.only, size))

    @precondition(lambda self: self.members)
    @rule(data=st.data(), answered=st.booleans())
    def beats(self, data: Any, answered: bool) -> None:
        """A heartbeat, whose answer may be lost."""
        node = data.draw(st.sampled_from(sorted(self.members)))
        if answered:
            self.report(node)
        else:
            self.attend(node, self.members[node].shares.report())

    @precondition(lambda self: self.members)
    @rule(data=st.data(), leaves=st.booleans())
    def ends(self, data: Any, leaves: bool) -> None:
        """It leaves, or it is killed."""
        node = data.draw(st.sampled_from(sorted(self.members)))
        member = self.members.pop(node)
        if leaves:
            self.attend(node, member.shares.report(), leave=True)

    @rule(milliseconds=st.sampled_from([1, LEASE_MS // 2, LEASE_MS, 2 * LEASE_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule()
    def the_server_starts_again(self) -> None:
        self.group = ConsumerGroup(self.of, LeaseNumbers(self.clock.now()), self.clock.now, self.clock.now())

    @invariant()
    def nothing_is_committed_that_was_not_processed(self) -> None:
        for share, position in enumerate(self.positions):
            committed = {record.seq for record in self.log[:position] if self.share(record) == share}
            assert committed <= self.processed

    def teardown(self) -> None:
        """In the end, one member processes what is left."""
        if not hasattr(self, "members"):
            return
        self.members = {}
        self.clock.advance(3 * LEASE_MS)
        self.joins("last")
        for _ in range(4 * len(self.log) + 20):
            member = self.members["last"]
            self.processed |= {record.seq for record in member.hand}
            member.hand = []
            member.shares.finish()
            self.report("last")
            found = member.shares.take(100)
            self.delivered("last", found)
            wanted = member.shares.next_read()
            if not found and wanted is not None:
                member.shares.fill(self.page(wanted.after, wanted.only, 100))
        assert self.processed == {record.seq for record in self.log}


GroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestGroups = GroupMachine.TestCase
