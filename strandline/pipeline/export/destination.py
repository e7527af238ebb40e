"""Where exported files go: aside first, and all together to where they belong."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from strandline.lake.location import Lake

#: What is in an export. It is the last thing to be written: without it, it is none.
MANIFEST = "_export.json"


class TargetNotEmpty(Exception):
    """Something is there already, and nobody said that it may be replaced."""


class Place(Protocol):
    #: Where tasks write, and what the names of their files end with.
    lake: Lake
    tag: str

    def publish(self, manifest: bytes) -> None:
        """Make everything that was written the export, in place of what was there."""


@contextmanager
def open_place(target: str, overwrite: bool) -> Iterator[Place]:
    """Raises TargetNotEmpty. Unless it is published, nothing is left of what is written."""
    lake = Lake.at(target)
    place = _Objects(lake, overwrite) if lake.directory is None else _Directory(lake.directory, overwrite)
    try:
        yield place
    finally:
        place.clean()


class _Directory:
    """Everything is written to a directory beside the target, which takes its name in the end."""

    tag = ""

    def __init__(self, target: Path, overwrite: bool) -> None:
        self._target = target
        if target.exists() and not target.is_dir():
            raise TargetNotEmpty(f"{target} is a file")
        if target.is_dir() and any(target.iterdir()) and not overwrite:
            raise TargetNotEmpty(f"{target} is not empty; with --overwrite it is replaced")
        run = uuid.uuid4().hex[:12]
        self._aside = target.with_name(f".{target.name}.{run}.export")
        self._old = target.with_name(f".{target.name}.{run}.replaced")
        self._aside.mkdir(parents=True)
        self.lake = Lake.at(self._aside)

    def publish(self, manifest: bytes) -> None:
        self.lake.write(MANIFEST, manifest)
        if self._target.exists():
            os.rename(self._target, self._old)
        try:
            os.rename(self._aside, self._target)
        except OSError:
            if self._old.exists():
                os.rename(self._old, self._target)
            raise
        shutil.rmtree(self._old, ignore_errors=True)

    def clean(self) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)


class _Objects:
    """An object store cannot rename. The names of files are new ones, and the manifest, which is replaced in one step,
    says which of them count; what it does not name any more is removed afterwards."""

    def __init__(self, lake: Lake, overwrite: bool) -> None:
        self.lake = lake
        self.tag = f"-{uuid.uuid4().hex[:12]}"
        self._before = list(lake.names(""))
        self._published = False
        if self._before and not overwrite:
            raise TargetNotEmpty(f"there is something in {lake.url} already; with --overwrite it is replaced")

    def publish(self, manifest: bytes) -> None:
        self.lake.write(MANIFEST, manifest)
        self._published = True
        self.lake.remove(name for name in self._before if name != MANIFEST)

    def clean(self) -> None:
        if not self._published:
            self.lake.remove(name for name in self.lake.names("") if self.tag in name)
