"""How much memory this process may use: what the machine has, or what its control group allows if that is less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Where Linux says which control groups the process is in, and where the groups themselves are mounted.
MEMBERSHIP = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def memory_limit(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int:
    """In bytes."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            # Version 2. Systems that also use version 1 mount it in a directory of its own.
            limits += _limits(mount, path, "memory.max")
            limits += _limits(mount / "unified", path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(mount / "memory", path, "memory.limit_in_bytes")
    return min(limits)


def _limits(mount: Path, path: str, name: str) -> Iterator[int]:
    """The limits of a group and of all groups above it. In a container the mount may be the group itself."""
    group = mount / path.lstrip("/")
    for directory in (group, *group.parents):
        with suppress(OSError, ValueError):  # a group without a limit says "max"
            yield int((directory / name).read_text())
        if directory == mount:
            return
