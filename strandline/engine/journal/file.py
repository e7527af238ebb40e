"""The journal: numbered files of frames, written in order, made durable by a shared flush.

The appending thread hands a frame to the system at once: that takes a microsecond, errors are raised where the append
was made, and acknowledged records survive a killed process. Only the flush is shared: one ``fdatasync`` covers every
writer that waits for the disk.

The file ``FLUSHED`` holds the flush mark: how far the journal is known to be on the disk. It is overwritten after every
flush, without a sync of its own. The journal was durable up to the mark before the mark was written, so a mark never
claims too much, whatever part of it survives a power cut. After a killed process it is exact. A mark that is missing,
torn or unreadable is ignored.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import NamedTuple

import xxhash

from strandline.engine.disk import NO_SPACE, AppendFile, Disk, SectorFile
from strandline.engine.errors import DamagedFile, DiskFull, JournalFailed
from strandline.engine.file_names import number_in
from strandline.engine.journal.frame import (
    FILE_HEADER,
    Encoded,
    FileKind,
    Frame,
    FrameDamage,
    FrameReader,
    file_header,
    group,
    read_boot,
    read_file_header,
)

log = logging.getLogger(__name__)

FLUSHED = "FLUSHED"
MARK_MAGIC = b"STRANDFL"
MARK_VERSION = 1
#: magic, version, directory, index, size, size of the file before
_FIELDS = struct.Struct("<8sQQQQQ")
_CHECKSUM = struct.Struct("<Q")
#: Far less than a sector, which a device writes in one piece.
MARK_BYTES = _FIELDS.size + _CHECKSUM.size

_digest = xxhash.xxh3_64_intdigest


class FlushMark(NamedTuple):
    """Up to where the journal was durable when the mark was written."""

    #: Which data directory it is about, as :func:`directory_digest`.
    directory: int
    #: The number of the journal file, and how many of its bytes were durable.
    number: int
    size: int
    #: The final size of the file before it; 0 if the manifest had that before the file was begun.
    left_size: int

    def sizes(self, directory: str) -> dict[int, int]:
        """What journal files must have at least, by number; nothing if the mark is of another directory."""
        if self.directory != directory_digest(directory):
            return {}
        return {self.number: self.size} | ({self.number - 1: self.left_size} if self.left_size else {})


def directory_digest(directory: str) -> int:
    """The id of a data directory in 8 bytes."""
    return _digest(directory.encode())


def encode_mark(mark: FlushMark) -> bytes:
    fields = _FIELDS.pack(MARK_MAGIC, MARK_VERSION, *mark)
    return fields + _CHECKSUM.pack(_digest(fields))


def decode_mark(raw: bytes) -> FlushMark | None:
    """The mark in the content of the file; None if it is not whole, or of a version that this release does not know."""
    if len(raw) < MARK_BYTES or _CHECKSUM.unpack_from(raw, _FIELDS.size)[0] != _digest(raw[: _FIELDS.size]):
        return None
    magic, version, directory, index, size, left_size = _FIELDS.unpack_from(raw)
    return FlushMark(directory, index, size, left_size) if (magic, version) == (MARK_MAGIC, MARK_VERSION) else None


def read_mark(disk: Disk) -> FlushMark | None:
    """The mark of a data directory, or None.

    While a server writes, read the mark before you look at the size of any journal file: files grow, and so the mark is
    not ahead of them.
    """
    try:
        return decode_mark(disk.read(FLUSHED, 0, MARK_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("cannot read %s: %s. The end of the newest journal file is not checked.", FLUSHED, error)
        return None


class FlushMarkFile:
    """The file while a server writes it. A failure is logged once and has no other effect: the old mark stays true."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory_digest(directory)
        self._file: SectorFile | None = None
        self._failed = False

    def write(self, index: int, size: int, left_size: int) -> None:
        try:
            if self._file is None:
                self._file = self._disk.sector_file(FLUSHED)
            self._file.write(encode_mark(FlushMark(self._directory, index, size, left_size)))
        except OSError as error:
            self.close()  # the next write opens it again
            if not self._failed:
                self._failed = True
                log.warning(
                    "cannot write %s: %s. Writes continue. If the process is killed and the newest journal file is cut"
                    " off, the next start may not notice.",
                    FLUSHED,
                    error,
                )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


DIRECTORY = "journal"
#: Of the 1,024 that Linux takes in one call.
MAX_PIECES = 512


def journal_path(index: int) -> str:
    return f"{DIRECTORY}/{index:08d}.journal"


def journal_index(name: str) -> int | None:
    """The number of a journal file by its name; None for any other file."""
    return number_in("journal", name)


