"""A data directory at one moment, read without opening it, while a server may be running on it.

The journal is replayed as in recovery, into logbooks that belong to the view. Two measures keep the viewed files
available. First, the files get hard links in a directory of the view, so that housekeeping may remove the originals. If
the data directory is not writable, the view keeps the files open instead and creates its own directory elsewhere.
Second, unsealed records are sealed into a segment that belongs to the view. Everything that was acknowledged when the
view was taken is therefore in immutable files, which any process that sees the directory can read.

Frames are made durable before they are used. Otherwise a power cut could remove records that were already copied
elsewhere, and their seqs would be assigned again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from strandline.engine.disk import LocalDisk
from strandline.engine.errors import JournalIncomplete, MissingFile, NoDataDirectory
from strandline.engine.housekeeping.round import Captured
from strandline.engine.journal.file import DIRECTORY as JOURNAL
from strandline.engine.journal.file import journal_indexes, journal_path, read_mark
from strandline.engine.journal.inventory import lost_journals
from strandline.engine.journal.recovery import replay
from strandline.engine.journal.replay import Recovered
from strandline.engine.segments.cold_tier import ColdStore
from strandline.engine.segments.jobs import SealJob, run
from strandline.engine.segments.store import HOT_DIRECTORY, SegmentStore, object_name, segment_path
from strandline.engine.state.checkpoints import (
    MANIFEST,
    Manifest,
    StoredBook,
    StoredBooks,
    load_stored_books,
    parse_manifest,
    read_checkpoint,
)
from strandline.engine.state.forks import layers
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.parts import Overlay, Part, Run

#: The views are in the data directory, so that hard links are possible and every process that sees the directory sees
#: them.
VIEWS = "views"
#: A view starts again if a round of housekeeping ends while it is taken.
ATTEMPTS = 10
_LOCK = "LOCK"


class SegmentFile(NamedTuple):
    """A file that does not change. ``path`` is empty if the segment is in the cold tier, where its name is its id."""

    path: str
    id: int
    size: int
    edges: int


class ViewedRun(NamedTuple):
    """Consecutive rows of a log in a segment. Readers see the rows whose seqs are in ``visible`` (ascending,
    inclusive). Some of the rows were amended."""

    file: SegmentFile
    row: int
    rows: int
    #: The first seq of the whole run; the requested range may be smaller.
    first: int
    last: int
    visible: list[tuple[int, int]]
    amended: dict[int, bytes]
    ts_first: int
    ts_last: int
    key_first: str | None
    key_last: str | None


class KnownBooks:
    """What successive views of one directory share: the logbooks that are as the checkpoints have them. A view makes
    only the others, so it costs little more than what has changed. The earlier view must be closed."""

    def __init__(self) -> None:
        self.directory = ""
        self.stored: dict[int, StoredBook] = {}

    def keep(self, manifest: Manifest, loaded: StoredBooks, recovered: Recovered) -> None:
        """Remember the logbooks that the replay has not changed, and that no other logbook refers to."""
        self.directory = manifest.id
        books, changed, overlaid = recovered.books, recovered.changed, loaded.overlaid
        self.stored = {
            epoch: each
            for epoch, each in loaded.stored.items()
            if each.book.base is None
            and not each.book.forks
            and epoch not in overlaid
            and each.book not in changed
            and epoch in books
        }

    def has(self, book: Logbook) -> bool:
        each = self.stored.get(book.epoch)
        return each is not None and each.book is book


class DirectoryView:
    """A data directory at one moment. Create it with :meth:`take` and close it when its files are no longer read."""

    def __init__(self, disk: _FrozenDisk, store: SegmentStore, manifest: Manifest, books: dict[int, Logbook]) -> None:
        #: The id of the data directory.
        self.directory = manifest.id
        self.books = books
        self._by_name = {book.name: book for book in books.values()}
        self._disk = disk
        self._store = store
        self._manifest = manifest
        self._files = {
            entry.id: SegmentFile(
                "" if entry.tier == "cold" else disk.local_path(segment_path(entry.id)),
                entry.id,
                entry.size,
                entry.edges,
            )
            for entry in manifest.segments
        }
        self._unsealed: dict[int, ViewedRun] | None = None

    @classmethod
    def take(
        cls, path: str | os.PathLike[str], cold: ColdStore | None = None, known: KnownBooks | None = None
    ) -> DirectoryView:
        """Take a view. ``known`` makes it quicker if the caller takes one view after the other. Raises NoDataDirectory
        and the errors of recovery."""
        root = Path(path).absolute()
        if not (root / MANIFEST).exists():
            raise NoDataDirectory(str(path))
        place = _Place(root)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return _take(cls, root, place, cold, known or KnownBooks())
            except (FileNotFoundError, MissingFile, JournalIncomplete):
                if attempt == ATTEMPTS:
                    place.remove()
                    raise
            except BaseException:
                place.remove()
                raise
        raise AssertionError

    def __enter__(self) -> DirectoryView:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._store.close()
        self._disk.place.remove()

    def find(self, name: str) -> Logbook | None:
        return self._by_name.get(name)

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def runs(self, book: Logbook, after: int, through: int, *, own: bool = False) -> Iterator[ViewedRun]:
        """Yield the places of the records after ``after`` up to ``through``, in order. With ``own``, records that a
        fork shares with other logs are omitted."""
        for layer in layers(book)[-1:] if own else layers(book):
            first, last = max(layer.first, after + 1, layer.book.earliest), min(layer.last, through)
            for part in layer.book.parts():
                low, high = max(first, part.first), min(last, part.last)
                if low > high:
                    continue
                found = self._sealed(part) if isinstance(part, Run) else self._staged(layer.book.epoch)
                if found is None:
                    continue
                visible = _visible(part, low, high)
                if visible:
                    yield found._replace(visible=visible)

    def _sealed(self, run: Run) -> ViewedRun:
        amended = {} if run.overlay is None else dict(run.overlay.amended)
        return ViewedRun(
            self._files[run.segment], run.row, run.rows, run.first, run.last, [], amended,
            run.ts_first, run.ts_last, run.key_first, run.key_last,
        )  # fmt: skip

    def _staged(self, epoch: int) -> ViewedRun | None:
        if self._unsealed is None:
            self._unsealed = self._stage()
        return self._unsealed.get(epoch)

    def _stage(self) -> dict[int, ViewedRun]:
        """Seal the unsealed records into a segment of this view."""
        captured = [Captured(book, set()) for book in self.books.values() if book.tail is not None and book.tail.blocks]
        keep = [each.keep for each in captured if each.keep is not None]
        indexes = [index for index in journal_indexes(self._disk) if index >= self._manifest.boundary]
        journals = [journal_path(index) for index in indexes if index not in self._disk.unreadable]
        if not keep or not journals:
            return {}
        id = self._manifest.next_segment
        info = run(self._disk, SealJob(id, object_name(id), journals, keep), LocalDisk(self._disk.place.path))
        if info is None:
            return {}
        file = SegmentFile(str(self._disk.place.path / object_name(id)), id, info.size, info.edges)
        return {
            each.epoch: ViewedRun(
                file, each.row, each.rows, each.first, each.last, [], {},
                each.ts_first, each.ts_last, each.key_first, each.key_last,
            )
            for each in info.runs
        }  # fmt: skip


def _visible(part: Part, first: int, last: int) -> list[tuple[int, int]]:
    overlay: Overlay | None = part.overlay
    return [(first, last)] if overlay is None else list(overlay.visible(first, last))


def _take(
    cls: type[DirectoryView], root: Path, place: _Place, cold: ColdStore | None, known: KnownBooks
) -> DirectoryView:
    # Read the mark first: the server updates it, and it must not be ahead of the journal files seen here.
    mark = read_mark(LocalDisk(root))
    manifest = parse_manifest((root / MANIFEST).read_bytes())
    for entry in manifest.segments:
        if entry.tier == "hot":
            place.pin(root / segment_path(entry.id))
    disk = _FrozenDisk(root, place, manifest.boundary)
    store = SegmentStore(disk, cold, cache_directory=str(place.path / "cache"))
    for entry in manifest.segments:
        store.add(entry, entry.tier)
    # If this view fails, its replay may have changed them.
    before, known.stored = known.stored, {}
    frames = (frame for name in manifest.checkpoints for frame in read_checkpoint(disk, name))
    loaded = load_stored_books(frames, before if known.directory == manifest.id else {})
    lost = lost_journals(disk, manifest, mark)
    if lost:
        # The file is lost, or was just sealed and removed. In the second case the manifest has changed.
        raise JournalIncomplete([(each.path, each.why) for each in lost])
    recovered = replay(disk, store, manifest, loaded.books, mark, [])
    disk.unreadable = set(recovered.unreadable_journals)
    known.keep(manifest, loaded, recovered)
    return cls(disk, store, manifest, recovered.books)


class _FrozenDisk(LocalDisk):
    """The journal at the time of construction, made durable. Maps its files and the segments to their hard links."""

    def __init__(self, root: Path, place: _Place, boundary: int) -> None:
        super().__init__(root)
        self.place = place
        self.unreadable: set[int] = set()
        self._lengths: dict[str, int] = {}
        indexes = [index for index in journal_indexes(self) if index >= boundary]
        # Measure the last file first. Every file is then measured after its successor, so it includes everything that
        # was written before the records seen in the successor.
        for index in reversed(indexes):
            pinned = place.pin(root / journal_path(index))
            self._lengths[journal_path(index)] = pinned.stat().st_size
            _make_durable(pinned)
        self._journals = [Path(journal_path(index)).name for index in indexes]

    def size(self, path: str) -> int:
        length = self._lengths.get(path)
        return super().size(path) if length is None else length

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        length = self._lengths.get(path)
        if length is None:
            return super().read(path, offset, size)
        end = length if size < 0 else min(offset + size, length)
        return LocalDisk(self.place.path).read(str(self.place.pinned(path)), offset, max(end - offset, 0))

    def list(self, directory: str) -> list[str]:
        if directory.rstrip("/") == JOURNAL and self._lengths:
            return self._journals
        return super().list(directory)

    def local_path(self, path: str) -> str:
        if path.startswith(f"{HOT_DIRECTORY}/") or path in self._lengths:
            return str(self.place.pinned(path))
        return super().local_path(path)


def _make_durable(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    except OSError as error:
        # A read-only file system has nothing to make durable, and some refuse the sync.
        if error.errno not in (errno.EROFS, errno.EINVAL):
            raise
    finally:
        os.close(fd)


class _Place:
    """The files of one view. Taking a view removes the files of processes that have died."""

    def __init__(self, root: Path) -> None:
        #: The locations, by name, of files that cannot be linked here, and the files that are kept open.
        self._elsewhere: dict[str, Path] = {}
        self._open: list[int] = []
        self._lock = -1
        mode = root.stat().st_mode & 0o777
        try:
            self._begin_inside(root / VIEWS, mode)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            # This directory is not removed if this process dies, but the system cleans its directory for temporary
            # files.
            self.path = Path(tempfile.mkdtemp(prefix="strandline-view-"))
            self.path.chmod(mode | stat.S_IRWXU)

    def _begin_inside(self, views: Path, mode: int) -> None:
        views.mkdir(exist_ok=True)
        self.path = Path(tempfile.mkdtemp(dir=views))
        # Workers on other machines and of other users read these files, as they read the data directory.
        self.path.chmod(mode)
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for other in views.iterdir():
            if other != self.path:
                _remove_abandoned(other)

    def pin(self, path: Path) -> Path:
        """Link a file here, or keep it open, and return where to find it."""
        if path.name not in self._elsewhere:
            try:
                os.link(path, self.path / path.name)
            except FileExistsError:
                pass
            except FileNotFoundError:
                raise
            except OSError:  # on another file system, or not permitted
                self._elsewhere[path.name] = self._keep_open(path)
        return self.pinned(path.name)

    def _keep_open(self, path: Path) -> Path:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            # A file that housekeeping may remove is better than none.
            return path
        self._open.append(fd)
        # Other processes of this machine that read for this one also find the file by this number.
        return Path(f"/proc/{os.getpid()}/fd/{fd}")

    def pinned(self, path: str) -> Path:
        name = path.rpartition("/")[2]
        return self._elsewhere.get(name, self.path / name)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        while self._open:
            os.close(self._open.pop())
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove_abandoned(path: Path) -> None:
    try:
        fd = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # it is being created or removed
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(fd)
