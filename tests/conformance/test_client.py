"""The published client for JavaScript, used as its users use it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support.node_program import Program
from support.server_process import ServerProcess

ITEMS = 400
#: The server is killed when about so many of them were acknowledged.
KILLED_AT = (100, 250)


@pytest.fixture(scope="module", params=["fast", "asgi"])
def shared_server(
    request: pytest.FixtureRequest, packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server that no test stops, for scenarios that each use streams of their own."""
    process = ServerProcess(tmp_path_factory.mktemp("shared") / "data", fast_lane=request.param == "fast")
    try:
        yield process.start()
    finally:
        process.end()


@pytest.mark.parametrize(
    "scenario",
    [
        "appending",
        "catching-up",
        "bytes",
        "text",
        "producing",
        "tailing-long-poll",
        "tailing-sse",
        "tailing-auto",
        "forking",
        "closing",
    ],
)
def test_the_client_does_what_it_promises(shared_server: ServerProcess, scenario: str) -> None:
    with Program("client.mjs", shared_server.url, scenario) as program:
        program.ended_well()


def test_nothing_is_lost_and_nothing_comes_twice_when_the_server_is_killed(server: ServerProcess) -> None:
    port = server.port
    with Program("reconnect.mjs", server.url, str(ITEMS)) as program:
        for acknowledged in KILLED_AT:
            while program.heard()["acknowledged"] < acknowledged:
                pass
            server.kill()
            server.start(port)
        while "done" not in program.heard():
            pass
        program.ended_well()


@pytest.mark.parametrize("profile", ["generic", "state-protocol"])
@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_state_stream_is_materialised_live(shared_server: ServerProcess, live: str, profile: str) -> None:
    with Program("state.mjs", shared_server.url, f"{live}-{profile}", live) as program:
        url = program.heard()["created"]
        installed = httpx.post(f"{url}/_profile", json={"profile": {"kind": profile}}, trust_env=False)
        assert installed.status_code == 200, installed.text
        program.tell("go on")
        assert program.heard() == {"done": True}
        program.ended_well()
