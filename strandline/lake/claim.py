"""One pipeline per lake at a time.

A claim is a lock that the system holds for the process: it is gone with the process, however that ended. In a lake in a
directory it is a file there. Of a lake in an object store it is a file of this machine; whether another machine works
on it is told by its status, which a living pipeline renews all the time.

A claim is a courtesy: it tells a second pipeline early that it is not wanted. Two pipelines can still get past each
other, for instance when both start at the same time on two machines. What keeps the lake right then is ``lake/fence``.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from strandline.lake.location import Lake
from strandline.lake.status import read_status

NAME = "pipeline.lock"

#: Somebody may be just asking whether the lake is claimed, which takes a few microseconds.
ATTEMPTS = 3
ATTEMPT_SECONDS = 0.02
#: A pipeline on another machine that has not renewed its status for this long is not there any more.
SILENT_MS = 120_000


class LakeInUse(Exception):
    """Another pipeline is at work on the lake. The message says which."""


@contextmanager
def claim(lake: Lake, now: Callable[[], int]) -> Iterator[None]:
    """Have the lake for oneself; raises LakeInUse. ``now`` is the time in milliseconds."""
    path = _lock_path(lake)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _lock(fd):
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            raise LakeInUse(f"another pipeline is at work on {lake.url}: process {holder}")
        if lake.directory is None:
            _check_elsewhere(lake, now())
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def is_claimed(lake: Lake) -> bool:
    """Whether a pipeline of this machine is at work on the lake."""
    try:
        fd = os.open(_lock_path(lake, make=False), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared: those who ask do not hinder each other. A pipeline that begins just now tries again.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(ATTEMPT_SECONDS)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def _lock_path(lake: Lake, make: bool = True) -> Path:
    directory = lake.directory
    if directory is None:
        name = sha256(lake.url.encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"strandline-{os.getuid()}-{name}.lock"
    if make:
        directory.mkdir(parents=True, exist_ok=True)
    return directory / NAME


def _check_elsewhere(lake: Lake, now: int) -> None:
    status = read_status(lake)
    if status is None or status.state == "ended" or status.host == socket.gethostname():
        return
    # A time far in the future was written under a wrong clock, and says nothing.
    if abs(now - status.updated) < SILENT_MS:
        raise LakeInUse(f"another pipeline is at work on {lake.url}: process {status.pid} on {status.host}")
