"""Other servers to compare with: how to install pinned versions, and how to run them.

A directory next to this file has lock files that pin every package by its hash. Packages are installed into
``bench/.peers``. If one cannot be installed, the benchmark prints the reason and continues without it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.topics_server import HOST, START_SECONDS, STOP_SECONDS, Server

CACHE = Path(__file__).parent / ".peers"
INSTALL_SECONDS = 600.0
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


class Installation(NamedTuple):
    """The programs of a directory of this package, and the packages they need, in a separate directory."""

    source: Path
    place: Path

    @classmethod
    def of(cls, name: str) -> Installation:
        """The packages of the directory with this name next to this file."""
        return cls(Path(__file__).parent / name, CACHE / name)

    @property
    def python(self) -> Path:
        return self.place / "venv" / "bin" / "python"

    def install_npm(self) -> str:
        """Install the packages in ``package-lock.json`` if they are missing. Returns the reason for a failure, or an
        empty string."""
        if shutil.which("node") is None or shutil.which("npm") is None:
            return "node and npm are not installed"
        return self._installed("package-lock.json", "node_modules", [["npm", "ci"]])

    def install_python(self) -> str:
        """Install the packages in ``requirements.lock`` into a separate environment if they are missing. Returns the
        reason for a failure, or an empty string."""
        packages = ["install", "--quiet", "--require-hashes", "-r", "requirements.lock"]
        make = [[sys.executable, "-m", "venv", "venv"], [str(self.python), "-m", "pip", *packages]]
        return self._installed("requirements.lock", "venv", make)

    def install_maven(self) -> str:
        """Copy the jars that ``pom.xml`` names, and those that they need, to ``jars`` if they are missing. Returns the
        reason for a failure, or an empty string."""
        if shutil.which("mvn") is None:
            return "mvn is not installed (Debian: apt-get install maven)"
        copy = f"{MAVEN_PLUGIN}:copy-dependencies"
        command = ["mvn", "-B", "-q", copy, "-DoutputDirectory=jars", "-DincludeScope=runtime"]
        return self._installed("pom.xml", "jars", [command])

    def install_crate(self, name: str) -> str:
        """Build the program of a Rust crate if it is missing: the version in the file ``version``, with the
        dependencies in the lock file of the crate. Returns the reason for a failure, or an empty string."""
        if shutil.which("cargo") is None:
            return "cargo is not installed (Debian: apt-get install cargo)"
        version = (self.source / "version").read_text().strip()
        command = ["cargo", "install", name, "--version", version, "--locked", "--quiet", "--root", "built"]
        return self._installed("version", "built", [command])

    def _installed(self, lock: str, directory: str, commands: Sequence[Sequence[str]]) -> str:
        shutil.copytree(self.source, self.place, dirs_exist_ok=True)
        stamp = self.place / directory / ".lock-hash"
        wanted = hashlib.sha256((self.source / lock).read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text() == wanted:
            return ""
        shutil.rmtree(self.place / directory, ignore_errors=True)
        for command in commands:
            failed = _failure(command, self.place)
            if failed:
                return failed
        stamp.write_text(wanted)
        return ""


def _failure(command: Sequence[str], place: Path) -> str:
    what = " ".join(Path(word).name for word in command)
    try:
        subprocess.run(command, cwd=place, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{what} took longer than {INSTALL_SECONDS:.0f} s"
    except subprocess.CalledProcessError as error:
        return f"{what} failed: {error.stderr.strip()}"
    return ""


@contextmanager
def running(
    command: Sequence[str], port: int, settings: Mapping[str, str], without: str | None = None
) -> Iterator[Server]:
    """A server on this port, with these environment variables, and without inherited ones that start with
    ``without``."""
    inherited = os.environ.items()
    environment = {name: value for name, value in inherited if without is None or not name.startswith(without)}
    process = subprocess.Popen(
        command, env={**environment, **settings}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        _wait_for(process, port)
        yield Server(port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"{process.args!r} was not ready within {START_SECONDS} s, or ended: {process.poll()}")


def free_port() -> int:
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
        return port
