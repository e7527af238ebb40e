"""What is known of a log, for those who read it in bulk."""

from __future__ import annotations

import msgspec

from strandline.engine.ownership import JSON, REGISTRY, media_type_of
from strandline.engine.state.forks import earliest_of, evict_floor_of
from strandline.engine.state.logbook import Logbook


class ForkBase(msgspec.Struct, frozen=True):
    """A fork begins with the records of another log up to a seq."""

    epoch: int
    through: int


class LogInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A log at one moment. What is below ``floor`` was lost to a cap or to time; ``earliest`` is the first seq that is
    there. ``registry`` is the stored schema registry, which is JSON. What is ``ephemeral`` is in memory only.

    ``records`` is how many of its own records readers see. ``gaps`` are its own seqs that hold nothing although nobody
    removed them on purpose: losses that are known."""

    name: str
    epoch: int
    head: int
    earliest: int
    floor: int
    last_ts: int
    media_type: str = JSON
    registry: bytes | None = None
    base: ForkBase | None = None
    ephemeral: bool = False
    records: int = 0
    gaps: list[tuple[int, int]] = []

    @property
    def own_after(self) -> int:
        """The log's own records are behind this seq; those before it belong to the log it was forked from."""
        return 0 if self.base is None else self.base.through


def info_of(book: Logbook) -> LogInfo:
    """Whoever has the engine open holds its lock meanwhile."""
    notes = {} if book.notes is None else book.notes.values
    return LogInfo(
        name=book.name,
        epoch=book.epoch,
        head=book.head,
        earliest=earliest_of(book),
        floor=evict_floor_of(book),
        last_ts=book.last_ts,
        media_type=media_type_of(book.config),
        registry=notes.get(REGISTRY),
        base=None if book.base is None else ForkBase(book.base.point.epoch, book.base.through),
        ephemeral=book.config.durability == "ephemeral",
        records=book.count,
        gaps=[(gap.first, gap.last) for gap in book.gaps],
    )
