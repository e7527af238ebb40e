"""A disk that fails on purpose: the test double behind the file-system seam.

:class:`FaultDisk` keeps real files in a real directory (what a running process sees, and can memory-map)
and, in memory, what of it is *durable*: what would still be there after a power cut. The rules are as
strict as POSIX allows:

- appended bytes and truncations are pending until that file is synced;
- an entry that was created, renamed, removed or made is pending until its directory is synced, and syncing
  the file does not help it. A removed file may come back; a directory that is lost takes its files along;
- after a failed sync the bytes it was to write count as written: the next sync succeeds and leaves zeroes.

What reaches the directory around the disk is not durable. No call ever flushes for real.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import RLock
from typing import Literal, NamedTuple

from strandline.engine.disk import AppendFile, LocalDisk
from strandline.engine.errors import DirectoryInUse

#: What a device writes in one piece; unsynced bytes survive or vanish by the sector.
SECTOR = 512

#: The mutating calls. ``write_file`` consists of create, write, sync, rename and sync_directory.
Kind = Literal["create", "write", "truncate", "sync", "rename", "remove", "make_directory", "sync_directory"]

#: What a directory holds: the content of each file, None for a directory.
Snapshot = dict[str, bytes | None]


class Crashed(BaseException):
    """The simulated process is dead. Not an Exception, so that no handler in the engine swallows it."""


class Call(NamedTuple):
    name: Kind
    path: str


class _Failure(NamedTuple):
    first: int
    last: float
    error: int
    kind: Kind | None
    short: bool


class _Change(NamedTuple):
    """An unsynced change of a file: ``data`` appended, or when there is none, a truncation to ``size``."""

    data: bytes | None
    size: int = 0
    #: A sync of these bytes failed: they may be on the disk, but no later sync puts them there.
    given_up: bool = False


@dataclass(slots=True, eq=False)
class _Inode:
    """A file or directory apart from its name: what is durable of it, and the changes since, in order."""

    directory: bool = False
    durable: bytearray = field(default_factory=bytearray)
    changes: list[_Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.changes:
            written = bytes(len(change.data)) if change.given_up and change.data else change.data
            _apply(self.durable, change._replace(data=written))
        self.changes.clear()

    def fail_sync(self) -> None:
        self.changes = [change._replace(given_up=change.data is not None) for change in self.changes]

    def damage(self, offset: int, data: bytes) -> None:
        _overlay(self.durable, offset, data)
        position = len(self.durable)
        for index, change in enumerate(self.changes):
            if change.data is None:
                position = change.size
                continue
            patched = bytearray(change.data)
            _overlay(patched, offset - position, data)
            self.changes[index] = change._replace(data=bytes(patched))
            position += len(patched)

    def after_power_cut(self, random: Random | None) -> bytes:
        if random is None or not self.changes:
            return bytes(self.durable)
        # Truncations reach the disk in order, so those that did are a prefix of them; what was written
        # behind one that did not cannot be there either.
        truncations = [index for index, change in enumerate(self.changes) if change.data is None]
        content, stable = bytearray(self.durable), len(self.durable)
        for change in self.changes[: random.choice([*truncations, len(self.changes)])]:
            _apply(content, change)
            if change.data is None:
                stable = min(stable, change.size)
        return bytes(content[:stable]) + _survivors(random, stable, bytes(content[stable:]))


def _apply(content: bytearray, change: _Change) -> None:
    if change.data is not None:
        content += change.data
    elif change.size < len(content):
        del content[change.size :]
    else:
        content += bytes(change.size - len(content))


def _overlay(target: bytearray, offset: int, data: bytes) -> None:
    start, stop = max(offset, 0), min(offset + len(data), len(target))
    if start < stop:
        target[start:stop] = data[start - offset : stop - offset]


def _survivors(random: Random, offset: int, pending: bytes) -> bytes:
    """What a power cut leaves of unsynced bytes that lie at ``offset``."""
    cut = random.randint(0, len(pending))
    torn = random.randint(0, len(pending) - cut)
    match random.choice(["none", "all", "prefix", "garbage", "zeroes", "holes"]):
        case "none":
            return b""
        case "all":
            return pending
        case "prefix":
            return pending[:cut]
        case "garbage":
            return pending[:cut] + random.randbytes(torn)
        case "zeroes":
            return pending[:cut] + bytes(torn)
    survivors = bytearray(len(pending))
    for start in range(-(offset % SECTOR), len(pending), SECTOR):
        sector = slice(max(start, 0), start + SECTOR)
        if random.random() < 0.5:
            survivors[sector] = pending[sector]
    return bytes(survivors)


class _EntryChange(NamedTuple):
    """An unsynced change of one directory, atomic: the paths that now name an inode, or nothing."""

    directory: str
    entries: dict[str, _Inode | None]


class _Tree:
    """The directory as it is, as it is durably, and the changes in between, in order."""

    def __init__(self, snapshot: Snapshot, boot_id: str) -> None:
        self.durable = {
            path: _Inode(directory=True) if content is None else _Inode(durable=bytearray(content))
            for path, content in snapshot.items()
        }
        self.current = dict(self.durable)
        self.changes: list[_EntryChange] = []
        self.boot_id = boot_id

    def change(self, entries: dict[str, _Inode | None]) -> None:
        _name(self.current, entries)
        self.changes.append(_EntryChange(os.path.dirname(next(iter(entries))), entries))

    def sync(self, directory: str) -> None:
        for change in self.changes:
            if change.directory == directory:
                _name(self.durable, change.entries)
        self.changes = [change for change in self.changes if change.directory != directory]

    def after_power_cut(self, random: Random | None) -> Snapshot:
        inodes = dict(self.durable)
        for change in self.changes:
            if random is not None and random.random() < 0.5:
                _name(inodes, change.entries)
        snapshot: Snapshot = {}
        for path in sorted(inodes):
            directory = os.path.dirname(path)
            if not directory or directory in snapshot:
                inode = inodes[path]
                snapshot[path] = None if inode.directory else inode.after_power_cut(random)
        return snapshot


def _name(tree: dict[str, _Inode], entries: dict[str, _Inode | None]) -> None:
    for path, inode in entries.items():
        if inode is None:
            tree.pop(path, None)
        else:
            tree[path] = inode


class FaultAppendFile:
    """An open file of a :class:`FaultDisk`. Closing it is no disk call and works on a dead disk too."""

    def __init__(self, disk: FaultDisk, path: str, inode: _Inode, fd: int) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._fd = fd

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
            self._inode.changes.append(_Change(data))

    def truncate(self, size: int) -> None:
        def carry_out() -> None:
            os.ftruncate(self._fd, size)
            self._inode.changes.append(_Change(None, size))

        self._disk._call("truncate", self._path, carry_out)

    def sync(self) -> None:
        def carry_out() -> None:
            os.fstat(self._fd)  # raises when the file is closed, as a real sync does
            if not self._disk._lying:
                self._inode.sync()

        self._disk._call("sync", self._path, carry_out, lambda failure: self._inode.fail_sync())

    def close(self) -> None:
        with self._disk._guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._disk._files.discard(self)


#: Who has which directory. A disk that dies lets go of it, as a process does.
_locks: dict[str, FaultDisk] = {}


class FaultDisk:
    """A :class:`~strandline.engine.disk.Disk` that counts, fails, lies and loses what was not synced.

    What the directory holds at first is durable. The mutating calls are numbered from 1, failed ones too:
    ``calls`` tells how many there were, ``log`` which. Every callable in ``monitor`` gets the name and path
    of each one that succeeded, and may raise. A disk can be used by several threads.
    """

    def __init__(self, root: str | os.PathLike[str], *, _tree: _Tree | None = None) -> None:
        self.root = Path(root)
        self.log: list[Call] = []
        self.monitor: list[Callable[[Kind, str], None]] = []
        self._local = LocalDisk(root)
        self._tree = _tree or _Tree(_scan(self.root), str(uuid.uuid4()))
        self._guard = RLock()
        self._files: set[FaultAppendFile] = set()
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
        """Die once the n-th call has been carried out: whatever comes after it raises :class:`Crashed`."""
        with self._guard:
            self._last_call = n
            self._die_if_due()

    def fail_at(self, n: int, error: int, *, kind: Kind | None = None, short: bool = False) -> None:
        """Raise OSError(error) instead of the n-th call, or the n-th of a kind.

        It changes nothing, except that with ``short`` a write has put half of its bytes in place, and that a
        failed sync gives up the bytes it was to write.
        """
        self._failures.append(_Failure(n, n, error, kind, short))

    def fail_from(self, n: int, error: int, *, kind: Kind | None = None, short: bool = False) -> None:
        """As :meth:`fail_at`, for the n-th call and every one after it, until :meth:`heal`."""
        self._failures.append(_Failure(n, float("inf"), error, kind, short))

    def fail_read(self, path_substring: str, error: int) -> None:
        """Raise OSError(error) from ``read``, ``list`` and ``local_path`` of such paths, until :meth:`heal`.

        ``size`` and ``exists`` go on working, as they do on a disk with bad sectors.
        """
        self._read_failures.append((path_substring, error))

    def heal(self) -> None:
        """End all failures, those of reads included."""
        self._failures.clear()
        self._read_failures.clear()

    def lie(self, lying: bool = True) -> None:
        """Let syncs of files and directories succeed while everything stays pending, until ``lie(False)``."""
        self._lying = lying

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes inside a file, what is durable of it included: bit rot. Not a counted call."""
        with self._guard:
            self._check_alive()
            if offset < 0 or offset + len(data) > self._local.size(path):
                raise ValueError(f"{path} has no bytes {offset} to {offset + len(data)}")
            with open(self.root / path, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), data, offset)
            if inode := self._tree.current.get(_key(path)):
                inode.damage(offset, data)

    def power_cut(self, seed: int | None = None) -> FaultDisk:
        """Cut the power: this disk is dead, the new one shows the directory as the next boot finds it.

        Without a seed exactly what is durable is there. With one, anything pending may be: of a file's bytes
        all, none, a prefix, a prefix that ends in garbage or zeroes, or some sectors and zeroes between them;
        of the changes of directories any. What is durable is never damaged. The same cut can be made again
        with another seed: the disk it gave before is then dead as well.
        """
        with self._guard:
            self._die()
            snapshot = self._tree.after_power_cut(None if seed is None else Random(seed))
            _restore(self.root, snapshot)
            self._successor = FaultDisk(self.root, _tree=_Tree(snapshot, str(uuid.uuid4())))
            return self._successor

    def process_kill(self) -> FaultDisk:
        """Kill the process: this disk is dead, the new one has all that was written, pending as it was."""
        with self._guard:
            if self._successor is not None:
                raise Crashed
            self._die()
            self._successor = FaultDisk(self.root, _tree=self._tree)
            return self._successor

    # The disk

    def append_file(self, path: str) -> AppendFile:
        def open_file() -> None:
            fd = os.open(self.root / path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            file = FaultAppendFile(self, path, self._inode(_key(path)), fd)
            self._files.add(file)
            opened.append(file)

        opened: list[FaultAppendFile] = []
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

    def write_file(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        try:
            self._write_temporary(temporary, data)
        except OSError:
            with suppress(OSError):
                self.remove(temporary)
            raise
        self._call("rename", path, lambda: self._rename(temporary, path))
        self.sync_directory(os.path.dirname(path))

    def _write_temporary(self, path: str, data: bytes) -> None:
        def create() -> None:
            left_over = self._tree.current.get(_key(path))
            open(self.root / path, "wb").close()
            if left_over is None:
                self._inode(_key(path))
            else:
                left_over.changes.append(_Change(None, 0))

        self._call("create", path, create)
        file = self.append_file(path)
        try:
            file.write([data])
            file.sync()
        finally:
            file.close()

    def _rename(self, source: str, target: str) -> None:
        os.rename(self.root / source, self.root / target)
        inode = self._tree.current[_key(source)]
        self._tree.change({_key(source): None, _key(target): inode})

    def remove(self, path: str) -> None:
        def carry_out() -> None:
            self._local.remove(path)
            if _key(path) in self._tree.current:
                self._tree.change({_key(path): None})

        self._call("remove", path, carry_out)

    def move(self, path: str, target: str) -> None:
        def carry_out() -> None:
            self._inode(_key(path))
            self._rename(path, target)

        self._call("rename", target, carry_out)
        self.sync_directory(os.path.dirname(target))
        if os.path.dirname(path) != os.path.dirname(target):
            self.sync_directory(os.path.dirname(path))

    def make_directory(self, path: str) -> None:
        def carry_out() -> None:
            self._local.make_directory(path)
            parts = _key(path).split("/")
            for depth in range(1, len(parts) + 1):
                made = "/".join(parts[:depth])
                if made and made not in self._tree.current:
                    self._tree.change({made: _Inode(directory=True)})

        self._call("make_directory", path, carry_out)

    def sync_directory(self, path: str) -> None:
        def carry_out() -> None:
            os.close(os.open(self.root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            if not self._lying:
                self._tree.sync(_key(path))

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
        """Let go of the directory; on a dead disk, which has let go already, it does nothing."""
        with self._guard:
            if self._locked:
                del _locks[os.path.realpath(self.root)]
                self._locked = False

    # How a call goes

    def _call(
        self,
        kind: Kind,
        path: str,
        carry_out: Callable[[], None],
        fail: Callable[[_Failure], None] = lambda failure: None,
    ) -> None:
        with self._guard:
            self._check_alive()
            self.log.append(Call(kind, path))
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

    def _inode(self, key: str) -> _Inode:
        """The file of this path, which has just been opened. What the tree does not know of it is pending."""
        if key not in self._tree.current:
            self._tree.change({key: _Inode(changes=[_Change(self._local.read(key))])})
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


def _key(path: str) -> str:
    key = os.path.normpath(path)
    return "" if key == "." else key


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _scan(root: Path) -> Snapshot:
    snapshot: Snapshot = {}
    for directory, directories, files in os.walk(root):
        prefix = _key(os.path.relpath(directory, root))
        for name in directories:
            snapshot[os.path.join(prefix, name)] = None
        for name in files:
            snapshot[os.path.join(prefix, name)] = Path(directory, name).read_bytes()
    return snapshot


def _restore(root: Path, snapshot: Snapshot) -> None:
    """Make the directory hold exactly this.

    A file that changes is replaced, never cut: somebody may still have the old one memory-mapped.
    """
    present = _scan(root)
    for path in sorted(present, reverse=True):
        if path in snapshot and present[path] == snapshot[path]:
            continue
        if present[path] is None:
            os.rmdir(root / path)
        else:
            os.unlink(root / path)
        del present[path]
    for path in sorted(snapshot.keys() - present.keys()):
        content = snapshot[path]
        if content is None:
            os.mkdir(root / path)
        else:
            (root / path).write_bytes(content)
