"""Records that readers do not see any more, and that can come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.engine.reads.page import look
from strandline.engine.record import Page, Record
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Part, Segments

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


def read_hidden(engine: Engine, book: Logbook, seq: int) -> Record | None:
    """See :meth:`Log.read_hidden`."""
    return look(engine, book, True, lambda segments: _find(book, seq, segments))


def _find(book: Logbook, seq: int, segments: Segments) -> Record | None:
    for part in book.parts():
        if part.first <= seq <= part.last and _hides(part, seq):
            for block, start, end in part.pieces(seq, seq, segments):
                page = Page(book.epoch, book.head, 0)
                block.copy_to(page, start, end)
                record = next(iter(page))
                assert part.overlay is not None
                return record._replace(data=part.overlay.amended.get(seq, record.data))
    return None


def _hides(part: Part, seq: int) -> bool:
    overlay = part.overlay
    return overlay is not None and seq in overlay.hidden and seq not in overlay.dead
