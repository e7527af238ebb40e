"""Consumer groups: several members read a topic together. Each has some shares of the keys, under leases that it renews
by asking again, and commits a position per share. A share's position is that of an ordinary consumer."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from strandline.delivery.consumer_groups import Assignment, ConsumerGroup, LeaseNumbers
from strandline.engine import Log
from strandline.engine.commit import Commit, after_all
from strandline.key_share import share_consumer, share_name
from strandline.nearest_name import decode_body
from strandline.protocols.topics.consumers import Consumers
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import GROUP_HAS_MEMBERS, GROUP_NOT_FOUND
from strandline.protocols.topics.jobs import check_node
from strandline.protocols.topics.topics import Topic
from strandline.protocols.topics.wire import (
    GrantedShare,
    GroupAnswer,
    GroupBody,
    GroupDeleted,
    GroupState,
    HeldShare,
    MemberState,
    ShareState,
)
from strandline.service.catalog import CONSUMER
from strandline.service.http import Call, Later, Reply, json_reply
from strandline.service.log_config import clamp_lease
from strandline.service.problems import Refusal, invalid, limit_reached

#: The names that groups can have. With the suffix of a share they are names of consumers.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,239}", re.ASCII)
#: The number of shares of a group whose first member asks for no other number, and how long its leases last.
DEFAULT_SHARES = 16
DEFAULT_LEASE_MS = 10_000
_decoder = msgspec.json.Decoder(GroupBody)


class _Group:
    """A group with the log it reads."""

    __slots__ = ("_pending", "log", "members", "name")

    def __init__(self, log: Log, name: str, members: ConsumerGroup) -> None:
        self.log = log
        self.name = name
        self.members = members
        #: Positions that are not durable yet, so that the log does not have them.
        self._pending: dict[int, tuple[int, Commit[Any]]] = {}

    @property
    def of(self) -> int:
        return self.members.of

    def consumer(self, share: int) -> str:
        return share_name(self.name, share, self.of)

    def position(self, share: int) -> int:
        seq, commit = self._pending.get(share, (0, None))
        if commit is not None:
            if not commit.done:
                return seq
            del self._pending[share]
        cursor = self.log.cursor(CONSUMER + self.consumer(share))
        return 0 if cursor is None else cursor.seq

    def moves(self, share: int, seq: int, commit: Commit[Any]) -> None:
        if not commit.done:
            self._pending[share] = seq, commit


class ConsumerGroups:
    def __init__(self, context: Context, consumers: Consumers) -> None:
        self._context = context
        self._consumers = consumers
        self._started = context.engine.now()
        self._leases = LeaseNumbers(self._started)
        #: The groups that were used since the start, by the epoch of their log and by name.
        self._groups: dict[tuple[int, str], _Group] = {}

    def attend(self, call: Call) -> Reply | Later:
        """POST /v0/topics/{topic}/groups/{group}"""
        body = decode_body(_decoder, call.body)
        check_node(self._context, body.node)
        if (follower := self._context.engine.follower) is not None:
            # Shares are given by the leader only. Otherwise a share could have two owners.
            raise follower.refusal
        topic, name = self._context.topics.get(call.param("topic")), _checked_name(call.param("group"))
        commits: list[Commit[Any]] = []
        group = self._find(topic, name) or self._create(topic, name, body, commits)
        if body.of is not None and body.of != group.of:
            why = f"group {name!r} has {group.of} shares, and the number cannot be changed to {body.of}"
            raise invalid(why, {"of": group.of})
        lost = self._report(topic, group, body, commits)
        assigned = Assignment({}, []) if body.leave else group.members.assign(body.node)
        # The position of a share is final for as long as the lease, so it need not be durable yet.
        shares = [GrantedShare(share, lease, group.position(share)) for share, lease in assigned.shares.items()]

        def reply(_: None) -> Reply:
            return json_reply(
                GroupAnswer(
                    topic=topic.name,
                    group=name,
                    of=group.of,
                    head_seq=topic.log.head,
                    lease_ms=_lease_of(body),
                    shares=shares,
                    give_back=assigned.give_back,
                    lost=lost,
                    performance=performance(call),
                )
            )

        return self._context.admission.after(after_all(commits, None), reply)

    def _report(self, topic: Topic, group: _Group, body: GroupBody, commits: list[Commit[Any]]) -> list[int]:
        """Renew the member's leases, commit its positions, and free the shares that it gives back. Returns the shares
        that it no longer has."""
        members, node = group.members, body.node
        if not members.has_member(node):
            if body.leave:
                return [each.share for each in body.held]
            maximum = self._context.settings.max_group_members
            if sum(1 for _ in members.members()) >= maximum:
                raise limit_reached("max_group_members", maximum)
        held = _checked(body.held, group, node, topic.log.head)
        members.renew(node, _lease_of(body))
        lost: list[int] = []
        for each in held:
            if not members.holds(node, each.share, each.lease):
                lost.append(each.share)
                continue
            # A repeated request that arrives late does not move a share back.
            if each.seq > group.position(each.share):
                commit = self._consumers.move(topic, group.consumer(each.share), min(each.seq, topic.log.head))
                group.moves(each.share, each.seq, commit)
                commits.append(commit)
            if each.release:
                members.give_back(node, each.share)
        if body.leave:
            members.leave(node)
        return lost

    def get(self, call: Call) -> Reply:
        """GET /v0/topics/{topic}/groups/{group}"""
        topic, name = self._context.topics.get(call.param("topic")), call.param("group")
        group = self._get(topic, name)
        head = topic.log.head
        shares = []
        for share in range(group.of):
            consumer = group.consumer(share)
            cursor = topic.log.cursor(CONSUMER + consumer)
            seq, ts = (0, 0) if cursor is None else (cursor.seq, cursor.ts)
            owner = group.members.owner(share)
            node = None if owner is None else owner.node
            shares.append(ShareState(share, consumer, node, seq, max(0, head - seq), ts))
        members = [MemberState(each.node, len(each.shares), each.deadline) for each in group.members.members()]
        answer = GroupState(topic.name, name, group.of, head, members, shares, performance=performance(call))
        return json_reply(answer)

    def delete(self, call: Call) -> Reply | Later:
        """DELETE /v0/topics/{topic}/groups/{group}"""
        topic, name = self._context.topics.get(call.param("topic")), call.param("group")
        group = self._find(topic, name)
        commits: list[Commit[bool]] = []
        if group is not None:
            if members := [each.node for each in group.members.members()]:
                detail = {"topic": topic.name, "group": name, "members": len(members)}
                raise Refusal(
                    GROUP_HAS_MEMBERS,
                    f"group {name!r} has members ({len(members)}); stop them before you delete it",
                    detail,
                )
            commits = [topic.log.drop_cursor(CONSUMER + group.consumer(share)) for share in range(group.of)]
            del self._groups[topic.log.epoch, name]

        def reply(_: None) -> Reply:
            return json_reply(GroupDeleted(topic.name, name, group is not None, performance=performance(call)))

        return self._context.admission.after(after_all(commits, None), reply)

    # --- groups ----------------------------------------------------------------------------------------------------

    def _get(self, topic: Topic, name: str) -> _Group:
        group = self._find(topic, name)
        if group is None:
            raise _no_group(topic, name)
        return group

    def _find(self, topic: Topic, name: str) -> _Group | None:
        group = self._groups.get((topic.log.epoch, name))
        if group is None:
            for cursor in sorted(topic.log.cursors()):
                share = share_consumer(cursor.removeprefix(CONSUMER)) if cursor.startswith(CONSUMER) else None
                # The first share is created last and deleted first, so the others are valid if it is there.
                if share is not None and share.group == name and share.number == 0:
                    group = self._remember(_Group(topic.log, name, self._members(share.of, self._started)))
                    break
        return group

    def _create(self, topic: Topic, name: str, body: GroupBody, commits: list[Commit[Any]]) -> _Group:
        if body.leave:
            raise _no_group(topic, name)
        of = body.of or DEFAULT_SHARES
        self._consumers.check_room(topic, of)
        group = _Group(topic.log, name, self._members(of, None))
        seq = topic.log.head if body.at == "end" else topic.log.state().earliest - 1
        for share in reversed(range(of)):
            commit = self._consumers.move(topic, group.consumer(share), seq)
            group.moves(share, seq, commit)
            commits.append(commit)
        return self._remember(group)

    def _members(self, of: int, resumed: int | None) -> ConsumerGroup:
        return ConsumerGroup(of, self._leases, self._context.engine.now, resumed)

    def _remember(self, group: _Group) -> _Group:
        if self._context.engine.follower is not None:
            # The leader may delete the group, and create it with another number of shares.
            return group
        for key in [key for key, other in self._groups.items() if other.log.dropped]:
            del self._groups[key]
        self._groups[group.log.epoch, group.name] = group
        return group


def _no_group(topic: Topic, name: str) -> Refusal:
    detail = {"topic": topic.name, "group": name}
    return Refusal(GROUP_NOT_FOUND, f"topic {topic.name!r} has no consumer group {name!r}", detail)


def _checked_name(name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise invalid(f"{name!r} is not the name of a consumer group: expected 1 to 240 letters, digits and . _ : -")
    return name


def _lease_of(body: GroupBody) -> int:
    return DEFAULT_LEASE_MS if body.lease_ms is None else clamp_lease(body.lease_ms)


def _checked(held: list[HeldShare], group: _Group, node: str, head: int) -> list[HeldShare]:
    if len({each.share for each in held}) < len(held):
        raise invalid("held names a share twice")
    for each in held:
        owner = group.members.owner(each.share)
        # The lease of a topic that was deleted and created again is lost.
        if each.seq > head and owner is not None and owner.node == node and owner.shares[each.share] == each.lease:
            raise invalid(f"seq {each.seq} is past the head, {head}", {"head_seq": head})
    return held
