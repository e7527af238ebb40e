"""Fixtures for pytest. Add ``pytest_plugins = ["strandline.testing.plugin"]`` to the ``conftest.py`` of your tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from strandline.client import Client
from strandline.testing.local_server import LocalServer


@pytest.fixture(scope="session")
def strandline_settings() -> dict[str, Any]:
    """The settings of ``strandline_server``, by name. Override this fixture to change them."""
    return {}


@pytest.fixture(scope="session")
def strandline_server(
    tmp_path_factory: pytest.TempPathFactory, strandline_settings: dict[str, Any]
) -> Iterator[LocalServer]:
    """A server that all tests of the session share. Use log names of your own, and do not stop it."""
    with LocalServer(tmp_path_factory.mktemp("strandline") / "data", **strandline_settings) as server:
        yield server


@pytest.fixture
def strandline_client(strandline_server: LocalServer) -> Iterator[Client]:
    """A client of ``strandline_server``."""
    with strandline_server.client() as client:
        yield client


@pytest.fixture
def start_strandline(tmp_path: Path) -> Iterator[Callable[..., LocalServer]]:
    """Starts a server for one test, which may stop and kill it: ``start_strandline(max_batch_records=100)``."""
    servers: list[LocalServer] = []
    numbers = count(1)

    def start(**settings: object) -> LocalServer:
        server = LocalServer(tmp_path / f"strandline-{next(numbers)}" / "data", **settings)
        servers.append(server)
        return server.start()

    try:
        yield start
    finally:
        for server in servers:
            if server.running:
                server.stop()
