"""Restore a data directory from a backup pool, to a backup or to any covered moment; and verify a pool.

The manifest is written last. An engine does not accept a directory without a manifest, so an interrupted restore cannot
be mistaken for a complete one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from strandline.engine.backup.pool import (
    FILES,
    Backup,
    FileCopy,
    Folder,
    Interval,
    JournalCopy,
    NoBackup,
    NotRestorable,
    Pool,
    histories,
    locate,
)
from strandline.engine.clock import later
from strandline.engine.disk import Disk, LocalDisk
from strandline.engine.errors import DamagedFile, EngineError
from strandline.engine.journal.file import DIRECTORY, journal_path
from strandline.engine.journal.frame import (
    FILE_HEADER,
    FileKind,
    Frame,
    FrameReader,
    FrameType,
    encode,
    read_file_header,
    whole_writes,
)
from strandline.engine.segments.store import HOT_DIRECTORY, segment_path
from strandline.engine.state.checkpoints import (
    CHECKPOINTS,
    JournalEntry,
    Manifest,
    SegmentEntry,
    checkpoint_path,
    write_manifest,
)

FOLDERS = (DIRECTORY, HOT_DIRECTORY, CHECKPOINTS)
#: Files that an otherwise empty directory may contain.
IGNORED = ("LOCK", "lost+found")

#: Called with the name of the current copy, the bytes done and the total bytes.
Progress = Callable[[str, int, int], None]


class DirectoryNotEmpty(EngineError):
    """The directory to restore into is not empty."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not empty; restore into an empty or new directory")
        self.path = path


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    #: The backup that the restore started from, and its history.
    backup: str
    history: str
    #: The requested time. None for the end of the backup.
    at: int | None
    #: The time of the last restored change.
    last_ts: int
    segments: int
    journal_files: int
    bytes: int


class BackupList(msgspec.Struct, frozen=True, kw_only=True):
    """Backups, oldest first, and the intervals that can be restored, those of the newest history first."""

    backups: list[Backup]
    intervals: list[Interval]


class _Plan(NamedTuple):
    backup: Backup
    journal: list[JournalCopy]


def list_backups(target: str, *, options: Mapping[str, str | bool] | None = None) -> BackupList:
    """List the backups of a pool. Raises NoBackup if there are none."""
    backups = Pool(target, options).backups()
    if not backups:
        raise NoBackup(target)
    intervals = [interval for history in histories(backups) for interval in history.intervals()]
    return BackupList(backups=backups, intervals=intervals)


def restore(
    target: str,
    path: str | os.PathLike[str] | Disk,
    *,
    at: int | None = None,
    history: str | None = None,
    options: Mapping[str, str | bool] | None = None,
    progress: Progress | None = None,
) -> RestoreReport:
    """Restore the newest backup, or the state at the time ``at`` (including all changes of that millisecond).

    ``history`` selects one data directory if the pool has backups of several; the default is the one with the newest
    backup. Raises NoBackup, NotRestorable, DirectoryNotEmpty, DirectoryInUse, DamagedFile and OSError. The directory
    stays empty when it raises.
    """
    pool = Pool(target, options)
    plan = _plan(pool, at, history)
    disk: Disk
    if isinstance(path, (str, os.PathLike)):
        os.makedirs(path, exist_ok=True)
        disk = LocalDisk(path)
    else:
        disk = path
    _check_empty(disk)
    disk.lock()
    try:
        # Check again under the lock: another process may have created a data directory here.
        _check_empty(disk)
        try:
            return _Restoring(pool, disk, plan, at, progress).run()
        except BaseException:
            _empty(disk)
            raise
    finally:
        disk.unlock()


