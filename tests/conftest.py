"""Fixtures that the tests of every protocol share: real server processes and a client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from support.server_process import ServerProcess, StartServer
from support.topics_client import Client

# How long an example takes depends on who else uses the machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

LANES = ["fast", "asgi"]
_numbers = count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Servers have the fast lane; tests marked with ``both_lanes`` run once per lane."""
    if "lane" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("both_lanes") is not None
        metafunc.parametrize("lane", LANES if marked else LANES[:1], indirect=True, scope="session")


@pytest.fixture(scope="session")
def lane(request: pytest.FixtureRequest) -> str:
    """Which way requests take through the server: ``fast``, or ``asgi`` as well where a test is marked with it.

    The answers of both lanes to every route are compared in ``tests/server/test_lanes.py`` and
    ``test_lane_routes.py``."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def server(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the default settings, shared by all tests: use names of your own, and never stop it.

    Webhooks may go to this machine, where the tests receive them."""
    process = ServerProcess(
        tmp_path_factory.mktemp(f"server-{lane}") / "data",
        fast_lane=lane == "fast",
        settings={"webhook_allow_loopback": True},
    )
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client of the topics of ``server``."""
    client = Client(server.url)
    yield client
    client.close()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start a server of one's own: ``start_server(max_claim=5, keys="secret:rw", data=path, lane="asgi")``.

    ``settings`` are named as in the server's settings. Without ``data`` each one gets a new directory. All are stopped
    at the end of the test; until then the test may stop, kill and start them as it likes.
    """
    numbers = count()

    def start(
        *,
        keys: str | None = None,
        data: Path | None = None,
        lane: str = "fast",
        ready: bool = True,
        open_files: int | None = None,
        **settings: Any,
    ) -> ServerProcess:
        process = ServerProcess(
            data or tmp_path / f"data-{next(numbers)}",
            fast_lane=lane == "fast",
            keys=keys,
            settings=settings,
            open_files=open_files,
        )
        endings.callback(process.end)
        if ready:
            process.start()
        else:
            process.launch()
        return process

    with ExitStack() as endings:
        yield start
