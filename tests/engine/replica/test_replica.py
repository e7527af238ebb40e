"""What the threads of a replica do, called by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.engine import Batch, Config, Engine, Options
from strandline.engine.errors import JournalFailed
from strandline.engine.replica.leader import Leader, read_leader, write_leader
from strandline.engine.replica.replica import Replica
from strandline.engine.replica.store import ObjectStoreReplica


def open_engine(tmp_path: Path, data: str = "data", **options: object) -> Engine:
    return Engine.open(tmp_path / data, Options(replica=str(tmp_path / "replica"), **options), background=False)


def replica_of(engine: Engine) -> Replica:
    assert engine.replica is not None
    return engine.replica


def test_records_are_shipped_together_with_a_new_state(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        replica = replica_of(engine)
        log = engine.create("a", Config(durability="replicated")).wait()
        engine.seal()
        replica._copy_files()
        commit = log.append(Batch.of(b"1"))
        engine.flushing.flush()
        assert not commit.done
        replica._ship()
        assert commit.done, "nothing else would ship it before the next write"
        assert replica.stats().waiting_bytes == 0


def test_the_lag_is_that_of_the_oldest_bytes(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        replica = replica_of(engine)
        engine.create("a", Config(durability="replicated")).wait()
        replica._ship()
        assert (replica.stats().waiting_bytes, replica.stats().lag_ms) == (0, 0.0)
        engine.log("a").append(Batch.of(b"1"))
        engine.flushing.flush()
        stats = replica.stats()
        assert stats.waiting_bytes > 0
        assert stats.waiting_commits == 1
        assert stats.lag_ms > 0
        assert stats.waiting_ms > 0
        replica._ship()
        assert (replica.stats().waiting_commits, replica.stats().lag_ms) == (0, 0.0)


def test_an_idle_leader_that_was_replaced_gives_no_sign_of_life(tmp_path: Path) -> None:
    store = ObjectStoreReplica(str(tmp_path / "replica"))
    with open_engine(tmp_path, replica_lease_ms=1000, address="old:1") as engine:
        replica = replica_of(engine)
        replica._renew()
        found = read_leader(store)
        assert found == Leader(1, "old:1", 1000, 1)
        write_leader(store, Leader(2, "new:1"))
        replica._renew()
        assert read_leader(store) == Leader(2, "new:1"), "clients must find the new leader"
        assert replica.stats().superseded
        with pytest.raises(JournalFailed, match="another server at new:1 has taken over"):
            engine.create("a")


def test_missing_segments_are_fetched_the_newest_first(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        log = engine.create("a", Config(durability="replicated")).wait()
        for number in range(3):
            log.append(Batch.of(str(number).encode())).wait()
            engine.seal()
        replica = replica_of(engine)
        replica._copy_files()
        replica.ship_all()
        ids = engine.store.ids()
    with open_engine(tmp_path, "other") as engine:
        replica = replica_of(engine)
        missing = [id for id in engine.store.ids() if engine.store.is_missing(id)]
        assert missing
        assert set(missing) <= set(ids)
        replica._missing = list(missing)
        replica._fetch_missing()
        assert not engine.store.is_missing(missing[-1])
        assert replica.stats().missing_segments == len(missing) - 1
        while replica._missing:
            replica._fetch_missing()
        assert not any(map(engine.store.is_missing, missing))
        replica._fetch_missing()
        assert [record.data for record in engine.log("a").read(0)] == [b"0", b"1", b"2"]


def test_the_wake_of_a_segment_that_the_replica_lacks(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        log = engine.create("a", Config(durability="replicated")).wait()
        for number in range(2):
            log.append(Batch.of(str(number).encode())).wait()
            engine.seal()
        replica_of(engine)._copy_files()
        replica_of(engine).ship_all()
    objects = sorted((tmp_path / "replica/segments").iterdir())
    with open_engine(tmp_path, "other") as engine:
        replica = replica_of(engine)
        replica._missing = [id for id in engine.store.ids() if engine.store.is_missing(id)]
        count = len(replica._missing)
        assert count
        newest = replica._missing[-1]
        next(path for path in objects if int(path.name.partition("-")[0]) == newest).unlink()
        with pytest.raises(Exception, match="missing"):
            replica._fetch_missing()
        assert replica.stats().missing_segments == count
        assert replica._missing[0] == newest, "the others come first"
