"""Records that readers do not see any more and that can come back: whoever wants them back must be allowed to."""

from __future__ import annotations

from strandline.engine import Log, Page, Record
from strandline.engine.backwards import look
from strandline.engine.parts import Part, Segments


def read_hidden(log: Log, seq: int) -> Record | None:
    """The record with this seq if it is hidden, else None. Waits for the disk if need be."""
    return look(log.engine, log.book, True, lambda segments: _find(log, seq, segments))


def _find(log: Log, seq: int, segments: Segments) -> Record | None:
    for part in log.book.parts():
        if part.first <= seq <= part.last and _hides(part, seq):
            for block, start, end in part.pieces(seq, seq, segments):
                page = Page(log.epoch, log.head, 0)
                block.copy_to(page, start, end)
                record = next(iter(page))
                assert part.overlay is not None
                return record._replace(data=part.overlay.amended.get(seq, record.data))
    return None


def _hides(part: Part, seq: int) -> bool:
    overlay = part.overlay
    return overlay is not None and seq in overlay.hidden and seq not in overlay.dead
