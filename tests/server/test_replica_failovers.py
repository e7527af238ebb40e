"""Failovers of real servers over a real S3 store, under load. ``python -m support.replica_failovers 50`` in the folder
``tests`` runs more of them."""

from __future__ import annotations

from pathlib import Path

from support.replica_failovers import Failover, Pair

from bench.minio import MinioServer


def test_nothing_is_lost_or_used_twice_whatever_happens_to_the_leader(tmp_path: Path, minio: MinioServer) -> None:
    pair = Pair(tmp_path, minio)
    failovers = [
        Failover.KILL_WITH_LEASE,
        Failover.PAUSE_WITH_COMMAND,
        Failover.LOSS,
        Failover.PAUSE_WITH_LEASE,
    ]
    pair.run(failovers)
    assert [outcome.failover for outcome in pair.outcomes] == failovers
