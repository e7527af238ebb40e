"""Changes to a log other than appends: its configuration, its notes, and selected records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.engine.commit import Commit
from strandline.engine.errors import BadRequest, RecordTooLarge, UnknownSeq
from strandline.engine.journal.bodies import Configure, Extras, Select, pack
from strandline.engine.journal.frame import Encoded, FrameType, encode
from strandline.engine.operations.append import after_pending
from strandline.engine.operations.journaled import change, evicting, frames_of_volatile, let_expire
from strandline.engine.record import FLUSHED, Appended, Config, Deleted, LogState, Producer
from strandline.engine.state import record_changes
from strandline.engine.state.idempotency import check_extras, find_duplicate
from strandline.engine.state.lake_mark import extras_of, lake_mark
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.notes import check_fits
from strandline.engine.state.parts import Segments
from strandline.engine.state.retention import evict_over_caps

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


def configure(engine: Engine, book: Logbook, config: Config) -> Commit[LogState]:
    """See :meth:`Log.configure`."""
    while True:
        with engine.lock:
            engine.check_writable()
            book.check_there()
            if not book.pending:
                return _configure(engine, book, config)
        engine.flush()


def _configure(engine: Engine, book: Logbook, config: Config) -> Commit[LogState]:
    engine.check_config(config)
    now = engine.now()
    let_expire(engine, book, now)
    before = book.config
    ceases = before.durability == "ephemeral" != config.durability
    for frame in frames_of_volatile(book, now) if ceases else ():
        engine.journal.write(frame)
    engine.touch(book)
    reserved = engine.reservations.after(book, config.durability)
    engine.journal.write(config_frame(book, config, now, reserved))
    engine.reservations.written(book, reserved)
    if config.durability != "ephemeral":
        book.volatile_from = 0
    # Volatile records are written again, so later frames must not refer to earlier appends.
    book.journal_index = 0
    if book.tail is not None:
        book.tail.join_no_further()
    book.totals.count(before.durability, -1)
    book.totals.count(config.durability, 1)
    book.configure(config)
    engine.note_config(book)
    evicting(engine, book, lambda: evict_over_caps(book, engine.store))
    let_expire(engine, book, now)
    if before.durability != "replicated" or engine.replica is None:
        return engine.later((book,), book.state(), None)
    # Later changes wait for the replica as well, until it has this one.
    book.hold()

    def make() -> LogState:
        book.release(book.shown)
        return book.state()

    return engine.later((book,), None, make)


def config_frame(book: Logbook, config: Config, now: int, reserved: int) -> Encoded:
    """Return the frame of a configuration. The same frame creates a log."""
    body = pack(Configure(book.name, config, None if book.base is None else book.base.point))
    return encode(FrameType.CONFIGURE, book.epoch, book.assigned, now, body, reserved=reserved)


def note(engine: Engine, book: Logbook, changes: Mapping[str, Any], producer: Producer | None) -> Commit[Appended]:
    """See :meth:`Log.note`."""
    if not changes and producer is None:
        raise BadRequest("no notes given; pass at least one note to change")
    extras = check_extras(None, producer, changes)
    assert extras.notes is not None
    with engine.lock:
        engine.check_writable()
        book.check_there()
        now = engine.now()
        duplicate = find_duplicate(book, None, producer, now)
        if duplicate is not None:
            return after_pending(engine, book, duplicate)
        check_fits(book.notes, extras.notes)
        engine.check_replica(book)
        engine.backlog.check_change()
        let_expire(engine, book, now)
        engine.journal.write(note_frame(book, extras, now))
        engine.touch(book)
        appended = book.note(extras, now)
        engine.tell_noted(book)
        if book.config.durability not in FLUSHED and not book.pending and not book.held:
            engine.flush_in_time()
            engine.tell(book)
            return Commit.of(appended)

        def tell() -> Appended:
            engine.tell(book)
            return appended

        return engine.later((book,), None, tell)


def note_frame(book: Logbook, extras: Extras, now: int) -> Encoded:
    return encode(FrameType.NOTE, book.epoch, book.assigned, now, pack(extras), reserved=book.reserved)


def reach_lake(engine: Engine, book: Logbook, through: int, rewrites: int) -> Commit[bool]:
    """See :meth:`Log.reach_lake`."""
    while True:
        with engine.lock:
            book.check_there()
            if not book.config.retain_until_in_lake or lake_mark(book) == through:
                return Commit.of(False)
            # Whether a change that waits for the flush rewrites records is known once it is applied.
            if not book.pending:
                return Commit.of(False) if book.rewrites != rewrites else _reach_lake(engine, book, through)
        engine.flush()


def _reach_lake(engine: Engine, book: Logbook, through: int) -> Commit[bool]:
    extras, now = extras_of(through), engine.now()

    def move() -> bool:
        book.note(extras, now)
        evict_over_caps(book, engine.store)
        return True

    return change(engine, book, FrameType.NOTE, lambda: pack(extras), move)


class SelectedChange(NamedTuple):
    """How to change the selected records, and how to check in advance that the change is possible."""

    type: FrameType
    check: Callable[[Logbook, Select, Segments], None]
    make: Callable[[Logbook, Select, Segments], Deleted]


DELETE = SelectedChange(FrameType.DELETE, record_changes.check_removable, record_changes.delete)
HIDE = SelectedChange(FrameType.HIDE, record_changes.check_readable, record_changes.hide)
RESTORE = SelectedChange(FrameType.RESTORE, record_changes.check_readable, record_changes.restore)


def check_selection(
    before: int | None, key: str | None, prefix: str | None, seqs: Sequence[int] | None
) -> list[int] | None:
    """Raise unless the arguments are a valid selection. Return the seqs as they are journaled."""
    if before is None and key is None and prefix is None and seqs is None:
        raise BadRequest("no records selected; pass before, key, prefix or seqs")
    if before is not None and before < 0:
        raise BadRequest(f"before must be 0 or more, not {before}")
    chosen = None if seqs is None else [int(seq) for seq in seqs]
    if chosen and not (min(chosen) >= 0 and max(chosen) < 1 << 63):
        raise BadRequest("seqs must be 0 or more")
    return chosen


def change_selected(
    engine: Engine,
    book: Logbook,
    kind: SelectedChange,
    before: int | None,
    key: str | None,
    prefix: str | None,
    seqs: Sequence[int] | None,
    erasure: bool = True,
) -> Commit[Deleted]:
    """See :meth:`Log.delete`, :meth:`Log.hide` and :meth:`Log.restore`."""
    chosen = check_selection(before, key, prefix, seqs)
    type, check, make = kind
    select: list[Select] = []

    def body() -> bytes:
        select.append(Select(book.assigned, before, key, prefix, chosen))
        check(book, select[0], engine.store)
        book.withdrawals += type is not FrameType.RESTORE
        return pack(select[0])

    return change(
        engine,
        book,
        type,
        body,
        lambda: make(book, select[0], engine.store),
        erased=(lambda: select[0]) if erasure else None,
    )


def check_amendment(data: bytes, limit: int) -> None:
    if type(data) is not bytes:
        raise BadRequest(f"data must be bytes, not {type(data).__name__}")
    if len(data) > limit:
        raise RecordTooLarge(0, len(data), limit)


def check_amendable(engine: Engine, book: Logbook, seq: int) -> None:
    """Raise unless the record exists. A record that waits for the disk counts, because it exists when the amendment is
    applied."""
    if not book.head < seq <= book.assigned and not book.has(seq, engine.store):
        raise UnknownSeq(book.name, seq)
