"""Erasure events, as the stages of a round get them: read in one place, applied by each table for itself.

Every table has its own progress through the events, the transaction id ``erasures``. So a crash between the commits of
two tables leaves nothing undone.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.engine.errors import UnknownLog
from strandline.engine.operations.erasures import NAME, Erasure, read_erasure
from strandline.history.source import History

#: The transaction id in every table that holds something of records.
PROGRESS = "erasures"
#: The transaction id in ``records`` that says up to which event replaced files have been removed as well.
PURGED = "purged"
_PIECE_ROWS = 100_000


class Event(NamedTuple):
    seq: int
    erasure: Erasure


class EventsMissed(Exception):
    """Events that were not followed yet are gone. What is kept has to be compared with what is there."""


class Events:
    """The events up to ``head``, which is taken before anything else is read: what is read of a log afterwards is as
    the events up to there have left it, or later."""

    def __init__(self, history: History) -> None:
        self._history = history
        try:
            self._log = history.log(NAME)
            self.head = self._log.head
        except UnknownLog:
            self.head = 0
        self._read: list[Event] = []
        self._read_after = self.head

    def after(self, seq: int) -> list[Event]:
        """The events behind a table's progress, oldest first. Raises EventsMissed."""
        if seq >= self.head:
            return []
        if seq + 1 < self._log.floor:
            raise EventsMissed(f"the events up to {self._log.floor - 1} are gone; {seq} were followed")
        if seq < self._read_after:
            self._read = self._load(seq, self._read_after) + self._read
            self._read_after = seq
        return [event for event in self._read if event.seq > seq]

    def _load(self, after: int, through: int) -> list[Event]:
        found: list[Event] = []
        for piece in self._history.pieces(self._log, after, through, _PIECE_ROWS):
            for batch in piece.read():
                seqs, data = batch.column("seq").to_pylist(), batch.column("data").to_pylist()
                found += [Event(seq, read_erasure(event)) for seq, event in zip(seqs, data, strict=True)]
        return found
