"""The test bed of the command line: one server for all commands that talk to one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from support.command_line import Cli
from support.server_process import ServerProcess

_numbers = count(1)


@pytest.fixture(scope="session")
def cli_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Shared by all tests of the command line: use names of your own, and never stop it."""
    process = ServerProcess(tmp_path_factory.mktemp("cli") / "data")
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def cli(cli_server: ServerProcess) -> Cli:
    return Cli(cli_server.url)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"log-{next(_numbers)}"
