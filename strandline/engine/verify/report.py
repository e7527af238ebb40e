"""What a check or a repair of a data directory found, in words and in figures."""

from __future__ import annotations

import msgspec


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Records that are gone: between these seqs, both included. ``records`` is None when nobody knows how many."""

    log: str
    first: int
    last: int
    records: int | None
    path: str
    why: str


class Report(msgspec.Struct, kw_only=True):
    """``problems`` are broken promises; ``notes`` are worth knowing and no reason to worry.

    ``repairs``, ``losses`` and ``kept`` are filled by a repair: what it did, the records that could not be saved,
    and the damaged files that it put aside. The ``problems`` of a repair are those that are left after it. ``lossy``
    says that something acknowledged is gone: records, or what was known of a log, such as its configuration.
    """

    problems: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    repairs: list[str] = msgspec.field(default_factory=list)
    losses: list[Lost] = msgspec.field(default_factory=list)
    kept: list[str] = msgspec.field(default_factory=list)
    lossy: bool = False
    logs: int = 0
    #: Live records of all logs, and the bytes of their data and metas.
    records: int = 0
    bytes: int = 0
    segments: int = 0
    checkpoints: int = 0
    journal_files: int = 0
    journal_frames: int = 0
    #: Bytes of all files that were read.
    file_bytes: int = 0

    @property
    def sound(self) -> bool:
        return not self.problems