class Journal:
    """The file that is written now, and those before it that are not sealed yet.

    Not thread-safe: the engine's lock is held around everything but ``sync``.
    """

    def __init__(self, disk: Disk, index: int, mark: FlushMarkFile | None = None) -> None:
        self._disk = disk
        self._mark = mark
        self._next: _File | None = None
        self._file = _File(disk, index)
        self._disk.sync_directory(DIRECTORY)
        self.index = index
        #: Bytes handed to the system since the journal was opened, and how many of them are known to be durable.
        self.written = 0
        self.flushed = 0
        #: Why nothing can be written any more. Never cleared.
        self.failure: JournalFailed | None = None
        self._failing = Lock()
        self.frames = 0
        #: Bytes of records that the journal refers to instead of having them once more, since it was opened.
        self.copied = 0
        self.rotations = 0
        #: The final size of the file before this one.
        self.left_size = 0

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, frame: Encoded) -> None:
        """Hand one frame to the system. When it raises, the journal is as it was before."""
        if self.failure is not None:
            raise self.failure.again()
        file = self._file
        try:
            file.handle.write(frame.seal(file.seed, file.size))
        except OSError as error:
            self._undo(error)
            raise DiskFull(file.path, frame.length) from error
        file.size += frame.length
        self.written += frame.length
        self.frames += 1

    def write_all(self, frames: list[Encoded]) -> None:
        """Hand several frames to the system as one write: all of them count, or none. As ``write`` otherwise."""
        if self.failure is not None:
            raise self.failure.again()
        file = self._file
        size, parts = file.size, []
        for frame in group(frames):
            parts += frame.seal(file.seed, size)
            size += frame.length
        try:
            # The system takes a limited number of pieces at once.
            file.handle.write(parts if len(parts) <= MAX_PIECES else [b"".join(parts)])
        except OSError as error:
            self._undo(error)
            raise DiskFull(file.path, size - file.size) from error
        self.written += size - file.size
        file.size = size
        self.frames += len(frames)

    def _undo(self, error: OSError) -> None:
        """Cut a half-written frame off again. A full disk may get better; anything else ends the journal."""
        file = self._file
        try:
            file.handle.truncate(file.size)
        except OSError as second:
            self.fail(second)
        if error.errno not in NO_SPACE:
            self.fail(error)
        if self.failure is not None:
            raise self.failure.again()

    def fail(self, error: Exception) -> JournalFailed:
        """Take nothing more, for as long as the journal is open; returns the reason."""
        with self._failing:
            if self.failure is None:
                self.failure = JournalFailed(self._file.path, error)
                log.error(
                    "the journal %s failed: %s. The server is read-only now: it refuses every write and still answers "
                    "reads. Check the disk and the data directory, then restart the server.",
                    self._file.path,
                    self.failure.reason,
                    exc_info=None if isinstance(error, OSError) else error,
                )
            return self.failure

    def check_in_place(self) -> None:
        """Fail if the file that is written is no longer in the data directory.

        No flush and no rotation may be under way: a file that has been sealed is removed.
        """
        if self.failure is not None:
            raise self.failure.again()
        try:
            self._file.handle.check_in_place()
        except FileNotFoundError as error:
            raise self.fail(error).again() from error

    def sync(self) -> None:
        """Make everything written so far durable. A failure is final: the kernel may have dropped the pages.

        Bytes in a file that nobody will find again are not durable, so this also looks whether the file is still there.
        """
        if self.failure is not None:
            raise self.failure.again()
        file = self._file
        try:
            file.handle.sync()
            file.handle.check_in_place()
        except Exception as error:
            raise self.fail(error).again() from error

    def mark_flushed(self, position: int) -> None:
        """Note that everything up to ``position`` is durable, so that the next start notices if it is cut off."""
        if self._mark is not None:
            self._mark.write(self.index, position - self._file.begin, self.left_size)

    def prepare(self) -> None:
        """Make the next file beforehand, so that ``rotate`` does not have to wait for the directory."""
        if self._next is None:
            file = _File(self._disk, self._file.index + 1)
            try:
                # Only a file that is sure to be found again may be written to.
                self._disk.sync_directory(DIRECTORY)
            except BaseException:
                file.handle.close()  # it is opened again by the next attempt
                raise
            self._next = file

    def rotate(self) -> int:
        """Go on in the next file; returns its index. The file so far has been synced by the caller."""
        assert self._next is not None
        self._file.handle.close()
        self.left_size = self._file.size
        self._file, self._next = self._next, None
        self._file.begin = self.written - FILE_HEADER.size
        self.rotations += 1
        self.index = self._file.index
        return self.index

    def close(self) -> None:
        self._file.handle.close()
        if self._next is not None:
            self._next.handle.close()
        if self._mark is not None:
            self._mark.close()


class _File:
    """A journal file that is open for writing."""

    def __init__(self, disk: Disk, index: int) -> None:
        self.index = index
        self.path = journal_path(index)
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.handle: AppendFile = disk.append_file(self.path)
        try:
            # A file that an earlier attempt left half made is begun again: nothing in it was ever acknowledged.
            self.handle.truncate(0)
            self.handle.write([file_header(FileKind.JOURNAL, index, self.seed, boot_mark(disk))])
            self.handle.sync()
        except BaseException:
            self.handle.close()
            raise
        self.size = FILE_HEADER.size
        #: Where the file begins among the bytes of ``Journal.written``.
        self.begin = -FILE_HEADER.size


def boot_mark(disk: Disk) -> bytes:
    """The disk's boot id in the 8 bytes that a file header has for it."""
    return xxhash.xxh3_64_digest(disk.boot_id().encode())


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal file as found on the disk. It is read in pieces: a file can be larger than the memory there is."""

    index: int
    path: str
    size: int
    seed: int
    boot: bytes
    reader: FrameReader

    def frames(self) -> Iterator[Frame | FrameDamage]:
        return self.reader.frames()


def journal_indexes(disk: Disk) -> list[int]:
    return sorted(index for name in disk.list(DIRECTORY) if (index := journal_index(name)) is not None)


def read_journal(disk: Disk, index: int) -> JournalFile:
    path = journal_path(index)
    size = disk.size(path)
    header = disk.read(path, 0, FILE_HEADER.size)
    found, seed = read_file_header(path, header, FileKind.JOURNAL)
    if found != index:
        raise DamagedFile(path, f"its header says that it is file {found}")
    reader = FrameReader(partial(disk.read, path), size, seed)
    return JournalFile(index, path, size, seed, read_boot(header), reader)
