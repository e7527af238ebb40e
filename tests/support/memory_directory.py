"""Directories in memory, for tests that write files and are not about them: waiting for a disk shows nothing there."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path("/dev/shm")
#: What all tests together need at a time is less than a tenth of it.
ROOM_BYTES = 4 << 30

#: Where tests are about files as they are on a disk, and about damage.
_PLACES = re.compile(
    r"/tests/(?:bench/|engine/test_|engine/journal/|engine/testing/|engine/verify/|lake/)|/test_[a-z_]*(?:backup|cluster"
    r"|commands|damage|descriptors|drivers|durability|journal|lost|read_only|restart|rounds|unsealed|worker)"
)
#: What a file with tests of crashes has in it: they would show nothing about durability in memory.
_CRASHES = re.compile(r"FaultDisk|SIGKILL|kill\(|power_cut|crash", re.IGNORECASE)


def is_about_disks(path: Path, fixtures: list[str]) -> bool:
    """Whether a test needs a real disk: a test of its file is about crashes or disks, or it can kill its server."""
    return "start_server" in fixtures or _is_about_disks(path)


@cache
def _is_about_disks(path: Path) -> bool:
    return _PLACES.search(str(path)) is not None or _CRASHES.search(path.read_text()) is not None


@contextmanager
def memory_directory() -> Iterator[Path | None]:
    """An empty directory, removed afterwards; None where the machine has no room for it."""
    if not os.access(ROOT, os.W_OK) or shutil.disk_usage(ROOT).free < ROOM_BYTES:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="strandline-tests-", dir=ROOT, ignore_cleanup_errors=True) as name:
        yield Path(name)
