"""Backup pools: immutable files, and one small description per backup.

A pool is a directory or a prefix in an object store::

    segments/00000012-<edges>.arrow              as in the data directory; copied once, however many backups use it
    checkpoints/00000003-<checksum>.full
    journal/00000034-<seed>-<checksum>.journal   a journal file up to its last whole frame
    backups/20260722T101530.123Z.json            the files of a backup; written last, so a backup is complete or absent

File names identify the contents, so nothing in a pool is overwritten. A new backup cannot damage an older one, nor a
backup of another data directory in the same pool. A journal file that has grown is copied again. The shorter copy is
removed once a description names the longer one, which starts with the same bytes.

The backups of one data directory (one manifest id) form a history. Where their journal files follow each other without
a gap, every moment between the backups can be restored.

A pool may be the prefix of a replica. Its backups then name objects of the replica, which has the same folders for
segments and checkpoints: see :mod:`strandline.engine.replica.sharing`. Only the replica's server removes its objects.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec
import xxhash

from strandline.engine.clock import later
from strandline.engine.errors import BadConfig, DamagedFile, EngineError, MissingFile, UnsupportedFormat
from strandline.engine.file_names import Kind, check_name, check_number, is_name
from strandline.engine.record import MAX_TIME
from strandline.engine.replica.chunk import CHUNKS, State
from strandline.engine.replica.sharing import NameTaken, NotShared, complete, is_shared, last_state
from strandline.engine.replica.store import ObjectStoreReplica, ReplicaStore
from strandline.engine.segments.cold_tier import ColdStore, ObjectStoreCold, directory_of
from strandline.engine.state.checkpoints import Manifest, checked

VERSION = 1
#: Files are copied in pieces of about this size.
PIECE_BYTES = 8 << 20

Folder = Literal["segments", "checkpoints", "journal", "backups"]
FILES: tuple[Folder, ...] = ("segments", "checkpoints", "journal")

log = logging.getLogger(__name__)


class NoBackup(EngineError):
    """The pool has no backup, or none of the requested history."""

    def __init__(self, target: str, history: str | None = None) -> None:
        super().__init__(f"no backup {f'of history {history} ' if history else ''}found in {target}")
        self.target = target
        self.history = history


class NotRestorable(EngineError):
    """The backups do not cover the requested time."""

    def __init__(self, at: int, intervals: list[Interval]) -> None:
        known = ", ".join(f"{format_time(one.start)} to {format_time(one.end)}" for one in intervals)
        covered = known or "only the newest backup as a whole"
        super().__init__(f"{format_time(at)} cannot be restored; the backups cover: {covered}")
        self.at = at
        self.intervals = intervals


def format_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


class FileCopy(msgspec.Struct, frozen=True):
    """A file in the pool. ``checksum`` is the XXH3-128 of the whole file."""

    name: str
    size: int
    checksum: str


class JournalCopy(FileCopy, frozen=True, kw_only=True):
    """A journal file in the pool, up to its last whole frame."""

    index: int
    #: The seed in the file's header, or 0 if the header is unreadable. Copies with the same seed are of the same file.
    seed: int
    #: The times of the first and the last frame, or 0 if there is no frame.
    first_ts: int
    last_ts: int
    #: Whether the file is complete: nothing will be added to it.
    complete: bool


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one backup."""

    version: int = VERSION
    #: When the backup was taken, in milliseconds. Unique within a pool.
    time: int
    manifest: Manifest
    #: In the order of the manifest.
    segments: list[FileCopy]
    checkpoints: list[FileCopy]
    #: Includes files before the manifest's boundary, which only older backups need.
    journal: list[JournalCopy]
    #: The backup contains every change up to this time. This is usually earlier than the last frame, because another
    #: frame may have followed within the same millisecond.
    until: int
    #: When each file was last known to be good, in milliseconds: when it was copied, or last read back.
    verified: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        return format_time(self.time).replace("-", "").replace(":", "")

    @property
    def history(self) -> str:
        return self.manifest.id

    @property
    def own_journal(self) -> list[JournalCopy]:
        """Return the journal files needed to restore this backup as it was taken."""
        return [copy for copy in self.journal if copy.index >= self.manifest.boundary]

    @property
    def files(self) -> list[FileCopy]:
        """Return all files needed to restore this backup as it was taken."""
        return [*self.segments, *self.checkpoints, *self.own_journal]

    def copies(self) -> Iterator[tuple[Folder, FileCopy]]:
        """Yield all files that the description names, with their folders."""
        lists: tuple[Sequence[FileCopy], ...] = (self.segments, self.checkpoints, self.journal)
        for folder, copies in zip(FILES, lists, strict=True):
            for copy in copies:
                yield folder, copy

    @property
    def size(self) -> int:
        return sum(copy.size for copy in self.files)


