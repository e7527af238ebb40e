"""The interface to the file system. The engine reads and writes all local files through a :class:`Disk`.

:class:`LocalDisk` is the real one. ``testing/fault_disk.py`` implements the same interface and loses unsynced bytes,
tears writes and fails the N-th call. Paths are relative to the data directory, with ``/`` between parts.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from strandline.engine.errors import DirectoryInUse, NoSpaceToStart
from strandline.engine.process import SpareDescriptors

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Linux reads slightly less than 2 GiB in one call.
MAX_READ = 1 << 30
#: Large files are read in pieces of this size.
PIECE_BYTES = 8 << 20

#: The errors of a full disk and of an exhausted disk quota.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
#: A start writes the lock file, a new journal file and, in a new directory, the manifest. These need a few blocks of
#: the file system; this bound leaves room to spare. The last journal file is rewritten in place if there is no room for
#: a copy.
START_BYTES = 64 << 10
#: The reason for refusing writes when a file is no longer at the path where it was created.
REMOVED = "the data directory was removed or replaced while it was in use"


class AppendFile(Protocol):
    """A file that only grows. ``write`` hands bytes to the operating system; ``sync`` makes them survive a power
    cut."""

    def write(self, parts: Sequence[bytes]) -> None:
        """Append all parts, or raise OSError. After an error, any prefix of the parts may have been written."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def check_in_place(self) -> None:
        """Raise FileNotFoundError if the path no longer leads to this file: the file or a parent directory was removed
        or replaced."""
        ...

    def close(self) -> None: ...


class SectorFile(Protocol):
    """A file with one record, shorter than a sector, that is overwritten in place and never synced. After a power cut
    it holds the last record, an earlier one, or a mixture of two."""

    def write(self, record: bytes) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    def append_file(self, path: str) -> AppendFile:
        """Open ``path`` for appending. Creates the file if it does not exist."""
        ...

    def sector_file(self, path: str) -> SectorFile:
        """Open ``path`` for overwriting its one record. Creates the file if it does not exist."""
        ...

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes: ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted. Empty if the directory does not exist."""
        ...

    def write_file(self, path: str, data: bytes | Iterable[bytes]) -> None:
        """Write a whole file atomically, from bytes or pieces: temporary file, sync, rename, sync of the directory."""
        ...

    def rewrite(self, path: str, size: int) -> None:
        """Rewrite the first ``size`` bytes of a file in place, truncate the rest, and sync.

        After a failed sync, the system treats the affected pages as clean; rewriting them makes them dirty again. Needs
        no space. After a power cut the bytes are the same, or those that were on the disk before.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file. Does nothing if the file does not exist."""
        ...

    def move(self, path: str, target: str) -> None:
        """Rename a file durably, without reading it. Replaces a file of the target name."""
        ...

    def make_directory(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def local_path(self, path: str) -> str:
        """Return the path under which this machine can memory-map the file."""
        ...

    def boot_id(self) -> str:
        """Return an id that changes whenever unsynced writes may have been lost, that is, with every boot of the
        machine."""
        ...

    def lock(self) -> None:
        """Lock the directory for this process, or raise DirectoryInUse."""
        ...

    def unlock(self) -> None: ...

    @property
    def had_data(self) -> bool:
        """Return whether the lock file says that the directory had data before. Known once the directory is locked."""
        ...

    def note_data(self) -> None:
        """Record in the lock file that the directory has data, so that the loss of all other files is noticed."""
        ...


#: A line of the lock file, written once the directory has a manifest.
HAD_DATA = b"this directory has data\n"


class OpenPath:
    """The path of an open file, and the file's identity when it was opened.

    While a file is open, the system does not reuse its inode. One stat of the path therefore shows whether the path
    still leads to the file. The file or a parent directory may have been removed, renamed, replaced or mounted over.
    """

    __slots__ = ("_identity", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = str(path)
        opened = os.fstat(fd)
        self._identity = (opened.st_dev, opened.st_ino)

    def check(self) -> None:
        """Raise FileNotFoundError if the path does not lead to the opened file."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(errno.ENOENT, REMOVED, self._path) from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise FileNotFoundError(errno.ENOENT, REMOVED, self._path)


