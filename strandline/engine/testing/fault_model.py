"""The model of ``FaultDisk``: what a directory contains after a power cut."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

#: A device writes a sector in one piece: unsynced bytes survive or vanish by the sector.
SECTOR = 512

#: The contents of a directory: the contents of each file, None for a directory.
Snapshot = dict[str, bytes | None]


class FileChange(NamedTuple):
    """An unsynced change of a file: ``data`` appended or, without ``data``, a truncation to ``size``."""

    data: bytes | None
    size: int = 0
    #: A sync of these bytes failed. They may be on the disk, but no later sync writes them.
    given_up: bool = False
    #: The data is not appended: it overwrites the start of the file.
    overwrites: bool = False


@dataclass(slots=True, eq=False)
class Inode:
    """A file or directory without its name: its durable contents, and the changes since, in order."""

    directory: bool = False
    durable: bytearray = field(default_factory=bytearray)
    changes: list[FileChange] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.changes:
            written = bytes(len(change.data)) if change.given_up and change.data else change.data
            _apply(self.durable, change._replace(data=written))
        self.changes.clear()

    def fail_sync(self) -> None:
        self.changes = [change._replace(given_up=change.data is not None) for change in self.changes]

    def rewrite(self, content: bytes) -> None:
        """Write the visible contents of the file again. The parts that are not durable become pending."""
        pairs = enumerate(zip(self.durable, content, strict=False))
        same = next((at for at, (old, new) in pairs if old != new), min(len(self.durable), len(content)))
        self.changes = [FileChange(None, same), FileChange(content[same:])]

    def damage(self, offset: int, data: bytes) -> None:
        _overlay(self.durable, offset, data)
        position = len(self.durable)
        for index, change in enumerate(self.changes):
            if change.data is None:
                position = change.size
                continue
            patched = bytearray(change.data)
            _overlay(patched, offset - (0 if change.overwrites else position), data)
            self.changes[index] = change._replace(data=bytes(patched))
            position = max(position, len(patched)) if change.overwrites else position + len(patched)

    def after_power_cut(self, random: Random | None) -> bytes:
        if random is None or not self.changes:
            return bytes(self.durable)
        if self.changes[-1].overwrites:
            return self._record_after_power_cut(random)
        # Truncations reach the disk in order, so those that did are a prefix of them. Data written after a missing
        # truncation cannot exist either.
        truncations = [index for index, change in enumerate(self.changes) if change.data is None]
        content, stable = bytearray(self.durable), len(self.durable)
        for change in self.changes[: random.choice([*truncations, len(self.changes)])]:
            _apply(content, change)
            if change.data is None:
                stable = min(stable, change.size)
        return bytes(content[:stable]) + _survivors(random, stable, bytes(content[stable:]))

    def _record_after_power_cut(self, random: Random) -> bytes:
        """Return the contents of a file with one record: one of its past records, or the start of one and the end of
        the previous one."""
        content = bytearray(self.durable)
        last = random.randrange(len(self.changes))
        for change in self.changes[:last]:
            _apply(content, change)
        torn = self.changes[last].data or b""
        _apply(content, self.changes[last]._replace(data=torn[: random.choice([0, len(torn), len(torn) // 2])]))
        return bytes(content)


def _apply(content: bytearray, change: FileChange) -> None:
    if change.data is not None and change.overwrites:
        content[: len(change.data)] = change.data
    elif change.data is not None:
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
    """Return the bytes that a power cut leaves of unsynced bytes at ``offset``."""
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


class EntryChange(NamedTuple):
    """An unsynced, atomic change of one directory: the paths that now name an inode, or nothing."""

    directory: str
    entries: dict[str, Inode | None]


class Tree:
    """The current directory, its durable state, and the changes between them, in order."""

    def __init__(self, snapshot: Snapshot, boot_id: str) -> None:
        self.durable = {
            path: Inode(directory=True) if content is None else Inode(durable=bytearray(content))
            for path, content in snapshot.items()
        }
        self.current = dict(self.durable)
        self.changes: list[EntryChange] = []
        self.boot_id = boot_id

    def change(self, entries: dict[str, Inode | None]) -> None:
        _name(self.current, entries)
        self.changes.append(EntryChange(os.path.dirname(next(iter(entries))), entries))

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


def _name(tree: dict[str, Inode], entries: dict[str, Inode | None]) -> None:
    for path, inode in entries.items():
        if inode is None:
            tree.pop(path, None)
        else:
            tree[path] = inode


def scan_directory(root: Path) -> Snapshot:
    snapshot: Snapshot = {}
    for directory, directories, files in os.walk(root):
        prefix = key_of(os.path.relpath(directory, root))
        for name in directories:
            snapshot[os.path.join(prefix, name)] = None
        for name in files:
            snapshot[os.path.join(prefix, name)] = Path(directory, name).read_bytes()
    return snapshot


def restore_directory(root: Path, snapshot: Snapshot) -> None:
    """Make the directory contain exactly this snapshot.

    A changed file is replaced, never truncated: a process may still have the old one memory-mapped.
    """
    present = scan_directory(root)
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


def key_of(path: str) -> str:
    key = os.path.normpath(path)
    return "" if key == "." else key
