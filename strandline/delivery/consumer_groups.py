"""Consumer groups: which member has which share of a log, and until when. Nothing here reads or stores anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple


def quotas(held: Sequence[int], of: int) -> list[int]:
    """How many of the shares each member should have, by how many it has now. The numbers differ by at most one, and
    members that have more keep more, so that as few shares as possible move."""
    low, extra = divmod(of, len(held))
    most = sorted(range(len(held)), key=lambda at: -held[at])
    wanted = [low] * len(held)
    for at in most[:extra]:
        wanted[at] += 1
    return wanted


class GroupMember:
    """A member with its shares, each with the number of its lease. It owns them until the deadline."""

    __slots__ = ("deadline", "lease_ms", "node", "shares")

    def __init__(self, node: str) -> None:
        self.node = node
        self.lease_ms = 0
        self.deadline = 0
        self.shares: dict[int, int] = {}


#: The clock of an earlier process may have been ahead by this much, in milliseconds.
MAX_AHEAD_MS = 86_400_000


class LeaseNumbers:
    """Numbers of leases, each used once, also across restarts: they begin at the time in microseconds."""

    def __init__(self, now: int) -> None:
        self._last = now * 1000
        #: A later number is made up. The numbers are those of all groups, so one that is too large would end them.
        self._latest_seen = (now + MAX_AHEAD_MS) * 1000

    def may_be_earlier(self, lease: int) -> bool:
        """Whether an earlier process may have given this number."""
        return lease <= self._latest_seen

    def next(self) -> int:
        self._last += 1
        return self._last

    def seen(self, lease: int) -> None:
        self._last = max(self._last, lease)


class Assignment(NamedTuple):
    """The shares of a member with their leases, and those of them that it should give back."""

    shares: dict[int, int]
    give_back: list[int]


class ConsumerGroup:
    """The members of a group and their shares, from 0 to ``of - 1``. Times are milliseconds of ``clock``.

    A share has at most one owner, until the owner gives it back, leaves, or lets its lease run out. A share that
    another member should have stays with its owner until the owner gives it back: it may be processing a record.

    ``resumed`` is when the server started, for a group that existed before. Until a lease has passed since then,
    members that are still at work present their leases (:meth:`holds`), and no other member gets their shares.
    """

    def __init__(self, of: int, leases: LeaseNumbers, clock: Callable[[], int], resumed: int | None = None) -> None:
        self.of = of
        self._leases = leases
        self._clock = clock
        self._resumed = resumed
        #: In the order in which they joined.
        self._members: dict[str, GroupMember] = {}
        self._owners: dict[int, GroupMember] = {}

    def members(self) -> Iterator[GroupMember]:
        self._expire()
        return iter(self._members.values())

    def owner(self, share: int) -> GroupMember | None:
        self._expire()
        return self._owners.get(share)

    def has_member(self, node: str) -> bool:
        self._expire()
        return node in self._members

    def renew(self, node: str, lease_ms: int) -> None:
        """Join, or extend the leases of a member to ``lease_ms`` from now."""
        self._expire()
        member = self._members.get(node)
        if member is None:
            member = self._members[node] = GroupMember(node)
        member.lease_ms = lease_ms
        member.deadline = self._clock() + lease_ms

    def holds(self, node: str, share: int, lease: int) -> bool:
        """Whether the member has the share under this lease. Right after a start of the server, it has the share if no
        other member presented a later lease."""
        member, owner = self._members[node], self._owners.get(share)
        if owner is member and member.shares[share] == lease:
            return True
        if not self._resumes(member) or share >= self.of or not self._leases.may_be_earlier(lease):
            return False
        if owner is not None and owner.shares[share] >= lease:
            return False
        if owner is not None:
            del owner.shares[share]
        self._leases.seen(lease)
        member.shares[share] = lease
        self._owners[share] = member
        return True

    def give_back(self, node: str, share: int) -> None:
        """The share is free for other members."""
        del self._members[node].shares[share]
        del self._owners[share]

    def leave(self, node: str) -> None:
        """The member gives back all its shares and is no longer a member."""
        member = self._members.pop(node)
        for share in member.shares:
            del self._owners[share]

    def assign(self, node: str) -> Assignment:
        """Give free shares to the member, up to its quota, or ask shares back if it has more."""
        members = list(self._members.values())
        member = self._members[node]
        wanted = quotas([len(each.shares) for each in members], self.of)[members.index(member)]
        if not self._resumes(member):
            free = (share for share in range(self.of) if share not in self._owners)
            while len(member.shares) < wanted and (share := next(free, None)) is not None:
                member.shares[share] = self._leases.next()
                self._owners[share] = member
        return Assignment(dict(member.shares), sorted(member.shares)[wanted:])

    def _resumes(self, member: GroupMember) -> bool:
        return self._resumed is not None and self._clock() < self._resumed + member.lease_ms

    def _expire(self) -> None:
        now = self._clock()
        for node in [each.node for each in self._members.values() if each.deadline <= now]:
            self.leave(node)
