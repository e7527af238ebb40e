"""The test bed for published clients: a real server that is configured by a file, and all who can talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.node_packages import Unavailable, require_packages
from support.prerequisites import unavailable
from support.published_clients import NodeSpeaker, OwnSpeaker, Person, PythonSpeaker, Speaker
from support.server_process import ServerProcess

from strandline.signing.certificates import everything

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def node() -> Iterator[Speaker]:
    try:
        require_packages(HERE)
    except Unavailable as error:
        unavailable(f"the published client for Node: {error}")
    speaker = NodeSpeaker()
    yield speaker
    speaker.close()


@pytest.fixture(scope="session")
def python() -> Iterator[Speaker]:
    speaker = PythonSpeaker()
    yield speaker
    speaker.close()


@pytest.fixture(scope="session")
def own() -> Iterator[Speaker]:
    speaker = OwnSpeaker()
    yield speaker
    speaker.close()


@pytest.fixture(scope="module")
def url(lane: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the collections of the file beside this one."""
    place = tmp_path_factory.mktemp(f"published-{lane}")
    config = HERE / "collections.toml"
    process = ServerProcess(place / "data", fast_lane=lane == "fast", config=config)
    try:
        yield process.start().url
    finally:
        process.end()


CLIENTS = ["python", "node", "own"]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Speaker:
    """Each of the clients."""
    speaker: Speaker = request.getfixturevalue(request.param)
    return speaker


@pytest.fixture(params=CLIENTS)
def reader(request: pytest.FixtureRequest) -> Speaker:
    """Each of the clients, where one reads what another has written."""
    speaker: Speaker = request.getfixturevalue(request.param)
    return speaker


_numbers = count(1)


@pytest.fixture
def name() -> str:
    """A name of a document that no other test uses."""
    return f"d{next(_numbers)}"


ALICE, BOB, CAROL = Person(1), Person(2), Person(3)


@pytest.fixture
def alice(client: Speaker) -> dict[str, Any]:
    """Alice on her own device, with a certificate for everything that the client has made."""
    return ALICE.with_cap(client.tell("device", issuer=ALICE.keys, subject=ALICE.keys, scope=everything()))
