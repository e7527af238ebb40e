"""The feed of a parent: what live readers get of its rows and changes, made once for all of them, and in which order.

Two logs are told as one story: rows and changes in the order of their times, each change after the row it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from strandline.delivery.watch import FeedView
from strandline.engine import Log, Page
from strandline.protocols.tables.json import Rendered, RowRenderer

T = TypeVar("T")

#: Of one piece. A reader that does not keep up holds no more than this of either log.
MAX_RECORDS = 256
MAX_BYTES = 256 << 10


class LiveLog:
    """One log as feeds see it."""

    __slots__ = ("consumed_at", "log", "renderer")

    def __init__(self, log: Log, parent: str) -> None:
        self.log = log
        self.consumed_at: int | None = None
        self.renderer = RowRenderer(parent)

    def priority(self, now: int) -> int:
        return 0


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """One record of the log of changes, as far as it is told."""

    op: str
    seq: int | None = None
    soft: bool = False
    author: str | None = None


class Noted(NamedTuple):
    """A change with its place and its time."""

    seq: int
    ts: int
    change: Change


_decoder = msgspec.json.Decoder(Change)


class RowsView(FeedView):
    """Every row, rendered as far as it is the same for everybody."""

    __slots__ = ()

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": MAX_RECORDS, "max_bytes": MAX_BYTES}

    def render(self, subject: Any, after: int, page: Page) -> list[Rendered]:
        renderer: RowRenderer = subject.renderer
        return renderer.page(page)


class ChangesView(FeedView):
    """Every change, without what was there before."""

    __slots__ = ()

    def arguments(self, subject: Any) -> dict[str, Any]:
        return {"limit": MAX_RECORDS, "max_bytes": MAX_BYTES}

    def render(self, subject: Any, after: int, page: Page) -> list[Noted]:
        return [
            Noted(seq, ts, _decoder.decode(data)) for seq, ts, data in zip(page.seqs, page.ts, page.data, strict=True)
        ]


#: Who follows along sees what everybody sees.
ROWS = RowsView(strong=False)
CHANGES = ChangesView(strong=False)


# --- the order -------------------------------------------------------------------------------------------------------


class Cursor(NamedTuple):
    """How far a reader has come in both logs."""

    rows: int = 0
    changes: int = 0

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
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
    """What comes next in one of the logs: up to ``through``, and whether that is all there is."""

    items: Sequence[T]
    through: int
    is_all: bool


Told = list[tuple[Cursor, Rendered | Noted]]


def merge(at: Cursor, rows: Stretch[Rendered], changes: Stretch[Noted]) -> tuple[Told, Cursor]:
    """What to tell next, with the cursor behind each; and the cursor behind all of it, which may be further still.

    Only what is known to come next: where a log goes on, nothing of the other is told that may come after what is not
    there yet. The cursor always moves as long as there is something.
    """
    # A change of the very time of the last row may be about one of the next rows, never the other way round.
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
    behind = Cursor(rows.through if whole_rows else at.rows, changes.through if whole_changes else at.changes)
    return told, behind


def _last(items: Sequence[Rendered] | Sequence[Noted]) -> int:
    return items[-1].ts if items else -1
