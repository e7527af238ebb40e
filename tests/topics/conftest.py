"""The test bed of the topics protocol."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from server_process import ServerProcess
from topics_client import Client

_numbers = count(1)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    client = Client(server.url)
    yield client
    client.close()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"
