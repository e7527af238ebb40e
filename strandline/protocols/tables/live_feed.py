"""The feed of a parent: its rows and changes, rendered once for all live readers, and their order.

Rows and changes are two logs. Readers get both as one sequence of events in the order of their times, each change after
the row that it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from strandline.delivery.watch import FeedView, PlainSubject
from strandline.engine import Log, Page
from strandline.protocols.tables.records import RenderedRow, RowRenderer

T = TypeVar("T")

#: The limits of one piece. A slow reader holds at most one piece of each log.
MAX_RECORDS = 256
MAX_BYTES = 256 << 10


class LiveLog(PlainSubject):
    """One log of a parent, with the renderer of its rows."""

    __slots__ = ("renderer",)

    def __init__(self, log: Log, parent: str) -> None:
        super().__init__(log)
        self.renderer = RowRenderer(parent)


class ShownChange(msgspec.Struct, frozen=True, rename="camel"):
    """One record of the log of changes, with the members that readers get."""

    op: str
    seq: int | None = None
    soft: bool = False
    author: str | None = None


class Noted(NamedTuple):
    """A change with its sequence number and its time."""

    seq: int
    ts: int
    change: ShownChange


_decoder = msgspec.json.Decoder(ShownChange)


class RowsView(FeedView):
    """All rows, rendered as far as they are the same for all readers."""

    __slots__ = ()

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": MAX_RECORDS, "max_bytes": MAX_BYTES}

    def render(self, subject: Any, after: int, page: Page) -> list[RenderedRow]:
        renderer: RowRenderer = subject.renderer
        return renderer.page(page)


class ChangesView(FeedView):
    """All changes, without the previous contents of the rows."""

    __slots__ = ()

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": MAX_RECORDS, "max_bytes": MAX_BYTES}

    def render(self, subject: Any, after: int, page: Page) -> list[Noted]:
        return [
            Noted(seq, ts, _decoder.decode(data)) for seq, ts, data in zip(page.seqs, page.ts, page.data, strict=True)
        ]


#: All live readers share these views.
ROWS = RowsView(strong=False)
CHANGES = ChangesView(strong=False)


# --- order ---------------------------------------------------------------------------------------------------------


class MergedCursor(NamedTuple):
    """The position of a reader in both logs."""

    rows: int = 0
    changes: int = 0

    @classmethod
    def parse(cls, text: str) -> MergedCursor | None:
        rows, dot, changes = text.partition(".")
        if not dot or not _is_seq(rows) or not _is_seq(changes):
            return None
        return cls(int(rows), int(changes))

    def __bytes__(self) -> bytes:
        return b"%d.%d" % self

    def __str__(self) -> str:
        return f"{self.rows}.{self.changes}"


def _is_seq(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


class Stretch(NamedTuple, Generic[T]):
    """The next items of one log, up to ``through``; ``is_all`` says whether the log ends there."""

    items: Sequence[T]
    through: int
    is_all: bool


Told = list[tuple[MergedCursor, RenderedRow | Noted]]


def merge(at: MergedCursor, rows: Stretch[RenderedRow], changes: Stretch[Noted]) -> tuple[Told, MergedCursor]:
    """The next events, each with the cursor after it, and the cursor after all of them, which may be further ahead.

    If a log continues after its stretch, events of the other log that may be later than the unread part are held back.
    The cursor always moves while there is something to read.
    """
    # A change may have the time of the last row and be about one of the next rows; a row never depends on a change.
    told_rows = [row for row in rows.items if changes.is_all or row.ts <= _last(changes.items)]
    told_changes = [noted for noted in changes.items if rows.is_all or noted.ts < _last(rows.items)]
    whole_rows, whole_changes = len(told_rows) == len(rows.items), len(told_changes) == len(changes.items)
    told: Told = []
    row_at = change_at = 0
    while row_at < len(told_rows) or change_at < len(told_changes):
        if change_at == len(told_changes) or (
            row_at < len(told_rows) and told_rows[row_at].ts <= told_changes[change_at].ts
        ):
            at = at._replace(rows=told_rows[row_at].seq)
            told.append((at, told_rows[row_at]))
            row_at += 1
        else:
            at = at._replace(changes=told_changes[change_at].seq)
            told.append((at, told_changes[change_at]))
            change_at += 1
    behind = MergedCursor(rows.through if whole_rows else at.rows, changes.through if whole_changes else at.changes)
    return told, behind


def _last(items: Sequence[RenderedRow] | Sequence[Noted]) -> int:
    return items[-1].ts if items else -1
