from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import pytest
from support.engines import fill, make, opened, texts
from support.replicas import FaultyStore, directory, kill, kinds, served, start

from strandline.engine import Batch, Config, Engine
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DamagedFile, Superseded
from strandline.engine.journal.file import journal_path
from strandline.engine.journal.recovery import SEQ_LEAP
from strandline.engine.replica import shipper
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import ChunkKind, JournalPart, Piece, State, Term
from strandline.engine.replica.takeover import TAKEN_OVER, ReplicaAhead, begin_term, has_data
from strandline.engine.state.checkpoints import JournalEntry, Manifest, encode_manifest, read_manifest
from strandline.engine.testing.fault_disk import Crashed, FaultDisk


def led(path: Path, store: FaultyStore) -> Engine:
    """A server with a replicated log ``r`` and a disk log ``d``."""
    engine = start(directory(path, "one"), store)
    fill(make(engine, "r", durability="replicated"), "1", "2")
    fill(make(engine, "d"), "1", "2")
    engine.flush()
    return engine


def shipped(engine: Engine) -> Engine:
    assert engine.replica is not None
    engine.replica.ship_all()
    return engine


def tombstones(engine: Engine, name: str) -> list[tuple[int, int, str]]:
    """What readers are told about missing records: the first and last seq, and the reason."""
    found, after = [], 0
    while True:
        page = engine.log(name).read(after)
        if page.tombstone is not None:
            found.append((page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason))
        after = page.next_after
        if page.caught_up:
            return found


def test_another_machine_has_everything_that_was_acknowledged(tmp_path: Path) -> None:
    store = FaultyStore()
    shipped(led(tmp_path, store))
    with served(directory(tmp_path, "two"), store) as engine:
        assert texts(engine.log("r")) == ["1", "2"]
        assert texts(engine.log("d")) == ["1", "2"]
        fill(engine.log("r"), "3")
        assert engine.log("r").head == 3


def test_what_was_not_shipped_shows_as_lost_and_its_seqs_are_not_used_again(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = shipped(led(tmp_path, store))
    fill(engine.log("d"), "3", "4")
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("d")) == ["1", "2"]
        assert tombstones(other, "d") == [(3, other.log("d").head, "lost")]
        assert other.log("d").append(Batch.of(b"5")).wait().first > SEQ_LEAP
        assert tombstones(other, "r") == []
        assert other.log("r").append(Batch.of(b"3")).wait().first == 3
        assert make(other, "new").epoch > SEQ_LEAP


def test_nothing_is_skipped_after_a_clean_shutdown(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = led(tmp_path, store)
    fill(engine.log("d"), "3")
    engine.close()
    assert kinds(store)[-1] is ChunkKind.END
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("d")) == ["1", "2", "3"]
        assert tombstones(other, "d") == []
        assert other.log("d").next_seq == 4


def test_a_clean_shutdown_does_not_cover_a_later_start(tmp_path: Path) -> None:
    store = FaultyStore()
    led(tmp_path, store).close()
    again = start(FaultDisk(tmp_path / "one"), store)
    fill(again.log("d"), "3")
    with served(directory(tmp_path, "two"), store) as other:
        assert other.log("d").append(Batch.of(b"x")).wait().first > SEQ_LEAP


def test_a_shutdown_that_could_not_ship_everything_is_not_clean(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = shipped(led(tmp_path, store))
    fill(engine.log("d"), "3")
    store.is_away = True
    engine.close()
    store.is_away = False
    with served(directory(tmp_path, "two"), store) as other:
        assert other.log("d").next_seq > SEQ_LEAP


def test_a_restart_in_the_same_directory_continues(tmp_path: Path) -> None:
    store = FaultyStore()
    disk = kill(led(tmp_path, store))
    for number in (3, 4):
        engine = start(disk, store)
        fill(engine.log("r"), str(number))
        fill(engine.log("d"), str(number))
        assert tombstones(engine, "d") == []
        disk = kill(engine)
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("r")) == ["1", "2", "3", "4"]


def test_what_only_the_directory_had_is_shipped_before_readers_see_it(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = led(tmp_path, store)
    engine.log("r").append(Batch.of(b"3"))
    engine.flush()
    disk = kill(engine)
    start(disk, store)
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("r")) == ["1", "2", "3"]


def test_a_restart_loses_nothing_if_the_machine_is_lost_before_everything_was_shipped_again(tmp_path: Path) -> None:
    store = FaultyStore()
    disk = kill(shipped(led(tmp_path, store)))

    class Dies(FaultyStore):
        """The machine is lost after its new state is stored."""

        def create(self, name: str, data: bytes) -> bool:
            created = super().create(name, data)
            if kinds(FaultyStore(self.bucket))[-1] is ChunkKind.STATE:
                raise Crashed
            return created

    with pytest.raises(Crashed):
        start(disk, Dies(store.bucket))
    assert kinds(store)[-2:] == [ChunkKind.TERM, ChunkKind.STATE]
    disk.process_kill()
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("r")) == ["1", "2"]
        assert texts(other.log("d")) == ["1", "2"]


