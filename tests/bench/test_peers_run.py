from __future__ import annotations

from pathlib import Path

import pytest

from bench import peers_nats, peers_postgres, peers_redis
from bench.peers_run import available
from bench.peers_sides import Peer


def test_who_is_absent_is_told_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(peers_postgres, "PROGRAMS", [])
    monkeypatch.setattr(peers_nats, "PROGRAMS", Path("/nowhere"))
    peers = [peers_redis.PEER, peers_nats.PEER, peers_postgres.PEER]
    assert available(peers) == []
    told = capsys.readouterr().err.splitlines()
    assert [line.rpartition("(")[2] for line in told] == [
        "Debian: apt-get install redis)",
        "Debian: apt-get install nats-server)",
        "Debian: apt-get install postgresql)",
    ]


def test_who_is_there_is_measured() -> None:
    present = Peer("Present", lambda: "", peers_redis.PEER.start)
    absent = present._replace(name="Absent", lacking=lambda: "it is not installed")
    assert available([absent, present]) == [present]
