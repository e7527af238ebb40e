"""The existing index files: the required part of the lake table, the open files, and the local copies of files.

Files in an object store are fetched once and kept on the local disk. Waiting for them is limited by a timeout. Most
functions may wait for a disk or an object store: call them from worker threads, not from an event loop.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from time import monotonic, perf_counter, time_ns
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
import xxhash

from strandline.arrow import pc, pq
from strandline.lake.location import Lake
from strandline.lake.transaction_log import NO_TABLE, TransactionLog
from strandline.query.index_files.file import DamagedIndexFile, IndexFile, open_index_file
from strandline.query.index_files.shared_file import file_of, part_of
from strandline.query.index_files.source import NOTHING, LogEntries
from strandline.query.index_files.table import ERASURES, TABLE, IndexEntry, listed_in

#: Disk space for local copies.
CACHE_BYTES = 8 << 30
#: The maximum number of concurrent requests to an object store.
MAX_ERRANDS = 8

T = TypeVar("T")


class LocalCopies:
    """The local paths of a lake's index files: the files with them, or copies of them from an object store."""

    def __init__(self, lake: Lake, directory: Path, budget: int) -> None:
        self._lake = lake
        self._directory = directory
        self._budget = budget
        self._lock = threading.Lock()
        self._held: OrderedDict[str, int] | None = None

    def path_of(self, entry: IndexEntry) -> Path | None:
        """Return the local path; None if the file must be fetched first."""
        if self._lake.directory is not None:
            return self._lake.directory / file_of(entry.path)
        copy = self._directory / _copy_name(entry.path)
        with self._lock:
            held = self._load()
            if copy.name not in held or not copy.exists():
                return None
            held.move_to_end(copy.name)
            return copy

    def fetch(self, entry: IndexEntry) -> Path:
        """Fetch a file. Raises FileNotFoundError, DamagedIndexFile, or the errors of the object store."""
        copy = self._directory / _copy_name(entry.path)
        part = part_of(entry.path)
        content = self._lake.read(entry.path) if part is None else self._lake.read_range(*part)
        if content is None:
            raise FileNotFoundError(entry.path)
        if xxhash.xxh3_64_hexdigest(content) != entry.checksum:
            raise DamagedIndexFile(entry.path, "its checksum does not match")
        temporary = copy.with_suffix(".tmp")
        temporary.write_bytes(content)
        os.replace(temporary, copy)
        with self._lock:
            held = self._load()
            held[copy.name] = entry.size
            self._make_room(held, copy.name)
        return copy

    def drop(self, path: str) -> None:
        """Remove a copy that is no longer needed, or is damaged."""
        if self._lake.directory is None:
            with self._lock:
                self._load().pop(_copy_name(path), None)
                (self._directory / _copy_name(path)).unlink(missing_ok=True)

    def _load(self) -> OrderedDict[str, int]:
        """Find the copies of an earlier server. They are still valid, because an index file never changes under its
        name."""
        if self._held is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            files = sorted(self._directory.glob("*.arrow"), key=lambda path: path.stat().st_mtime_ns)
            self._held = OrderedDict((path.name, path.stat().st_size) for path in files)
        return self._held

    def _make_room(self, held: OrderedDict[str, int], latest: str) -> None:
        while sum(held.values()) > self._budget and next(iter(held)) != latest:
            name, _ = held.popitem(last=False)
            (self._directory / name).unlink(missing_ok=True)


