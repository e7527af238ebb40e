"""topics as one of the sides: the server in Rust whose protocol Strandline's topics implement, so the requests are the
same. It is published as source and as a container image, and is measured where its program is in PATH."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.peers import free_port
from bench.peers_daemon import daemon, program
from bench.peers_ours import Strandline, without_wrk
from bench.peers_sides import Durability, Peer, Side
from bench.topics_server import HOST, Server

NAME = "topics"
BUILD = "build github.com/slopus/topics with cargo build --release, and add target/release to PATH"


class Topics(Strandline):
    name = NAME

    def __init__(self, directory: Path, server: Server) -> None:
        super().__init__(directory, server)
        self.classes = {durability: f"{_version(server)}, {how}" for durability, how in Strandline.classes.items()}


def _version(server: Server) -> str:
    """The program has no option that prints it."""
    with server.connect() as connection:
        version: str = connection.call("GET", "/v0/health")["version"]
    return version


def _is_ready(port: int) -> bool:
    with Server(port, 0).connect() as connection:
        return connection.request("GET", "/v0/ready").status == 200


@contextmanager
def serving(directory: Path, durabilities: Sequence[Durability]) -> Iterator[Side]:
    path, port = program(NAME), free_port()
    assert path is not None
    directory.mkdir(exist_ok=True)
    settings = {"TOPICS_HOST": HOST, "TOPICS_PORT": port, "TOPICS_DATA_DIR": directory / "data", "RUST_LOG": "error"}
    command = ["env", *(f"{name}={value}" for name, value in settings.items()), path]
    with daemon(command, partial(_is_ready, port)) as pid:
        yield Topics(directory, Server(port, pid))


def lacking() -> str:
    return without_wrk() or ("" if program(NAME) else f"{NAME} is not installed ({BUILD})")


PEER = Peer(NAME, lacking, serving)
