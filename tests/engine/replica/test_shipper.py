from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import fill, make, texts
from support.replicas import FaultyStore, directory, kinds, served

from strandline.engine import Batch, Engine
from strandline.engine.journal.file import journal_path
from strandline.engine.replica import shipper as shipper_module
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import ChunkKind, JournalPart, Piece, content_of
from strandline.engine.replica.replica import Replica


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


@pytest.fixture
def engine(tmp_path: Path, store: FaultyStore) -> Iterator[Engine]:
    with served(directory(tmp_path, "data"), store) as engine:
        yield engine


def replica_of(engine: Engine) -> Replica:
    assert engine.replica is not None
    return engine.replica


def pieces(store: FaultyStore) -> list[Piece]:
    chain = Chain(store)
    chunks = [chunk for number in chain.numbers() if (chunk := chain.read(number))]
    return [
        piece for chunk in chunks if chunk.kind is ChunkKind.JOURNAL for piece in content_of(chunk, JournalPart).pieces
    ]


def shipped_files(store: FaultyStore) -> dict[int, bytes]:
    """What the pieces make, if each continues where the one before it ended."""
    files: dict[int, bytearray] = {}
    for piece in pieces(store):
        file = files.setdefault(piece.index, bytearray())
        assert piece.offset == len(file)
        file += piece.data
    return {index: bytes(file) for index, file in files.items()}


def journal(engine: Engine, index: int) -> bytes:
    return engine.disk.read(journal_path(index))


def test_what_was_flushed_is_shipped_once(engine: Engine, store: FaultyStore) -> None:
    replica = replica_of(engine)
    log = make(engine, "d")
    fill(log, "1")
    engine.flush()
    replica.ship_all()
    assert kinds(store) == [ChunkKind.TERM, ChunkKind.STATE, ChunkKind.JOURNAL]
    index = engine.journal.index
    assert shipped_files(store) == {index: journal(engine, index)}
    requests = store.bucket.requests
    replica.ship_all()
    assert store.bucket.requests == requests


def test_what_was_not_flushed_is_not_shipped(engine: Engine, store: FaultyStore) -> None:
    replica = replica_of(engine)
    log = make(engine, "d")
    engine.flush()
    replica.ship_all()
    before = shipped_files(store)
    fill(log, "1")
    replica.ship_all()
    assert shipped_files(store) == before
    assert replica.stats().waiting_bytes > 0
    engine.flush()
    replica.ship_all()
    assert replica.stats().waiting_bytes == 0


