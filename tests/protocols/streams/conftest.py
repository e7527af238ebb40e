"""The test bed of the streams protocol."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from support.server_process import ServerProcess
from support.streams_client import StreamsClient

_numbers = count(1)


@pytest.fixture
def streams(server: ServerProcess) -> Iterator[StreamsClient]:
    """A client of the shared server; whatever uses it runs once per lane."""
    client = StreamsClient(server.url)
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"stream-{next(_numbers)}"
