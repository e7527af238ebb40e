"""Other servers of the streams protocol: the reference server on Node, Prisma Streams on Bun, and Electric's in Rust.

The first two come from npm, pinned by the lock file in ``streams_packages``, the third is built from its crate. Each
has its default settings and its files in a directory on the measured disk. All of them, and this server, flush an
append to the disk before they acknowledge it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.peers import Installation, free_port, running
from bench.topics_server import HOST, Server

PACKAGES = Installation.of("streams_packages")
CRATE = Installation.of("streams_crate")


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


@contextmanager
def rust(directory: Path) -> Iterator[Side]:
    """The crate ``durable-streams``: a file per stream, sent as it is, behind a journal in shards."""
    port = free_port()
    command = [str(CRATE.place / "built" / "bin" / "durable-streams-server"), "--host", HOST, "--port", str(port)]
    with running([*command, "--data-dir", str(directory)], port, {}) as server:
        yield Side("Durable Streams in Rust", server, queries=False)


class Peer(NamedTuple):
    #: Returns the reason why it cannot be installed, or an empty string.
    install: Callable[[], str]
    start: Callable[[Path], AbstractContextManager[Side]]
    how: str


def _install_rust() -> str:
    return CRATE.install_crate("durable-streams")


PEERS = {
    "Durable Streams": Peer(PACKAGES.install_npm, reference, "reference server on Node, its defaults"),
    "Prisma Streams": Peer(PACKAGES.install_npm, prisma, "on Bun, its defaults"),
    "Durable Streams in Rust": Peer(_install_rust, rust, "Electric's server, its defaults"),
}
