"""A step: several changes to several logs in one write. After a crash, all of them exist or none.

The whole step is checked before anything is written, and becomes visible together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.engine.commit import Commit
from strandline.engine.errors import BadRequest
from strandline.engine.journal.bodies import Extras, Select, pack
from strandline.engine.journal.frame import MAX_GROUP, Encoded, FrameType, encode, encode_append
from strandline.engine.operations.append import Usage, prepare_append
from strandline.engine.operations.change import (
    DELETE,
    HIDE,
    RESTORE,
    SelectedChange,
    check_amendable,
    check_amendment,
    check_selection,
)
from strandline.engine.operations.journaled import begin_volatile, evicting, has_durable, publish
from strandline.engine.record import FLUSHED, Appended, Batch, Deleted, check_time, is_internal
from strandline.engine.state import record_changes
from strandline.engine.state.block import Block
from strandline.engine.state.idempotency import check_extras, find_duplicate
from strandline.engine.state.logbook import Logbook

if TYPE_CHECKING:
    from strandline.engine.engine import Engine
    from strandline.engine.log import Log

#: A write also contains the erasure events and the creation of their log.
MAX_CHANGES = MAX_GROUP - 3


class Append(NamedTuple):
    """An append to one log. The fields are the arguments of ``Log.append``."""

    log: Log
    batch: Batch
    idempotency_key: str | None = None
    ts: int | None = None


class Amend(NamedTuple):
    """Like ``Log.amend``."""

    log: Log
    seq: int
    data: bytes


class Delete(NamedTuple):
    """Like ``Log.delete``."""

    log: Log
    before: int | None = None
    key: str | None = None
    prefix: str | None = None
    seqs: Sequence[int] | None = None


class Hide(NamedTuple):
    """Like ``Log.hide``."""

    log: Log
    before: int | None = None
    key: str | None = None
    prefix: str | None = None
    seqs: Sequence[int] | None = None


class Restore(NamedTuple):
    """Like ``Log.restore``."""

    log: Log
    before: int | None = None
    key: str | None = None
    prefix: str | None = None
    seqs: Sequence[int] | None = None


Change = Append | Amend | Delete | Hide | Restore
_KINDS: dict[type, SelectedChange] = {Delete: DELETE, Hide: HIDE, Restore: RESTORE}


class _Member(NamedTuple):
    """One append of the step, checked and ready to be applied."""

    book: Logbook
    block: Block
    size: int
    extras: Extras | None
    reserved: int


class _Alteration(NamedTuple):
    """A change to existing records, checked and ready to be applied. ``place`` is its position among the changes."""

    place: int
    book: Logbook
    type: FrameType
    first: int
    body: bytes
    select: Select
    make: Callable[[], Deleted | None]


def change_all(engine: Engine, changes: Sequence[Change]) -> Commit[list[Any]]:
    """See :meth:`Engine.change_all`."""
    if len(changes) > MAX_CHANGES:
        raise BadRequest(f"{len(changes)} changes given; the limit is {MAX_CHANGES}")
    checked = [_check(engine, change) for change in changes]
    with engine.lock:
        engine.check_writable()
        for log in {id(change.log): change.log for change in changes}.values():
            prepare_append(engine, log.book)
        step = _Step(engine)
        for change, known in zip(changes, checked, strict=True):
            if isinstance(change, Append):
                step.plan_append(change, *known)
            elif isinstance(change, Amend):
                step.plan_amendment(change)
            else:
                step.plan_selection(change, *known)
        return step.make()


def _check(engine: Engine, change: Change) -> tuple[Any, ...]:
    """Check everything that needs no lock, and return the values computed on the way."""
    engine.check_own(change.log)
    if isinstance(change, Append):
        if change.ts is not None:
            check_time(change.ts)
        key = change.idempotency_key
        extras = None if key is None else check_extras(key, None)
        return change.batch.check(engine.options.max_record_bytes), extras
    if isinstance(change, Amend):
        check_amendment(change.data, engine.options.max_record_bytes)
        return ()
    return (check_selection(change.before, change.key, change.prefix, change.seqs),)


class _Step:
    """Applies the changes. The engine's lock is held from the first plan to the end. Planning changes nothing, and
    raises if a change is impossible."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._now = engine.now()
        self._usage = Usage()
        self._results: list[Any] = []
        self._members: list[_Member] = []
        self._alterations: list[_Alteration] = []
        self._keys: dict[tuple[int, str], Appended] = {}
        self._waits = False
        #: Whether a repeated append waits until the replica has the first one.
        self._waits_for_replica = False

    def plan_append(self, append: Append, size: int, extras: Extras | None) -> None:
        book, batch = append.log.book, append.batch
        key = None if extras is None else extras.idempotency_key
        if key is not None:
            duplicate = self._keys.get((book.epoch, key)) or find_duplicate(book, key, None, self._now)
            if duplicate is not None:
                # If the earlier append still waits for the disk, the duplicate waits with it.
                self._waits = self._waits or book.pending > 0 or book.held > 0
                self._waits_for_replica = self._waits_for_replica or book.held > 0
                self._results.append(duplicate.again())
                return
        if book.config.discard == "reject":
            self._usage.check_room(book, len(batch), size)
        ts = book.time_of(self._now, append.ts)
        block = Block.of_batch(self._usage.next_seq(book), ts, batch)
        waits, reserved = self._engine.reservations.wanted(book, block.last, len(batch))
        self._waits = self._waits or waits
        self._members.append(_Member(book, block, size, extras, reserved))
        self._usage.add(book, block.last, len(batch), size)
        appended = Appended(block.first, block.last, ts)
        if key is not None:
            self._keys[book.epoch, key] = appended
        self._results.append(appended)

    def plan_selection(self, change: Delete | Hide | Restore, seqs: list[int] | None) -> None:
        book, store = change.log.book, self._engine.store
        kind, check, make = _KINDS[type(change)]
        select = Select(book.assigned, change.before, change.key, change.prefix, seqs)
        check(book, select, store)
        self._alter(book, kind, book.assigned, pack(select), select, lambda: make(book, select, store))

    def plan_amendment(self, change: Amend) -> None:
        book, seq, data, engine = change.log.book, change.seq, change.data, self._engine
        check_amendable(engine, book, seq)
        select = Select(book.assigned, seqs=[seq])
        make = lambda: record_changes.amend(book, seq, data, engine.store)  # noqa: E731
        self._alter(book, FrameType.AMEND, seq, data, select, make)

    def _alter(
        self, book: Logbook, kind: FrameType, first: int, body: bytes, select: Select, make: Callable[[], Any]
    ) -> None:
        self._engine.check_replica(book)
        self._waits = self._waits or book.config.durability in FLUSHED or book.pending > 0 or book.held > 0
        self._alterations.append(_Alteration(len(self._results), book, kind, first, body, select, make))
        self._results.append(None)

    def make(self) -> Commit[list[Any]]:
        engine, now = self._engine, self._now
        self._check_quota()
        self._check_backlog()
        events = self._journal()
        for alteration in self._alterations:
            engine.touch(alteration.book)
            alteration.book.withdrawals += alteration.type in (FrameType.DELETE, FrameType.HIDE)
        for book, block, _, extras, reserved in self._members:
            engine.touch(book)
            if book.config.durability == "ephemeral":
                begin_volatile(book)
            else:
                engine.reservations.written(book, reserved)
                engine.note_place(book, block.first)
            book.assign(block, block.timestamp(0), extras, now)
        if self._waits:
            for book, block, size, _, _ in self._members:
                book.count_pending(len(block), size)
            changed = {member.book for member in self._members} | {one.book for one in self._alterations}
            commit: Commit[list[Any]] = engine.later(
                tuple(changed), None, self._make_pending, replicated=self._waits_for_replica
            )
            engine.erasures.publish(events)
            return commit
        engine.erasures.publish(events)
        self._make_visible()
        engine.flush_in_time()
        return Commit.of(self._results)

    @property
    def _frees(self) -> bool:
        """Return whether the step frees space. For example, a table records removed rows in another log."""
        return any(change.type in (FrameType.DELETE, FrameType.HIDE) for change in self._alterations)

    def _check_quota(self) -> None:
        quota = self._engine.quota
        if not quota.max_bytes or self._frees:
            return
        added = [(member.book.name, member.size) for member in self._members]
        added += [(one.book.name, len(one.body)) for one in self._alterations if one.type is FrameType.AMEND]
        counted = [(name, size) for name, size in added if not is_internal(name)]
        if counted:
            quota.check_append(counted[0][0], sum(size for _, size in counted))

    def _check_backlog(self) -> None:
        backlog = self._engine.backlog
        journaled = [member for member in self._members if member.book.config.durability != "ephemeral"]
        amendments = [change for change in self._alterations if change.type is FrameType.AMEND]
        size = sum([member.size for member in journaled]) + sum([len(change.body) for change in amendments])
        frees = self._frees
        for member in journaled:
            backlog.check(member.book, len(member.block), size, frees=frees)
        for amendment in amendments:
            backlog.check(amendment.book, 1, size)
        if self._alterations:
            backlog.check_change()

    def _journal(self) -> Block | None:
        """Write the step. Changes to existing records come first, because an append assigns more seqs."""
        engine, now = self._engine, self._now
        frames: list[Encoded] = []
        for change in self._alterations:
            book = change.book
            if has_durable(book):
                frames.append(encode(change.type, book.epoch, change.first, now, change.body, reserved=book.reserved))
        for book, block, _, extras, reserved in self._members:
            if book.config.durability == "ephemeral":
                engine.reservations.write(book, reserved, now)
            else:
                frames.append(encode_append(book.epoch, block, now, reserved, extras))
        return engine.erasures.write(frames, [(one.book, one.type, one.select) for one in self._alterations], now)

    def _make_pending(self) -> list[Any]:
        for book, block, size, _, _ in self._members:
            book.count_pending(-len(block), -size)
            self._engine.touch(book)
        self._make_visible()
        return self._results

    def _make_visible(self) -> None:
        engine = self._engine
        for alteration in self._alterations:
            self._results[alteration.place] = evicting(engine, alteration.book, alteration.make)
        for book, block, *_ in self._members:
            publish(engine, book, block)
        for book in {member.book: None for member in self._members}:
            if book.listeners:
                engine.tell(book)
