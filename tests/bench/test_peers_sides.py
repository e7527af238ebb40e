"""Every side, asked for real: this server, and the peers that are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prerequisites import unavailable

from bench import peers_nats, peers_ours, peers_postgres, peers_redis, topics_load
from bench.peers_delivery import stamped
from bench.peers_history import Killed
from bench.peers_sides import PAYLOAD, Peer, Side, fill
from bench.peers_watch import FACES as READERS
from bench.peers_work import FACES as WORKERS
from bench.peers_work import work
from bench.topics_load import collect
from bench.workload import payloads

PEERS = [peers_ours.PEER, peers_redis.PEER, peers_nats.PEER, peers_postgres.PEER]

pytestmark = pytest.mark.xdist_group("bench-peers")


@pytest.fixture(scope="module", params=PEERS, ids=lambda peer: peer.name)
def peer(request: pytest.FixtureRequest) -> Peer:
    found: Peer = request.param
    if found is not peers_ours.PEER and found.lacking():
        unavailable(found.lacking())
    return found


@pytest.fixture(scope="module")
def side(peer: Peer, place: Path) -> Iterator[Side]:
    with peer.start(place / peer.name.replace(" ", "-"), ("disk",)) as started:
        yield started


def test_what_was_filled_is_read_by_its_place(side: Side) -> None:
    log = side.create("disk")
    fill(side, log, 2000)
    with side.connect(log) as line:
        answer = line.ask(side.page(log, 700, 10))
    data = payloads(PAYLOAD)
    assert [record in answer for record in data[699:711]] == [False, *[True] * 10, False]
    side.drop(log)


def test_catching_up_reads_everything(side: Side) -> None:
    log = side.create("disk")
    fill(side, log, 2500)
    assert side.catch_up(log, 2500).amount == 2500
    side.drop(log)


def test_a_dropped_log_is_gone(side: Side) -> None:
    log = side.create("disk")
    fill(side, log, 500)
    side.drop(log)
    with pytest.raises((RuntimeError, OSError)):
        side.catch_up(log, 500)


def test_workers_do_every_job_once(side: Side) -> None:
    log = side.create("disk", queue=True)
    fill(side, log, 500)
    worked = work(WORKERS[side.face], side.port(log), log.name, 5, 8)
    assert sum(worked.jobs) == 500
    side.drop(log)


def test_live_readers_get_what_is_announced(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may be quiet for a while.
    monkeypatch.setattr(topics_load, "QUIET_SECONDS", topics_load.COLLECT_SECONDS)
    log = side.create("disk")
    readers = [READERS[side.face](side.port(log), log.name) for _ in range(3)]
    reactions = {reader.connection.fileno(): reader.react for reader in readers if reader.react is not None}
    with side.connect(log) as line:
        for _ in range(4):
            line.ask(side.announce(log, stamped()))
    assert collect([reader.connection for reader in readers], 4, reactions).records == 12
    for reader in readers:
        reader.connection.close()


def test_a_history_is_back_after_a_kill(peer: Peer, place: Path) -> None:
    killed = Killed(peer, place / f"killed-{peer.name.replace(' ', '-')}", 1000)
    assert killed.turn().seconds > 0
