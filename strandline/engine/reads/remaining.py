"""What still stands of the records of a log, for those who keep what they have read of it."""

from __future__ import annotations

from typing import NamedTuple

from strandline.engine.log import Log
from strandline.engine.state.forks import chain, layers, revision_of
from strandline.engine.state.logbook import Logbook


class Standing(NamedTuple):
    """A log at one moment.

    As long as ``rewrites`` is the same, records have at most been taken away: what was read of a seq that is in one of
    the ``ranges`` is still so. The ranges are ascending and inclusive, and may have seqs in them that never held
    anything. ``revision`` is as in :class:`Log`.
    """

    revision: int
    rewrites: int
    ranges: list[tuple[int, int]]


def standing_of(log: Log) -> Standing:
    """Looks at nothing but memory. Its cost is that of the log's segments and of the ranges that were removed."""
    _ = log.revision  # what time has taken is gone
    with log.engine.lock:
        log.book.check_there()
        return Standing(revision_of(log.book), rewrites_of(log), standing_ranges(log.book))


def standing_ranges(book: Logbook) -> list[tuple[int, int]]:
    """The seqs that readers see, and some that never held anything. The engine's lock is held, if there is one."""
    ranges: list[tuple[int, int]] = []
    for layer, first, last in layers(book):
        first = max(first, layer.earliest)
        for part in layer.parts():
            low, high = max(first, part.first), min(last, part.last)
            if low <= high:
                ranges += [(low, high)] if part.overlay is None else part.overlay.visible(low, high)
    return ranges


def rewrites_of(log: Log) -> int:
    """Another number whenever records came back or were changed."""
    return sum(book.rewrites for book in chain(log.book))
