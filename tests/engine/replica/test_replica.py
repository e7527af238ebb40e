from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engines import fill, make, opened, texts
from support.replicas import FaultyStore, directory, kinds, served, start
from support.topics_client import eventually

from strandline.engine import Append, Batch, Config, Delete, Engine, Options
from strandline.engine.errors import (
    BadConfig,
    JournalFailed,
    NoReplica,
    ReplicaAway,
    ReplicaBehind,
    Superseded,
)
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import ChunkKind, State, content_of
from strandline.engine.replica.leader import Leader, read_leader, write_leader
from strandline.engine.replica.replica import Replica, ReplicaStats
from strandline.engine.replica.store import ObjectStoreReplica, ReplicaStore
from strandline.engine.replica.takeover import START_LEASE_MS, TAKEN_OVER, has_data
from strandline.engine.state.checkpoints import MANIFEST, Manifest, parse_manifest


def replica_of(engine: Engine) -> Replica:
    assert engine.replica is not None
    return engine.replica


def running(path: Path, store: ReplicaStore, **options: object) -> Engine:
    """An engine with all its threads."""
    return Engine.open(path, Options(replica_interval_ms=1, **options), replica=store)  # type: ignore[arg-type]


def until(condition: Callable[[], object]) -> None:
    eventually(condition)


def everything_is_shipped(engine: Engine) -> bool:
    stats: ReplicaStats = replica_of(engine).stats()
    return stats.waiting_bytes == 0


# --- without a replica -----------------------------------------------------------------------------------------------


