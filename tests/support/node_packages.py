"""Packages for Node, installed from the lock file beside them once for all test processes."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

INSTALL_SECONDS = 300.0


class Unavailable(Exception):
    """They are not there and cannot be installed; the message says what to do or what went wrong."""


def require_node() -> None:
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"{' and '.join(missing)} not found: install Node 20 or newer, with npm")


def require_packages(folder: Path) -> Path:
    """Install what the lock file names, unless it is there. Of several processes one does it and the others wait."""
    require_node()
    modules = folder / "node_modules"
    stamp = modules / ".lock-hash"
    wanted = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    with (folder / ".install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            done = subprocess.run(
                ["npm", "ci"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
            )
            if done.returncode:
                raise Unavailable(f"npm ci failed in {folder.name}:\n{done.stderr}")
            stamp.write_text(wanted)
    return modules
