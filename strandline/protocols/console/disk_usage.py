"""How much of the disk the data directory and the lake take, by kind of file, and how soon the disk is full."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from strandline.protocols.console.wire import DiskAnswer, SampleAnswer

#: The number of files that are measured, and the time for it. Merges keep a data directory far below.
MAX_FILES = 200_000
MAX_SECONDS = 5.0
#: The system counts the space of a file in units of this size.
_UNIT = 512
#: The shortest time that growth is derived from: sealing and merging change the size within minutes.
LEAST_MS = 3_600_000
DAY_MS = 86_400_000


class DiskUsage(NamedTuple):
    """Bytes on the disk by the folder of the data directory; "" for other files. ``lake`` is None if the lake is not on
    a disk. ``complete`` is False if there were too many files."""

    folders: dict[str, int]
    lake: int | None
    complete: bool
    free: int
    total: int

    @property
    def used(self) -> int:
        return sum(self.folders.values()) + (self.lake or 0)


def measure_disk(data: Path, lake: Path | None) -> DiskUsage:
    """Reads directories, so call it on a thread. Raises OSError if the data directory cannot be read."""
    walk = _Walk(lake)
    folders: dict[str, int] = {}
    with os.scandir(data) as entries:
        for entry in list(entries):
            name = entry.name if entry.is_dir(follow_symlinks=False) else ""
            folders[name] = folders.get(name, 0) + walk.size(entry)
    lake_bytes = None if lake is None else walk.below(lake) if lake.is_dir() else 0
    space = os.statvfs(data)
    return DiskUsage(
        folders, lake_bytes, walk.complete, space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    )


class _Walk:
    """Adds up sizes, without ``apart`` and what is in it. Files may disappear meanwhile."""

    def __init__(self, apart: Path | None) -> None:
        self._apart = _identity(apart)
        self._files = 0
        self._until = perf_counter() + MAX_SECONDS
        self.complete = True

    def size(self, entry: os.DirEntry[str]) -> int:
        try:
            if entry.is_dir(follow_symlinks=False):
                return 0 if self._is_apart(entry) else self.below(entry.path)
            self._files += 1
            return entry.stat(follow_symlinks=False).st_blocks * _UNIT
        except FileNotFoundError:
            return 0

    def _is_apart(self, entry: os.DirEntry[str]) -> bool:
        return self._apart is not None and entry.inode() == self._apart[1] and _identity(entry.path) == self._apart

    def below(self, directory: str | Path) -> int:
        found, waiting = 0, [os.fspath(directory)]
        while waiting:
            if self._files >= MAX_FILES or perf_counter() >= self._until:
                self.complete = False
                break
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        if not entry.is_dir(follow_symlinks=False):
                            found += self.size(entry)
                        elif not self._is_apart(entry):
                            waiting.append(entry.path)
            except FileNotFoundError:
                continue
        return found


def _identity(path: str | Path | None) -> tuple[int, int] | None:
    """The same for all paths of a directory; None if there is none."""
    try:
        found = None if path is None else os.stat(path)
    except FileNotFoundError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def disk_answer(usage: DiskUsage, history: Sequence[SampleAnswer]) -> DiskAnswer:
    folders = dict(usage.folders)
    named = [folders.pop(name, 0) for name in ("journal", "segments", "checkpoints", "indexes")]
    growth = growth_per_day(history)
    return DiskAnswer(
        journal_bytes=named[0],
        segment_bytes=named[1],
        checkpoint_bytes=named[2],
        index_bytes=named[3],
        lake_bytes=usage.lake,
        other_bytes=sum(folders.values()),
        used_bytes=usage.used,
        complete=usage.complete,
        free_bytes=usage.free,
        total_bytes=usage.total,
        growth_bytes_per_day=growth,
        full_in_ms=round(usage.free / growth * DAY_MS) if growth is not None and growth > 0 else None,
    )


def growth_per_day(history: Sequence[SampleAnswer]) -> float | None:
    """The slope of the line through the sizes in the history. None if the history is too short."""
    points = [(one.at, one.disk_bytes) for one in history if one.disk_bytes is not None]
    if len(points) < 3 or points[-1][0] - points[0][0] < LEAST_MS:
        return None
    mean_at = sum(at for at, _ in points) / len(points)
    mean_size = sum(size for _, size in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    slope = sum((at - mean_at) * (size - mean_size) for at, size in points) / spread
    return round(slope * DAY_MS, 1)
