"""What a start says when the disk is full."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from strandline.engine.errors import NoSpaceToStart
from strandline.engine.journal.file import NO_SPACE

#: A start writes the lock file, a new journal file and, in a new directory, the manifest: a few blocks of the file
#: system, with room to spare. The last journal file is rewritten in place when there is no room for a copy.
START_BYTES = 64 << 10


@contextmanager
def room_to_start(directory: str) -> Iterator[None]:
    """Raise NoSpaceToStart where a start in this directory fails because the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        free_bytes, free_files = _free(directory)
        raise NoSpaceToStart(directory, START_BYTES, free_bytes, free_files, error) from error


def _free(directory: str) -> tuple[int, int]:
    """How many bytes and files the file system has room for."""
    try:
        found = os.statvfs(directory if os.path.isdir(directory) else os.path.dirname(os.path.abspath(directory)))
    except OSError:
        return 0, 0
    return found.f_bavail * found.f_frsize, found.f_favail
