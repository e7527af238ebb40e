"""The test bed: a server with declared tables, and a client that says who it is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from support.server_process import ServerProcess, Share
from support.tables_client import POLLS, Bed

_numbers = count(1)


@pytest.fixture(scope="session")
def tables_server(lane: str, share: Share, memory: Path) -> ServerProcess:
    """Shared by all tests: use parents of your own, and never stop it."""
    data = memory / f"tables-{lane}"
    return share(ServerProcess(data, fast_lane=lane == "fast", settings={"declare": POLLS}))


@pytest.fixture
def bed(tables_server: ServerProcess) -> Iterator[Bed]:
    bed = Bed(tables_server)
    yield bed
    bed.close()


@pytest.fixture
def parent() -> str:
    """A name that no other test uses."""
    return f"parent-{next(_numbers)}"


@pytest.fixture
def poll(bed: Bed, parent: str) -> str:
    """A public poll of Ann's; its id is the parent of votes."""
    poll: str = bed.user("ann").append("poll", parent, {"title": "Lunch?"})["id"]
    return poll
