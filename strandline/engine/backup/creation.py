"""Back up a data directory, with or without a running server. The backup does not take the directory's lock.

The order of the copies makes a backup consistent. The manifest comes first, then the segments and checkpoints that it
names, which never change. The journal comes last, starting at the manifest's boundary: any prefix of the journal that
ends with a whole frame is a state that existed at some moment. If a file disappears before it is copied, housekeeping
has replaced the manifest. The backup then starts again from the new manifest and keeps the files that it has copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec
import xxhash

from strandline.engine.backup.pool import (
    FILES,
    PIECE_BYTES,
    Backup,
    BackupHistory,
    FileCopy,
    Folder,
    JournalCopy,
    Pool,
    PoolStores,
    histories,
    journal_name,
)
from strandline.engine.backup.restoration import Progress
from strandline.engine.clock import Clock, SystemClock, later
from strandline.engine.disk import Disk, LocalDisk, pieces_of
from strandline.engine.errors import BadConfig, BadRequest, DamagedFile, JournalIncomplete, MissingFile, NoDataDirectory
from strandline.engine.journal.file import journal_indexes, journal_path, read_mark
from strandline.engine.journal.frame import (
    FILE_HEADER,
    FileKind,
    Frame,
    FrameDamage,
    FrameReader,
    FrameType,
    read_file_header,
    whole_writes,
)
from strandline.engine.journal.inventory import lost_journals
from strandline.engine.replica.chunk import State
from strandline.engine.replica.object_names import checkpoint_key, key_of, segment_key
from strandline.engine.replica.sharing import NotShared, is_shared, objects_of
from strandline.engine.segments.cold_tier import ColdStore, ObjectStoreCold, directory_of
from strandline.engine.segments.footer import ENDING, decode_footer, edges_sum, tail_start
from strandline.engine.segments.store import object_name, segment_path
from strandline.engine.state.checkpoints import MANIFEST, Manifest, SegmentEntry, checkpoint_path, read_manifest

#: A frame gets its timestamp just before it is written. After this time, no frame with an older timestamp appears.
SETTLED_MS = 1_000

#: Each backup reads back this many bytes of the files that are already in the pool, starting with the files that were
#: not read for the longest time. This takes a few seconds at a few hundred MB/s, and 30 backups read a pool of 30 GiB
#: once.
VERIFY_BYTES = 1 << 30

#: A server would have to store a state during each of this many attempts.
MAX_RETRIES = 50

#: Reads the bytes of a file from a start (inclusive) to an end (exclusive).
Read = Callable[[int, int], bytes]


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    history: str
    #: The time of the last change in the backup.
    last_ts: int
    #: The number and size of the files in the backup, and how many of them were copied.
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int
    #: The number and size of the files that belong to a replica in the same prefix and were not copied.
    shared_files: int
    shared_bytes: int
    #: The number and size of the files that were already in the pool and were read back.
    verified_files: int
    verified_bytes: int
    #: The files read back that were damaged or missing and were copied again.
    replaced: list[str]
    #: How often the backup started again because housekeeping of a running server replaced the manifest.
    retries: int
    #: Descriptions of the unreadable parts of the journal. The backup contains these parts unchanged.
    damage: list[str]
    #: Names of the old backups that were removed, and the number of files removed with them.
    pruned: list[str]
    pruned_files: int


def backup(
    source: str | os.PathLike[str] | Disk,
    target: str | PoolStores,
    *,
    cold: str | ColdStore | None = None,
    keep: int | None = None,
    clock: Clock | None = None,
    options: Mapping[str, str | bool] | None = None,
    progress: Progress | None = None,
    verify_bytes: int = VERIFY_BYTES,
) -> BackupReport:
    """Back up a data directory into a pool: a directory, or ``s3://bucket/prefix`` with ``options`` for the client.

    The target may be the prefix of a replica, also of this data directory: the backup then names the replica's segments
    and checkpoints and copies only the others.

    ``cold`` is the cold tier of the data directory. It is required if the cold tier holds segments that are not in any
    backup yet. ``keep`` is the number of newest backups to keep; older ones are removed afterwards. Only one backup at
    a time may run on a pool.

    Files that are already in the pool are not copied again. ``verify_bytes`` of them are read back, starting with those
    that were not read for the longest time, and damaged files are replaced. ``verify_backups`` reads all files.

    Raises NoDataDirectory, DamagedFile, BadRequest, BadConfig and OSError. Existing backups stay valid when it raises.
    """
    if keep is not None and keep < 1:
        raise BadRequest(f"keep must be 1 or more, not {keep}")
    disk = LocalDisk(source) if isinstance(source, (str, os.PathLike)) else source
    if read_manifest(disk) is None:
        raise NoDataDirectory(disk.local_path("").rstrip("/"))
    if isinstance(target, str):
        _check_apart(disk.local_path(""), target)
    taking = _Taking(
        disk,
        ObjectStoreCold(cold) if isinstance(cold, str) else cold,
        Pool(target, options, create=True),
        clock or SystemClock(),
        progress,
        verify_bytes,
    )
    return taking.run(keep)


def _check_apart(source: str, target: str) -> None:
    directory = directory_of(target)
    if directory is not None and directory.resolve().is_relative_to(os.path.realpath(source)):
        raise BadRequest(f"{target} is inside the data directory; choose a target outside of it")


class _Taking:
    """A backup in progress."""

    def __init__(
        self,
        disk: Disk,
        cold: ColdStore | None,
        pool: Pool,
        clock: Clock,
        progress: Progress | None,
        verify_bytes: int,
    ) -> None:
        self._disk = disk
        self._cold = cold
        self._pool = pool
        self._clock = clock
        self._progress = progress
        self._look_into_pool()
        self._copied_files = self._copied_bytes = 0
        #: Progress: the bytes processed, and the total.
        self._done = self._total = 0
        self._damage: dict[int, list[str]] = {}
        self._superseded: set[str] = set()
        #: When each file of the pool was last verified.
        self._verified: dict[str, int] = {}
        for known in self._backups:
            self._verified |= known.verified
        self._verify_bytes = verify_bytes
        #: The reused files to read back. None until they are chosen.
        self._due: set[str] | None = None
        self._verified_files = self._verified_bytes = 0
        self._replaced: list[str] = []

    def _look_into_pool(self) -> None:
        pool = self._pool
        self._backups = pool.backups()
        self._sizes = {folder: pool.sizes(folder) for folder in FILES}
        #: The last state of the replica in the same prefix.
        self._state: State | None = pool.state_of_replica()
        #: Its objects, by the keys of their contents.
        self._objects = {} if self._state is None else {key_of(name): name for name in objects_of(self._state)}
        #: Segments that are already in a backup, by their identity.
        self._segments = {
            (entry.id, entry.edges): copy
            for known in self._backups
            for entry, copy in zip(known.manifest.segments, known.segments, strict=True)
        }

    def run(self, keep: int | None) -> BackupReport:
        taken, retries = self._take_until_complete()
        shared = [copy for copy in taken.files if is_shared(copy.name)]
        for name in sorted(self._superseded - {copy.name for copy in taken.journal}):
            self._pool.delete("journal", name)
        gone, pruned_files = ([], 0) if keep is None else self._pool.prune(keep)
        return BackupReport(
            name=taken.name,
            history=taken.history,
            last_ts=_last_time(taken.manifest.last_ts, taken.own_journal),
            files=len(taken.files),
            bytes=taken.size,
            copied_files=self._copied_files,
            copied_bytes=self._copied_bytes,
            shared_files=len(shared),
            shared_bytes=sum(copy.size for copy in shared),
            verified_files=self._verified_files,
            verified_bytes=self._verified_bytes,
            replaced=self._replaced,
            retries=retries,
            damage=[line for index in sorted(self._damage) for line in self._damage[index]],
            pruned=[known.name for known in gone],
            pruned_files=pruned_files,
        )

    def _take_until_complete(self) -> tuple[Backup, int]:
        retries = 0
        while True:
            manifest = read_manifest(self._disk)
            if manifest is None:
                raise MissingFile(MANIFEST)
            try:
                return self._pool.describe(self._take(manifest)), retries
            except MissingFile:
                if read_manifest(self._disk) == manifest:
                    raise
            except NotShared:
                # The server has stored a newer state. What that state does not name is copied this time.
                if retries == MAX_RETRIES:
                    raise
                self._look_into_pool()
            retries += 1

    def _take(self, manifest: Manifest) -> Backup:
        history = next((one for one in histories(self._backups) if one.id == manifest.id), None)
        self._total = self._done + self._to_copy(manifest)
        self._damage.clear()
        if self._due is None:
            self._due = self._due_for_verification(manifest, history)
        # Copy the retained journal files first. The server may remove them during a long copy, and the loss would only
        # be noticed when a restore needs them.
        kept = list(self._kept_journal(manifest, history)) if history is not None else []
        checkpoints = [self._copy_checkpoint(name) for name in manifest.checkpoints]
        segments = [self._copy_segment(entry) for entry in manifest.segments]
        time = self._clock.now()
        journal = list(self._journal(manifest, history))
        last_ts = _last_time(manifest.last_ts, journal)
        return Backup(
            time=max([time, *(known.time + 1 for known in self._backups)]),
            manifest=manifest,
            segments=segments,
            checkpoints=checkpoints,
            journal=kept + journal,
            until=max(last_ts - 1, time - SETTLED_MS),
            verified={
                copy.name: self._verified[copy.name]
                for copy in (*segments, *checkpoints, *kept, *journal)
                if copy.name in self._verified
            },
        )

    # --- files already in the pool -------------------------------------------------------------------------

    def _due_for_verification(self, manifest: Manifest, history: BackupHistory | None) -> set[str]:
        """Choose which reused files to read back in this backup: those that were not read for the longest time."""
        segments = [self._segments.get((entry.id, entry.edges)) for entry in manifest.segments]
        copies: dict[str, FileCopy] = {copy.name: copy for copy in segments if copy is not None}
        if history is not None:
            newest = history.backups[-1]
            copies |= {copy.name: copy for copy in (*newest.checkpoints, *newest.journal)}
        due: set[str] = set()
        budget = self._verify_bytes
        for copy in sorted(copies.values(), key=lambda copy: (self._verified.get(copy.name, 0), copy.name)):
            # Choose at least one file, however large. Otherwise a file above the budget would block all files after it.
            if due and copy.size > budget:
                break
            budget -= copy.size
            due.add(copy.name)
        return due

    def _has(self, folder: Folder, copy: FileCopy) -> bool:
        """Return whether the pool has a good copy. A file due for verification is read back once; a damaged one is
        copied again."""
        if is_shared(copy.name) and self._state is not None and f"{folder}/{copy.name}" not in objects_of(self._state):
            return False
        if self._sizes[folder].get(copy.name) != copy.size:
            if copy.name in self._verified or copy.name in self._sizes[folder]:
                self._give_up(folder, copy)
            return False
        if self._due is None or copy.name not in self._due:
            return True
        self._due.discard(copy.name)
        if not self._pool.is_whole(folder, copy):
            self._give_up(folder, copy)
            return False
        self._verified[copy.name] = self._clock.now()
        self._verified_files += 1
        self._verified_bytes += copy.size
        return True

    def _give_up(self, folder: Folder, copy: FileCopy) -> None:
        self._sizes[folder].pop(copy.name, None)
        self._verified.pop(copy.name, None)
        name = f"{folder}/{copy.name}"
        if name not in self._replaced:
            self._replaced.append(name)

    def _to_copy(self, manifest: Manifest) -> int:
        """Estimate the number of bytes to copy, for progress reports."""
        segments = [entry.size for entry in manifest.segments if (entry.id, entry.edges) not in self._segments]
        indexes = [index for index in journal_indexes(self._disk) if index >= manifest.boundary]
        return sum(segments) + sum(self._size_of_journal(index) or 0 for index in indexes)

    # --- segments and checkpoints --------------------------------------------------------------------------

    def _copy_segment(self, entry: SegmentEntry) -> FileCopy:
        known = self._segments.get((entry.id, entry.edges))
        if known is not None and self._has("segments", known):
            return known
        try:
            copy = self._copy_hot(entry)
        except DamagedFile:
            if entry.tier == "hot":
                raise
            copy = self._copy_cold(entry)
        self._segments[entry.id, entry.edges] = copy
        return copy

    def _copy_hot(self, entry: SegmentEntry) -> FileCopy:
        path = segment_path(entry.id)
        pieces = _segment_pieces(path, lambda start, end: _read(self._disk, path, start, end), entry)
        copy = self._share("segments", segment_key(entry), self._verify(pieces, entry))
        try:
            self._put("segments", copy, Path(self._disk.local_path(path)))
        except FileNotFoundError:
            if self._disk.exists(path):
                raise
            raise MissingFile(path) from None
        return copy

    def _copy_cold(self, entry: SegmentEntry) -> FileCopy:
        cold, name = self._cold, object_name(entry.id)
        if cold is None:
            raise BadConfig("cold", None, f"segment {entry.id} is in the cold tier; specify its location") from None
        with NamedTemporaryFile() as file:

            def pieces() -> Iterator[bytes]:
                for piece in _segment_pieces(f"{cold.describe()}/{name}", partial(cold.read, name), entry):
                    file.write(piece)
                    yield piece

            copy = self._share("segments", segment_key(entry), self._verify(pieces(), entry))
            file.flush()
            self._put("segments", copy, Path(file.name))
        return copy

    def _verify(self, pieces: Iterator[bytes], entry: SegmentEntry) -> FileCopy:
        """Verify a segment before it is copied, so that a damaged segment is never stored."""
        name = f"{entry.id:08d}-{entry.edges:016x}.arrow"
        hasher = xxhash.xxh3_128()
        for piece in pieces:
            hasher.update(piece)
            self._note(f"segments/{name}", len(piece))
        return FileCopy(name, entry.size, hasher.hexdigest())

    def _share(self, folder: Folder, key: str, copy: FileCopy) -> FileCopy:
        """Return the copy under the name of an object of the replica with the same contents, if there is a good one."""
        object = self._objects.get(key)
        if object is None or object in self._replaced:
            return copy
        name = object.rpartition("/")[2]
        shared = FileCopy(name, copy.size, copy.checksum)
        return shared if self._sizes[folder].get(name) == copy.size and self._has(folder, shared) else copy

    def _put(self, folder: Folder, copy: FileCopy, data: bytes | Path) -> None:
        if is_shared(copy.name) or self._has(folder, copy):
            return
        self._pool.put(folder, copy.name, data)
        self._sizes[folder][copy.name] = copy.size
        self._verified[copy.name] = self._clock.now()
        self._copied_files += 1
        self._copied_bytes += copy.size

    def _copy_checkpoint(self, name: str) -> FileCopy:
        raw = _read(self._disk, checkpoint_path(name))
        checksum = xxhash.xxh3_128_hexdigest(raw)
        stem, _, kind = name.partition(".")
        copy = FileCopy(f"{stem}-{checksum[:16]}.{kind}", len(raw), checksum)
        copy = self._share("checkpoints", checkpoint_key(name, raw), copy)
        self._put("checkpoints", copy, raw)
        return copy

    def _note(self, what: str, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(what, self._done, max(self._total, self._done))

    # --- the journal ---------------------------------------------------------------------------------------

    def _kept_journal(self, manifest: Manifest, history: BackupHistory) -> Iterator[JournalCopy]:
        """Copy journal files that the manifest no longer needs but that continue an older backup."""
        for index in journal_indexes(self._disk):
            if history.oldest_boundary <= index < manifest.boundary:
                try:
                    yield self._copy_journal(index, history, complete=True)
                except MissingFile:
                    continue  # its retention ended

    def _journal(self, manifest: Manifest, history: BackupHistory | None) -> Iterator[JournalCopy]:
        boundary = manifest.boundary
        sizes = {
            index: size
            for index in journal_indexes(self._disk)
            if index >= boundary and (size := self._size_of_journal(index)) is not None
        }
        # The next journal file is created before it is needed. Once it holds data, nothing is added to the files before
        # it. So look at the sizes first, then read.
        last = max((index for index, size in sizes.items() if size > FILE_HEADER.size), default=0)
        self._check_journal(manifest)
        for index in range(boundary, last + 1):
            yield self._copy_journal(index, history, complete=index < last)

    def _check_journal(self, manifest: Manifest) -> None:
        """Refuse to back up a directory that a server could not open. The problem would otherwise show up only in a
        restore."""
        try:
            # Read the mark first: a running server keeps adding to its journal files.
            mark = read_mark(self._disk)
            lost = lost_journals(self._disk, manifest, mark)
        except FileNotFoundError as error:
            raise MissingFile(str(error.filename)) from None
        if lost and read_manifest(self._disk) != manifest:
            raise MissingFile(lost[0].path)  # sealed and removed in the meantime
        if lost:
            raise JournalIncomplete([(each.path, each.why) for each in lost])

    def _size_of_journal(self, index: int) -> int | None:
        try:
            return self._disk.size(journal_path(index))
        except FileNotFoundError:
            return None

    def _copy_journal(self, index: int, history: BackupHistory | None, *, complete: bool) -> JournalCopy:
        path = journal_path(index)
        known = None if history is None else history.newest_copy(index)
        if known is not None and known.complete and self._is_unchanged(path, known):
            return known
        copy = self._look_at(index, complete)
        self._put_journal(path, copy, complete)
        self._note(f"journal/{copy.name}", copy.size)
        for older in {one.name: one for known in self._backups for one in known.journal}.values():
            if (older.index, older.seed) == (copy.index, copy.seed) and older.name in self._sizes["journal"]:
                if older.size < copy.size and self._digest(path, older.size) == older.checksum:
                    self._superseded.add(older.name)
        return copy

    def _put_journal(self, path: str, copy: JournalCopy, complete: bool) -> None:
        if complete:
            try:
                self._put("journal", copy, Path(self._disk.local_path(path)))
            except FileNotFoundError:
                raise MissingFile(path) from None
            return
        # The file may be growing, so copy the part to store first.
        with NamedTemporaryFile() as file:
            for piece in self._pieces(path, copy.size):
                file.write(piece)
            file.flush()
            self._put("journal", copy, Path(file.name))

    def _pieces(self, path: str, size: int) -> Iterator[bytes]:
        try:
            yield from pieces_of(self._disk, path, 0, size)
        except FileNotFoundError:
            raise MissingFile(path) from None

    def _digest(self, path: str, size: int) -> str:
        """Return the checksum of the first ``size`` bytes of a file."""
        hasher = xxhash.xxh3_128()
        for piece in self._pieces(path, size):
            hasher.update(piece)
        return hasher.hexdigest()

    def _is_unchanged(self, path: str, known: JournalCopy) -> bool:
        if not self._has("journal", known):
            return False
        try:
            header = _read(self._disk, path, 0, FILE_HEADER.size)
            return (
                self._disk.size(path) == known.size
                and read_file_header(path, header, FileKind.JOURNAL)[1] == known.seed
            )
        except FileNotFoundError:
            raise MissingFile(path) from None
        except DamagedFile:
            return False

    def _look_at(self, index: int, complete: bool) -> JournalCopy:
        """Inspect a journal file. If it may be growing, cut the copy after its last whole frame."""
        path = journal_path(index)
        size = self._size_of_journal(index)
        if size is None:
            raise MissingFile(path)
        damage: list[str] = []
        seed = first_ts = last_ts = 0
        end, closed = size, False
        try:
            _, seed = read_file_header(path, _read(self._disk, path, 0, FILE_HEADER.size), FileKind.JOURNAL)
        except DamagedFile as error:
            damage.append(str(error))
        else:
            end = FILE_HEADER.size
            # A partial frame at the end is not damage: it was torn off, or is still being written.
            waiting: list[str] = []
            reader = FrameReader(lambda start, length: _read(self._disk, path, start, start + length), size, seed)
            for item in whole_writes(reader.frames()):
                if not isinstance(item, Frame):
                    offset, length, why = item if isinstance(item, FrameDamage) else item.place_and_reason()
                    waiting.append(f"{path}: {length} bytes at offset {offset} are unreadable: {why}")
                    continue
                damage += waiting
                waiting = []
                first_ts, last_ts = first_ts or item.ts, later(last_ts, item.ts)
                end, closed = item.offset + item.length, item.type is FrameType.CLOSE
            if complete and waiting:
                damage += waiting
                end = size
        self._damage[index] = damage
        checksum = self._digest(path, end)
        return JournalCopy(
            journal_name(index, seed, checksum),
            end,
            checksum,
            index=index,
            seed=seed,
            first_ts=first_ts,
            last_ts=last_ts,
            complete=complete or closed,
        )


def _last_time(last_ts: int, journal: Sequence[JournalCopy]) -> int:
    return reduce(later, (copy.last_ts for copy in journal if copy.last_ts), last_ts)


def _read(disk: Disk, path: str, start: int = 0, end: int | None = None) -> bytes:
    try:
        return disk.read(path, start, -1 if end is None else end - start)
    except FileNotFoundError:
        raise MissingFile(path) from None


def _segment_pieces(path: str, read: Read, entry: SegmentEntry) -> Iterator[bytes]:
    """Yield the bytes of a segment in order. Every piece is verified before it is yielded."""
    tail_from = tail_start(path, entry.size, read(max(0, entry.size - ENDING.size), entry.size))
    tail = read(tail_from, entry.size)
    blocks = decode_footer(path, tail).blocks
    head = read(0, blocks[0].offset)
    if edges_sum(head, tail) != entry.edges:
        raise DamagedFile(path, "the checksum of its schema, dictionaries and footer does not match")
    yield head
    at, number = blocks[0].offset, 0
    while number < len(blocks):
        until = number + 1
        while until < len(blocks) and blocks[until].end - at <= PIECE_BYTES:
            until += 1
        piece = read(at, blocks[until - 1].end)
        for index in range(number, until):
            block = blocks[index]
            if xxhash.xxh3_64_intdigest(memoryview(piece)[block.offset - at : block.end - at]) != block.sum:
                raise DamagedFile(path, f"the checksum of block {index} does not match")
        yield piece
        at, number = blocks[until - 1].end, until
    if at != tail_from:
        raise DamagedFile(path, "its blocks are not at the positions in its footer")
    yield tail
