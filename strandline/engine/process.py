"""What the engine needs from the operating system for a process: child processes, memory and file descriptors.

A process that has no file descriptor left cannot open a file, so the journal could neither rotate nor be sealed. The
engine therefore holds spare descriptors (:class:`SpareDescriptors`) and releases one at the moment it opens a file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

_PLATFORM = sysconfig.get_path("platstdlib")
_STANDARD = {sysconfig.get_path("stdlib"), _PLATFORM, os.path.join(_PLATFORM, "lib-dynload")}


def child_environment() -> dict[str, str]:
    """Return the environment for a Python child process that imports the same modules as this process.

    The standard library comes first on the path, and Python adds no directory before it: a user's file called
    ``collections.py`` or ``queue.py`` must not shadow a standard module.
    """
    # In an interactive session, this process may only import from the current directory.
    path = sorted((entry or os.getcwd() for entry in sys.path), key=lambda entry: entry not in _STANDARD)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}


def import_from(directory: str) -> None:
    """Make files of this directory importable, before installed packages and after the standard library."""
    if directory not in sys.path:
        behind = [index + 1 for index, entry in enumerate(sys.path) if entry in _STANDARD]
        sys.path.insert(max(behind, default=0), directory)


#: Where Linux lists the control groups of the process, and where the groups are mounted.
MEMBERSHIP = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def memory_limit(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int:
    """Return the memory that this process may use, in bytes: that of the machine, or the limit of its control group if
    it is lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            # Version 2. Systems that also use version 1 mount version 2 in a separate directory.
            limits += _limits(mount, path, "memory.max")
            limits += _limits(mount / "unified", path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(mount / "memory", path, "memory.limit_in_bytes")
    return min(limits)


def _limits(mount: Path, path: str, name: str) -> Iterator[int]:
    """Yield the limits of a group and of its parent groups. In a container, the mount may be the group itself."""
    group = mount / path.lstrip("/")
    for directory in (group, *group.parents):
        with suppress(OSError, ValueError):  # "max": the group has no limit
            yield int((directory / name).read_text())
        if directory == mount:
            return


T = TypeVar("T")

#: Starting the worker process briefly takes 8 descriptors. In addition, two threads open one file each at a time.
SPARE_DESCRIPTORS = 12
#: Starting a process takes two pipes, and a third one that reports whether it started.
FOR_A_PROCESS = 8


class SpareDescriptors:
    """Spare file descriptors. Empty until ``fill`` is called. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: list[int] = []
        self._wanted = 0

    def fill(self, count: int = SPARE_DESCRIPTORS) -> None:
        """Hold ``count`` descriptors, now or as soon as they are available."""
        with self._lock:
            self._wanted = count
            self._top_up()

    def close(self) -> None:
        with self._lock:
            self._wanted = 0
            while self._held:
                os.close(self._held.pop())

    def use(self, act: Callable[[], T], needed: int = 1) -> T:
        """Call ``act``, which opens files. If no descriptor is free, release ``needed`` spare ones and try again."""
        if len(self._held) < self._wanted:
            with self._lock:
                self._top_up()
        try:
            return act()
        except OSError as error:
            if error.errno != errno.EMFILE or not self._held:
                raise
        with self._lock:
            for _ in range(min(needed, len(self._held))):
                os.close(self._held.pop())
            try:
                return act()
            finally:
                self._top_up()

    def _top_up(self) -> None:
        try:
            while len(self._held) < self._wanted:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass  # the next use tries again


def _find_trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # pragma: no cover - a C library other than glibc
        return None
    return trim


_trim = _find_trim()


def give_back() -> None:
    """Return freed memory to the system, because the C library keeps nearly all of it otherwise.

    Takes a few milliseconds per hundred megabytes, and does not hold the interpreter's lock.
    """
    if _trim is not None:
        _trim(0)
