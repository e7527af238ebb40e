"""Which companions there are: the table of the lake, as far as it is asked for, and the files that are open.

Everything here may wait for a disk or an object store, so it is for threads that answer questions, never for an event
loop, except for what says so.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from time import monotonic, perf_counter, time_ns
from typing import TYPE_CHECKING, NamedTuple

from strandline.lake.location import Lake
from strandline.query.companions.cache import CACHE_BYTES, Copies, Errands
from strandline.query.companions.file import Companion, DamagedCompanion, open_companion
from strandline.query.companions.table import ERASURES, TABLE, Listed, listed_in

if TYPE_CHECKING:
    from deltalake import DeltaTable

log = logging.getLogger(__name__)

#: How often it is looked whether the table has changed.
LOOK_SECONDS = 1.0
_TICK_NS = 100_000_000
_ABSENT = "absent"
#: Each costs a file descriptor.
MAX_OPEN = 1024
#: How long an object store may take to tell what there is; it is asked again the next time.
PATIENCE_SECONDS = 1.0


class Shelved(NamedTuple):
    """What the table says of one log. ``erasures``: all up to there have been made in all companions."""

    version: int
    entries: tuple[Listed, ...]
    erasures: int


NOTHING = Shelved(-1, (), 0)


class Shelf:
    """The companions of a lake. Any thread may use it. A lake that is not there, or not yet, has none.

    ``cache`` is a directory for files that come from an object store.
    """

    def __init__(
        self,
        lake: Lake,
        cache: Path,
        *,
        cache_bytes: int = CACHE_BYTES,
        look_seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._lake = lake
        self._errands = Errands()
        self._copies = Copies(lake, cache, cache_bytes)
        self._look_seconds = look_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._looked_at: float | None = None
        self._mark: object = None
        self._table: DeltaTable | None = None
        self._version = -1
        self._erasures = 0
        self._shelved: dict[int, Shelved] = {}
        self._open: OrderedDict[str, Companion] = OrderedDict()
        self._broken: set[str] = set()

    # --- what there is -----------------------------------------------------------------------------------------------

    def known(self, epoch: int) -> Shelved | None:
        """What was last seen of a log; None: it has not been looked yet. Does not wait for anything."""
        with self._lock:
            return self._shelved.get(epoch)

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again. Does not wait for anything."""
        return self._looked_at is None or self._clock() - self._looked_at >= self._look_seconds

    def look(self, epoch: int) -> Shelved:
        """What there is of a log, not older than a second or so; older if an object store does not answer."""
        if self._lake.directory is not None:
            return self._look(epoch)
        found = self._errands.run(f"log {epoch}", lambda: self._look(epoch), PATIENCE_SECONDS)
        return found or self.known(epoch) or NOTHING

    def _look(self, epoch: int) -> Shelved:
        with self._looking:
            try:
                if self.is_due:
                    self._refresh()
                    self._looked_at = self._clock()
                found = self.known(epoch)
                return self._read(epoch) if found is None or found.version != self._version else found
            except Exception as error:
                # The lake is no part of what must be there for an answer.
                log.warning("the companions in %s cannot be looked up: %s", self._lake.url, error)
                self._table, self._mark, self._looked_at = None, None, self._clock()
                return self.known(epoch) or NOTHING

    def _refresh(self) -> None:
        mark = self._mark_now()
        if mark is not None and mark == self._mark:
            return
        if mark == _ABSENT:
            self._table, self._version, self._mark = None, -1, mark
            return
        # A server that has no lake need not load what reads one.
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self._table is not None:
            self._table.update_incremental()
        else:
            # To ask first whether there is one would hold up all threads while an object store is asked.
            try:
                self._table = DeltaTable(self._lake.place_of(TABLE), storage_options=self._lake.storage_options)
            except TableNotFoundError:
                self._version, self._mark = -1, mark
                return
        # Looked at before it was read: what has come in between is found the next time.
        self._mark = mark
        if self._table.version() != self._version:
            self._version = self._table.version()
            self._erasures = self._table.transaction_version(ERASURES) or 0
            self._broken.clear()

    def _mark_now(self) -> object:
        """Something that is another whenever the table has changed, if that can be had for next to nothing."""
        directory = self._lake.directory
        if directory is None:
            return None
        try:
            changed = os.stat(directory / TABLE / "_delta_log").st_mtime_ns
        except OSError:
            return _ABSENT
        # Of two changes in one tick of the file system's clock the second leaves no mark.
        return changed if abs(time_ns() - changed) > _TICK_NS else None

    def _read(self, epoch: int) -> Shelved:
        if self._table is None:
            found = NOTHING
        else:
            rows = self._table.to_pyarrow_table(filters=[("epoch", "=", epoch)])
            entries = sorted(listed_in(rows), key=lambda entry: (entry.info.first, -entry.info.last))
            found = Shelved(self._version, tuple(entries), self._erasures)
        with self._lock:
            before = self._shelved.get(epoch, NOTHING)
            self._shelved[epoch] = found
            for path in {entry.path for entry in before.entries} - {entry.path for entry in found.entries}:
                self._open.pop(path, None)
        return found

    def forget(self, epoch: int) -> None:
        with self._lock:
            for entry in self._shelved.pop(epoch, NOTHING).entries:
                self._open.pop(entry.path, None)

    # --- the files ---------------------------------------------------------------------------------------------------

    def open(self, entry: Listed, deadline: float) -> Companion | None:
        """The companion; None if it cannot be used, or would have to be fetched and the deadline (of
        ``perf_counter``) is over."""
        with self._lock:
            companion = self._open.get(entry.path)
            if companion is not None:
                self._open.move_to_end(entry.path)
                return companion
            if entry.path in self._broken:
                return None
        try:
            path = self._copies.path_of(entry)
            if path is None:
                seconds = deadline - perf_counter()
                path = (
                    self._errands.run(entry.path, lambda: self._copies.fetch(entry), seconds) if seconds > 0 else None
                )
            if path is None:
                return None
            companion = open_companion(str(path), entry.path)
            if companion.info != entry.info:
                raise DamagedCompanion(entry.path, f"it is {companion.info}, not {entry.info}")
        except Exception as error:
            self.report(entry.path, error)
            return None
        with self._lock:
            self._open[entry.path] = companion
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        return companion

    @property
    def broken(self) -> frozenset[str]:
        """The files that cannot be used."""
        with self._lock:
            return frozenset(self._broken)

    def report(self, path: str, error: Exception) -> None:
        """A file that cannot be used: it counts as not there until the table changes."""
        with self._lock:
            known = path in self._broken
            self._broken.add(path)
            self._open.pop(path, None)
        self._copies.drop(path)
        if not known:
            log.warning("the companion %s is left out, its records are indexed in memory: %s", path, error)
