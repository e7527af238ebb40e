"""Other servers of the streams protocol: the reference server on Node, and Prisma Streams on Bun.

They come from npm, pinned by the lock file in ``streams_packages``. Each has its default settings and its files in a
directory on the measured disk. All of them, and this server, flush an append to the disk before they
acknowledge it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.peers import Installation, free_port, running
from bench.topics_server import HOST, Server

PACKAGES = Installation.of("streams_packages")


class Side(NamedTuple):
    """A server that is measured."""

    name: str
    server: Server
    #: Whether it filters, searches, aggregates and lists streams.
    queries: bool


@contextmanager
def reference(directory: Path) -> Iterator[Side]:
    """``@durable-streams/server``: append-only files and LMDB."""
    port = free_port()
    command = ["node", str(PACKAGES.place / "reference.mjs"), str(port), str(directory)]
    with running(command, port, {}) as server:
        yield Side("Durable Streams reference server", server, queries=False)


@contextmanager
def prisma(directory: Path) -> Iterator[Side]:
    """``@prisma/streams-server``: SQLite and segments. Uploads stay in its memory."""
    port = free_port()
    modules = PACKAGES.place / "node_modules"
    program = modules / "@prisma" / "streams-server" / "src" / "server.ts"
    command = [str(modules / ".bin" / "bun"), str(program), "--object-store", "local", "--no-auth"]
    settings = {"PORT": str(port), "DS_HOST": HOST, "DS_ROOT": str(directory)}
    with running(command, port, settings, without="DS_") as server:
        yield Side("Prisma Streams", server, queries=True)


PEERS = {"the Durable Streams reference server": reference, "Prisma Streams": prisma}


def install() -> str:
    """Install the peers if they are missing. Returns the reason for a failure, or an empty string."""
    return PACKAGES.install_npm()
