"""Changing the records that a caller selects: what is asked for is checked before anything is journaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from strandline.engine.commit import Commit
from strandline.engine.errors import BadRequest, RecordTooLarge, UnknownSeq
from strandline.engine.journal.bodies import Select, pack
from strandline.engine.journal.frame import FrameType
from strandline.engine.operations.journaled import change
from strandline.engine.record import Deleted
from strandline.engine.state import record_changes
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Segments

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


class Kind(NamedTuple):
    """What is done to the selected records, and how to know beforehand that it can be."""

    type: FrameType
    check: Callable[[Logbook, Select, Segments], None]
    make: Callable[[Logbook, Select, Segments], Deleted]


DELETE = Kind(FrameType.DELETE, record_changes.check_removable, record_changes.delete)
HIDE = Kind(FrameType.HIDE, record_changes.check_readable, record_changes.hide)
RESTORE = Kind(FrameType.RESTORE, record_changes.check_readable, record_changes.restore)


def check_selection(
    before: int | None, key: str | None, prefix: str | None, seqs: Sequence[int] | None
) -> list[int] | None:
    """Raise unless it is a selection; gives the seqs as they are written down."""
    if before is None and key is None and prefix is None and seqs is None:
        raise BadRequest("say which records: before, key, prefix or seqs")
    if before is not None and before < 0:
        raise BadRequest(f"before must be 0 or more, not {before}")
    chosen = None if seqs is None else [int(seq) for seq in seqs]
    if chosen and not (min(chosen) >= 0 and max(chosen) < 1 << 63):
        raise BadRequest("seqs must be 0 or more")
    return chosen


def change_selected(
    engine: Engine,
    book: Logbook,
    kind: Kind,
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
    """Raise unless the record is there. One that still waits for the disk will be when the amendment's turn comes."""
    if not book.head < seq <= book.assigned and not book.has(seq, engine.store):
        raise UnknownSeq(book.name, seq)