class StoreRequests:
    """Runs requests to an object store on ``threads``, so that the wait can be limited.

    A request that is already running is not started again. If a wait times out, a later call gets the result.
    """

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._running: dict[str, Future[Any]] = {}

    def run(self, name: str, work: Callable[[], T], seconds: float) -> T | None:
        """Return the result of ``work``, or raise its error. Return None after ``seconds``, or if too many requests are
        running."""
        with self._lock:
            future: Future[T] | None = self._running.get(name)
            if future is None:
                if len(self._running) >= MAX_ERRANDS:
                    return None
                future = self._running[name] = self._threads.submit(self._do, name, work)
        try:
            return future.result(seconds)
        except TimeoutError:
            return None

    def _do(self, name: str, work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            with self._lock:
                del self._running[name]


def _may_have(action: dict[str, Any], epoch: int) -> bool:
    """Whether a file of the table may have rows of a log, by the statistics in the transaction log."""
    found = msgspec.json.decode(action.get("stats") or "{}")
    least, most = found.get("minValues", {}).get("epoch"), found.get("maxValues", {}).get("epoch")
    return least is None or most is None or least <= epoch <= most


def _copy_name(path: str) -> str:
    return f"{xxhash.xxh3_128_hexdigest(path.encode())}.arrow"


log = logging.getLogger(__name__)

#: How often the table is checked for changes.
LOOK_SECONDS = 1.0
_TICK_NS = 100_000_000
_ABSENT = "absent"
#: The maximum number of mapped files.
MAX_OPEN = 1024
#: How long to wait for an object store. If it takes longer, the next call asks again.
PATIENCE_SECONDS = 1.0


class IndexCatalog:
    """The index files of a lake. Thread-safe. A lake that does not exist yet has none.

    ``cache`` is a directory for files from an object store. ``threads`` wait for the store.
    """

    def __init__(
        self,
        lake: Lake,
        cache: Path,
        threads: Executor,
        *,
        cache_bytes: int = CACHE_BYTES,
        look_seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._lake = lake
        self._errands = StoreRequests(threads)
        self._copies = LocalCopies(lake, cache, cache_bytes)
        self._look_seconds = look_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._looked_at: float | None = None
        self._mark: object = None
        #: The action that added each file of the table, by path.
        self._files: dict[str, dict[str, Any]] = {}
        self._version = NO_TABLE
        self._commit: object = None
        self._erasures = 0
        self._shelved: dict[int, LogEntries] = {}
        self._open: OrderedDict[str, IndexFile] = OrderedDict()
        self._broken: set[str] = set()

    # --- entries of the table ----------------------------------------------------------------------------------------

    def _known(self, epoch: int) -> LogEntries | None:
        """Return the last known entries of a log; None if they were never read. Never waits."""
        with self._lock:
            return self._shelved.get(epoch)

    @property
    def _is_due(self) -> bool:
        """Whether the table should be checked again. Never waits."""
        return self._looked_at is None or self._clock() - self._looked_at >= self._look_seconds

    def entries_of(self, epoch: int) -> LogEntries:
        """Return the entries of a log, at most about a second old. They are older if an object store does not
        answer."""
        if self._lake.directory is not None:
            return self._look(epoch)
        found = self._errands.run(f"log {epoch}", lambda: self._look(epoch), PATIENCE_SECONDS)
        return found or self._known(epoch) or NOTHING

    def _look(self, epoch: int) -> LogEntries:
        with self._looking:
            try:
                if self._is_due:
                    self._refresh()
                    self._looked_at = self._clock()
                found = self._known(epoch)
                return self._read(epoch) if found is None or found.version != self._version else found
            except Exception as error:
                # Answers must not depend on the lake.
                log.warning("cannot read the table of index files in %s: %s", self._lake.url, error)
                self._mark, self._looked_at = None, self._clock()
                return self._known(epoch) or NOTHING

    def _refresh(self) -> None:
        mark = self._mark_now()
        if mark is not None and mark == self._mark:
            return
        table = None if mark == _ABSENT else TransactionLog(self._lake, TABLE)
        if table is None or table.latest == NO_TABLE:
            self._files, self._version, self._erasures = {}, NO_TABLE, 0
        elif table.latest != self._version:
            before = self._version
            # A table that was moved away and created again has other commits.
            if before == NO_TABLE or before > table.latest or table.commit_state(before) != self._commit:
                before, self._erasures = NO_TABLE, 0
            self._files = table.files(table.latest, self._files, before)
            for action in table.actions("txn", table.latest, before):
                if action["appId"] == ERASURES:
                    self._erasures = action["version"]
            self._version, self._commit = table.latest, table.commit_state(table.latest)
            self._broken.clear()
        # The mark was taken before reading, so a change in between is found the next time.
        self._mark = mark

    def _mark_now(self) -> object:
        """Return a value that changes whenever the table changes; None if there is no cheap way to know."""
        directory = self._lake.directory
        if directory is None:
            return None
        try:
            changed = os.stat(directory / TABLE / "_delta_log").st_mtime_ns
        except OSError:
            return _ABSENT
        # The second of two changes within one tick of the file system's clock does not change the time.
        return changed if abs(time_ns() - changed) > _TICK_NS else None

    def _read(self, epoch: int) -> LogEntries:
        if self._version == NO_TABLE:
            found = NOTHING
        else:
            entries = [
                entry
                for action in self._files.values()
                if _may_have(action, epoch)
                for entry in listed_in(self._rows(action["path"], epoch))
            ]
            entries.sort(key=lambda entry: (entry.info.first, -entry.info.last))
            found = LogEntries(self._version, tuple(entries), self._erasures)
        with self._lock:
            before = self._shelved.get(epoch, NOTHING)
            self._shelved[epoch] = found
            for path in {entry.path for entry in before.entries} - {entry.path for entry in found.entries}:
                self._open.pop(path, None)
        return found

    def _rows(self, path: str, epoch: int) -> Any:
        rows = pq.ParquetFile(self._lake.open(f"{TABLE}/{unquote(path)}")).read()
        return rows.filter(pc.equal(rows.column("epoch"), epoch))

    def forget(self, epoch: int) -> None:
        with self._lock:
            for entry in self._shelved.pop(epoch, NOTHING).entries:
                self._open.pop(entry.path, None)

    # --- the files ---------------------------------------------------------------------------------------------------

    def open(self, entry: IndexEntry, deadline: float) -> IndexFile | None:
        """Return the index file; None if it is unusable, or if it must be fetched and the deadline (of
        ``perf_counter``) has passed."""
        with self._lock:
            index_file = self._open.get(entry.path)
            if index_file is not None:
                self._open.move_to_end(entry.path)
                return index_file
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
            # A copy of a part has nothing else.
            part = None if self._lake.directory is None else part_of(entry.path)
            index_file = open_index_file(str(path), entry.path, part)
            if index_file.info != entry.info:
                raise DamagedIndexFile(entry.path, f"it is {index_file.info}; expected {entry.info}")
        except Exception as error:
            self.report(entry.path, error)
            return None
        with self._lock:
            self._open[entry.path] = index_file
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        return index_file

    @property
    def broken(self) -> frozenset[str]:
        """The unusable files."""
        with self._lock:
            return frozenset(self._broken)

    def lists(self, path: str) -> bool:
        with self._lock:
            return any(path == entry.path for known in self._shelved.values() for entry in known.entries)

    def report(self, path: str, error: Exception) -> None:
        """Record an unusable file. It is ignored until the table changes."""
        with self._lock:
            known = path in self._broken
            self._broken.add(path)
            self._open.pop(path, None)
        self._copies.drop(path)
        if not known:
            log.warning("cannot use the index file %s; the server indexes its records itself: %s", path, error)
