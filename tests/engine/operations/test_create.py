"""A log with its notes and first records is made in one step."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
from support.engines import NOW, make, opened, texts

from strandline.engine import Batch, Config, Engine, ManualClock, Options
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadRecord, BadRequest, BatchTooLarge, LogExists
from strandline.engine.journal.file import FLUSHED, journal_path
from strandline.engine.testing.fault_disk import FaultDisk
from strandline.engine.verify.directory_check import verify

CLASSES = ["ephemeral", "memory", "disk", "fsync"]
NOTES = {"registry": {"v": 1}, "closed": True}


@pytest.mark.parametrize("durability", CLASSES)
@pytest.mark.parametrize("seal", [False, True])
def test_notes_and_records_are_there_from_the_beginning(tmp_path: Path, durability: str, seal: bool) -> None:
    with opened(tmp_path) as engine:
        batch = Batch([b"1", b"2"], ["k", None])
        log = engine.create("a", Config(durability=durability), notes=NOTES, batch=batch).wait()  # type: ignore[arg-type]
        assert (log.notes, texts(log), log.head) == (NOTES, ["1", "2"], 2)
        assert (log.state().count, engine.stats().records, engine.flushing.pending) == (2, 2, 0)
        if seal:
            engine.seal()
        assert log.append(Batch.of(b"3")).wait().first == 3
    with opened(tmp_path) as engine:
        log = engine.log("a")
        assert log.notes == NOTES
        if durability != "ephemeral":
            assert texts(log) == ["1", "2", "3"]
        else:
            assert log.next_seq > 3
    assert verify(LocalDisk(tmp_path)).sound


@pytest.mark.parametrize("durability", CLASSES)
def test_records_show_when_they_are_durable(tmp_path: Path, durability: str) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(), clock=ManualClock(NOW), background=False)
    commit = engine.create("a", Config(durability=durability), notes=NOTES, batch=Batch.of(b"1"))  # type: ignore[arg-type]
    log = engine.log("a")
    told: list[int] = []
    log.listen(lambda log: told.append(log.head))
    assert (commit.done, log.head, log.next_seq, log.notes) == (False, 0, 2, NOTES)
    later = log.append(Batch.of(b"2"))
    assert not later.done
    commit.wait()
    assert (told[0], texts(log), later.done) == (1, ["1", "2"], True)
    engine = Engine.open(disk.power_cut(), Options(), clock=ManualClock(NOW), background=False)
    assert engine.log("a").notes == NOTES
    if durability != "ephemeral":
        assert texts(engine.log("a")) == ["1", "2"]


def test_after_a_torn_write_there_is_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        make(engine, "before")
        size = engine.journal.size
        engine.create("a", notes=NOTES, batch=Batch.of(b"x" * 100)).wait()
        index, end = engine.journal.index, engine.journal.size
        killed = copytree(tmp_path, tmp_path.with_name("killed"))
    (killed / FLUSHED).unlink()  # a write that is torn was never flushed
    whole = (killed / journal_path(index)).read_bytes()[:end]
    for cut in range(size, len(whole), 7):
        torn = copytree(killed, tmp_path.with_name(f"torn-{cut}"))
        (torn / journal_path(index)).write_bytes(whole[:cut])
        with opened(torn) as engine:
            assert engine.names() == ["before"]


@pytest.mark.parametrize("config", [Config(cap_records=1), Config(ttl_ms=1)])
def test_the_first_records_are_kept_by_the_rules_of_the_log(tmp_path: Path, config: Config) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = engine.create("a", config, batch=Batch([b"1", b"2"])).wait()
        clock.advance(2)
        assert texts(log) == (["2"] if config.cap_records else [])


def test_what_is_refused_leaves_no_log_behind(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        for error, asked in (
            (BadRequest, {"notes": {"": 1}}),
            (BadRequest, {"notes": {"n": b"x" * (1 << 20)}}),
            (BadRequest, {"batch": Batch([])}),
            (BadRecord, {"batch": Batch(["text"])}),  # type: ignore[list-item]
            (BatchTooLarge, {"batch": Batch([b"1", b"2"]), "config": Config(cap_records=1, discard="reject")}),
        ):
            with pytest.raises(error):
                engine.create("a", **asked)  # type: ignore[arg-type]
            assert engine.find("a") is None
        log = engine.create("a", notes={}, batch=Batch.of(b"1")).wait()
        with pytest.raises(LogExists):
            engine.create("a", notes=NOTES, batch=Batch.of(b"2"))
        assert (log.notes, texts(log)) == ({}, ["1"])