def test_records_that_the_replica_lacks_are_counted(
    engine: Engine, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = replica_of(engine)

    def waiting() -> int:
        return replica.stats().waiting_records

    logs = [make(engine, name, durability=name) for name in ("memory", "disk", "fsync", "replicated", "ephemeral")]
    engine.flush()
    replica.ship_all()
    assert waiting() == 0
    for log in logs:
        log.append(Batch([b"x" * 1000] * 10))
    assert waiting() == 30, (
        "those of three logs: readers have not seen those of the fourth, and the fifth promises less"
    )
    engine.flush()
    store.is_away = True
    with pytest.raises(OSError, match="away"):
        replica.ship_all()
    assert waiting() == 30
    store.is_away = False
    replica.ship_all()
    assert waiting() == 0
    # A chunk has less than everything.
    for _ in range(100):
        logs[0].append(Batch([b"x" * 1000] * 10))
    engine.flush()
    monkeypatch.setattr(shipper_module, "MAX_CHUNK_BYTES", 250_000)
    assert replica._ship_one()
    assert 700 < waiting() < 800
    # A state replaces a part of the journal.
    engine.seal()
    replica._copy_files()
    assert replica._ship_one() is False
    assert waiting() == 0


def test_writers_share_a_chunk(engine: Engine, store: FaultyStore) -> None:
    log = make(engine, "r", durability="replicated")
    before = kinds(store)
    commits = [log.append(Batch.of(b"x")) for _ in range(50)]
    assert [commit.wait().first for commit in commits] == list(range(1, 51))
    assert kinds(store) == [*before, ChunkKind.JOURNAL]


def test_one_chunk_goes_on_in_the_next_file(engine: Engine, store: FaultyStore) -> None:
    replica = replica_of(engine)
    log = make(engine, "d")
    replica.ship_all()
    first = engine.journal.index
    for text in ("1", "2", "3"):
        fill(log, text)
        engine.journal.prepare()
        engine.maintenance.name_journals()
        engine.switch_journal()
    fill(log, "4")
    engine.flush()
    count = len(kinds(store))
    replica.ship_all()
    assert len(kinds(store)) == count + 1
    assert shipped_files(store) == {index: journal(engine, index) for index in range(first, first + 4)}
    assert replica.stats().waiting_bytes == 0


def test_a_file_without_records_is_not_left_out(engine: Engine, store: FaultyStore) -> None:
    replica = replica_of(engine)
    log = make(engine, "d")
    replica.ship_all()
    first = engine.journal.index
    for _ in range(3):
        engine.journal.prepare()
        engine.switch_journal()
    fill(log, "1")
    engine.flush()
    replica.ship_all()
    assert sorted(shipped_files(store)) == list(range(first, first + 4))


def test_many_bytes_are_shipped_in_several_chunks(
    engine: Engine, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper_module, "MAX_CHUNK_BYTES", 1000)
    monkeypatch.setattr(shipper_module, "MIN_PIECE_BYTES", 100)
    replica = replica_of(engine)
    log = make(engine, "d")
    replica.ship_all()
    for number in range(4):
        fill(log, *[str(number) * 150] * 5)
        engine.flush()
        engine.journal.prepare()
        engine.switch_journal()
    fill(log, "end")
    engine.flush()
    replica.ship_all()
    files = shipped_files(store)
    assert files == {index: journal(engine, index) for index in files}
    assert max(files) == engine.journal.index
    assert all(len(piece.data) <= 1000 for piece in pieces(store))
    assert kinds(store).count(ChunkKind.JOURNAL) > 4


def test_a_new_state_comes_when_sealed_files_were_removed_before_they_were_shipped(tmp_path: Path) -> None:
    store = FaultyStore()
    with served(directory(tmp_path, "one"), store, replica_backlog_bytes=0) as engine:
        replica = replica_of(engine)
        log = make(engine, "r", durability="replicated")
        disk = make(engine, "d")
        commit = log.append(Batch.of(b"1"))
        for number in range(3):
            fill(disk, str(number))
            engine.seal()
        assert not commit.done
        assert texts(log) == []
        replica.ship_all()
        assert commit.wait().first == 1
        assert texts(log) == ["1"]
        assert kinds(store).count(ChunkKind.STATE) == 2
    with served(directory(tmp_path, "two"), store) as engine:
        assert texts(engine.log("r")) == ["1"]
        assert texts(engine.log("d")) == ["0", "1", "2"]


def test_sealed_files_are_kept_until_they_were_shipped(engine: Engine, store: FaultyStore) -> None:
    replica = replica_of(engine)
    log = make(engine, "d")
    replica.ship_all()
    fill(log, "1")
    first = engine.journal.index
    engine.seal()
    engine.seal()
    assert engine.disk.exists(journal_path(first))
    replica.ship_all()
    engine.seal()
    assert not engine.disk.exists(journal_path(first))


def test_a_state_that_is_ahead_of_the_journal_acknowledges_what_it_covers(engine: Engine, store: FaultyStore) -> None:
    replica = replica_of(engine)
    log = make(engine, "r", durability="replicated")
    commit = log.append(Batch.of(b"1"))
    engine.seal()
    replica.keep_files()
    assert not commit.done
    before = kinds(store)
    replica.ship_all()
    assert commit.done
    assert kinds(store)[len(before)] is ChunkKind.STATE
    assert ChunkKind.JOURNAL not in kinds(store)[len(before) :]


def test_a_chunk_without_an_answer_is_repeated_and_counts_once(engine: Engine, store: FaultyStore) -> None:
    replica = replica_of(engine)
    log = make(engine, "r", durability="replicated")
    for number, fate in enumerate(("unanswered", "lost"), 1):
        commit = log.append(Batch.of(b"x"))
        engine.flush()
        store.creations = [fate]  # type: ignore[list-item]
        with pytest.raises(OSError, match=r"no answer|was lost"):
            replica.ship_all()
        assert not commit.done
        replica.ship_all()
        assert commit.wait().first == number
    assert shipped_files(store) == {index: journal(engine, index) for index in shipped_files(store)}