def test_the_chunks_before_a_restart_are_removed_when_everything_was_shipped_again(tmp_path: Path) -> None:
    store = FaultyStore()
    disk = kill(shipped(led(tmp_path, store)))
    with served(disk, store) as engine:
        assert engine.replica is not None
        for _ in range(3):
            fill(engine.log("d"), "x")
            engine.seal()
            engine.replica.keep_files()
            engine.replica.ship_all()
            engine.replica.keep_files()
        assert kinds(store) == [ChunkKind.TERM, ChunkKind.TERM, ChunkKind.STATE]
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("r")) == ["1", "2"]


def test_a_directory_is_refused_after_another_server_has_written(tmp_path: Path) -> None:
    store = FaultyStore()
    disk = kill(led(tmp_path, store))
    with served(directory(tmp_path, "two"), store):
        pass
    with pytest.raises(ReplicaAhead, match="another server has taken over"):
        start(disk, store)
    # Even if its own journal goes on much further.
    with opened(disk) as engine:
        for _ in range(3):
            fill(engine.log("d"), "x")
            engine.seal()
    with pytest.raises(ReplicaAhead):
        start(FaultDisk(tmp_path / "one"), store)


def test_a_server_that_only_began_a_term_does_not_stop_the_others(tmp_path: Path) -> None:
    store = FaultyStore()
    disk = kill(led(tmp_path, store))
    unlucky = directory(tmp_path, "two")
    unlucky.crash_after(unlucky.calls + 6)
    with pytest.raises(Crashed):
        start(unlucky, store)
    assert kinds(store)[-1] is ChunkKind.TERM
    with served(disk, store) as engine:
        assert texts(engine.log("d")) == ["1", "2"]


def test_an_old_copy_of_the_directory_is_refused(tmp_path: Path) -> None:
    store = FaultyStore()
    led(tmp_path, store).close()
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with served(FaultDisk(tmp_path / "one"), store) as engine:
        fill(engine.log("r"), "3")
    with pytest.raises(ReplicaAhead):
        start(FaultDisk(tmp_path / "copy"), store)


def test_an_old_copy_is_refused_after_its_server_has_sealed_everything(tmp_path: Path) -> None:
    store = FaultyStore()
    led(tmp_path, store).close()
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with served(FaultDisk(tmp_path / "one"), store) as engine:
        fill(engine.log("r"), "3")
        engine.seal()
        assert engine.replica is not None
        engine.replica.keep_files()
    with pytest.raises(ReplicaAhead):
        start(FaultDisk(tmp_path / "copy"), store)


def test_the_directory_of_another_server_is_refused(tmp_path: Path) -> None:
    store = FaultyStore()
    led(tmp_path, store).close()
    with opened(directory(tmp_path, "other")) as other:
        fill(make(other, "x"), "1")
    with pytest.raises(ReplicaAhead):
        start(FaultDisk(tmp_path / "other"), store)


def test_a_directory_that_existed_before_gets_a_replica(tmp_path: Path) -> None:
    store = FaultyStore()
    with opened(directory(tmp_path, "one")) as engine:
        fill(make(engine, "d"), "1", "2")
        engine.seal()
        fill(engine.log("d"), "3")
    with served(FaultDisk(tmp_path / "one"), store) as engine:
        shipped(engine)
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("d")) == ["1", "2", "3"]


