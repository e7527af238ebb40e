"""The description of a log, for bulk readers."""

from __future__ import annotations

import msgspec

from strandline.engine.ownership import JSON, REGISTRY, LogOwner, log_owner, media_type_of
from strandline.engine.state.forks import earliest_of, evict_floor_of
from strandline.engine.state.logbook import Logbook


class ForkOrigin(msgspec.Struct, frozen=True):
    """A fork starts with the records of another log up to a seq."""

    epoch: int
    through: int


class LogInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A log at one moment. Records below ``floor`` were lost to retention; ``earliest`` is the first existing seq.
    ``registry`` is the stored schema registry, as JSON. The records of an ``ephemeral`` log are only in memory.

    ``records`` is the number of its own visible records, and ``size`` their bytes. ``gaps`` are its own seqs without a
    record that no caller removed: known losses.
    """

    name: str
    epoch: int
    head: int
    earliest: int
    floor: int
    last_ts: int
    media_type: str = JSON
    registry: bytes | None = None
    owner: LogOwner | None = None
    base: ForkOrigin | None = None
    ephemeral: bool = False
    records: int = 0
    size: int = 0
    gaps: list[tuple[int, int]] = []

    @property
    def own_after(self) -> int:
        """The seq before the log's own records. Earlier records belong to the log that it was forked from."""
        return 0 if self.base is None else self.base.through


def info_of(book: Logbook) -> LogInfo:
    """Describe a logbook. If it belongs to an open engine, hold the engine's lock."""
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
        owner=log_owner(book.name, notes),
        base=None if book.base is None else ForkOrigin(book.base.point.epoch, book.base.through),
        ephemeral=book.config.durability == "ephemeral",
        records=book.count,
        size=book.size,
        gaps=[(gap.first, gap.last) for gap in book.gaps],
    )
