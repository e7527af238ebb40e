from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prerequisites import unavailable

from bench.peers_history import Killed
from bench.peers_kafka import PEER, Kafka, batch, counted, crc32c, lacking, serving, varint
from bench.peers_sides import BATCH, Side, fill

pytestmark = pytest.mark.xdist_group("bench-peers")


@pytest.fixture(scope="module")
def side(place: Path) -> Iterator[Side]:
    if lacking():
        unavailable(lacking())
    with serving(place / "kafka", ("disk", "fsync")) as started:
        yield started


def test_the_checksum_and_the_numbers_are_kafkas() -> None:
    # The check value of CRC-32C, and examples of zigzag numbers.
    assert crc32c(b"123456789") == 0xE3069283
    assert [varint(number) for number in (0, -1, 1, 300)] == [b"\x00", b"\x01", b"\x02", b"\xd8\x04"]


def test_an_incomplete_batch_is_not_counted() -> None:
    content = batch((b"one", b"two")) + batch((b"three",))
    assert [counted(content), counted(content[:-1]), counted(b"")] == [3, 2, 0]


def test_everything_is_read_and_a_dropped_log_is_gone(side: Kafka) -> None:
    log = side.create("disk")
    fill(side, log, 5 * BATCH)
    assert side.catch_up(log, 5 * BATCH).amount == 5 * BATCH
    side.drop(log)
    with pytest.raises(RuntimeError, match="error 3"), side.connect(log) as line:
        line.ask(side.append(log, [b"{}"]))


def test_many_clients_append_one_by_one(side: Kafka) -> None:
    log = side.create("fsync")
    sample = side.singles(log, b"{}", 0.05)
    assert side.catch_up(log, int(sample.amount)).amount == sample.amount


def test_a_history_is_back_after_a_kill(place: Path) -> None:
    if lacking():
        unavailable(lacking())
    assert Killed(PEER, place / "killed-kafka", 1000).turn().seconds > 0
