"""The journal of an engine that follows another one: this engine never writes to it."""

from __future__ import annotations

from strandline.engine.errors import JournalFailed
from strandline.engine.journal.file import Journal, JournalPlace


class FollowedJournal(Journal):
    """Refuses every write with the same error. ``written`` counts the bytes that were applied."""

    def __init__(self, refusal: JournalFailed, index: int) -> None:
        self.index = index
        self.written = 0
        self.flushed = 0
        self.failure = refusal
        self.frames = 0
        self.copied = 0
        self.rotations = 0
        self.left_size = 0
        self.places = None

    @property
    def size(self) -> int:
        return 0

    @property
    def place(self) -> JournalPlace:
        return JournalPlace(self.index, 0)

    def note_applied(self, index: int, size: int) -> None:
        """Count bytes of the file ``index`` that were applied."""
        self.rotations += index != self.index
        self.index = index
        self.written += size
        self.flushed = self.written

    def check_in_place(self) -> None:
        pass

    def close(self) -> None:
        pass