class LocalAppendFile:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._place = OpenPath(path, self._fd)

    def write(self, parts: Sequence[bytes]) -> None:
        expected = sum(map(len, parts))
        written = os.writev(self._fd, parts)
        if written != expected:
            self._write_rest(b"".join(parts)[written:])

    def _write_rest(self, rest: bytes) -> None:
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def check_in_place(self) -> None:
        self._place.check()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LocalSectorFile:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, record: bytes) -> None:
        if os.pwrite(self._fd, record, 0) != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LocalDisk:
    LOCK_FILE = "LOCK"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._lock_fd = -1
        self._had_data = False
        #: Held while this process has the directory open.
        self.spare = SpareDescriptors()

    def __repr__(self) -> str:
        return f"LocalDisk({str(self.root)!r})"

    def append_file(self, path: str) -> AppendFile:
        return self.spare.use(lambda: LocalAppendFile(self.root / path))

    def sector_file(self, path: str) -> SectorFile:
        return self.spare.use(lambda: LocalSectorFile(self.root / path))

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        fd = self.spare.use(lambda: os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC))
        try:
            left = max(os.fstat(fd).st_size - offset, 0) if size < 0 else size
            # One call usually reads everything; joining pieces would need the memory twice.
            piece = raw = os.pread(fd, min(left, MAX_READ), offset)
            while piece and len(raw) < left:
                piece = os.pread(fd, min(left - len(raw), MAX_READ), offset + len(raw))
                raw += piece
            return raw
        finally:
            os.close(fd)

    def size(self, path: str) -> int:
        return (self.root / path).stat().st_size

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def list(self, directory: str) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(self.spare.use(lambda: os.listdir(self.root / directory)))
        return []

    def write_file(self, path: str, data: bytes | Iterable[bytes]) -> None:
        temporary = f"{path}.tmp"
        try:
            with self.spare.use(lambda: open(self.root / temporary, "wb", buffering=0)) as file:
                for piece in (data,) if isinstance(data, bytes) else data:
                    view = memoryview(piece)
                    while view:
                        view = view[file.write(view) :]
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                self.remove(temporary)
            raise
        os.rename(self.root / temporary, self.root / path)
        self.sync_directory(os.path.dirname(path))

    def rewrite(self, path: str, size: int) -> None:
        with self.spare.use(lambda: open(self.root / path, "r+b", buffering=0)) as file:
            at = 0
            while at < size:
                piece = os.pread(file.fileno(), min(PIECE_BYTES, size - at), at)
                if not piece:
                    break
                at += os.pwrite(file.fileno(), piece, at)
            file.truncate(size)
            os.fsync(file.fileno())

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def move(self, path: str, target: str) -> None:
        os.rename(self.root / path, self.root / target)
        # Sync the new name first: a power cut in between may leave both names, but never neither.
        self.sync_directory(os.path.dirname(target))
        if os.path.dirname(path) != os.path.dirname(target):
            self.sync_directory(os.path.dirname(path))

    def make_directory(self, path: str) -> None:
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        fd = self.spare.use(lambda: os.open(self.root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def local_path(self, path: str) -> str:
        return str(self.root / path)

    def boot_id(self) -> str:
        with suppress(OSError):
            return BOOT_ID.read_text().strip()
        # Without a boot id, assume the worst after every unclean shutdown.
        return os.urandom(16).hex()

    def lock(self) -> None:
        fd = os.open(self.root / self.LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 200, 0).partition(b"\n")[0].decode("utf-8", "replace") or "another process"
            os.close(fd)
            raise DirectoryInUse(str(self.root), holder) from None
        self._lock_fd = fd
        self.spare.fill()
        self._had_data = HAD_DATA in os.pread(fd, 200, 0)
        self._write_lock()

    @property
    def had_data(self) -> bool:
        return self._had_data

    def note_data(self) -> None:
        if not self._had_data:
            self._had_data = True
            self._write_lock()

    def _write_lock(self) -> None:
        with suppress(OSError):  # only for error messages of the next process; the disk may be full
            text = f"process {os.getpid()}\n".encode() + (HAD_DATA if self._had_data else b"")
            os.pwrite(self._lock_fd, text, 0)
            os.ftruncate(self._lock_fd, len(text))

    def unlock(self) -> None:
        self.spare.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def pieces_of(disk: Disk, path: str, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file from ``start`` to before ``end``, in pieces."""
    for at in range(start, end, PIECE_BYTES):
        yield disk.read(path, at, min(PIECE_BYTES, end - at))


@contextmanager
def room_to_start(directory: str) -> Iterator[None]:
    """Raise NoSpaceToStart if a start in this directory fails because the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        free_bytes, free_files = _free(directory)
        raise NoSpaceToStart(directory, START_BYTES, free_bytes, free_files, error) from error


def _free(directory: str) -> tuple[int, int]:
    """Return the free bytes and the number of free files of the file system."""
    try:
        found = os.statvfs(directory if os.path.isdir(directory) else os.path.dirname(os.path.abspath(directory)))
    except OSError:
        return 0, 0
    return found.f_bavail * found.f_frsize, found.f_favail
