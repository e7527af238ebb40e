"""Where segments are stored, and which parts of them are cached.

A segment is *hot* (a file in the data directory) or *cold* (an object in the cold tier, read through a local cache).
:class:`SegmentStore` opens both kinds for readers. It keeps open segments, decompressed blocks and pieces of cold
segments in caches of bounded size. The caller keeps the list of segments and their tiers in a manifest; the store
itself persists nothing.

Moving a segment to the cold tier takes three steps, so that a crash between any two of them loses nothing: ``relocate``
copies it, the caller records in the manifest that it is cold, and ``mark_cold`` removes the hot file.

With a replica, other servers may need the same cold tier later, and this one may have been replaced without knowing it.
Objects of the cold tier are then removed by ``remove_cold``, after the replica has a state that does not need them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Set
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from strandline.engine.disk import Disk
from strandline.engine.errors import BadConfig, BadRequest, DamagedFile, EngineError, MissingFile
from strandline.engine.file_names import number_in
from strandline.engine.segments.cold_tier import ColdCache, ColdStore, Fetcher, empty_directory
from strandline.engine.segments.segment import ROW_COLUMNS, Segment, footprint
from strandline.engine.state.block import Block
from strandline.engine.state.ranges import SeqRanges

#: Memory for decompressed blocks: enough that readers who follow each other through the same history decode it once.
CACHE_BYTES = 32 << 20
#: Each open segment costs two file descriptors and the memory of its footer.
OPEN_SEGMENTS = 64
COLD_CACHE_BYTES = 1 << 30
#: A relocated segment is read back and compared in pieces of this size.
COMPARE_BYTES = 8 << 20

HOT_DIRECTORY = "segments"
CACHE_DIRECTORY = "cache"
#: The object that says which data directory a cold tier belongs to.
OWNER = "OWNER"

log = logging.getLogger(__name__)

Tier = Literal["hot", "cold"]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def object_name(id: int) -> str:
    return f"{id:08d}.arrow"


def segment_id(name: str) -> int | None:
    """Return the id in the name of a segment's file or object, or None for any other name."""
    return number_in("segment", name)


def segment_path(id: int) -> str:
    return f"{HOT_DIRECTORY}/{object_name(id)}"


class UnknownSegment(EngineError):
    """The store has no such segment: it was never added, or was forgotten because it was merged or emptied."""

    def __init__(self, id: int) -> None:
        super().__init__(f"segment {id} not found")
        self.id = id


