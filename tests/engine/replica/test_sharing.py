"""Backups in the prefix of a replica: they name its objects, and no object vanishes that a backup names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Literal
from uuid import uuid4

import msgspec
import pytest
from support.engines import NOW, fill, make, opened
from support.replicas import FaultyStore, directory, served, start
from support.simulated_store import SimulatedBucket, simulated_pool

from strandline.engine import Engine, ManualClock, Options
from strandline.engine.backup import backup, restore, verify_backups
from strandline.engine.backup.pool import Backup, Pool, PoolStores, locate
from strandline.engine.backup.restoration import _Plan, _Restoring
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import MissingFile
from strandline.engine.replica import sharing
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.sharing import NotShared, is_shared, last_state
from strandline.engine.replica.store import ObjectStoreReplica


class HeldDeletes(FaultyStore):
    """Deletes take effect later, as if the server was paused before it sent them."""

    def __init__(self, bucket: SimulatedBucket | None = None) -> None:
        super().__init__(bucket)
        self.held: list[str] = []

    def delete(self, name: str) -> None:
        if is_shared(name.rpartition("/")[2]):
            self.held.append(name)
        else:
            super().delete(name)

    def release(self) -> None:
        for name in self.held:
            super().delete(name)


def next_state(engine: Engine, *data: str) -> None:
    """Seal some records, let the replica have the files, and remove what it does not need any more."""
    fill(engine.find("d") or make(engine, "d"), *data)
    engine.seal()
    assert engine.replica is not None
    engine.replica.keep_files()
    engine.replica.ship_all()
    engine.replica.keep_files()


def four_segments(engine: Engine) -> list[str]:
    """The next round merges them."""
    for text in "1234":
        next_state(engine, text)
    return list("1234")


def shared_files(taken: Backup) -> list[str]:
    return [f"{folder}/{copy.name}" for folder, copy in taken.copies() if is_shared(copy.name)]


def everything(engine: Engine) -> list[str]:
    """The records of the log, also after those that a takeover has lost."""
    return [record.data.decode() for record in engine.log("d").read_back(limit=100)]


def restored(pool: PoolStores, taken: Backup, path: Path) -> list[str]:
    found = Pool(pool)
    plan = _Plan(taken, [locate(copy, found.sizes("journal")) for copy in taken.own_journal])
    path.mkdir()
    _Restoring(found, LocalDisk(path), plan, None, None).run()
    with opened(path) as engine:
        return everything(engine)


def at_request(bucket: SimulatedBucket, server: str, number: int, action: Callable[[], object]) -> Callable[[], bool]:
    """Do something before or after a request of a server takes effect. Return whether it was done."""
    requests, state = count(), {"done": False}

    def interrupt(which: str) -> None:
        if which == server and not state["done"] and next(requests) == number:
            state["done"] = True
            action()

    bucket.interruption = interrupt
    return lambda: state["done"]


# --- what is shared ---


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str | bool]]:
    if request.param == "directory":
        return str(tmp_path / "replica"), {}
    return f"s3://cold/{uuid4().hex}", request.getfixturevalue("s3")


def test_a_backup_stores_no_segment_of_the_replica_again(
    tmp_path: Path, place: tuple[str, dict[str, str | bool]]
) -> None:
    url, options = place
    engine = Engine.open(
        tmp_path / "data",
        Options(replica=url, replica_options=options),
        clock=ManualClock(NOW),
        background=False,
    )
    expected = four_segments(engine)
    before = {each.name for each in ObjectStoreReplica(url, **options).list("")}
    report = backup(tmp_path / "data", url, options=options)
    after = {each.name for each in ObjectStoreReplica(url, **options).list("")}
    assert {name.partition("/")[0] for name in after - before} <= {"backups", "journal"}
    assert report.shared_files == report.files - report.copied_files >= 5
    next_state(engine, "5")
    next_state(engine, "6")
    engine.close()
    assert last_state(ObjectStoreReplica(url, **options)) is not None
    # A machine that knows nothing of the replica.
    assert verify_backups(url, options=options).sound
    restore(url, tmp_path / "restored", options=options)
    with opened(tmp_path / "restored") as copy:
        assert everything(copy) == expected


def test_the_next_backup_names_what_only_the_first_one_still_needs(tmp_path: Path) -> None:
    """A segment that only backups need is still in the replica, because its states name it as kept."""
    store = FaultyStore()
    pool = simulated_pool(store.bucket, "backup")
    with served(directory(tmp_path, "one"), store) as engine:
        four_segments(engine)
        clock = ManualClock(NOW)
        first = backup(engine.disk, pool, clock=clock).name
        named = shared_files(Pool(pool).backups()[0])
        for text in "567":
            next_state(engine, text)
            state = last_state(store)
            assert state is not None
            assert set(named) <= {*state.segments, *state.checkpoints, *state.kept}
        backup(engine.disk, pool, clock=clock)
        one, two = Pool(pool).backups()
        assert one.name == first
        assert restored(pool, one, tmp_path / "first") == list("1234")
        assert restored(pool, two, tmp_path / "second") == list("1234567")


def test_what_no_backup_needs_any_more_is_removed_with_the_next_states(tmp_path: Path) -> None:
    store = FaultyStore()
    pool = simulated_pool(store.bucket, "backup")
    with served(directory(tmp_path, "one"), store) as engine:
        four_segments(engine)
        backup(engine.disk, pool, clock=ManualClock(NOW))
        named = shared_files(Pool(pool).backups()[0])
        next_state(engine, "5")
        backup(engine.disk, pool, clock=ManualClock(NOW + 1), keep=1)
        assert set(named) <= set(store.objects)
        next_state(engine, "6")
        next_state(engine, "7")
        (left,) = Pool(pool).backups()
        state = last_state(store)
        assert state is not None
        objects = {name for name in store.objects if is_shared(name.rpartition("/")[2])}
        assert objects == {*state.segments, *state.checkpoints, *shared_files(left)}
        assert not set(named) <= objects
        assert restored(pool, left, tmp_path / "left") == list("12345")


def test_backups_survive_a_takeover_and_the_next_leader_continues_them(tmp_path: Path) -> None:
    store = FaultyStore()
    pool = simulated_pool(store.bucket, "backup")
    replaced = start(directory(tmp_path, "one"), store)
    four_segments(replaced)
    backup(replaced.disk, pool, clock=ManualClock(NOW))
    with served(directory(tmp_path, "two"), store) as engine:
        for text in "567":
            next_state(engine, text)
        # The server that was replaced may still be backed up. What the replica does not have is copied.
        backup(replaced.disk, pool, clock=ManualClock(NOW + 1))
        report = backup(engine.disk, pool, clock=ManualClock(NOW + 2))
        assert report.shared_files
        next_state(engine, "8")
        first, old, new = Pool(pool).backups()
        assert restored(pool, first, tmp_path / "first") == list("1234")
        assert restored(pool, old, tmp_path / "old") == list("1234")
        assert restored(pool, new, tmp_path / "new") == list("1234567")
    with served(directory(tmp_path, "three"), store) as engine:
        assert everything(engine) == list("12345678")


def test_a_damaged_object_of_the_replica_is_not_used_again(tmp_path: Path) -> None:
    store = FaultyStore()
    pool = simulated_pool(store.bucket, "backup")
    with served(directory(tmp_path, "one"), store) as engine:
        four_segments(engine)
        backup(engine.disk, pool, clock=ManualClock(NOW))
        name = shared_files(Pool(pool).backups()[0])[0]
        store.objects[name] = bytes(len(store.objects[name]))
        report = backup(engine.disk, pool, clock=ManualClock(NOW + 1))
        assert report.replaced == [name]
        assert restored(pool, Pool(pool).backups()[1], tmp_path / "copy") == list("1234")


def test_a_replica_can_begin_in_a_pool_of_backups(tmp_path: Path) -> None:
    store = FaultyStore()
    pool = simulated_pool(store.bucket, "backup")
    with opened(directory(tmp_path, "one")) as engine:
        fill(make(engine, "d"), "1")
        engine.seal()
        backup(engine.disk, pool, clock=ManualClock(NOW))
    (taken,) = Pool(pool).backups()
    with served(directory(tmp_path, "two"), store) as other:
        for text in "56":
            next_state(other, text)
        assert restored(pool, taken, tmp_path / "copy") == ["1"]


def test_nothing_is_removed_while_a_description_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        store.put("backups/20231114T221320.000Z.json", b"{}")
        four_segments(engine)
        before = set(store.names("segments"))
        for text in "56":
            next_state(engine, text)
        assert before <= set(store.names("segments"))
        assert "The replica removes no segments and checkpoints" in caplog.text
        store.delete("backups/20231114T221320.000Z.json")
        for text in "78":
            next_state(engine, text)
        assert not before <= set(store.names("segments"))


# --- whatever happens in between ---


def test_whatever_a_server_does_between_two_requests_of_a_backup(tmp_path: Path) -> None:
    """It merges all segments, stores states without them, and removes them, also after the backup is complete."""
    for number in count():
        path = tmp_path / str(number)
        path.mkdir()
        store = HeldDeletes()
        pool = simulated_pool(store.bucket, "backup")
        engine = start(directory(path, "one"), store)
        four_segments(engine)

        def churn(engine: Engine = engine) -> None:
            next_state(engine, "5")
            next_state(engine, "6")

        happened = at_request(store.bucket, "backup", number, churn)
        backup(engine.disk, pool, clock=ManualClock(NOW))
        store.release()
        (taken,) = Pool(pool).backups()
        assert restored(pool, taken, path / "copy") in (list("1234"), list("123456")), number
        with served(directory(path, "two"), FaultyStore(store.bucket)) as other:
            assert everything(other) == (list("123456") if happened() else list("1234"))
        if not happened():
            return
    raise AssertionError


@pytest.mark.parametrize("of", ["leader", "replaced"])
def test_whatever_is_backed_up_between_two_requests_of_a_server(tmp_path: Path, of: str) -> None:
    """The directory of a server that was replaced still has the segments that the leader merges."""
    for number in count():
        path = tmp_path / str(number)
        path.mkdir()
        store = FaultyStore()
        pool = simulated_pool(store.bucket, "backup")
        engine = start(directory(path, "one"), store)
        source = engine.disk
        for text in "12":
            next_state(engine, text)
        if of == "replaced":
            engine = start(directory(path, "two"), store)
        for text in "34":
            next_state(engine, text)
        happened = at_request(
            store.bucket, "test", number, lambda disk=source, pool=pool: backup(disk, pool, clock=ManualClock(NOW))
        )
        for text in "567":
            next_state(engine, text)
        if not happened():
            return
        (taken,) = Pool(pool).backups()
        found = restored(pool, taken, path / "copy")
        assert found == list("1234567")[: len(found)]
        assert of == "leader" or found == list("12")
        with served(directory(path, "three"), store) as other:
            assert everything(other) == list("1234567")
    raise AssertionError


def test_two_backups_at_once(tmp_path: Path) -> None:
    """Even in the same millisecond."""
    for number in count():
        path = tmp_path / str(number)
        path.mkdir()
        store = FaultyStore()
        pool = simulated_pool(store.bucket, "backup")
        engine = start(directory(path, "one"), store)
        four_segments(engine)
        other = simulated_pool(store.bucket, "other")
        happened = at_request(
            store.bucket,
            "backup",
            number,
            lambda disk=engine.disk, pool=other: backup(disk, pool, clock=ManualClock(NOW)),
        )
        backup(engine.disk, pool, clock=ManualClock(NOW))
        if not happened():
            return
        next_state(engine, "5")
        next_state(engine, "6")
        one, two = Pool(pool).backups()
        assert restored(pool, one, path / "copy1") == restored(pool, two, path / "copy2") == list("1234")
    raise AssertionError


def test_a_backup_that_dies_at_any_request_leaves_nothing_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    for number in count():
        path = tmp_path / str(number)
        path.mkdir()
        store = FaultyStore()
        pool = simulated_pool(store.bucket, "backup")
        engine = start(directory(path, "one"), store)
        four_segments(engine)
        happened = at_request(store.bucket, "backup", number, die)
        try:
            backup(engine.disk, pool, clock=ManualClock(NOW))
        except Died:
            assert happened()
        else:
            return
        claimed = set(store.names("claims"))
        next_state(engine, "5")
        assert set(store.names("claims")) == claimed
        complete = [each for each in store.list("backups") if each.size]
        monkeypatch.setattr(sharing, "STALE_SECONDS", 0.0)
        for text in "678":
            next_state(engine, text)
        monkeypatch.undo()
        assert store.names("claims") == []
        # The backup is as complete as it was, and cannot be completed any more.
        assert [each for each in store.list("backups") if each.size] == complete
        for taken in Pool(pool).backups():
            assert restored(pool, taken, path / "copy") == list("1234")
        state = last_state(store)
        assert state is not None
        objects = {name for name in store.objects if is_shared(name.rpartition("/")[2])}
        kept = {name for taken in Pool(pool).backups() for name in shared_files(taken)}
        assert objects == {*state.segments, *state.checkpoints, *kept}
        backup(engine.disk, pool, clock=ManualClock(NOW))
        assert restored(pool, Pool(pool).backups()[-1], path / "next") == list("12345678")
    raise AssertionError


def test_a_backup_whose_claim_was_removed_takes_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FaultyStore()
    pool = simulated_pool(store.bucket, "backup")
    with served(directory(tmp_path, "one"), store) as engine:
        four_segments(engine)
        monkeypatch.setattr(sharing, "STALE_SECONDS", 0.0)
        check = sharing.check_kept

        def check_late(*arguments: object) -> None:
            check(*arguments)  # type: ignore[arg-type]
            monkeypatch.setattr(sharing, "check_kept", check)
            next_state(engine, "5")

        monkeypatch.setattr(sharing, "check_kept", check_late)
        report = backup(engine.disk, pool, clock=ManualClock(NOW))
        assert report.name == "20231114T221320.001Z"
        assert {each.name: bool(each.size) for each in store.list("backups")} == {
            "backups/20231114T221320.000Z.json": False,
            "backups/20231114T221320.001Z.json": True,
        }
        next_state(engine, "6")
        assert [each.name for each in Pool(pool).backups()] == [report.name]
        assert restored(pool, Pool(pool).backups()[0], tmp_path / "copy") in (list("1234"), list("12345"))


def test_the_answer_to_a_description_may_be_missing(tmp_path: Path) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        four_segments(engine)
        pool = simulated_pool(store.bucket, "backup")
        away = FaultyStore(store.bucket)
        away.creations = ["lost"]
        with pytest.raises(OSError, match="lost"):
            backup(engine.disk, PoolStores(pool.folders, away), clock=ManualClock(NOW))
        assert store.names("claims") == store.names("backups") == []
        create = away.create

        def create_but_not(fate: Literal["lost", "unanswered"]) -> Callable[[str, bytes], bool]:
            def create_one(name: str, data: bytes) -> bool:
                away.creations = [fate] if name.startswith("backups/") else []
                return create(name, data)

            return create_one

        away.create = create_but_not("lost")  # type: ignore[method-assign]
        with pytest.raises(OSError, match="lost"):
            backup(engine.disk, PoolStores(pool.folders, away), clock=ManualClock(NOW))
        # The claim stays: the request may arrive later.
        assert store.names("claims") == ["claims/20231114T221320.000Z.json"]
        away.create = create_but_not("unanswered")  # type: ignore[method-assign]
        report = backup(engine.disk, PoolStores(pool.folders, away), clock=ManualClock(NOW))
        assert store.names("backups") == [f"backups/{report.name}.json"]


def test_an_object_that_no_state_names_cannot_be_named_by_a_backup(tmp_path: Path) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        four_segments(engine)
        with pytest.raises(NotShared, match="no longer keeps"):
            sharing.complete(store, "20231114T221320.000Z", ["segments/00000001-0123456789abcdef-1-1.arrow"], b"x")
        assert store.names("claims") == store.names("backups") == []


def test_states_of_earlier_servers_keep_nothing(tmp_path: Path) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        four_segments(engine)
        chain = Chain(store)
        chain.find_end()
        chunk = chain.read(chain.state)
        assert chunk is not None
        fields = msgspec.msgpack.decode(chunk.body)
        del fields["kept"]
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=sharing.State).kept == []


def test_a_file_of_a_pool_that_vanished_fails_the_backup(tmp_path: Path) -> None:
    store = FaultyStore()
    pool = simulated_pool(store.bucket, "backup")
    with served(directory(tmp_path, "one"), store) as engine:
        four_segments(engine)
        fill(engine.log("d"), "5")

        def lose(server: str) -> None:
            if server == "backup" and store.names("journal"):
                store.bucket.interruption = lambda server: None
                for name in store.names("journal"):
                    store.delete(name)

        store.bucket.interruption = lose
        with pytest.raises(MissingFile):
            backup(engine.disk, pool, clock=ManualClock(NOW))
        assert store.names("backups") == []
