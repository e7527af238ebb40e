"""A disk that fails on purpose, for tests. It implements the engine's file-system interface.

:class:`FaultDisk` keeps real files in a real directory, which the process sees and can memory-map. In memory it tracks
which part of them is *durable*, that is, would survive a power cut. The rules are as strict as POSIX allows:

- appended bytes, truncations and overwritten records are pending until that file is synced;
- a created, renamed or removed directory entry is pending until its directory is synced, and syncing the file does
  not help. A removed file may come back; losing a directory loses its files;
- after a failed sync, its bytes count as written: the next sync succeeds and leaves zeroes.

The files in the real directory are not durable: no call flushes for real.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import RLock
from typing import Literal, NamedTuple, TypeVar

from strandline.engine.disk import AppendFile, LocalDisk, OpenPath, SectorFile
from strandline.engine.errors import DirectoryInUse
from strandline.engine.testing.fault_model import FileChange, Inode, Tree, key_of, restore_directory, scan_directory

#: The mutating calls. ``write_file`` consists of create, write, sync, rename and sync_directory.
Kind = Literal[
    "create", "write", "overwrite", "truncate", "sync", "rename", "remove", "make_directory", "sync_directory"
]


class Crashed(BaseException):
    """The simulated process is dead. Not an Exception, so that no handler in the engine swallows it."""


class DiskCall(NamedTuple):
    name: Kind
    path: str


class _Failure(NamedTuple):
    first: int
    last: float
    error: int
    kind: Kind | None
    short: bool


class FaultAppendFile:
    """An open file of a :class:`FaultDisk`. Closing it is not a disk call and also works on a dead disk."""

    def __init__(self, disk: FaultDisk, path: str, inode: Inode, fd: int) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._fd = fd
        self._place = OpenPath(disk.root / path, fd)

    def write(self, parts: Sequence[bytes]) -> None:
        data = b"".join(parts)
        half = data[: len(data) // 2]
        self._disk._call(
            "write",
            self._path,
            lambda: self._append(data),
            lambda failure: self._append(half if failure.short else b""),
        )

    def _append(self, data: bytes) -> None:
        if data:
            _write_all(self._fd, data)
            self._inode.changes.append(FileChange(data))

    def truncate(self, size: int) -> None:
        def carry_out() -> None:
            os.ftruncate(self._fd, size)
            self._inode.changes.append(FileChange(None, size))

        self._disk._call("truncate", self._path, carry_out)

    def sync(self) -> None:
        def carry_out() -> None:
            os.fstat(self._fd)  # raises if the file is closed, as a real sync does
            if not self._disk._lying:
                self._inode.sync()

        self._disk._call("sync", self._path, carry_out, lambda failure: self._inode.fail_sync())

    def check_in_place(self) -> None:
        self._disk._check_alive()
        self._place.check()

    def close(self) -> None:
        with self._disk._guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._disk._files.discard(self)


class FaultSectorFile:
    """An open file with one record. As with :class:`FaultAppendFile`, closing it is not a disk call."""

    def __init__(self, disk: FaultDisk, path: str, inode: Inode, fd: int) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._fd = fd

    def write(self, record: bytes) -> None:
        half = record[: len(record) // 2]
        self._disk._call(
            "overwrite",
            self._path,
            lambda: self._overwrite(record),
            lambda failure: self._overwrite(half if failure.short else b""),
        )

    def _overwrite(self, data: bytes) -> None:
        if data:
            os.pwrite(self._fd, data, 0)
            self._inode.changes.append(FileChange(data, overwrites=True))

    def close(self) -> None:
        with self._disk._guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._disk._files.discard(self)


_File = TypeVar("_File", FaultAppendFile, FaultSectorFile)

#: Which disk has locked which directory. A disk that dies releases its lock, as a process does.
_locks: dict[str, FaultDisk] = {}


class FaultDisk:
    """A :class:`~strandline.engine.disk.Disk` that counts calls, fails, lies and loses unsynced data.

    The initial contents of the directory are durable. The mutating calls are numbered from 1, including failed ones:
    ``calls`` is their number, ``log`` lists them. Every callable in ``monitor`` gets the name and path of each
    successful call, and may raise. Thread-safe.
    """

    def __init__(self, root: str | os.PathLike[str], *, _tree: Tree | None = None) -> None:
        self.root = Path(root)
        self.log: list[DiskCall] = []
        self.monitor: list[Callable[[Kind, str], None]] = []
        self._local = LocalDisk(root)
        self._tree = _tree or Tree(scan_directory(self.root), str(uuid.uuid4()))
        self._guard = RLock()
        self._files: set[FaultAppendFile | FaultSectorFile] = set()
        self._counts: Counter[Kind] = Counter()
        self._failures: list[_Failure] = []
        self._read_failures: list[tuple[str, int]] = []
        self._last_call = float("inf")
        self._lying = False
        self._dead = False
        self._locked = False
        self._successor: FaultDisk | None = None

    def __repr__(self) -> str:
        return f"FaultDisk({str(self.root)!r})"

    # Faults

    @property
    def calls(self) -> int:
        return len(self.log)

    def calls_of(self, kind: Kind) -> int:
        return self._counts[kind]

    def crash_after(self, n: int) -> None:
        """Die after the n-th call: every later call raises :class:`Crashed`."""
        with self._guard:
            self._last_call = n
            self._die_if_due()

    def fail_at(self, n: int, error: int, *, kind: Kind | None = None, short: bool = False) -> None:
        """Raise OSError(error) instead of the n-th call, or the n-th call of a kind.

        The failed call changes nothing, with two exceptions: with ``short``, a write stores half of its bytes, and a
        failed sync drops the bytes it should have written.
        """
        self._failures.append(_Failure(n, n, error, kind, short))

    def fail_from(self, n: int, error: int, *, kind: Kind | None = None, short: bool = False) -> None:
        """Like :meth:`fail_at`, for the n-th call and every later one, until :meth:`heal`."""
        self._failures.append(_Failure(n, float("inf"), error, kind, short))

    def fail_read(self, path_substring: str, error: int) -> None:
        """Raise OSError(error) from ``read``, ``list`` and ``local_path`` of matching paths, until :meth:`heal`.

        ``size`` and ``exists`` continue to work, as they do on a disk with bad sectors.
        """
        self._read_failures.append((path_substring, error))

    def heal(self) -> None:
        """End all failures, including those of reads."""
        self._failures.clear()
        self._read_failures.clear()

    def lie(self, lying: bool = True) -> None:
        """Make syncs of files and directories succeed while everything stays pending, until ``lie(False)``."""
        self._lying = lying

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes inside a file, including its durable part, to simulate bit rot. Not a counted call."""
        with self._guard:
            self._check_alive()
            if offset < 0 or offset + len(data) > self._local.size(path):
                raise ValueError(f"{path} has no bytes {offset} to {offset + len(data)}")
            with open(self.root / path, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), data, offset)
            if inode := self._tree.current.get(key_of(path)):
                inode.damage(offset, data)

    def power_cut(self, seed: int | None = None) -> FaultDisk:
        """Cut the power: this disk is dead, and the new one shows the directory as the next boot finds it.

        Without a seed, exactly the durable data exists. With a seed, any pending data may exist: all, none or a prefix
        of a file's bytes, a prefix that ends in garbage or zeroes, or some sectors with zeroes between them; and any of
        the changes to directories. Durable data is never damaged. The same cut can be repeated with another seed; the
        disk of the previous cut is then dead as well.
        """
        with self._guard:
            self._die()
            snapshot = self._tree.after_power_cut(None if seed is None else Random(seed))
            restore_directory(self.root, snapshot)
            self._successor = FaultDisk(self.root, _tree=Tree(snapshot, str(uuid.uuid4())))
            return self._successor

    def process_kill(self) -> FaultDisk:
        """Kill the process: this disk is dead, and the new one has everything that was written, with the same data
        pending."""
        with self._guard:
            if self._successor is not None:
                raise Crashed
            self._die()
            self._successor = FaultDisk(self.root, _tree=self._tree)
            return self._successor

    # The disk

    def append_file(self, path: str) -> AppendFile:
        return self._open(path, os.O_APPEND, FaultAppendFile)

    def sector_file(self, path: str) -> SectorFile:
        return self._open(path, 0, FaultSectorFile)

    def _open(self, path: str, flags: int, make: Callable[[FaultDisk, str, Inode, int], _File]) -> _File:
        def open_file() -> None:
            fd = os.open(self.root / path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o644)
            file = make(self, path, self._inode(key_of(path)), fd)
            self._files.add(file)
            opened.append(file)

        opened: list[_File] = []
        with self._guard:
            self._check_alive()
            if self._local.exists(path):
                open_file()
            else:
                self._call("create", path, open_file)
        return opened[0]

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        with self._guard:
            self._check_readable(path)
            return self._local.read(path, offset, size)

    def size(self, path: str) -> int:
        with self._guard:
            self._check_alive()
            return self._local.size(path)

    def exists(self, path: str) -> bool:
        with self._guard:
            self._check_alive()
            return self._local.exists(path)

    def list(self, directory: str) -> list[str]:
        with self._guard:
            self._check_readable(directory)
            return self._local.list(directory)

    def write_file(self, path: str, data: bytes | Iterable[bytes]) -> None:
        temporary = f"{path}.tmp"
        try:
            self._write_temporary(temporary, data if isinstance(data, bytes) else b"".join(data))
        except OSError:
            with suppress(OSError):
                self.remove(temporary)
            raise
        self._call("rename", path, lambda: self._rename(temporary, path))
        self.sync_directory(os.path.dirname(path))

    def _write_temporary(self, path: str, data: bytes) -> None:
        def create() -> None:
            left_over = self._tree.current.get(key_of(path))
            open(self.root / path, "wb").close()
            if left_over is None:
                self._inode(key_of(path))
            else:
                left_over.changes.append(FileChange(None, 0))

        self._call("create", path, create)
        file = self.append_file(path)
        try:
            file.write([data])
            file.sync()
        finally:
            file.close()

    def _rename(self, source: str, target: str) -> None:
        os.rename(self.root / source, self.root / target)
        inode = self._tree.current[key_of(source)]
        self._tree.change({key_of(source): None, key_of(target): inode})

    def rewrite(self, path: str, size: int) -> None:
        inode = self._inode(key_of(path))
        content = self._local.read(path, 0, size)
        self._call("write", path, lambda: inode.rewrite(content))
        file = self.append_file(path)
        try:
            file.truncate(size)
            file.sync()
        finally:
            file.close()

    def remove(self, path: str) -> None:
        def carry_out() -> None:
            self._local.remove(path)
            if key_of(path) in self._tree.current:
                self._tree.change({key_of(path): None})

        self._call("remove", path, carry_out)

    def move(self, path: str, target: str) -> None:
        def carry_out() -> None:
            self._inode(key_of(path))
            self._rename(path, target)

        self._call("rename", target, carry_out)
        self.sync_directory(os.path.dirname(target))
        if os.path.dirname(path) != os.path.dirname(target):
            self.sync_directory(os.path.dirname(path))

    def make_directory(self, path: str) -> None:
        def carry_out() -> None:
            self._local.make_directory(path)
            parts = key_of(path).split("/")
            for depth in range(1, len(parts) + 1):
                made = "/".join(parts[:depth])
                if made and made not in self._tree.current:
                    self._tree.change({made: Inode(directory=True)})

        self._call("make_directory", path, carry_out)

    def sync_directory(self, path: str) -> None:
        def carry_out() -> None:
            os.close(os.open(self.root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            if not self._lying:
                self._tree.sync(key_of(path))

        self._call("sync_directory", path, carry_out)

    def local_path(self, path: str) -> str:
        with self._guard:
            self._check_readable(path)
            return self._local.local_path(path)

    def boot_id(self) -> str:
        self._check_alive()
        return self._tree.boot_id

    def lock(self) -> None:
        with self._guard:
            self._check_alive()
            holder = _locks.setdefault(os.path.realpath(self.root), self)
            if holder is not self or self._locked:
                raise DirectoryInUse(str(self.root), repr(holder))
            self._locked = True

    def unlock(self) -> None:
        """Release the lock of the directory. Does nothing on a dead disk, which has released it already."""
        with self._guard:
            if self._locked:
                del _locks[os.path.realpath(self.root)]
                self._locked = False

    @property
    def had_data(self) -> bool:
        """Return False: the lock is not a file, so it records nothing."""
        return False

    def note_data(self) -> None:
        """Do nothing, see ``had_data``."""

    # How calls are made

    def _call(
        self,
        kind: Kind,
        path: str,
        carry_out: Callable[[], None],
        fail: Callable[[_Failure], None] = lambda failure: None,
    ) -> None:
        with self._guard:
            self._check_alive()
            self.log.append(DiskCall(kind, path))
            self._counts[kind] += 1
            try:
                if failure := self._failure_of(kind):
                    fail(failure)
                    raise OSError(failure.error, os.strerror(failure.error), path)
                carry_out()
                for watch in self.monitor:
                    watch(kind, path)
            finally:
                self._die_if_due()

    def _failure_of(self, kind: Kind) -> _Failure | None:
        for failure in self._failures:
            number = self.calls if failure.kind is None else self._counts[kind]
            if failure.kind in (None, kind) and failure.first <= number <= failure.last:
                return failure
        return None

    def _inode(self, key: str) -> Inode:
        """Return the file of this path, which has just been opened. Contents unknown to the tree are pending."""
        if key not in self._tree.current:
            self._tree.change({key: Inode(changes=[FileChange(self._local.read(key))])})
        return self._tree.current[key]

    def _check_alive(self) -> None:
        if self._dead:
            raise Crashed

    def _check_readable(self, path: str) -> None:
        self._check_alive()
        for substring, error in self._read_failures:
            if substring in path:
                raise OSError(error, os.strerror(error), path)

    def _die_if_due(self) -> None:
        if self.calls >= self._last_call:
            self._die()

    def _die(self) -> None:
        with self._guard:
            self._dead = True
            self.unlock()
            for file in list(self._files):
                file.close()
            if self._successor is not None:
                self._successor._die()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