class Describes(Protocol):
    """What must be known about a segment to open it. SegmentInfo provides it."""

    @property
    def id(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def edges(self) -> int: ...


class _Entry(NamedTuple):
    id: int
    size: int
    edges: int
    tier: Tier
    #: Whether a verified copy is in the cold tier.
    relocated: bool = False


class _Opened(NamedTuple):
    segment: Segment
    fetcher: Fetcher | None

    @property
    def stale(self) -> bool:
        return self.fetcher is not None and self.fetcher.retired


class SegmentStore:
    """Thread-safe. No lock is held during access to a disk or to the cold tier."""

    def __init__(
        self,
        disk: Disk,
        cold: ColdStore | None,
        *,
        cache_bytes: int = CACHE_BYTES,
        open_segments: int = OPEN_SEGMENTS,
        cold_cache_bytes: int = COLD_CACHE_BYTES,
        cache_directory: str | None = None,
        fetch: Callable[[Describes], bool] | None = None,
        place_of: Callable[[Describes], str | None] | None = None,
    ) -> None:
        """With a replica: ``fetch`` brings a missing hot segment and returns whether it could, and ``place_of`` returns
        the URL of an object with the same contents.

        ``cache_directory`` is emptied and holds the pieces of cold segments; None: ``cache/`` on the disk."""
        self._disk = disk
        self._cold = cold
        self._fetch = fetch
        self._place_of_object = place_of
        #: The objects of the cold tier to remove when the replica permits it.
        self._removable: set[str] = set()
        #: Whether the cold tier is known to belong to this data directory.
        self._is_claimed = False
        self._cache_bytes = cache_bytes
        self._max_open = open_segments
        directory = cache_directory or disk.local_path(CACHE_DIRECTORY)
        empty_directory(directory)
        self._pieces = None if cold is None else ColdCache(cold, directory, cold_cache_bytes)
        self._lock = Lock()
        self._entries: dict[int, _Entry] = {}
        self._forgotten: dict[int, _Entry] = {}
        self._opened: OrderedDict[int, _Opened] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, int], tuple[Block, int]] = OrderedDict()
        self._blocks_bytes = 0
        #: The seqs of runs with holes, by segment and first row.
        self._seqs: dict[tuple[int, int], SeqRanges] = {}
        #: Segments that a read has found damaged. Each is reported once, however many reads fail.
        self._damaged: set[int] = set()
        self._opening: _Once[int, Segment] = _Once()
        self._loading: _Once[tuple[int, int], Block] = _Once()

    def add(self, info: Describes, tier: Tier) -> None:
        if tier == "cold" and self._cold is None:
            raise BadConfig("cold", None, f"segment {info.id} is in the cold tier, but no cold tier is configured")
        with self._lock:
            self._entries[info.id] = _Entry(info.id, info.size, info.edges, tier)

    def forget(self, id: int) -> None:
        """Remove a segment from the store. Readers that have it open can continue to read it until it is dropped, and
        even longer if it is hot."""
        with self._lock:
            entry = self._entries.pop(id, None)
            if entry is None:
                return
            self._forgotten[id] = entry
            self._damaged.discard(id)
            dropped = self._opened.pop(id, None)
            for key in [key for key in self._blocks if key[0] == id]:
                self._blocks_bytes -= self._blocks.pop(key)[1]
            for key in [key for key in self._seqs if key[0] == id]:
                del self._seqs[key]
        del dropped
        self._discard_copy(id)

    def drop(self, id: int) -> None:
        """Remove the files of a forgotten segment. May be called again after an error."""
        with self._lock:
            if id in self._entries:
                raise BadRequest(f"segment {id} must be forgotten before its files are removed")
            entry = self._forgotten.get(id)
        self._disk.remove(segment_path(id))
        if self._cold is not None and (entry is None or entry.tier == "cold" or entry.relocated):
            self._remove_cold_object(object_name(id))
        with self._lock:
            self._forgotten.pop(id, None)

    def remove_cold(self, needed: Set[int]) -> None:
        """Remove the objects that were dropped, except those of the segments that the last state of the replica
        needs."""
        with self._lock:
            names = sorted(name for name in self._removable if segment_id(name) not in needed)
        for name in names:
            assert self._cold is not None
            self._cold.delete(name)
            with self._lock:
                self._removable.discard(name)

    def _remove_cold_object(self, name: str) -> None:
        assert self._cold is not None
        if not self.has_replica:
            self._cold.delete(name)
        else:
            with self._lock:
                self._removable.add(name)

    def ids(self) -> list[int]:
        with self._lock:
            return sorted(self._entries)

    def tier(self, id: int) -> Tier:
        return self._entry(id).tier

    def describe(self, id: int) -> Describes:
        """Return what another process needs to open the segment."""
        return self._entry(id)

    def is_missing(self, id: int) -> bool:
        """Return whether the file of a hot segment still has to be fetched. Opening the segment fetches it."""
        entry = self._entry(id)
        return self._fetch is not None and entry.tier == "hot" and not self._disk.exists(segment_path(id))

    def tiers(self) -> dict[Tier, tuple[int, int]]:
        """The number of segments of each tier, and their bytes."""
        with self._lock:
            entries = list(self._entries.values())
        sizes: dict[Tier, list[int]] = {"hot": [], "cold": []}
        for entry in entries:
            sizes[entry.tier].append(entry.size)
        return {tier: (len(found), sum(found)) for tier, found in sizes.items()}

    @property
    def has_replica(self) -> bool:
        return self._fetch is not None

    @property
    def has_cold_tier(self) -> bool:
        return self._cold is not None

    def close(self) -> None:
        """Release all open segments and cached blocks."""
        with self._lock:
            dropped = list(self._opened.values())
            self._opened.clear()
            self._blocks.clear()
            self._blocks_bytes = 0
        del dropped

    @property
    def cached_bytes(self) -> int:
        """The memory of decompressed blocks."""
        return self._blocks_bytes

    @property
    def damaged(self) -> int:
        """The number of segments that a read has found damaged or missing."""
        return len(self._damaged)

    @property
    def mapped_bytes(self) -> int:
        """The size of the open files, which are memory-mapped. The system decides how much of them is in memory."""
        with self._lock:
            return sum(opened.segment.size for opened in self._opened.values())

    @property
    def open_segments(self) -> int:
        return len(self._opened)

    @property
    def cold_cached_bytes(self) -> int:
        """The disk space of pieces of cold segments."""
        return 0 if self._pieces is None else self._pieces.used

    def cached(self, id: int, index: int) -> Block | None:
        with self._lock:
            found = self._blocks.get((id, index))
            if found is None:
                return None
            self._blocks.move_to_end((id, index))
            return found[0]

    def load(self, id: int, index: int) -> Block:
        """Return a block from the cache or from the segment. Concurrent callers share one decoding."""
        block = self.cached(id, index)
        return self._loading.do((id, index), lambda: self._load(id, index)) if block is None else block

    def batch(self, id: int, index: int, columns: tuple[str, ...] = ROW_COLUMNS) -> Any:
        """Return the rows of a block as Arrow, bypassing the cache: for readers that read very much once, or very
        little."""
        segment = self.segment(id)
        with self._damage(id):
            return segment.batch(index, columns)

    def known_seqs(self, id: int, row: int) -> SeqRanges | None:
        """Return what ``read_seqs`` has found. Never waits."""
        return self._seqs.get((id, row))

    def read_seqs(self, id: int, row: int, rows: int) -> None:
        """Read the seqs of a run, for ``known_seqs``."""
        segment = self.segment(id)
        with self._damage(id):
            seqs = segment.seq_ranges(row, rows)
        with self._lock:
            if id in self._entries:
                self._seqs[id, row] = seqs

    def opened(self, id: int) -> Segment | None:
        """Return the segment if it is available without touching a disk."""
        with self._lock:
            opened = self._opened.get(id)
            if opened is None or opened.stale:
                return None
            self._opened.move_to_end(id)
            return opened.segment

    def segment(self, id: int) -> Segment:
        opened = self.opened(id)
        if opened is not None:
            return opened
        self._entry(id)
        return self._opening.do(id, lambda: self._open(id))

    def claim_cold_tier(self, owner: str) -> None:
        """Claim the cold tier for a data directory. Two directories in one cold tier would overwrite each other's
        segments."""
        if self._cold is None or self._is_claimed:
            return
        if self._cold.size(OWNER) is None:
            self._cold.put(OWNER, owner.encode())
        self.check_cold_tier(owner)
        self._is_claimed = True

    def check_cold_tier(self, owner: str) -> None:
        """Raise BadConfig if the cold tier belongs to another data directory.

        With a replica, a start does no more than this. If the server is lost before the replica has its first state,
        the next one begins another directory, which can still claim the tier.
        """
        if self._cold is None or self._cold.size(OWNER) is None:
            return
        found = self._cold.read(OWNER, 0, self._cold.size(OWNER) or 0).decode("utf-8", "replace")
        if found != owner:
            raise BadConfig("cold_url", self._cold.describe(), f"it belongs to another data directory ({found})")

    def reach_cold_tier(self) -> None:
        """Make a small request to the cold tier. Raises OSError if it is away."""
        if self._cold is not None:
            self._cold.size(OWNER)

    def relocate(self, id: int) -> None:
        """Copy a hot segment to the cold tier and verify the copy. The segment stays hot."""
        entry, cold = self._entry(id), self._cold
        if cold is None:
            raise BadRequest("no cold tier is configured, so segments cannot be relocated")
        if entry.tier == "cold":
            return
        if not self._copy_is_good(entry, cold):
            place = None if self._place_of_object is None else self._place_of_object(entry)
            if place is None or not cold.copy(object_name(id), place):
                cold.put(object_name(id), Path(self._disk.local_path(segment_path(id))))
            if not self._copy_is_good(entry, cold):
                raise DamagedFile(self._place(id), "the stored copy differs from the original")
        with self._lock:
            current = self._entries.get(id)
            if current is not None:
                self._entries[id] = current._replace(relocated=True)
        if current is None:
            self._remove_cold_object(object_name(id))
            raise UnknownSegment(id)

    def is_relocated(self, id: int) -> bool:
        """Return whether the cold tier has a good copy of a segment that also has a good hot file."""
        return self._cold is not None and self._copy_is_good(self._entry(id), self._cold)

    def mark_cold(self, id: int) -> None:
        """Remove the hot file of a relocated segment, after the manifest says that the segment is cold."""
        with self._lock:
            entry = self._entries.get(id)
            if entry is None:
                raise UnknownSegment(id)
            if entry.tier == "hot" and not entry.relocated:
                raise BadRequest(f"segment {id} has not been relocated")
            self._entries[id] = entry._replace(tier="cold")
            dropped = self._opened.pop(id, None)
        del dropped
        self._disk.remove(segment_path(id))

    def orphans(self) -> list[str]:
        """Return files in the directory of hot segments and objects in the cold tier that belong to no segment.

        A crash leaves them behind. A segment that is being written, merged or relocated looks the same, so do not call
        this at the same time.
        """
        return [
            *(f"{HOT_DIRECTORY}/{name}" for name in self._hot_orphans()),
            *(self._place_of(name) for name in self._cold_orphans()),
        ]

    def remove_orphans(self) -> list[str]:
        """Remove the files and objects that :meth:`orphans` returns. Local files are removed even if the cold tier
        fails."""
        removed = []
        for name in self._hot_orphans():
            self._disk.remove(f"{HOT_DIRECTORY}/{name}")
            removed.append(f"{HOT_DIRECTORY}/{name}")
        for name in self._cold_orphans():
            self._remove_cold_object(name)
            removed.append(self._place_of(name))
        return removed

    def _entry(self, id: int) -> _Entry:
        with self._lock:
            entry = self._entries.get(id)
        if entry is None:
            raise UnknownSegment(id)
        return entry

    def _load(self, id: int, index: int) -> Block:
        block = self.cached(id, index)
        if block is not None:
            return block
        segment = self.segment(id)
        with self._damage(id):
            block = segment.load(index)
        self._keep(id, index, block)
        return block

    def _keep(self, id: int, index: int, block: Block) -> None:
        size = footprint(block)
        with self._lock:
            if id not in self._entries or size > self._cache_bytes:
                return
            self._blocks[id, index] = block, size
            self._blocks_bytes += size
            while self._blocks_bytes > self._cache_bytes:
                self._blocks_bytes -= self._blocks.popitem(last=False)[1][1]

    def _open(self, id: int) -> Segment:
        entry = self._entry(id)
        with self._damage(id):
            opened = self._open_hot(entry) or self._open_cold(entry)
        dropped = []
        with self._lock:
            # If the segment was forgotten or moved in the meantime, this reader uses it alone.
            if self._entries.get(id) is entry:
                dropped.append(self._opened.pop(id, None))
                self._opened[id] = opened
                while len(self._opened) > self._max_open:
                    dropped.append(self._opened.popitem(last=False)[1])
        return opened.segment

    def _open_hot(self, entry: _Entry) -> _Opened | None:
        """Return None if the segment is cold and there is no good hot file left that could be used instead."""
        try:
            with suppress(MissingFile):
                return self._open_file(entry)
            if entry.tier == "hot" and self._fetch is not None:
                self._fetch(entry)
            return self._open_file(entry)
        except DamagedFile:
            # Check again: the segment may have been marked cold just now.
            if self._entry(entry.id).tier == "hot":
                raise
            return None

    def _open_file(self, entry: _Entry) -> _Opened:
        path = segment_path(entry.id)
        return _Opened(Segment.open(self._disk.local_path(path), path, entry.id, entry.size, entry.edges), None)

    def _open_cold(self, entry: _Entry) -> _Opened:
        assert self._pieces is not None
        with self._pieces.opening(object_name(entry.id), entry.size) as fetcher:
            place = self._place(entry.id)
            return _Opened(Segment.open(fetcher.path, place, entry.id, entry.size, entry.edges, fetcher), fetcher)

    @contextmanager
    def _damage(self, id: int) -> Iterator[None]:
        """Record damage found by the enclosed read."""
        try:
            yield
        except DamagedFile as error:
            # If the local copy is damaged, the next read fetches a new one.
            self._discard_copy(id)
            # A segment that was forgotten during the read may have lost its files already.
            self._entry(id)
            self._report(id, error)
            raise

    def _report(self, id: int, error: DamagedFile) -> None:
        with self._lock:
            if id in self._damaged:
                return
            self._damaged.add(id)
        log.error(
            "%s. Reads that need the file fail. Stop the server and run 'strandline verify', or restore a backup.",
            error,
        )

    def _discard_copy(self, id: int) -> None:
        if self._pieces is not None:
            self._pieces.discard(object_name(id))

    def _copy_is_good(self, entry: _Entry, cold: ColdStore) -> bool:
        path, name = segment_path(entry.id), object_name(entry.id)
        try:
            if self._disk.size(path) != entry.size:
                raise DamagedFile(path, f"it has {self._disk.size(path)} bytes; expected {entry.size}")
            if cold.size(name) != entry.size:
                return False
            for start in range(0, entry.size, COMPARE_BYTES):
                end = min(start + COMPARE_BYTES, entry.size)
                if self._disk.read(path, start, end - start) != cold.read(name, start, end):
                    return False
        except FileNotFoundError:
            raise MissingFile(path) from None
        return True

    def _hot_orphans(self) -> list[str]:
        names = self._disk.list(HOT_DIRECTORY)
        with self._lock:
            hot = {object_name(entry.id) for entry in self._entries.values() if entry.tier == "hot"}
        return [name for name in names if name not in hot]

    def _cold_orphans(self) -> list[str]:
        """Return orphans only for ids that this data directory has certainly assigned.

        A new, empty directory that is configured with the cold tier of a lost one must not delete its contents.
        """
        names = [] if self._cold is None else self._cold.list()
        with self._lock:
            known = {object_name(id) for id in self._entries}
            highest = max(self._entries, default=0)
        return [name for name in names if name not in known and (id := segment_id(name)) is not None and id <= highest]

    def _place(self, id: int) -> str:
        return self._place_of(object_name(id))

    def _place_of(self, name: str) -> str:
        assert self._cold is not None
        return f"{self._cold.describe()}/{name}"


class _Once(Generic[K, V]):
    """Runs concurrent requests for the same work once: the first caller does it, and the others get its result."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: dict[K, Future[V]] = {}

    def do(self, key: K, work: Callable[[], V]) -> V:
        with self._lock:
            running = self._running.get(key)
            if running is None:
                mine = self._running[key] = Future()
        if running is not None:
            return running.result()
        try:
            result = work()
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(result)
            return result
        finally:
            with self._lock:
                del self._running[key]
