"""The index files of a data directory: ``indexes/EPOCH/FIRST-LAST-CHECKSUM.arrow``.

Everything in them can be built again from the records, so no manifest lists them. A file appears under its name when it
is complete, and states itself what it covers. Files that overlap are harmless: each record is answered from one file.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from contextlib import suppress

from strandline.engine.disk import Disk
from strandline.engine.errors import DamagedFile
from strandline.engine.file_names import is_name
from strandline.query.index_files.file import DamagedIndexFile, IndexFile, Info, open_index_file
from strandline.query.index_files.source import NOTHING, LogEntries
from strandline.query.index_files.table import IndexEntry

log = logging.getLogger(__name__)

FOLDER = "indexes"
#: The maximum number of mapped files. Each takes about 22 kB of memory, and Linux allows 65,530 mappings.
MAX_OPEN = 4096


def folder_of(epoch: int) -> str:
    return f"{FOLDER}/{epoch:08d}"


def file_name(info: Info, checksum: str) -> str:
    return f"{info.first:08d}-{info.last:08d}-{checksum}.arrow"


def checksum_in(path: str) -> str:
    """Return the checksum of a file, from its name."""
    return path.rpartition("-")[2].removesuffix(".arrow")


class IndexDirectory:
    """The index files of the data directory on this disk. Only the process that has the directory open may use it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.RLock()
        self._known: dict[int, LogEntries] = {}
        self._open: OrderedDict[str, IndexFile] = OrderedDict()
        #: How many files were found damaged since the start.
        self.damaged = 0
        self._version = 0

    # --- entries -----------------------------------------------------------------------------------------------------

    def known(self, epoch: int) -> LogEntries | None:
        """Return the last known entries of a log; None if they were never read. Never waits: the lock is held while
        files are opened."""
        return self._known.get(epoch)

    @property
    def nbytes(self) -> int:
        """The bytes of the files that are known. Never waits."""
        return sum(entry.size for known in list(self._known.values()) for entry in known.entries)

    @property
    def broken(self) -> frozenset[str]:
        """No file: a damaged file is removed at once, because it is built again."""
        return frozenset()

    def entries_of(self, epoch: int) -> LogEntries:
        with self._lock:
            found = self._known.get(epoch)
            return self._load(epoch) if found is None else found

    def _load(self, epoch: int) -> LogEntries:
        entries = []
        folder = folder_of(epoch)
        for name in self._disk.list(folder):
            path = f"{folder}/{name}"
            if not is_name("index", name):
                # A file that was being written when the process ended.
                self._disk.remove(path)
                continue
            try:
                index_file = self._map(path)
                if index_file.info.epoch != epoch:
                    raise DamagedIndexFile(path, f"it belongs to the log {index_file.info.epoch}; expected {epoch}")
            except (DamagedIndexFile, OSError) as error:
                self.report(path, error)
                continue
            changed = self._changed_at(path)
            entries.append(IndexEntry(index_file.info, path, index_file.size, checksum_in(path), changed))
        return self._set(epoch, entries)

    def _changed_at(self, path: str) -> int:
        return os.stat(self._disk.local_path(path)).st_mtime_ns // 1_000_000

    def _set(self, epoch: int, entries: list[IndexEntry]) -> LogEntries:
        self._version += 1
        ordered = sorted(entries, key=lambda entry: (entry.info.first, -entry.info.last))
        found = self._known[epoch] = LogEntries(self._version, tuple(ordered))
        return found

    def add(self, entry: IndexEntry) -> None:
        """Add a file that has been written."""
        with self._lock:
            known = self.entries_of(entry.info.epoch).entries
            self._set(entry.info.epoch, [*(each for each in known if each.path != entry.path), entry])

    def remove(self, entries: list[IndexEntry]) -> None:
        """Remove files. Searches that use them finish with them."""
        for entry in entries:
            with self._lock:
                known = self.entries_of(entry.info.epoch).entries
                self._set(entry.info.epoch, [each for each in known if each.path != entry.path])
                self._open.pop(entry.path, None)
            self._disk.remove(entry.path)

    def epochs(self) -> list[int]:
        """Return the logs with index files."""
        return [int(name) for name in self._disk.list(FOLDER) if name.isdecimal()]

    def forget(self, epoch: int) -> None:
        """Release the state of a log. Never waits; ``remove_all`` removes the files."""
        for entry in self._known.pop(epoch, NOTHING).entries:
            self._open.pop(entry.path, None)

    def remove_all(self, epoch: int) -> None:
        """Remove all index files of a log."""
        self.forget(epoch)
        folder = folder_of(epoch)
        for name in self._disk.list(folder):
            self._disk.remove(f"{folder}/{name}")
        with suppress(OSError):
            os.rmdir(self._disk.local_path(folder))

    # --- files -------------------------------------------------------------------------------------------------------

    def open(self, entry: IndexEntry, deadline: float = 0.0) -> IndexFile | None:
        with self._lock:
            index_file = self._open.get(entry.path)
            if index_file is None and entry not in self.entries_of(entry.info.epoch).entries:
                return None  # merged in the meantime
            try:
                if index_file is None:
                    return self._map(entry.path)
                self._check_size(index_file)
                self._open.move_to_end(entry.path)
                return index_file
            except (DamagedIndexFile, OSError) as error:
                self.report(entry.path, error)
                return None

    def _check_size(self, index_file: IndexFile) -> None:
        """Check a mapped file before each use: touching a page after its end would kill the process. Costs 2 µs."""
        size = os.stat(self._disk.local_path(index_file.path)).st_size
        if size < index_file.size:
            raise DamagedIndexFile(index_file.path, f"it has {size} bytes; expected {index_file.size}")

    def _map(self, path: str) -> IndexFile:
        index_file = open_index_file(self._disk.local_path(path), path)
        self._open[path] = index_file
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)
        return index_file

    def lists(self, path: str) -> bool:
        return path.startswith(f"{FOLDER}/")

    def report(self, path: str, error: Exception) -> None:
        """Record an unusable file. Its records are indexed again."""
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            # The file itself may be good, for example if the memory is full.
            log.warning("cannot open the index file %s: %s", path, error)
            return
        with self._lock:
            self._open.pop(path, None)
            for epoch, known in list(self._known.items()):
                kept = [entry for entry in known.entries if entry.path != path]
                if len(kept) < len(known.entries):
                    self._set(epoch, kept)
        self._discard(path, error)

    def _discard(self, path: str, error: Exception) -> None:
        self.damaged += 1
        why = error.why if isinstance(error, DamagedFile | DamagedIndexFile) else "the file is missing"
        log.warning("index file %s cannot be used and is built again from the records: %s", path, why)
        with suppress(OSError):
            self._disk.remove(path)
