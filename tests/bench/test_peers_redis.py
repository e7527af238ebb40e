from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prerequisites import unavailable

from bench.peers_redis import SETTINGS, RedisLine, command, lacking, lines, server

pytestmark = pytest.mark.xdist_group("bench-peers")


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    if lacking():
        unavailable(lacking())


@pytest.fixture(scope="module")
def port(place: Path) -> Iterator[int]:
    with server(place / "redis", SETTINGS["disk"]) as redis:
        yield redis.port


def test_an_error_within_a_pipeline_is_raised_and_not_waited_for(port: int) -> None:
    added = command(b"XADD", b"log", b"5-0", b"data", b"first")
    with RedisLine(port) as line, pytest.raises(RuntimeError, match="redis: ERR The ID specified"):
        line.ask(lines(6, added + added + added))


def test_lines_of_an_answer_are_counted_however_they_arrive(port: int) -> None:
    with RedisLine(port) as line:
        assert line.ask(lines(3, command(b"PING") * 3)) == b"+PONG\r\n" * 3