class Interval(msgspec.Struct, frozen=True):
    """Every moment from ``start`` to ``end``, both included, can be restored."""

    start: int
    end: int
    history: str


class JournalChain(NamedTuple):
    """The journal files that continue a backup's boundary without a gap, and the time up to which they are complete."""

    files: list[JournalCopy]
    end: int


class BackupHistory:
    """All backups of one data directory, oldest first."""

    def __init__(self, backups: list[Backup]) -> None:
        self.id = backups[0].history
        self.backups = backups
        #: The newest copy of every journal file, and the ``until`` of the backup in which it is the last.
        self._newest: dict[int, tuple[JournalCopy, int]] = {}
        for backup in backups:
            for copy in backup.journal:
                until = backup.until if copy is backup.journal[-1] else 0
                self._newest[copy.index] = copy, until

    @property
    def oldest_boundary(self) -> int:
        return min(backup.manifest.boundary for backup in self.backups)

    def newest_copy(self, index: int) -> JournalCopy | None:
        found = self._newest.get(index)
        return None if found is None else found[0]

    def chain(self, backup: Backup) -> JournalChain:
        index = backup.manifest.boundary
        end = backup.manifest.last_ts - 1 if backup.own_journal else backup.until
        files = []
        while index in self._newest:
            copy, until = self._newest[index]
            files.append(copy)
            end = max(later(end, copy.last_ts - 1), until)
            if not copy.complete:
                break
            index += 1
        return JournalChain(files, end)

    def interval(self, backup: Backup) -> Interval:
        """What can be restored with this backup as the base."""
        chain = self.chain(backup)
        # A directory that never sealed anything is known from its very first frame on.
        first = next((copy.first_ts for copy in chain.files if copy.first_ts), chain.end)
        return Interval(backup.manifest.last_ts or first, chain.end, self.id)

    def intervals(self) -> list[Interval]:
        joined: list[Interval] = []
        found = [interval for interval in map(self.interval, self.backups) if interval.start <= interval.end]
        for one in sorted(found, key=lambda one: one.start):
            if joined and one.start <= joined[-1].end + 1:
                joined[-1] = Interval(joined[-1].start, max(joined[-1].end, one.end), self.id)
            else:
                joined.append(one)
        return joined

    def base(self, at: int) -> Backup | None:
        """Return the backup from which the fewest changes must be replayed to reach this time."""
        for backup in reversed(self.backups):
            interval = self.interval(backup)
            if interval.start <= at <= interval.end:
                return backup
        return None


def histories(backups: list[Backup]) -> list[BackupHistory]:
    """Return the histories, the one with the newest backup first."""
    found: dict[str, list[Backup]] = {}
    for backup in reversed(backups):
        found.setdefault(backup.history, []).append(backup)
    return [BackupHistory(list(reversed(members))) for members in found.values()]


class PoolFolder(ColdStore, Protocol):
    def sizes(self) -> dict[str, int]:
        """Return the names of all complete objects, with their sizes."""
        ...

    def pages(self) -> Iterator[dict[str, int]]:
        """Yield the same, some at a time."""
        ...


class PoolStores(NamedTuple):
    """Where a pool is: its folders, and the same store as a replica sees it."""

    folders: Mapping[Folder, PoolFolder]
    objects: ReplicaStore


