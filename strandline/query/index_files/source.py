"""What a place with index files provides: the data directory, or the lake."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from strandline.query.index_files.file import IndexFile
from strandline.query.index_files.table import IndexEntry


class LogEntries(NamedTuple):
    """The index files of one log. All erasures up to the event ``erasures`` are applied in all of them. ``version``
    changes with the entries."""

    version: int
    entries: tuple[IndexEntry, ...]
    erasures: int = 0


NOTHING = LogEntries(-1, ())


class IndexSource(Protocol):
    """A place with index files. Thread-safe. Functions may wait for a disk or an object store, unless they say
    otherwise."""

    def entries_of(self, epoch: int) -> LogEntries: ...

    def open(self, entry: IndexEntry, deadline: float) -> IndexFile | None:
        """Return the index file; None if it is unusable, or if it must be fetched and the deadline (of
        ``perf_counter``) has passed."""

    def lists(self, path: str) -> bool:
        """Whether the file is one of the known entries. Never waits."""

    def report(self, path: str, error: Exception) -> None:
        """Record an unusable file."""

    @property
    def broken(self) -> frozenset[str]:
        """The unusable files."""

    def forget(self, epoch: int) -> None:
        """Release the state of a log that is being dropped."""
