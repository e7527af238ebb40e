"""Where tests keep what takes long to get: outside of the tree, shared by all test processes of a user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "strandline-tests" / name
    directory.mkdir(parents=True, exist_ok=True)
    return directory
