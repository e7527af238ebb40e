"""The journal: numbered files of frames, written in order and made durable by a shared flush.

The appending thread hands each frame to the operating system immediately. This takes a microsecond, errors are raised
in the append that caused them, and acknowledged records survive a killed process. Only the flush is shared: one
``fdatasync`` covers every waiting writer.

The file ``FLUSHED`` holds the flush mark: the position up to which the journal is known to be on the disk. It is
overwritten after every flush and never synced. The journal was durable up to the mark before the mark was written, so a
mark never claims too much, whatever part of it survives a power cut. After a killed process it is exact. A missing,
torn or unreadable mark is ignored.
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
from strandline.engine.errors import DamagedFile, DiskFull, JournalFailed, Superseded
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
    """The position up to which the journal was durable when the mark was written."""

    #: The data directory of the mark, as :func:`directory_digest`.
    directory: int
    #: The number of the journal file, and how many of its bytes were durable.
    number: int
    size: int
    #: The final size of the previous file, or 0 if it was in the manifest before this file was begun.
    left_size: int

    def sizes(self, directory: str) -> dict[int, int]:
        """Return the minimum sizes of journal files by number. Empty if the mark belongs to another directory."""
        if self.directory != directory_digest(directory):
            return {}
        return {self.number: self.size} | ({self.number - 1: self.left_size} if self.left_size else {})


def directory_digest(directory: str) -> int:
    """Return the id of a data directory as 8 bytes."""
    return _digest(directory.encode())


def encode_mark(mark: FlushMark) -> bytes:
    fields = _FIELDS.pack(MARK_MAGIC, MARK_VERSION, *mark)
    return fields + _CHECKSUM.pack(_digest(fields))


def decode_mark(raw: bytes) -> FlushMark | None:
    """Decode the contents of the file. Returns None if the mark is incomplete or of an unknown version."""
    if len(raw) < MARK_BYTES or _CHECKSUM.unpack_from(raw, _FIELDS.size)[0] != _digest(raw[: _FIELDS.size]):
        return None
    magic, version, directory, index, size, left_size = _FIELDS.unpack_from(raw)
    return FlushMark(directory, index, size, left_size) if (magic, version) == (MARK_MAGIC, MARK_VERSION) else None


def read_mark(disk: Disk) -> FlushMark | None:
    """Return the mark of a data directory, or None.

    While a server writes, read the mark before the size of any journal file. Files only grow, so the mark is then never
    ahead of them.
    """
    try:
        return decode_mark(disk.read(FLUSHED, 0, MARK_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("cannot read %s: %s. The end of the newest journal file is not checked.", FLUSHED, error)
        return None


class FlushMarkFile:
    """The mark file of a running server. A failure is logged once and has no other effect: the old mark stays true."""

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
#: Linux accepts up to 1,024 pieces in one call.
MAX_PIECES = 512


def journal_path(index: int) -> str:
    return f"{DIRECTORY}/{index:08d}.journal"


def journal_index(name: str) -> int | None:
    """Return the number in the name of a journal file, or None for any other file."""
    return number_in("journal", name)


class JournalPlace(NamedTuple):
    """A journal file, and where it starts as a position in ``Journal.written``."""

    number: int
    begin: int


class Journal:
    """The current journal file, and the files before it that are not sealed yet.

    Not thread-safe: hold the engine's lock around everything except ``sync``.
    """

    def __init__(self, disk: Disk, index: int, mark: FlushMarkFile | None = None) -> None:
        self._disk = disk
        self._mark = mark
        self._next: _File | None = None
        self._file = _File(disk, index)
        self._disk.sync_directory(DIRECTORY)
        self.index = index
        #: Bytes handed to the operating system since the journal was opened, and how many of them are known to be
        #: durable.
        self.written = 0
        self.flushed = 0
        #: Why the journal accepts no more writes. Never cleared.
        self.failure: JournalFailed | None = None
        self._failing = Lock()
        self.frames = 0
        #: Bytes of records that the journal refers to instead of containing them again, since it was opened.
        self.copied = 0
        self.rotations = 0
        #: The final size of the previous file.
        self.left_size = 0
        #: The files since the journal was opened, for a replica, which removes those that it has shipped.
        self.places: list[JournalPlace] | None = None

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def place(self) -> JournalPlace:
        return JournalPlace(self._file.index, self._file.begin)

    def write(self, frame: Encoded) -> None:
        """Write one frame. If this raises, the journal is unchanged."""
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
        """Write several frames as one write: after a crash, all of them count or none. Otherwise like ``write``."""
        if self.failure is not None:
            raise self.failure.again()
        file = self._file
        size, parts = file.size, []
        for frame in group(frames):
            parts += frame.seal(file.seed, size)
            size += frame.length
        try:
            # The operating system accepts a limited number of pieces per call.
            file.handle.write(parts if len(parts) <= MAX_PIECES else [b"".join(parts)])
        except OSError as error:
            self._undo(error)
            raise DiskFull(file.path, size - file.size) from error
        self.written += size - file.size
        file.size = size
        self.frames += len(frames)

    def _undo(self, error: OSError) -> None:
        """Truncate a partly written frame. The journal survives a full disk; any other error ends it."""
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
        """Refuse all further writes until the journal is opened again. Return the reason."""
        with self._failing:
            if self.failure is None:
                self.failure = JournalFailed(self._file.path, error)
                if isinstance(error, Superseded):
                    log.error(
                        "%s. To use this machine again, move the data directory away and start with --standby.",
                        self.failure,
                    )
                    return self.failure
                log.error(
                    "the journal %s failed: %s. The server is read-only now: it refuses every write and still answers "
                    "reads. Check the disk and the data directory, then restart the server.",
                    self._file.path,
                    self.failure.reason,
                    exc_info=None if isinstance(error, OSError) else error,
                )
            return self.failure

    def check_in_place(self) -> None:
        """Fail if the current file is no longer in the data directory.

        Do not call this during a flush or a rotation: sealed files are removed.
        """
        if self.failure is not None:
            raise self.failure.again()
        try:
            self._file.handle.check_in_place()
        except FileNotFoundError as error:
            raise self.fail(error).again() from error

    def sync(self) -> None:
        """Make everything written so far durable. A failure is final, because the kernel may have dropped the pages.

        Bytes in a file that was removed or replaced are not durable, so this also checks that the file is still in
        place.
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
        """Record that everything up to ``position`` is durable, so that the next start notices a truncation."""
        if self._mark is not None:
            self._mark.write(self.index, position - self._file.begin, self.left_size)

    def prepare(self) -> None:
        """Create the next file in advance, so that ``rotate`` does not wait for the directory."""
        if self._next is None:
            file = _File(self._disk, self._file.index + 1)
            try:
                # Write only to a file whose directory entry is durable.
                self._disk.sync_directory(DIRECTORY)
            except BaseException:
                file.handle.close()  # the next attempt opens it again
                raise
            self._next = file

    def rotate(self) -> int:
        """Continue in the next file and return its index. The caller has synced the previous file."""
        assert self._next is not None
        self._file.handle.close()
        self.left_size = self._file.size
        self._file, self._next = self._next, None
        self._file.begin = self.written - FILE_HEADER.size
        if self.places is not None:
            self.places.append(self.place)
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
            # A file that an earlier attempt left incomplete is started again: nothing in it was acknowledged.
            self.handle.truncate(0)
            self.handle.write([file_header(FileKind.JOURNAL, index, self.seed, boot_mark(disk))])
            self.handle.sync()
        except BaseException:
            self.handle.close()
            raise
        self.size = FILE_HEADER.size
        #: The start of the file as a position in ``Journal.written``.
        self.begin = -FILE_HEADER.size


def boot_mark(disk: Disk) -> bytes:
    """Return the disk's boot id as the 8 bytes of a file header."""
    return xxhash.xxh3_64_digest(disk.boot_id().encode())


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal file on the disk. It is read in pieces, because it can be larger than the available memory."""

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
        raise DamagedFile(path, f"its header has the file number {found}")
    reader = FrameReader(partial(disk.read, path), size, seed)
    return JournalFile(index, path, size, seed, read_boot(header), reader)
