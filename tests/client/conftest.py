"""The test bed of the client: what can be done with one of the two is done with both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from typing import Any

import pytest
from support.document_tables import ROOT
from support.either_client import Run, Threaded
from support.server_process import ServerProcess

from strandline.client import AsyncClient, Client

_numbers = count(1)

#: Tables that a server is started with.
DECLARATIONS = ROOT / "tests" / "support" / "declared_votes.py"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server shared by all tests of the client: use names of your own, and never stop it."""
    process = ServerProcess(tmp_path_factory.mktemp("client") / "data")
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture(scope="session")
def _mortal_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("mortal") / "data", settings={"declare": DECLARATIONS})
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def mortal(_mortal_process: ServerProcess) -> ServerProcess:
    """A server that a test may stop and kill, and start again at its port: use names of your own."""
    if not _mortal_process.running:
        _mortal_process.start(_mortal_process.port)
    return _mortal_process


@pytest.fixture(params=["event loop", "threads"])
def run(request: pytest.FixtureRequest, server: ServerProcess) -> Run:
    """Runs a coroutine function with a client: once with that for event loops, once with that for threads, whose
    methods are called on threads of their own."""
    kind: str = request.param

    def run(scenario: Callable[[Any], Coroutine[Any, Any, Any]], url: str | None = None, **options: Any) -> Any:
        async def main() -> Any:
            address = url or server.url
            if kind == "threads":
                with Client(address, **options) as client:
                    return await scenario(Threaded(client))
            async with AsyncClient(address, **options) as client:
                return await scenario(client)

        return asyncio.run(asyncio.wait_for(main(), 60))

    return run


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"log-{next(_numbers)}"
