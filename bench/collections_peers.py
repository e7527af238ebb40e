"""The published servers of the collections protocol, on Node and on Python, and the configuration of all sides.

They come from npm and from PyPI, pinned by the lock files in ``collections_packages``. Each is one process, because its
locks on documents are local to a process, and keeps its files in a directory on the measured disk. Neither flushes its
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.peers import Installation, free_port, running
from bench.topics_server import Server, serving

PACKAGES = Installation.of("collections_packages")
CONFIGURATION = "collections.json"

#: Collections by layout, which only the published servers have, and by durability, which only Strandline has.
ONE_DOCUMENT = "whole"
SMALL_CHUNKS = "chunks-of-100"
LARGE_CHUNKS = "chunks-of-10000"
RELAXED = "relaxed"
COLLECTIONS: dict[str, dict[str, Any]] = {
    ONE_DOCUMENT: {},
    SMALL_CHUNKS: {"chunkSize": 100},
    LARGE_CHUNKS: {"chunkSize": 10_000},
    RELAXED: {},
}
#: A namespace with the same documents that needs no signatures or permissions.
OPEN = "open"


class Side(NamedTuple):
    """A server that is measured."""

    name: str
    server: Server
    #: The directory of its files, if documents can be written there directly.
    files: Path | None


def configuration() -> dict[str, Any]:
    """Documents are ``collection/document``. All requests need signatures, except in the open namespace."""
    signed = [_collection(name, [f"cap:read:{name}"], [f"cap:write:{name}"], True) for name in COLLECTIONS]
    open_to_all = [_collection(name, ["public"], ["public"], False) for name in COLLECTIONS]
    return {"version": 1, "collections": signed, "namespaces": {OPEN: {"collections": open_to_all}}}


def _collection(name: str, readers: list[str], writers: list[str], signed: bool) -> dict[str, Any]:
    return {
        "name": name,
        "storagePath": f"{name}/{{document}}",
        "readRoles": readers,
        "writeRoles": writers,
        "encryption": "none",
        "maxBodyBytes": 65_536,
        "appendOnly": {"type": "by_timestamp", "requireAuthorSignature": signed, **COLLECTIONS[name]},
        # The published servers do not have this option and ignore it.
        "durability": "disk" if name == RELAXED else "fsync",
    }


@contextmanager
def ours(directory: Path) -> Iterator[Side]:
    directory.mkdir()
    with serving(directory / "data", config_file=_configured(directory)) as server:
        yield Side("Strandline", server, None)


@contextmanager
def on_node(directory: Path) -> Iterator[Side]:
    """``@drakkar.software/starfish-server`` with Hono's adapter for Node."""
    with _published("Starfish on Node", ["node", str(PACKAGES.place / "starfish.mjs")], directory) as side:
        yield side


@contextmanager
def on_python(directory: Path) -> Iterator[Side]:
    """``starfish-server`` under uvicorn, with uvloop and httptools."""
    command = [str(PACKAGES.python), str(PACKAGES.place / "starfish_app.py")]
    with _published("Starfish on Python", command, directory) as side:
        yield side


@contextmanager
def _published(name: str, command: list[str], directory: Path) -> Iterator[Side]:
    directory.mkdir()
    files, port = directory / "files", free_port()
    arguments = [str(port), str(files), str(_configured(directory))]
    with running([*command, *arguments], port, {"NODE_ENV": "production"}) as server:
        yield Side(name, server, files)


def _configured(directory: Path) -> Path:
    path = directory / CONFIGURATION
    path.write_bytes(msgspec.json.encode(configuration()))
    return path


class Peer(NamedTuple):
    #: Returns the reason why it cannot be installed, or an empty string.
    install: Callable[[], str]
    start: Callable[[Path], AbstractContextManager[Side]]


PEERS = {
    "Starfish on Node": Peer(PACKAGES.install_npm, on_node),
    "Starfish on Python": Peer(PACKAGES.install_python, on_python),
}
