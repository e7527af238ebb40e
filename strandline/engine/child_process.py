"""Processes of one's own in Python: they import what this one imports, wherever that was found."""

from __future__ import annotations

import os
import sys
import sysconfig

_PLATFORM = sysconfig.get_path("platstdlib")
_STANDARD = {sysconfig.get_path("stdlib"), _PLATFORM, os.path.join(_PLATFORM, "lib-dynload")}


def environment() -> dict[str, str]:
    """The environment for them.

    The standard library is looked at first, and no directory is added in front of it, as Python does by itself: a file
    that somebody calls ``collections.py`` or ``queue.py`` must not be taken for a part of it.
    """
    # At a prompt, where this one imports from may be the current directory and nothing else.
    path = sorted((entry or os.getcwd() for entry in sys.path), key=lambda entry: entry not in _STANDARD)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}


def import_from(directory: str) -> None:
    """Let files of this directory be imported, before what is installed, and behind the standard library."""
    if directory not in sys.path:
        behind = [index + 1 for index, entry in enumerate(sys.path) if entry in _STANDARD]
        sys.path.insert(max(behind, default=0), directory)
