"""File systems for tests: a small one, and one that cannot be written to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.prerequisites import need, unavailable


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """A file system of ``size`` bytes at ``path``."""
    path.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@contextmanager
def read_only(path: Path, at: Path) -> Iterator[Path]:
    """The directory ``path`` once more, at ``at``, where nothing can be written."""
    at.mkdir(exist_ok=True)
    _mount("--bind", path, at)
    try:
        _mount("-o", "remount,bind,ro", at)
        yield at
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


@contextmanager
def bound(path: Path, at: Path) -> Iterator[Path]:
    """The directory ``path`` in the place of ``at``, which must exist."""
    _mount("--bind", path, at)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def _mount(*arguments: str | Path) -> None:
    need(["mount", "umount"])
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        unavailable(f"mount: {done.stderr.strip()}")


def fill_up(directory: Path, leave: int = 0) -> None:
    """Take all space of the file system but ``leave`` bytes."""
    with open(directory / "filling", "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    if leave:
        with open(directory / "filling", "r+b") as file:
            file.truncate((directory / "filling").stat().st_size - leave)