def test_seqs_are_not_used_again_if_the_first_server_shipped_nothing(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = start(directory(tmp_path, "one"), store)
    epoch = make(engine, "d").epoch
    fill(engine.log("d"), "1")
    assert kinds(store) == [ChunkKind.TERM]
    with served(directory(tmp_path, "two"), store) as other:
        assert other.names() == []
        assert make(other, "d").epoch > epoch + 1000


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_crash_at_any_point_of_a_takeover_loses_nothing_and_skips_once_more(tmp_path: Path, seed: int | None) -> None:
    """Another takeover in the same directory then succeeds."""
    store = FaultyStore()
    kill(shipped(led(tmp_path, store)))
    whole = directory(tmp_path, "whole")
    kill(start(whole, _copy(store)))
    for last in range(1, whole.calls + 1, 3):
        bucket = _copy(store)
        disk = directory(tmp_path, f"two{last}")
        disk.crash_after(last)
        with pytest.raises(Crashed):
            _start_and_go_on(disk, bucket)
        disk = disk.process_kill() if seed is None else disk.power_cut(seed)
        with served(disk, bucket) as engine:
            assert texts(engine.log("r")) == ["1", "2"]
            assert texts(engine.log("d")) == ["1", "2"]
            assert engine.log("d").next_seq > SEQ_LEAP
            assert not disk.exists(TAKEN_OVER)
            fill(engine.log("r"), "3")
            assert engine.log("r").head == 3


def _start_and_go_on(disk: FaultDisk, store: FaultyStore) -> None:
    start(disk, store)
    disk.remove("nothing")


def _copy(store: FaultyStore) -> FaultyStore:
    copy = FaultyStore()
    copy.objects.update(store.objects)
    return copy


def test_a_takeover_needs_the_store(tmp_path: Path) -> None:
    store = FaultyStore()
    kill(shipped(led(tmp_path, store)))
    disk = directory(tmp_path, "two")
    store.is_away = True
    with pytest.raises(OSError, match="away"):
        start(disk, store)
    store.is_away = False
    with served(disk, store) as engine:
        assert texts(engine.log("r")) == ["1", "2"]


@pytest.mark.parametrize("folder", ["chunks", "checkpoints"])
def test_a_missing_object_is_reported(tmp_path: Path, folder: str) -> None:
    store = FaultyStore()
    engine = led(tmp_path, store)
    engine.seal()
    assert engine.replica is not None
    engine.replica.keep_files()
    fill(engine.log("r"), "3")
    assert kinds(store)[-1] is ChunkKind.JOURNAL
    kill(engine)
    fill_last = store.names(folder)[-1]
    if folder == "chunks":
        # The last chunk could be one that was never stored; the one before it could not.
        fill_last = store.names(folder)[-2]
    store.delete(fill_last)
    with pytest.raises(DamagedFile, match="missing"):
        start(directory(tmp_path, "two"), store)


def test_a_damaged_chunk_is_reported(tmp_path: Path) -> None:
    store = FaultyStore()
    kill(shipped(led(tmp_path, store)))
    name = store.names("chunks")[-1]
    store.objects[name] = store.objects[name][:-1] + bytes([store.objects[name][-1] ^ 0xFF])
    with pytest.raises(DamagedFile, match="its checksum does not match"):
        start(directory(tmp_path, "two"), store)


def test_segments_are_fetched_when_they_are_read(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = led(tmp_path, store)
    engine.seal()
    assert engine.replica is not None
    engine.replica.keep_files()
    shipped(engine)
    kill(engine)
    with served(directory(tmp_path, "two"), store) as other:
        segments = {each for each in other.disk.list("segments") if each.endswith(".arrow")}
        first = other.store.ids()[0]
        assert f"{first:08d}.arrow" not in segments
        assert texts(other.log("r")) == ["1", "2"]
        assert f"{first:08d}.arrow" in other.disk.list("segments")
    with served(FaultDisk(tmp_path / "two"), store) as other:
        store.is_away = True
        assert texts(other.log("r")) == ["1", "2"]
        store.is_away = False


def test_a_replaced_server_removes_nothing_that_the_next_one_needs(tmp_path: Path) -> None:
    """Not even if a failed takeover has left an object with the same contents, which nothing needed at the time."""
    store = FaultyStore()
    disk = kill(shipped(led(tmp_path, store)))

    class Dies(FaultyStore):
        """The server crashes after it has put a segment."""

        def put(self, name: str, data: bytes | Path) -> None:
            super().put(name, data)
            if name.startswith("segments/"):
                raise Crashed

    with pytest.raises(Crashed):
        start(directory(tmp_path, "two"), Dies(store.bucket))
    assert len(store.names("segments")) == 1
    replaced = start(disk, store)
    with served(directory(tmp_path, "three"), store) as engine:
        assert texts(engine.log("r")) == ["1", "2"]
    assert replaced.replica is not None
    replaced.replica.keep_files()
    with served(directory(tmp_path, "four"), store) as engine:
        assert texts(engine.log("r")) == ["1", "2"]
        assert texts(engine.log("d")) == ["1", "2"]


def test_housekeeping_goes_on_with_segments_that_cannot_be_fetched(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = led(tmp_path, store)
    for number in range(4):
        fill(engine.log("d"), str(number))
        engine.seal()
    assert engine.replica is not None
    engine.replica.keep_files()
    shipped(engine)
    kill(engine)
    with served(directory(tmp_path, "two"), store) as other:
        store.is_away = True
        fill(other.log("d"), "x")
        for _ in range(3):
            other.seal()
        store.is_away = False
        assert texts(other.log("d"))[:2] == ["1", "2"]


def test_a_server_that_is_replaced_while_it_starts_shows_nothing(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = led(tmp_path, store)
    engine.log("r").append(Batch.of(b"3"))
    engine.flush()
    disk = kill(engine)

    class Slow(FaultyStore):
        other: Engine | None = None

        def put(self, name: str, data: bytes | Path) -> None:
            if name == "leader" and self.other is None:
                self.other = start(directory(tmp_path, "two"), store)
            super().put(name, data)

    slow = Slow(store.bucket)
    with pytest.raises(Superseded):
        start(disk, slow)
    assert slow.other is not None
    assert texts(slow.other.log("r")) == ["1", "2"]
    fill(slow.other.log("r"), "four")


def test_a_log_that_stops_being_replicated_waits_until_the_replica_knows(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = shipped(led(tmp_path, store))
    log = engine.log("r")
    configured = log.configure(Config(durability="disk"))
    appended = log.append(Batch.of(b"3"))
    engine.flush()
    assert not configured.done
    assert not appended.done
    assert texts(log) == ["1", "2"]
    shipped(engine)
    assert configured.done
    assert texts(log) == ["1", "2", "3"]
    assert appended.wait().first == 3
    # From now on it does not wait.
    assert log.append(Batch.of(b"4")).wait().first == 4
    kill(engine)
    with served(directory(tmp_path, "two"), store) as other:
        assert other.log("r").next_seq > SEQ_LEAP


def test_the_restart_of_a_log_that_stops_being_replicated_ships_that(tmp_path: Path) -> None:
    store = FaultyStore()
    engine = led(tmp_path, store)
    engine.log("r").append(Batch.of(b"3"))
    engine.log("r").configure(Config(durability="disk"))
    engine.flush()
    again = start(kill(engine), store)
    assert texts(again.log("r")) == ["1", "2", "3"]
    with served(directory(tmp_path, "two"), store) as other:
        assert texts(other.log("r")) == ["1", "2", "3"]
        assert other.log("r").next_seq > SEQ_LEAP


def test_the_chain_of_a_takeover_names_its_terms(tmp_path: Path) -> None:
    store = FaultyStore()
    kill(led(tmp_path, store))
    kill(start(directory(tmp_path, "two"), store))
    chain = Chain(store)
    chain.find_end()
    assert chain.term == 2
    assert [each.kind for number in chain.terms if (each := chain.read(number))] == [ChunkKind.TERM] * 2


def test_a_takeover_can_be_given_up_and_made_again(tmp_path: Path) -> None:
    class GivenUp(Exception):
        pass

    def give_up(progress: float) -> None:
        raise GivenUp

    store = FaultyStore()
    shipped(led(tmp_path, store))
    disk = directory(tmp_path, "two")
    with pytest.raises(GivenUp):
        Engine.open(disk, background=False, replica=store, progress=give_up)
    assert not has_data(disk.root)
    with served(disk, store) as engine:
        assert texts(engine.log("r")) == ["1", "2"]


def test_a_takeover_needs_memory_for_a_few_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipper, "MAX_CHUNK_BYTES", 128 << 10)
    store = FaultyStore()
    engine = shipped(led(tmp_path, store))
    for number in range(24):
        engine.log("r").append(Batch([b"%d" % number * (1 << 19)]))
    engine.flush()
    shipped(engine)
    stored = sum(map(len, store.objects.values()))
    assert stored > 16 << 20
    chain = Chain(store, b"two")
    (tmp_path / "two").mkdir()
    disk = LocalDisk(tmp_path / "two")
    tracemalloc.start()
    try:
        assert begin_term(disk, chain, "", 0).restored
        assert tracemalloc.get_traced_memory()[1] < stored / 4
    finally:
        tracemalloc.stop()


def test_journal_bytes_that_were_uploaded_again_are_written_once(tmp_path: Path) -> None:
    store = FaultyStore()
    chain = Chain(store, b"one")
    chain.take_over(Term("", 0))
    chain.add(State(encode_manifest(Manifest()), [], 3))
    one, two = Piece(1, 0, b"abcdef"), Piece(2, 0, b"uvw")
    for pieces in ([one, two], [Piece(1, 0, b"abc")], [Piece(1, 3, b"XY"), Piece(1, 5, b"fgh"), Piece(2, 3, b"xyz")]):
        chain.add(JournalPart(pieces, 0))
    disk = directory(tmp_path, "two")
    assert begin_term(disk, Chain(store, b"two"), "", 0).restored
    assert disk.read(journal_path(1)) == b"abcXYfgh"
    assert disk.read(journal_path(2)) == b"uvwxyz"
    manifest = read_manifest(disk)
    assert manifest is not None
    assert manifest.journals == [JournalEntry(1, 8), JournalEntry(2)]