class Pool:
    def __init__(
        self, target: str | PoolStores, options: Mapping[str, str | bool] | None = None, *, create: bool = False
    ) -> None:
        """``options`` are those of :class:`ObjectStoreCold`. Without ``create`` the pool must exist."""
        #: The descriptions that were unreadable when the pool was last listed.
        self.damaged: list[DamagedFile] = []
        #: None for an object store.
        self._directory: Path | None = None
        self._folders: Mapping[Folder, PoolFolder]
        if isinstance(target, PoolStores):
            self.target = target.objects.describe()
            self._folders, self._objects = target
            return
        directory = directory_of(target)
        if directory is not None and not create and not directory.is_dir():
            raise NoBackup(target)
        self.target = target.rstrip("/")
        self._directory = directory
        if directory is not None:
            for folder in (*FILES, "backups"):
                _refuse_link(directory / folder)
        try:
            self._folders = {
                folder: ObjectStoreCold(f"{self.target}/{folder}", **(options or {})) for folder in (*FILES, "backups")
            }
            self._objects = ObjectStoreReplica(self.target, **(options or {}))
        except BadConfig as error:
            raise BadConfig("target", target, error.why) from None

    def place(self, folder: Folder, name: str) -> str:
        return f"{self._folders[folder].describe()}/{name}"

    def sizes(self, folder: Folder) -> dict[str, int]:
        """Return the files of a folder with their sizes. Symbolic links are skipped: they may lead out of the pool."""
        return self._without_links(folder, self._folders[folder].sizes())

    def pages(self, folder: Folder) -> Iterator[dict[str, int]]:
        """Yield the files of a folder with their sizes, some at a time."""
        for page in self._folders[folder].pages():
            yield self._without_links(folder, page)

    def _without_links(self, folder: Folder, sizes: dict[str, int]) -> dict[str, int]:
        if self._directory is None:
            return sizes
        return {name: size for name, size in sizes.items() if not (self._directory / folder / name).is_symlink()}

    def put(self, folder: Folder, name: str, data: bytes | Path) -> None:
        self._folders[folder].put(name, data)

    def delete(self, folder: Folder, name: str) -> None:
        self._folders[folder].delete(name)

    def read(self, folder: Folder, copy: FileCopy) -> Iterator[bytes]:
        """Yield the bytes of a copy in pieces. Raises DamagedFile after the last piece if the checksum does not
        match."""
        if self._directory is not None:
            _refuse_link(self._directory / folder / copy.name)
        store, hasher = self._folders[folder], xxhash.xxh3_128()
        for start in range(0, copy.size, PIECE_BYTES):
            piece = store.read(copy.name, start, min(start + PIECE_BYTES, copy.size))
            hasher.update(piece)
            yield piece
        if hasher.hexdigest() != copy.checksum:
            raise DamagedFile(self.place(folder, copy.name), "its checksum does not match the backup's description")

    def is_whole(self, folder: Folder, copy: FileCopy) -> bool:
        """Return whether the file exists and is undamaged."""
        try:
            for _ in self.read(folder, copy):
                pass
        except DamagedFile:
            return False
        return True

    def state_of_replica(self) -> State | None:
        """Return the last state of the replica in this prefix, or None if there is none."""
        return last_state(self._objects) if self._objects.list(CHUNKS) else None

    # --- descriptions --------------------------------------------------------------------------------------

    def backups(self) -> list[Backup]:
        """Return all backups, oldest first. An unreadable description is skipped and reported in ``damaged``."""
        found = [self.description(name, size) for name, size in self.descriptions()]
        return sorted((backup for backup in found if backup is not None), key=lambda backup: backup.time)

    def descriptions(self) -> list[tuple[str, int]]:
        """Return the names and the sizes of the descriptions, the newest first, and forget the damaged ones."""
        self.damaged = []
        # An empty description prevents a backup that was interrupted from being completed later.
        found = [(name, size) for name, size in self.sizes("backups").items() if size]
        return sorted(((name, size) for name, size in found if is_name("backup description", name)), reverse=True)

    def description(self, name: str, size: int) -> Backup | None:
        """Return a description, or None if it is unreadable, which is reported in ``damaged``."""
        try:
            raw = self._folders["backups"].read(name, 0, size)
            return _decode(self.place("backups", name), raw)
        except DamagedFile as error:
            self.damaged.append(error)
            log.warning("%s", error)
            return None

    def describe(self, backup: Backup) -> Backup:
        """Write the description that completes a backup, and return the backup under its final name. Every file it
        names must be in the pool.

        Raises MissingFile if a file was removed in the meantime, and NotShared if the replica no longer keeps one.
        """
        while True:
            self._check_complete(backup)
            shared = [f"{folder}/{copy.name}" for folder, copy in backup.copies() if is_shared(copy.name)]
            if not shared:
                self.put("backups", f"{backup.name}.json", _encode(backup))
                return backup
            try:
                complete(self._objects, backup.name, shared, _encode(backup))
                return backup
            except NameTaken:
                backup = msgspec.structs.replace(backup, time=backup.time + 1)

    def _check_complete(self, backup: Backup) -> None:
        """Check that no other process has removed files in the meantime."""
        sizes = {folder: self.sizes(folder) for folder in FILES}
        for folder, copy in backup.copies():
            if sizes[folder].get(copy.name) != copy.size:
                place = self.place(folder, copy.name)
                raise NotShared(place) if is_shared(copy.name) else MissingFile(place)

    def prune(self, keep: int) -> tuple[list[Backup], int]:
        """Remove all but the newest ``keep`` backups, and the files that only they need. Return the backups and the
        number of files. Objects of a replica are removed by its server."""
        backups = self.backups()
        gone, kept = backups[:-keep], backups[-keep:]
        for backup in gone:
            self.delete("backups", f"{backup.name}.json")
        needed = self._needed(kept)
        removed = 0
        for folder in FILES:
            for name in self.sizes(folder):
                if name not in needed[folder] and not is_shared(name):
                    self.delete(folder, name)
                    removed += 1
        return gone, removed

    def _needed(self, backups: list[Backup]) -> dict[Folder, set[str]]:
        needed: dict[Folder, set[str]] = {folder: set() for folder in FILES}
        sizes = self.sizes("journal")
        for history in histories(backups):
            for backup in history.backups:
                needed["segments"].update(copy.name for copy in backup.segments)
                needed["checkpoints"].update(copy.name for copy in backup.checkpoints)
                needed["journal"].update(
                    locate(copy, sizes).name for copy in backup.journal if copy.index >= history.oldest_boundary
                )
        return needed


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise DamagedFile(str(path), "it is a symbolic link; a backup pool may only contain regular files and folders")


