"""What the tests of every protocol share: real server processes, over both lanes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from server_process import ServerProcess, StartServer

# How long an example takes depends on who else uses the machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session", params=["fast", "asgi"])
def lane(request: pytest.FixtureRequest) -> str:
    """Which way requests take through the server. Whatever uses it runs once per lane."""
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
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start a server of one's own: ``start_server(max_claim=5, keys="secret:rw", data=path, lane="asgi")``.

    ``settings`` are named as in the server's settings. Without ``data`` each one gets a new directory. All are stopped
    at the end of the test; until then the test may stop, kill and start them as it likes.
    """
    numbers = count()

    def start(
        *, keys: str | None = None, data: Path | None = None, lane: str = "fast", ready: bool = True, **settings: Any
    ) -> ServerProcess:
        process = ServerProcess(
            data or tmp_path / f"data-{next(numbers)}", fast_lane=lane == "fast", keys=keys, settings=settings
        )
        endings.callback(process.end)
        if ready:
            process.start()
        else:
            process.launch()
        return process

    with ExitStack() as endings:
        yield start