def _plan(pool: Pool, at: int | None, wanted: str | None) -> _Plan:
    backups = [backup for backup in pool.backups() if wanted is None or backup.history == wanted]
    if not backups and pool.damaged:
        raise pool.damaged[-1]
    if not backups:
        raise NoBackup(pool.target, wanted)
    sizes = pool.sizes("journal")
    if at is None:
        newest = backups[-1]
        return _Plan(newest, [locate(copy, sizes) for copy in newest.own_journal])
    known = histories(backups)
    for history in known:
        base = history.base(at)
        if base is not None:
            return _Plan(base, [locate(copy, sizes) for copy in history.chain(base).files])
    raise NotRestorable(at, [interval for history in known for interval in history.intervals()])


def _check_empty(disk: Disk) -> None:
    for name in disk.list(""):
        if name not in IGNORED and not (name in FOLDERS and not disk.list(name)):
            raise DirectoryNotEmpty(disk.local_path("").rstrip("/"))


def _empty(disk: Disk) -> None:
    for folder in FOLDERS:
        for name in disk.list(folder):
            disk.remove(f"{folder}/{name}")


class _Restoring:
    def __init__(self, pool: Pool, disk: Disk, plan: _Plan, at: int | None, progress: Progress | None) -> None:
        self._pool = pool
        self._disk = disk
        self._backup = plan.backup
        self._journal = plan.journal
        self._at = at
        self._progress = progress
        self._done = 0
        files: list[FileCopy] = [*plan.backup.segments, *plan.backup.checkpoints, *plan.journal]
        self._total = sum(copy.size for copy in files)
        self._written = 0
        self._last_ts = plan.backup.manifest.last_ts
        self._journals: list[JournalEntry] = []

    def run(self) -> RestoreReport:
        disk, manifest = self._disk, self._backup.manifest
        for folder in FOLDERS:
            disk.make_directory(folder)
        for name, copy in zip(manifest.checkpoints, self._backup.checkpoints, strict=True):
            self._write(checkpoint_path(name), self._pieces("checkpoints", copy))
        for entry, copy in zip(manifest.segments, self._backup.segments, strict=True):
            self._write(segment_path(entry.id), self._pieces("segments", copy))
        journal_files = self._write_journal()
        for folder in (*FOLDERS, ""):
            disk.sync_directory(folder)
        segments = [SegmentEntry(one.id, one.size, one.edges, one.rows, "hot") for one in manifest.segments]
        # The restored directory diverges from the original, so it gets its own id, and with it its own backups and cold
        # tier.
        write_manifest(
            disk, msgspec.structs.replace(manifest, id=Manifest().id, segments=segments, journals=self._journals)
        )
        return RestoreReport(
            path=disk.local_path("").rstrip("/"),
            backup=self._backup.name,
            history=self._backup.history,
            at=self._at,
            last_ts=self._last_ts,
            segments=len(segments),
            journal_files=journal_files,
            bytes=self._written,
        )

    def _pieces(self, folder: Folder, copy: FileCopy) -> Iterator[bytes]:
        for piece in self._pool.read(folder, copy):
            self._done += len(piece)
            if self._progress is not None:
                self._progress(f"{folder}/{copy.name}", self._done, self._total)
            yield piece

    def _write(self, path: str, pieces: Iterator[bytes]) -> None:
        file = self._disk.append_file(path)
        try:
            for piece in pieces:
                file.write([piece])
                self._written += len(piece)
            file.sync()
        finally:
            file.close()

    def _write_journal(self) -> int:
        """Write the journal up to the requested time and return the number of files."""
        for number, copy in enumerate(self._journal, 1):
            path = journal_path(copy.index)
            self._write(path, self._pieces("journal", copy))
            cut = _cut(self._disk, path, self._pool.place("journal", copy.name), self._at)
            self._last_ts = later(self._last_ts, cut.last_ts) if cut.last_ts else self._last_ts
            if number == len(self._journal) or (cut.is_before_end and not self._goes_on(number)):
                self._end(path, cut)
                self._journals.append(JournalEntry(copy.index, self._disk.size(path)))
                return number
            self._journals.append(JournalEntry(copy.index, self._disk.size(path)))
        return 0

    def _goes_on(self, number: int) -> bool:
        """Return whether any file after the first ``number`` files starts before the requested time."""
        assert self._at is not None
        return any(0 < copy.first_ts <= self._at for copy in self._journal[number:])

    def _end(self, path: str, cut: _Cut) -> None:
        """End a journal file at the cut."""
        before, ending = self._disk.size(path), self._close(cut)
        file = self._disk.append_file(path)
        try:
            file.truncate(cut.end)
            file.write([ending])
            file.sync()
        finally:
            file.close()
        self._written += cut.end + len(ending) - before

    def _close(self, cut: _Cut) -> bytes:
        """Return the frame that marks a clean shutdown. Later changes are left out on purpose, so recovery must not
        treat the seqs that were reserved at that time as lost."""
        if cut.closed or cut.seed is None:
            return b""
        return b"".join(encode(FrameType.CLOSE, 0, 0, self._last_ts).seal(cut.seed, cut.end))


