"""Records that readers do not see any more and that can come back: whoever wants them back must be allowed to."""

from __future__ import annotations

from strandline.engine import Log, Page, Record
from strandline.engine.parts import Part
from strandline.engine.reading import NotResident, Resident, fetch


def read_hidden(log: Log, seq: int) -> Record | None:
    """The record with this seq if it is hidden, else None. Waits for the disk if need be."""
    segments = Resident(log.engine.store)
    while True:
        try:
            with log.engine.lock:
                log.book.check_there()
                return _find(log, seq, segments)
        except NotResident as missing:
            fetch(log.book, missing)


def _find(log: Log, seq: int, segments: Resident) -> Record | None:
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
