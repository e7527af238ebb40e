"""Consumer groups: types, requests, answers, and the shares of a member."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from strandline.client.calls import ALWAYS, AnswerReader, Request, delete, get, post, segment
from strandline.client.topic_calls import given
from strandline.client.topic_types import Page, Record
from strandline.key_share import share_of

T = TypeVar("T")

#: Higher than any seq.
MAX_SEQ = 1 << 63
#: How long a read of a member that has read everything waits for new records.
LONGEST_WAIT_MS = 1000


class MemberState(msgspec.Struct, frozen=True):
    """A member of a group. ``shares`` is how many it has, ``deadline`` (milliseconds) the end of its leases."""

    node: str
    shares: int
    deadline: int


class ShareState(msgspec.Struct, frozen=True):
    """A share of a group. ``consumer`` has its position, ``node`` is the member that has it now."""

    share: int
    consumer: str
    node: str | None
    seq: int
    lag: int
    committed_ts: int


class GroupState(msgspec.Struct, frozen=True):
    """A group. ``of`` is the number of shares."""

    topic: str
    group: str
    of: int
    head_seq: int
    members: list[MemberState]
    shares: list[ShareState]

    @property
    def lag(self) -> int:
        """The number of seqs after the position of the share that is furthest behind."""
        return max(share.lag for share in self.shares)


class GrantedShare(msgspec.Struct, frozen=True):
    share: int
    lease: int
    seq: int


class GroupAnswer(msgspec.Struct, frozen=True):
    """What a member gets: all its shares, which of them to give back, and which it has lost."""

    of: int
    lease_ms: int
    shares: list[GrantedShare]
    give_back: list[int]
    lost: list[int]


class GroupDeleted(msgspec.Struct, frozen=True):
    deleted: bool


ATTENDED = AnswerReader(GroupAnswer)
GROUP = AnswerReader(GroupState)
GROUP_DELETED = AnswerReader(GroupDeleted)


class MemberSettings(msgspec.Struct, frozen=True):
    """What a member asks for. ``of`` and ``at`` count if it creates the group."""

    lease_ms: int
    of: int | None
    at: Literal["start", "end"]
    auto_commit: bool

    def __post_init__(self) -> None:
        if self.lease_ms < 100:
            raise ValueError(f"lease_ms must be at least 100, got {self.lease_ms}")


class Report(NamedTuple):
    """The shares of a member, as it reports them to the server."""

    held: list[dict[str, Any]]
    sent: dict[int, MemberShare]


def group_path(topic: str, group: str) -> str:
    return f"{topic}/groups/{segment(group)}"


def attend(path: str, node: str, settings: MemberSettings, report: Report, leave: bool) -> Request:
    """Repeatable: a position that was committed before is not moved back, and a share that was given back is lost."""
    body = given(node=node, held=report.held, lease_ms=settings.lease_ms, of=settings.of, at=settings.at)
    if leave:
        body["leave"] = True
    return post(path, body, repeatable=ALWAYS)


def state(path: str) -> Request:
    return get(path)


def remove(path: str) -> Request:
    return delete(path)


class MemberShare:
    """A share that a member has. ``delivered`` is the last record of it that the program got, and there is no other
    record up to ``through``. Everything up to ``done`` is processed, and ``committed`` is what the server knows of
    that."""

    __slots__ = ("committed", "delivered", "done", "lease", "leaving", "number", "through")

    def __init__(self, number: int, lease: int, seq: int) -> None:
        self.number = number
        self.lease = lease
        self.delivered = self.through = self.done = self.committed = seq
        #: Another member should have it: nothing more of it is delivered.
        self.leaving = False

    @property
    def can_leave(self) -> bool:
        """Whether it is to be given back, and everything that was delivered is processed."""
        return self.leaving and self.done >= self.delivered


class _Asked(NamedTuple):
    """The shares of a read, of how many, and up to which seq its page counts."""

    shares: list[MemberShare]
    of: int
    end: int


class NextRead(NamedTuple):
    """The next page of a member: the records of these shares after a seq. ``wait`` says whether it may wait."""

    after: int
    of: int
    only: list[int]
    wait: bool


class MemberShares(Generic[T]):
    """The shares of a member: what is read next, which record is delivered next, and what is committed. Threads may
    share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._of = 1
        self._shares: dict[int, MemberShare] = {}
        #: The last read, for ``fill``.
        self._asked = _Asked([], 1, 0)
        #: The records of the page that are not delivered yet, the shares that the page is about, and its end.
        self._page: deque[tuple[MemberShare, Record[T]]] = deque()
        self._reading: list[MemberShare] = []
        self._end = 0
        #: The seq up to which the last page was read, and the head of the log then.
        self._head = 0
        #: Shares that were lost with records that were delivered and not committed.
        self._lost: set[int] = set()

    @property
    def numbers(self) -> list[int]:
        """The shares that the member has."""
        with self._lock:
            return sorted(self._shares)

    @property
    def unreported(self) -> bool:
        """Whether something is to be committed, or to be given back."""
        with self._lock:
            return any(share.done > share.committed or share.can_leave for share in self._shares.values())

    @property
    def at_end(self) -> bool:
        """Whether all records of the shares were read when the last page was read."""
        with self._lock:
            return all(share.through >= self._head or share.leaving for share in self._shares.values())

    def take_lost(self) -> list[int]:
        """The shares that were lost with unfinished work, once."""
        with self._lock:
            lost, self._lost = self._lost, set()
            return sorted(lost)

    # --- reading ---------------------------------------------------------------------------------------------------

    def next_read(self) -> NextRead | None:
        """What to read after the page. None if there is nothing to read from. If the read fails, ask again."""
        with self._lock:
            shares = [share for share in self._shares.values() if not share.leaving]
            if not shares:
                return None
            after = min(share.through for share in shares)
            # The shares that are furthest behind first, until they have caught up with the others.
            reading = [share for share in shares if share.through == after]
            end = min((share.through for share in shares if share.through > after), default=MAX_SEQ)
            self._asked = _Asked(reading, self._of, end)
            only = sorted(share.number for share in reading)
            return NextRead(after, self._of, only, len(only) == len(shares))

    def fill(self, page: Page[T]) -> None:
        """Accept the page of the last ``next_read``."""
        with self._lock:
            self._head = page.head_seq
            # What the other shares have read is read again together with them.
            self._end = min(self._asked.end, page.next_from_seq)
            self._reading = self._asked.shares
            by_number = {share.number: share for share in self._reading}
            for record in page.records:
                if record.seq <= self._end:
                    self._page.append((by_number[share_of(record.tag, record.seq, self._asked.of)], record))
            if not self._page:
                self._end_page()

    def take(self, limit: int) -> list[Record[T]]:
        """Deliver up to this many records of the page. Records of shares that the member lost are left out."""
        found: list[Record[T]] = []
        with self._lock:
            while self._page and len(found) < limit:
                share, record = self._page.popleft()
                if self._shares.get(share.number) is share and not share.leaving:
                    share.delivered = share.through = record.seq
                    found.append(record)
            if not self._page:
                self._end_page()
        return found

    def _end_page(self) -> None:
        """All records of the page were delivered: the shares have no others up to its end."""
        for share in self._reading:
            if not share.leaving:
                share.through = max(share.through, self._end)
                if share.done >= share.delivered:
                    share.done = share.through
        self._reading = []

    def finish(self) -> None:
        """All records that were delivered are processed."""
        with self._lock:
            for share in self._shares.values():
                share.done = share.through

    # --- reporting -------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        with self._lock:
            held = [
                {
                    "share": share.number,
                    "lease": share.lease,
                    "seq": share.done,
                    "release": share.can_leave,
                }
                for share in self._shares.values()
            ]
            return Report(held, dict(self._shares))

    def accept(self, answer: GroupAnswer, report: Report) -> None:
        """Accept the answer to a report."""
        with self._lock:
            self._of = answer.of
            granted = {each.share: each for each in answer.shares}
            for entry in report.held:
                share = report.sent[entry["share"]]
                now = granted.get(share.number)
                if share.number not in answer.lost:
                    share.committed = entry["seq"]
                if now is not None and now.lease == share.lease:
                    continue
                del self._shares[share.number]
                # A repeated request finds that it has given back the share before.
                if share.delivered > share.committed and not entry["release"]:
                    self._lost.add(share.number)
            for each in answer.shares:
                if each.share not in self._shares:
                    self._shares[each.share] = MemberShare(each.share, each.lease, each.seq)
            for number in answer.give_back:
                self._shares[number].leaving = True
