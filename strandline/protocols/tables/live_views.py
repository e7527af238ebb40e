"""What live readers get of the two logs of a parent: its rows and its changes, made once for everybody."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from strandline.delivery.watch import FeedView
from strandline.engine import Log, Page
from strandline.protocols.tables.json import Rendered, RowRenderer

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
