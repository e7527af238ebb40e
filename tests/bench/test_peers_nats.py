from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prerequisites import unavailable

from bench.peers_nats import ACKNOWLEDGED, JetStream, call, counted, lacking, publish, serving
from bench.peers_sides import Side

pytestmark = pytest.mark.xdist_group("bench-peers")


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    if lacking():
        unavailable(lacking())


@pytest.fixture(scope="module")
def side(place: Path) -> Iterator[Side]:
    with serving(place / "nats", ("memory", "disk")) as started:
        yield started


def test_every_message_is_acknowledged_to_who_published_it(side: JetStream) -> None:
    log = side.create("memory")
    with side.connect(log) as first, side.connect(log) as second:
        for line in (first, second):
            line.send(side.append(log, [b"{}"] * 20))
        answers = [line.receive() for line in (first, second)]
    assert [answer.count(ACKNOWLEDGED) for answer in answers] == [20, 20]


def test_an_error_of_jetstream_is_raised(side: JetStream) -> None:
    log = side.create("memory")
    with side.connect(log) as line, pytest.raises(RuntimeError, match="stream not found"):
        call(line, "$JS.API.STREAM.INFO.nobody", None)


def test_publishing_where_nobody_listens_is_an_error(side: JetStream) -> None:
    log = side.create("memory")
    with side.connect(log) as line, pytest.raises(RuntimeError, match="503"):
        line.ask(counted(publish("nowhere", b"{}"), ACKNOWLEDGED, 1))


def test_many_clients_append_one_by_one(side: JetStream) -> None:
    log = side.create("memory")
    sample = side.singles(log, b"{}", 0.05)
    with side.connect(log) as line:
        assert call(line, f"$JS.API.STREAM.INFO.{log.name}", None)["state"]["messages"] == sample.amount
