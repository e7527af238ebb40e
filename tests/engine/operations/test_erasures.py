"""Erasure events: what leaves one, what does not, what they say, and that they never part from the change."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Config, Engine, ManualClock
from strandline.engine.backup import backup, restore
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DiskFull
from strandline.engine.operations import erasures as erasing
from strandline.engine.operations.erasures import NAME, Erasure, read_erasure
from strandline.engine.testing.fault_disk import FaultDisk
from strandline.engine.verify.directory_check import verify


def events(engine: Engine) -> list[Erasure]:
    """What is told once everything is durable."""
    engine.flush()
    log = engine.find(NAME)
    return [] if log is None else [read_erasure(record.data) for record in log.read(limit=1000)]


def test_every_change_of_records_that_is_made_on_purpose_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        log.append(Batch([b"1", b"2", b"3", b"4"], keys=["a", "ab", "b", None])).wait()
        log.delete(key="a", before=4).wait()
        log.hide(prefix="a").wait()
        log.restore(seqs=[2, 9]).wait()
        log.amend(3, b"other").wait()
        log.drop().wait()
        told = [
            Erasure("log", 1, "delete", 4, before=4, key="a"),
            Erasure("log", 1, "hide", 4, prefix="a"),
            Erasure("log", 1, "restore", 4, seqs=[2, 9]),
            Erasure("log", 1, "amend", 4, seqs=[3]),
            Erasure("log", 1, "drop", 4),
        ]
        assert events(engine) == told
        engine.seal()
        assert events(engine) == told
    with opened(tmp_path) as engine:
        assert events(engine) == told
        assert engine.log(NAME).config == Config(durability="fsync", cap_bytes=64 << 20)


def test_an_event_is_json_as_it_is_documented(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        fill(make(engine, "log"), "1")
        engine.log("log").delete(seqs=[1]).wait()
        engine.flush()
        assert texts(engine.log(NAME)) == [
            '{"log":"log","epoch":1,"kind":"delete","bound":1,"before":null,"key":null,"prefix":null,"seqs":[1]}'
        ]


def test_what_nobody_can_have_copies_of_is_not_told(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log, side, ephemeral = make(engine, "log"), make(engine, "__side__"), make(engine, "e", durability="ephemeral")
        log.delete(key="a").wait()
        log.drop().wait()
        for name in (side, ephemeral):
            fill(name, "1", "2")
            name.delete(seqs=[1]).wait()
            name.drop().wait()
        log = make(engine, "log")
        fill(log, "1", "2")
        log.delete(seqs=[1], erasure=False).wait()
        log.delete(seqs=[]).wait()
        log.hide(seqs=[0, 3, 99]).wait()
        log.delete(before=1).wait()
        assert engine.find(NAME) is None


def test_a_log_with_one_underscore_is_told_of(tmp_path: Path) -> None:
    """A program made it, and a lake of an earlier version may have copies of its records."""
    with opened(tmp_path) as engine:
        log = make(engine, "_x")
        fill(log, "1", "2")
        log.delete(seqs=[1]).wait()
        engine.flush()
        assert [read_erasure(text.encode()).log for text in texts(engine.log(NAME))] == ["_x"]


def test_what_a_cap_took_can_still_be_erased_elsewhere(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log", cap_records=1)
        fill(log, "1", "2", "3", key="a")
        log.delete(before=2).wait()
        log.delete(key="nobody").wait()
        assert [(event.before, event.key) for event in events(engine)] == [(2, None), (None, "nobody")]


def test_an_ephemeral_log_with_a_durable_past_tells(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log", cap_records=2)
        fill(log, "1", "2")
        log.configure(Config(durability="ephemeral", cap_records=2)).wait()
        fill(log, "3", "4")
        log.delete(key="x").wait()
        assert [event.kind for event in events(engine)] == ["delete"]


def test_an_event_of_a_fork_is_about_its_own_records(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine, "source")
        fill(source, "1", "2", key="k")
        fork = engine.fork("fork", source, 2).wait()
        fork.delete(before=3).wait()
        assert events(engine) == []
        fill(fork, "3", key="k")
        fork.delete(key="k").wait()
        source.delete(key="k").wait()
        assert [(event.log, event.epoch, event.bound) for event in events(engine)] == [("fork", 2, 3), ("source", 1, 2)]


def test_very_many_seqs_are_told_in_several_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "SEQS_PER_EVENT", 4)
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        log.append(Batch([b"x"] * 20)).wait()
        log.delete(seqs=list(range(1, 11)), before=9).wait()
        told = events(engine)
        assert [seq for event in told for seq in event.seqs or ()] == list(range(1, 11))
        assert {(event.bound, event.before) for event in told} == {(20, 9)}


def test_old_events_make_room_for_new_ones_and_that_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "_CONFIG", Config(durability="fsync", cap_bytes=400))
    with opened(tmp_path) as engine:
        log = make(engine, "log")
        log.append(Batch([b"x"] * 20)).wait()
        for seq in range(1, 11):
            log.delete(seqs=[seq]).wait()
        assert [event.seqs for event in events(engine)] == [[8], [9], [10]]
        assert engine.log(NAME).state().evict_floor == 8
        tombstone = engine.log(NAME).read(after=3).tombstone
        assert tombstone is not None
        assert tombstone.reason == "cap"


def test_an_event_shows_once_it_is_durable_and_not_before_its_change(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log", durability="fsync")
        fill(log, "1", "2")
        commit = log.delete(seqs=[1])
        assert engine.log(NAME).head == 0
        heads: list[list[int]] = []
        engine.log(NAME).listen(lambda _: heads.append([record.seq for record in log.read()]))
        commit.wait()
        assert heads == [[2]]
        assert engine.log(NAME).head == 1


def test_nobody_waits_for_an_event_whose_change_does_not_wait(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, "log", durability="memory")
        fill(log, "1", "2")
        engine.flush()
        flushes = engine.stats().flushes
        assert log.delete(seqs=[1]).done
        assert log.delete(seqs=[2]).done
        assert engine.stats().flushes == flushes


def test_a_full_disk_refuses_the_change_and_leaves_no_event(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, clock=ManualClock(NOW), background=False)
    log = make(engine, "log")
    fill(log, "1", "2")
    for short in (False, True):
        disk.fail_from(1, errno.ENOSPC, kind="write", short=short)
        for attempt in (lambda: log.delete(seqs=[1]), lambda: log.amend(1, b"x"), log.drop):
            with pytest.raises(DiskFull):
                attempt()
        disk.heal()
        assert texts(log) == ["1", "2"]
        assert engine.find(NAME) is None
    log.delete(seqs=[1]).wait()
    assert [event.seqs for event in events(engine)] == [[1]]
    engine.close()


def test_verify_and_backups_take_events_like_any_record(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        log = make(engine, "log")
        fill(log, "1", "2", "3")
        log.delete(seqs=[1]).wait()
        engine.seal()
        log.delete(seqs=[2]).wait()
        told = events(engine)
        backup(tmp_path / "data", str(tmp_path / "pool"), clock=ManualClock(NOW))
    assert verify(LocalDisk(tmp_path / "data")).sound
    restore(str(tmp_path / "pool"), tmp_path / "again")
    with opened(tmp_path / "again") as engine:
        assert events(engine) == told
        engine.log("log").delete(seqs=[3]).wait()
        assert [event.seqs for event in events(engine)] == [[1], [2], [3]]