class _Cut(NamedTuple):
    """Where to end a journal file. ``seed`` is None if the file is unreadable."""

    end: int
    last_ts: int
    is_before_end: bool
    closed: bool
    seed: int | None


def _cut(disk: Disk, path: str, place: str, at: int | None) -> _Cut:
    size = disk.size(path)
    try:
        _, seed = read_file_header(place, disk.read(path, 0, FILE_HEADER.size), FileKind.JOURNAL)
    except DamagedFile:
        return _Cut(size, 0, False, False, None)
    end, last_ts, closed, is_before_end = FILE_HEADER.size, 0, False, False
    for item in whole_writes(FrameReader(partial(disk.read, path), size, seed).frames()):
        if not isinstance(item, Frame):
            continue
        # A frame written with a wrong clock does not end the file: the frames after it are earlier than the requested
        # time.
        is_before_end = at is not None and item.ts > at
        if not is_before_end:
            end, last_ts, closed = item.offset + item.length, later(last_ts, item.ts), item.type is FrameType.CLOSE
    return _Cut(end, last_ts, is_before_end, closed, seed)


class DamagedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged file of a pool, and the backups that need it."""

    file: str
    why: str
    backups: list[str]


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    backups: int
    #: The number of distinct files, and their bytes.
    files: int
    bytes: int
    damaged: list[DamagedCopy]

    @property
    def sound(self) -> bool:
        return not self.damaged


def verify_backups(
    target: str, *, options: Mapping[str, str | bool] | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Read every file of every backup in a pool. Changes nothing. Raises NoBackup and OSError."""
    pool = Pool(target, options)
    backups = pool.backups()
    if not backups and not pool.damaged:
        raise NoBackup(target)
    sizes = pool.sizes("journal")
    users: dict[tuple[Folder, FileCopy], list[str]] = {}
    for backup in backups:
        lists: tuple[Sequence[FileCopy], ...] = (
            backup.segments,
            backup.checkpoints,
            [locate(copy, sizes) for copy in backup.own_journal],
        )
        for folder, copies in zip(FILES, lists, strict=True):
            for copy in copies:
                bare = FileCopy(copy.name, copy.size, copy.checksum)
                users.setdefault((folder, bare), []).append(backup.name)
    total = sum(copy.size for _, copy in users)
    done = 0
    damaged = [DamagedCopy(file=error.path, why=error.why, backups=[]) for error in pool.damaged]
    for (folder, copy), names in users.items():
        try:
            for piece in pool.read(folder, copy):
                done += len(piece)
                if progress is not None:
                    progress(f"{folder}/{copy.name}", done, total)
        except DamagedFile as error:
            damaged.append(DamagedCopy(file=f"{folder}/{copy.name}", why=error.why, backups=names))
    return VerifyReport(backups=len(backups), files=len(users), bytes=total, damaged=damaged)
