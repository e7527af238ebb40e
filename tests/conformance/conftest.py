"""The test bed for programs that others wrote: real servers, over both lanes, and the packages for Node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.node_program import require_packages
from support.server_process import ServerProcess


@pytest.fixture(scope="session")
def packages() -> None:
    require_packages()


@pytest.fixture(params=["fast", "asgi"])
def server(request: pytest.FixtureRequest, packages: None, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of one's own, over each of the lanes. The test may kill it and start it again."""
    process = ServerProcess(
        tmp_path / "data", fast_lane=request.param == "fast", settings={"webhook_allow_loopback": True}
    )
    try:
        yield process.start()
    finally:
        process.end()
