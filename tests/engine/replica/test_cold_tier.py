"""A server with a replica and a cold tier: what moves, what is uploaded, and who removes what."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from support.engines import NOW, fill, make
from support.replicas import FaultyStore, directory, kill
from support.simulated_store import SimulatedFolder

from strandline.engine import Engine, ManualClock, Options
from strandline.engine.errors import BadConfig
from strandline.engine.replica.replica import Replica
from strandline.engine.replica.sharing import last_state
from strandline.engine.replica.store import ObjectStoreReplica
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.state.checkpoints import parse_manifest
from strandline.engine.testing.fault_disk import FaultDisk


class WatchedFolder(SimulatedFolder):
    """A cold tier in the bucket of the replica. Counts what is uploaded."""

    def __init__(self, store: FaultyStore) -> None:
        super().__init__(store.bucket, "cold", "cold")
        self.uploaded: list[str] = []
        self.is_away = False

    def put(self, name: str, data: bytes | Path) -> None:
        self.uploaded.append(name)
        super().put(name, data)

    def delete(self, name: str) -> None:
        if self.is_away:
            raise OSError("the cold tier is away")
        super().delete(name)


def open_both(disk: FaultDisk, store: FaultyStore, cold: WatchedFolder, hot_segments: int = 0) -> Engine:
    return Engine.open(
        disk,
        Options(hot_segments=hot_segments, segment_bytes=1),
        clock=ManualClock(NOW),
        background=False,
        cold=cold,
        replica=store,
    )


def replica_of(engine: Engine) -> Replica:
    assert engine.replica is not None
    return engine.replica


def next_state(engine: Engine) -> None:
    replica_of(engine).keep_files()
    replica_of(engine).ship_all()
    replica_of(engine).keep_files()


def sealed(engine: Engine, name: str, *data: str) -> None:
    fill(engine.find(name) or make(engine, name), *data)
    engine.seal()


def texts(engine: Engine, name: str) -> list[str]:
    return [record.data.decode() for record in engine.log(name).read_back(limit=100)]


def tiers(engine: Engine) -> list[str]:
    return [entry.tier for entry in engine.maintenance.manifest.segments]


def test_a_segment_moves_once_the_replica_has_it_and_is_not_uploaded_again(tmp_path: Path) -> None:
    store = FaultyStore()
    cold = WatchedFolder(store)
    engine = open_both(directory(tmp_path, "one"), store, cold)
    sealed(engine, "d", "1")
    assert tiers(engine) == ["hot"]
    assert cold.list() == []
    next_state(engine)
    assert store.names("segments") != []
    engine.maintain()
    assert tiers(engine) == ["cold"]
    assert cold.list() == ["00000001.arrow", "OWNER"]
    assert cold.uploaded == ["OWNER"]
    # The replica's object goes with the next state, without another round.
    next_state(engine)
    assert store.names("segments") == []
    state = last_state(store)
    assert state is not None
    assert [entry.tier for entry in parse_manifest(state.manifest).segments] == ["cold"]
    other = open_both(directory(tmp_path, "two"), store, cold)
    assert texts(other, "d") == ["1"]


def test_objects_of_the_cold_tier_go_when_the_replica_does_not_need_them(tmp_path: Path) -> None:
    store = FaultyStore()
    cold = WatchedFolder(store)
    engine = open_both(directory(tmp_path, "one"), store, cold)
    sealed(engine, "d", "1")
    next_state(engine)
    engine.maintain()
    next_state(engine)
    engine.log("d").drop().wait()
    engine.seal()
    # Another server could take over from the last state, which needs the object.
    assert cold.list() == ["00000001.arrow", "OWNER"]
    cold.is_away = True
    next_state(engine)
    assert cold.list() == ["00000001.arrow", "OWNER"]
    cold.is_away = False
    sealed(engine, "e", "1")
    next_state(engine)
    assert "00000001.arrow" not in cold.list()


def test_a_server_that_was_replaced_removes_nothing_from_the_cold_tier(tmp_path: Path) -> None:
    store = FaultyStore()
    cold = WatchedFolder(store)
    replaced = open_both(directory(tmp_path, "one"), store, cold)
    sealed(replaced, "d", "1")
    next_state(replaced)
    replaced.maintain()
    next_state(replaced)
    engine = open_both(directory(tmp_path, "two"), store, cold)
    replaced.log("d").drop().wait()
    replaced.seal()
    replica_of(replaced).keep_files()
    assert texts(engine, "d") == ["1"]
    assert cold.list() == ["00000001.arrow", "OWNER"]


def test_a_server_that_was_replaced_does_not_overwrite_objects_of_the_cold_tier(tmp_path: Path) -> None:
    """Both servers have a segment with the same number."""
    store = FaultyStore()
    cold = WatchedFolder(store)
    replaced = open_both(directory(tmp_path, "one"), store, cold)
    sealed(replaced, "d", "1")
    next_state(replaced)
    engine = open_both(directory(tmp_path, "two"), store, cold)
    number = engine.maintenance.manifest.next_segment
    sealed(engine, "d", "of the leader")
    next_state(engine)
    engine.maintain()
    next_state(engine)
    for _ in range(number - replaced.maintenance.manifest.next_segment + 1):
        sealed(replaced, "d", "of the server that was replaced")
    replica_of(replaced).keep_files()
    replaced.maintain()
    assert replaced.maintenance.manifest.next_segment > number
    engine.store.close()
    assert texts(engine, "d") == ["1", "of the leader"]
    assert texts(open_both(directory(tmp_path, "three"), store, cold), "d") == ["1", "of the leader"]


def test_leftovers_in_the_cold_tier_are_removed_after_the_first_state(tmp_path: Path) -> None:
    store = FaultyStore()
    cold = WatchedFolder(store)
    engine = open_both(directory(tmp_path, "one"), store, cold)
    sealed(engine, "d", "1")
    sealed(engine, "e", "1")
    next_state(engine)
    engine.maintain()
    next_state(engine)
    engine.log("d").drop().wait()
    engine.seal()
    again = open_both(kill(engine), store, cold)
    assert "00000001.arrow" in cold.list()
    next_state(again)
    assert cold.list() == ["00000002.arrow", "OWNER"]
    assert texts(again, "e") == ["1"]


def test_a_cold_tier_is_claimed_when_the_first_segment_moves(tmp_path: Path) -> None:
    """A server that is lost before its replica has a state leaves nothing that keeps the next one from starting."""
    store = FaultyStore()
    cold = WatchedFolder(store)
    open_both(directory(tmp_path, "one"), store, cold)
    engine = open_both(directory(tmp_path, "two"), store, cold)
    sealed(engine, "d", "1")
    next_state(engine)
    engine.maintain()
    with pytest.raises(BadConfig, match="belongs to another data directory"):
        open_both(directory(tmp_path, "three"), FaultyStore(), cold)


# --- stores ---


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str | bool]]:
    if request.param == "directory":
        return str(tmp_path / "store"), {}
    return f"s3://cold/{uuid4().hex}", request.getfixturevalue("s3")


def test_a_copy_inside_the_store(place: tuple[str, dict[str, str | bool]]) -> None:
    url, options = place
    replica, cold = ObjectStoreReplica(f"{url}/pair", **options), ObjectStoreCold(f"{url}/cold", **options)
    replica.put("segments/1", b"segment")
    assert cold.copy("00000001.arrow", f"{replica.describe()}/segments/1")
    assert cold.copy("00000001.arrow", f"{replica.describe()}/segments/1")
    replica.delete("segments/1")
    assert cold.read("00000001.arrow", 0, 7) == b"segment"
    assert cold.list() == ["00000001.arrow"]


def test_what_cannot_be_copied_is_uploaded(
    place: tuple[str, dict[str, str | bool]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, options = place
    cold = ObjectStoreCold(f"{url}/cold", **options)
    assert not cold.copy("00000001.arrow", f"{url}/pair/segments/1")
    assert "is uploaded, because it cannot be copied" in caplog.text
    # In another kind of store, or in another bucket.
    assert not cold.copy("00000001.arrow", "s3://elsewhere/pair/segments/1")
    assert not ObjectStoreCold(str(tmp_path / "cold")).copy("00000001.arrow", "s3://cold/pair/segments/1")
    assert cold.list() == []


def test_in_a_directory_the_bytes_are_stored_once(tmp_path: Path) -> None:
    options = Options(
        replica=str(tmp_path / "store" / "pair"), cold_url=str(tmp_path / "store" / "cold"), hot_segments=0
    )
    engine = Engine.open(tmp_path / "data", options, clock=ManualClock(NOW), background=False)
    sealed(engine, "d", "1")
    next_state(engine)
    (segment,) = (tmp_path / "store" / "pair" / "segments").iterdir()
    engine.maintain()
    assert tiers(engine) == ["cold"]
    assert segment.samefile(tmp_path / "store" / "cold" / "00000001.arrow")
    engine.close()