def journal_name(index: int, seed: int, checksum: str) -> str:
    return f"{index:08d}-{seed:016x}-{checksum[:16]}.journal"


def locate(copy: JournalCopy, sizes: Mapping[str, int]) -> JournalCopy:
    """Return the copy under its current name: a longer copy may have replaced it."""
    if copy.name in sizes:
        return copy
    same_file = copy.name.rpartition("-")[0]
    longer = [
        (size, name) for name, size in sizes.items() if name.rpartition("-")[0] == same_file and size >= copy.size
    ]
    return msgspec.structs.replace(copy, name=min(longer)[1]) if longer else copy


class _Description(msgspec.Struct):
    """``checksum`` is the XXH3-128 of the bytes of ``backup``."""

    checksum: str
    backup: msgspec.Raw


class _Version(msgspec.Struct):
    version: int


def _encode(backup: Backup) -> bytes:
    raw = msgspec.json.encode(backup)
    return msgspec.json.encode(_Description(xxhash.xxh3_128_hexdigest(raw), msgspec.Raw(raw)))


def _decode(place: str, raw: bytes) -> Backup:
    try:
        outer = msgspec.json.decode(raw, type=_Description)
        if xxhash.xxh3_128_hexdigest(outer.backup) != outer.checksum:
            raise DamagedFile(place, "its checksum does not match")
        version = msgspec.json.decode(outer.backup, type=_Version).version
        if version != VERSION:
            raise UnsupportedFormat(place, version, VERSION)
        return _checked(msgspec.json.decode(outer.backup, type=Backup), place)
    except msgspec.MsgspecError as error:
        raise DamagedFile(place, str(error)) from None


def _checked(backup: Backup, place: str) -> Backup:
    """Return the backup if it names only files that Strandline can have written, and as many as its manifest."""
    manifest = checked(backup.manifest, place)
    kinds: tuple[tuple[Kind, Sequence[FileCopy]], ...] = (
        ("pool segment", backup.segments),
        ("pool checkpoint", backup.checkpoints),
        ("pool journal", backup.journal),
    )
    for kind, copies in kinds:
        for copy in copies:
            check_name(kind, copy.name, place)
            if copy.size < 0:
                raise DamagedFile(place, f"it gives {copy.name} a size of {copy.size} bytes")
    for journal in backup.journal:
        check_number("journal file", journal.index, place)
    for what, named, copied in (
        ("segments", len(manifest.segments), len(backup.segments)),
        ("checkpoints", len(manifest.checkpoints), len(backup.checkpoints)),
    ):
        if named != copied:
            raise DamagedFile(place, f"its manifest names {named} {what}, but it lists {copied} copies")
    if not 0 <= backup.time <= MAX_TIME:
        raise DamagedFile(place, f"it has the time {backup.time}; expected milliseconds from 0 to {MAX_TIME}")
    return backup
