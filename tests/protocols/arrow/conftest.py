"""The test bed of the Arrow face: whatever uses it runs once per lane."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from support.arrow_client import ArrowClient
from support.server_process import ServerProcess
from support.streams_client import StreamsClient
from support.topics_client import Client

_numbers = count(1)


@pytest.fixture
def arrow(server: ServerProcess) -> Iterator[ArrowClient]:
    client = ArrowClient(server.url)
    yield client
    client.close()


@pytest.fixture
def topics(server: ServerProcess) -> Iterator[Client]:
    client = Client(server.url)
    yield client
    client.close()


@pytest.fixture
def streams(server: ServerProcess) -> Iterator[StreamsClient]:
    client = StreamsClient(server.url)
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"arrow-{next(_numbers)}"
