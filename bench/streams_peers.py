"""Other servers of the streams protocol: the reference server on Node, and Prisma Streams on Bun.

They come from npm, pinned by the lock file in ``streams_packages``, and are kept in ``bench/.peers``. Each runs with
its own defaults, with its files in a directory on the disk that is measured. All of them, and this server, flush an
append to the disk before they acknowledge it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.topics_server import HOST, START_SECONDS, STOP_SECONDS, Server

PACKAGES = Path(__file__).parent / "streams_packages"
CACHE = Path(__file__).parent / ".peers"
STAMP = CACHE / "node_modules" / ".lock-hash"
INSTALL_SECONDS = 600.0


class Side(NamedTuple):
    """One of those that are measured."""

    name: str
    server: Server
    #: Whether it filters, searches, aggregates and lists streams.
    queries: bool


@contextmanager
def reference(directory: Path) -> Iterator[Side]:
    """``@durable-streams/server``: append-only files and LMDB."""
    port = _free_port()
    command = ["node", str(CACHE / "reference.mjs"), str(port), str(directory)]
    with _running(command, {}, port) as server:
        yield Side("Durable Streams reference server", server, queries=False)


@contextmanager
def prisma(directory: Path) -> Iterator[Side]:
    """``@prisma/streams-server``: SQLite and segments; what it uploads stays in its memory."""
    port = _free_port()
    modules = CACHE / "node_modules"
    program = modules / "@prisma" / "streams-server" / "src" / "server.ts"
    command = [str(modules / ".bin" / "bun"), str(program), "--object-store", "local", "--no-auth"]
    settings = {"PORT": str(port), "DS_HOST": HOST, "DS_ROOT": str(directory)}
    with _running(command, settings, port) as server:
        yield Side("Prisma Streams", server, queries=True)


PEERS = {"the Durable Streams reference server": reference, "Prisma Streams": prisma}


def install() -> str:
    """Install the peers, unless they are there. Returns why that cannot be, or nothing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not installed"
    wanted = hashlib.sha256((PACKAGES / "package-lock.json").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return ""
    shutil.copytree(PACKAGES, CACHE, dirs_exist_ok=True)
    try:
        subprocess.run(["npm", "ci"], cwd=CACHE, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"npm ci took longer than {INSTALL_SECONDS:.0f} s"
    except subprocess.CalledProcessError as error:
        return f"npm ci failed: {error.stderr.strip()}"
    STAMP.write_text(wanted)
    return ""


@contextmanager
def _running(command: Sequence[str], settings: Mapping[str, str], port: int) -> Iterator[Server]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DS_")} | settings
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
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


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
        return port