def test_a_log_cannot_be_replicated_without_a_replica(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        with pytest.raises(BadConfig, match="needs a replica"):
            engine.create("r", Config(durability="replicated"))
        log = make(engine, "d")
        with pytest.raises(BadConfig, match="needs a replica"):
            log.configure(Config(durability="replicated"))
        assert engine.names() == ["d"]


def test_a_replicated_log_accepts_nothing_without_its_replica(tmp_path: Path) -> None:
    with served(directory(tmp_path, "one"), FaultyStore()) as engine:
        fill(make(engine, "r", durability="replicated"), "1")
    with opened(tmp_path / "one") as engine:
        log, other = engine.log("r"), make(engine, "d")
        assert texts(log) == ["1"]
        for change in (
            lambda: log.append(Batch.of(b"2")),
            lambda: log.delete(seqs=[1]),
            lambda: log.note({"n": 1}),
            lambda: log.move_cursor("c", 1),
            lambda: engine.change_all([Append(other, Batch.of(b"x")), Append(log, Batch.of(b"2"))]),
        ):
            with pytest.raises(NoReplica, match="this server has no replica"):
                change()
        assert texts(other) == []
        log.configure(Config(durability="fsync")).wait()
        fill(log, "2")
        assert texts(log) == ["1", "2"]


# --- a store that is slow or away ------------------------------------------------------------------------------------


def test_a_write_that_waits_too_long_fails_and_is_there_later(tmp_path: Path) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        log = make(engine, "r", durability="replicated")
        commit = log.append(Batch.of(b"1"), idempotency_key="k")
        engine.flush()
        assert engine.flushing.expire_unshipped(float("inf"), lambda: ReplicaBehind(7)) == 1
        with pytest.raises(ReplicaBehind, match="has not stored the write after 7 ms"):
            commit.wait()
        assert texts(log) == []
        again = log.append(Batch.of(b"1"), idempotency_key="k")
        replica_of(engine).ship_all()
        assert again.wait().first == 1
        assert texts(log) == ["1"]


def test_while_the_store_is_away_replicated_logs_are_refused_and_others_go_on(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = running(tmp_path / "one", store, replica_timeout_ms=1)
    try:
        log, other = make(engine, "r", durability="replicated"), make(engine, "d")
        fill(log, "1")
        store.is_away = True
        with pytest.raises(ReplicaBehind):
            log.append(Batch.of(b"2"), idempotency_key="k").wait()
        until(lambda: replica_of(engine).stats().away)
        written = engine.journal.written
        for change in (
            lambda: log.append(Batch.of(b"3")),
            lambda: log.delete(seqs=[1]),
            lambda: log.note({"n": 1}),
            lambda: engine.change_all([Append(other, Batch.of(b"x")), Append(log, Batch.of(b"3"))]),
        ):
            with pytest.raises(ReplicaAway, match="Nothing was written"):
                change()
        assert engine.journal.written == written
        fill(other, "x")
        assert texts(other) == ["x"]
        assert texts(log) == ["1"]
        store.is_away = False
        until(lambda: texts(log) == ["1", "2"])
        until(lambda: not replica_of(engine).stats().away)
        assert log.append(Batch.of(b"2"), idempotency_key="k").wait().first == 2
        assert engine.health.troubles() == []
    finally:
        engine.close()


def test_a_store_that_came_back_accepts_writes_even_if_nothing_else_is_written(tmp_path: Path) -> None:
    """The deadline of the last commit may pass while its chunk is being stored."""
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        log, replica = make(engine, "r", durability="replicated"), replica_of(engine)
        log.append(Batch.of(b"1"))
        engine.flush()

        expire = engine.flushing.expire_unshipped

        def late(before: float, error: Callable[[], ReplicaBehind]) -> int:
            count = expire(float("inf"), error)
            replica.ship_all()
            return count

        engine.flushing.expire_unshipped = late  # type: ignore[method-assign, assignment]
        replica._expire()
        assert texts(log) == ["1"]
        assert log.append(Batch.of(b"2")).wait().first == 2
        assert not replica.stats().away


def test_a_failing_store_is_reported_until_it_recovers(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = running(tmp_path / "one", store)
    try:
        log = make(engine, "d")
        until(lambda: everything_is_shipped(engine))
        store.is_away = True
        fill(log, "1")
        until(lambda: "replica" in [trouble.task for trouble in engine.health.troubles()])
        store.is_away = False
        until(lambda: engine.health.troubles() == [] and everything_is_shipped(engine))
    finally:
        engine.close()


# --- the threads -----------------------------------------------------------------------------------------------------


def test_everything_is_shipped_by_itself(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = running(tmp_path / "one", store)
    make(engine, "r", durability="replicated")
    writers = [threading.Thread(target=fill, args=(engine.log("r"), *map(str, range(30)))) for _ in range(4)]
    for writer in writers:
        writer.start()
    for number in range(5):
        fill(make(engine, f"d{number}"), "x")
        engine.seal()
    for writer in writers:
        writer.join()
    engine.close()
    assert kinds(store)[-1] is ChunkKind.END
    with served(directory(tmp_path, "two"), store) as other:
        assert len(texts(other.log("r"))) == 120
        assert [texts(other.log(f"d{number}")) for number in range(5)] == [["x"]] * 5


def test_records_that_were_flushed_before_a_state_do_not_wait_for_another_flush(tmp_path: Path) -> None:
    with served(directory(tmp_path, "one"), FaultyStore()) as engine:
        replica = replica_of(engine)
        log = make(engine, "r", durability="replicated")
        engine.seal()
        replica.keep_files()
        commit = log.append(Batch.of(b"1"))
        engine.flush()
        replica._wake.clear()
        while not commit.done:
            replica._ship()
            assert commit.done or replica._wake.is_set()
            replica._wake.clear()


def test_an_idle_server_sends_nothing(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = running(tmp_path / "one", store)
    try:
        fill(make(engine, "r", durability="replicated"), "1")
        until(lambda: everything_is_shipped(engine) and not replica_of(engine)._wake.is_set())
        replica = replica_of(engine)
        until(lambda: replica._is_clean and not replica._wake_files.is_set())
        before = len(store.changed)
        for _ in range(5):
            replica._wake.set()
            replica._wake_files.set()
            until(lambda: not replica._wake.is_set() and not replica._wake_files.is_set())
        assert len(store.changed) == before
    finally:
        engine.close()


def test_a_leader_gives_signs_of_life(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = running(tmp_path / "one", store, replica_lease_ms=30, address="host:1")
    try:
        first = read_leader(store)
        assert first is not None
        assert (first.term, first.address, first.lease_ms) == (1, "host:1", 30)
        until(lambda: (found := read_leader(store)) is not None and found.beat > first.beat + 2)
    finally:
        engine.close()


def test_a_server_that_was_replaced_is_read_only_and_says_why(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = running(tmp_path / "one", store)
    try:
        log = make(engine, "r", durability="replicated")
        fill(log, "1")
        fill(make(engine, "d"), "1")
        with served(directory(tmp_path, "two"), store, address="two:9") as other:
            with pytest.raises(JournalFailed, match="another server at two:9 has taken over"):
                log.append(Batch.of(b"2")).wait()
            with pytest.raises(JournalFailed, match="read-only"):
                engine.log("d").append(Batch.of(b"2"))
            assert texts(log) == ["1"]
            assert replica_of(engine).stats().superseded
            before = dict(store.objects)
            replica_of(engine).keep_files()
            with pytest.raises(Superseded):
                replica_of(engine).ship_all()
            assert store.objects == before
            fill(other.log("r"), "two")
    finally:
        engine.close()
    assert kinds(store)[-1] is ChunkKind.END  # of the second server


# --- what is removed -------------------------------------------------------------------------------------------------


def referenced(store: FaultyStore) -> tuple[int, set[str], int]:
    """The first chunk, the checkpoints and the number of segments that the last state needs."""
    chain = Chain(store)
    chain.find_end()
    chunk = chain.read(chain.state)
    assert chunk is not None
    state = content_of(chunk, State)
    segments = [each for each in parse_manifest(state.manifest, "state").segments if each.tier == "hot"]
    return state.first_chunk, {*state.checkpoints}, len(segments)


def test_what_no_state_needs_is_removed_and_nothing_else(tmp_path: Path) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        replica = replica_of(engine)
        log = make(engine, "r", durability="replicated")
        for number in range(20):
            fill(log, str(number))
            if number % 3 == 2:
                engine.seal()
                replica.keep_files()
                replica.ship_all()
                # Not before the next state is stored is anything of the last one removed.
                first, checkpoints, segments = referenced(store)
                assert checkpoints <= set(store.names("checkpoints"))
                assert len(store.names("segments")) >= segments
                replica.keep_files()
                assert set(store.names("checkpoints")) == checkpoints
                assert len(store.names("segments")) == segments
                numbers = Chain(store).numbers()
                assert [each for each in numbers if each < first] in ([1], [1, first - 1])
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("r")) == [str(number) for number in range(20)]


def test_a_failed_removal_is_repeated(tmp_path: Path) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        replica = replica_of(engine)
        for number in range(2):
            fill(make(engine, f"d{number}"), "x")
            engine.seal()
            replica.keep_files()
            replica.ship_all()
        store.is_away = True
        with pytest.raises(OSError, match="away"):
            replica.keep_files()
        store.is_away = False
        replica.keep_files()
        assert set(store.names("checkpoints")) == referenced(store)[1]


def test_what_a_lost_server_left_behind_is_removed_by_the_next(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = start(directory(tmp_path, "one"), store)
    for number in range(3):
        fill(make(engine, f"d{number}"), "x")
        engine.seal()
        replica_of(engine).keep_files()  # copied, but no state names it
    store.put("segments/00000099-0123456789abcdef-1-9.arrow", b"")
    with served(directory(tmp_path, "two"), store) as other:
        replica_of(other).ship_all()
        replica_of(other).keep_files()
        _, checkpoints, segments = referenced(store)
        assert set(store.names("checkpoints")) == checkpoints
        assert len(store.names("segments")) == segments
        assert kinds(store) == [ChunkKind.TERM, ChunkKind.TERM, ChunkKind.STATE]


# --- what the threads do, called by hand -----------------------------------------------------------------------------


def by_hand(tmp_path: Path, data: str = "data", **options: object) -> Engine:
    """An engine whose threads do not run, with a replica in a directory."""
    return Engine.open(tmp_path / data, Options(replica=str(tmp_path / "replica"), **options), background=False)  # type: ignore[arg-type]


def test_records_are_shipped_together_with_a_new_state(tmp_path: Path) -> None:
    with by_hand(tmp_path) as engine:
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
    with by_hand(tmp_path) as engine:
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
    with by_hand(tmp_path, replica_lease_ms=1000, address="old:1") as engine:
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
    with by_hand(tmp_path) as engine:
        log = engine.create("a", Config(durability="replicated")).wait()
        for number in range(3):
            log.append(Batch.of(str(number).encode())).wait()
            engine.seal()
        replica = replica_of(engine)
        replica._copy_files()
        replica.ship_all()
        ids = engine.store.ids()
    with by_hand(tmp_path, "other") as engine:
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
    with by_hand(tmp_path) as engine:
        log = engine.create("a", Config(durability="replicated")).wait()
        for number in range(2):
            log.append(Batch.of(str(number).encode())).wait()
            engine.seal()
        replica_of(engine)._copy_files()
        replica_of(engine).ship_all()
    objects = sorted((tmp_path / "replica/segments").iterdir())
    with by_hand(tmp_path, "other") as engine:
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


def in_directory(tmp_path: Path, data: str = "data") -> Engine:
    return Engine.open(tmp_path / data, Options(replica=str(tmp_path / "replica")), background=False)


def test_an_empty_journal_file_between_others_is_shipped_too(tmp_path: Path) -> None:
    with in_directory(tmp_path) as engine:
        log = engine.create("a", Config(durability="replicated")).wait()
        for number in range(2):
            log.append(Batch.of(str(number).encode())).wait()
            engine.maintenance._rotate(engine.switch_journal)
            engine.maintenance._rotate(engine.switch_journal)
        log.append(Batch.of(b"2")).wait()
    with in_directory(tmp_path, "other") as engine:
        assert [record.data for record in engine.log("a").read(0)] == [b"0", b"1", b"2"]


def test_a_server_that_comes_back_late_finds_its_number_taken(tmp_path: Path) -> None:
    """However much its successor has removed since."""
    with in_directory(tmp_path) as old:
        log = old.create("a", Config(durability="replicated")).wait()
        log.append(Batch.of(b"1")).wait()
        for term in (2, 3):
            with in_directory(tmp_path, f"data-{term}") as engine:
                for number in range(3):
                    engine.log("a").append(Batch.of(str(number).encode())).wait()
                    engine.seal()
                    replica = replica_of(engine)
                    replica._copy_files()
                    replica.ship_all()
                    assert replica._stored is not None
                    replica._remove_others(*replica._stored)
                chunks = [replica._chain.read(number) for number in replica._chain.numbers()]
                kinds = [chunk.kind for chunk in chunks if chunk is not None]
                assert kinds.count(ChunkKind.TERM) == term
                assert len(kinds) <= term + 4, "the other chunks were removed"
        commit = log.append(Batch.of(b"late"))
        with pytest.raises(JournalFailed, match="another server"):
            commit.wait()
        assert log.head == 1


# --- states that are prepared while others are stored ----------------------------------------------------------------


def test_the_objects_of_a_state_that_is_being_stored_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread prepares states and removes what the last one does not need; another one stores them."""
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store) as engine:
        log, replica = make(engine, "r", durability="replicated"), replica_of(engine)
        fill(log, "1")
        replica.keep_files()
        engine.seal()
        replica.keep_files()
        commit = log.append(Batch.of(b"2"))
        engine.flush()
        engine.seal()
        copy, create = replica._files.copy, store.create

        def copy_meanwhile(manifest: Manifest) -> State:
            state = copy(manifest)
            monkeypatch.undo()
            # The state before this one is stored while this one is prepared.
            replica._ship_one()
            return state

        def create_slowly(name: str, data: bytes) -> bool:
            monkeypatch.undo()
            created = create(name, data)
            replica.keep_files()
            return created

        monkeypatch.setattr(replica._files, "copy", copy_meanwhile)
        replica.keep_files()
        monkeypatch.setattr(store, "create", create_slowly)
        for _ in range(4):
            replica._ship_one()
            assert replica._stored is not None
            needed = replica._stored[1]
            assert [name for name in (*needed.checkpoints, *needed.segments) if store.read(name) is None] == []
            replica.keep_files()
        assert commit.wait().first == 2
        with served(directory(tmp_path, "two"), store) as other:
            assert texts(other.log("r")) == ["1", "2"]


def test_repeats_and_steps_are_refused_while_the_store_is_away(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = running(tmp_path / "one", store, replica_timeout_ms=1)
    try:
        log = make(engine, "r", durability="replicated")
        fill(log, "1")
        store.is_away = True
        with pytest.raises(ReplicaBehind):
            log.append(Batch.of(b"2"), idempotency_key="k").wait()
        until(lambda: replica_of(engine).stats().away)
        waiting = engine.flushing.unshipped
        for _ in range(10):
            with pytest.raises(ReplicaAway):
                log.append(Batch.of(b"2"), idempotency_key="k")
            with pytest.raises(ReplicaAway):
                engine.change_all([Delete(log, seqs=[1])])
        assert engine.flushing.unshipped == waiting
        store.is_away = False
        until(lambda: texts(log) == ["1", "2"])
        assert log.append(Batch.of(b"2"), idempotency_key="k").wait().first == 2
    finally:
        store.is_away = False
        engine.close()


def test_a_server_promises_its_lease_once_it_has_read_everything(tmp_path: Path) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store, replica_lease_ms=300):
        leader = read_leader(store)
        assert leader is not None
        assert leader.lease_ms == START_LEASE_MS, "no thread gives signs of life here"
    with running(tmp_path / "two", store, replica_lease_ms=300):
        leader = read_leader(store)
        assert leader is not None
        assert (leader.term, leader.lease_ms) == (2, 300)


def test_a_directory_whose_takeover_is_unfinished_is_not_a_data_directory(tmp_path: Path) -> None:
    assert not has_data(tmp_path)
    (tmp_path / MANIFEST).write_bytes(b"")
    assert has_data(tmp_path)
    (tmp_path / TAKEN_OVER).write_bytes(b"")
    assert not has_data(tmp_path)
