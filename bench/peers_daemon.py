"""Other servers as processes: started with files on the measured disk, stopped or killed by their ids."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: The time includes the recovery of a long history.
START_SECONDS = 120.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.002
#: The users for servers that refuse to run as root. The first one that exists is used.
UNPRIVILEGED = ("postgres", "nobody")  # language: ok


@contextmanager
def daemon(
    command: Sequence[str], is_ready: Callable[[], bool], *, user: str | None = None, stop: int = signal.SIGTERM
) -> Iterator[int]:
    """Run this command. Yields its process id when it is ready; the signal ``stop`` ends it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
    )
    try:
        _wait_for(process, is_ready)
        yield process.pid
    finally:
        process.send_signal(stop)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            kill(process.pid)
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if is_ready():
                return
        except (OSError, RuntimeError):
            pass
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"{process.args!r} was not ready within {START_SECONDS:.0f} s, or ended: {process.poll()}")


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for parent in found:
        try:
            found += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
        except OSError:
            continue
    return found


def kill(pid: int) -> None:
    """``kill -9`` a process and all its descendants, and wait until the descendants have ended. Waiting for the process
    itself is up to its parent."""
    first, *others = family(pid)
    for each in (first, *others):
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + STOP_SECONDS
    while any(Path(f"/proc/{each}/stat").exists() for each in others) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def unprivileged_user() -> str | None:
    """The user for servers that refuse to run as root, or None if this process is not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in UNPRIVILEGED if name in known)


def program(name: str, *places: Path) -> str | None:
    """The path of a program, from PATH or from other directories."""
    return shutil.which(name) or next((str(place / name) for place in places if (place / name).exists()), None)


def version(path: str) -> str:
    """The version that a program prints, without the program's name."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"[0-9]+(?:\.[0-9]+)+", said)
    if found is None:
        raise RuntimeError(f"{path} does not print its version: {said!r}")
    return found[0]
