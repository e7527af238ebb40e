"""Where damaged files go: nothing that could not be read whole is ever destroyed."""

from __future__ import annotations

from strandline.engine.disk import Disk

DIRECTORY = "damaged"


def put_aside(disk: Disk, path: str) -> str:
    """Move a file to ``damaged/``, under another name if its own is taken there; returns its new path."""
    target = place_for(disk, path)
    disk.move(path, target)
    return target


def place_for(disk: Disk, path: str) -> str:
    """A path in ``damaged/`` that is free, for this file."""
    disk.make_directory(DIRECTORY)
    disk.sync_directory("")
    name = path.rpartition("/")[2]
    taken = set(disk.list(DIRECTORY))
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return f"{DIRECTORY}/{free}"
