"""Compaction: what goes, what stays, and when."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from engine.reads.test_latest import latest, put
from support.engines import NOW, make, opened, texts

from strandline.engine import Batch, Config, Engine, Log, ManualClock, Options
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadConfig
from strandline.engine.housekeeping import compaction as module
from strandline.engine.operations.erasures import NAME
from strandline.engine.testing.fault_disk import FaultDisk
from strandline.engine.verify.directory_check import verify

CLASSES = ["ephemeral", "memory", "disk", "fsync"]


@pytest.mark.parametrize("durability", CLASSES)
@pytest.mark.parametrize("seal", [False, True])
def test_only_what_is_superseded_goes_and_nothing_else_changes(tmp_path: Path, durability: str, seal: bool) -> None:
    with opened(tmp_path, compact_after_ms=0) as engine:
        log = make(engine, compact=True, durability=durability)
        put(log, "a=1", "b=2", "none", "a=3", "a=4", "c=5")
        if seal:
            engine.seal()
        assert engine.compact()
        page = log.read()
        assert [(record.seq, record.key, record.data) for record in page] == [
            (2, "b", b"2"),
            (3, None, b"none"),
            (5, "a", b"4"),
            (6, "c", b"5"),
        ]
        assert page.tombstone is None
        assert log.state().evict_floor == 1
        assert engine.find(NAME) is None
        assert not engine.compact()
        put(log, "b=7")
        assert engine.compact()
        assert texts(log) == ["none", "4", "5", "7"]


def test_a_record_stays_for_a_while_after_it_was_superseded(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, compact_after_ms=1000) as engine:
        log = make(engine, compact=True)
        put(log, "a=1")
        clock.advance(5000)
        put(log, "a=2")
        clock.advance(999)
        assert not engine.compact()
        clock.advance(1)
        put(log, "a=3")
        assert engine.compact()
        assert texts(log) == ["2", "3"]
        clock.advance(1000)
        engine.seal()
        assert engine.compact()
        assert texts(log) == ["3"]


def test_logs_that_do_not_ask_for_it_are_left_alone_until_they_do(tmp_path: Path) -> None:
    with opened(tmp_path, compact_after_ms=0) as engine:
        log = make(engine)
        put(log, "a=1", "a=2")
        assert not engine.compact()
        log.configure(Config(compact=True)).wait()
        assert engine.compact()
        assert texts(log) == ["2"]
        log.configure(Config()).wait()
        put(log, "a=3")
        assert not engine.compact()
        assert texts(log) == ["2", "3"]
    with pytest.raises(BadConfig):
        Config(compact="yes")  # type: ignore[arg-type]


def test_it_goes_on_after_a_restart_and_survives_a_kill(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    options = Options(compact_after_ms=0)
    engine = Engine.open(disk, options, clock=ManualClock(NOW), background=False)
    log = make(engine, "log", compact=True, durability="fsync")
    put(log, "a=1", "b=2", "a=3")
    engine.compact()
    put(log, "b=4")
    disk = disk.process_kill()
    engine = Engine.open(disk, options, clock=ManualClock(NOW), background=False)
    log = engine.log("log")
    assert texts(log) == ["2", "3", "4"]
    assert engine.compact()
    assert texts(log) == ["3", "4"]
    engine.close()
    assert verify(LocalDisk(tmp_path)).sound


def test_what_a_fork_shares_is_kept_as_long_as_it_is_there(tmp_path: Path) -> None:
    with opened(tmp_path, compact_after_ms=0) as engine:
        source = make(engine, "source", compact=True)
        put(source, "a=1", "b=2")
        fork = engine.fork("fork", source, 2, Config(compact=True)).wait()
        put(source, "a=3", "a=4")
        put(fork, "b=own", "b=newer")
        engine.compact()
        assert texts(source) == ["1", "2", "4"]
        assert texts(fork) == ["1", "2", "newer"]
        assert latest(fork) == ["1", "newer"]
        fork.drop().wait()
        put(source, "b=5", "b=6")
        engine.compact()
        assert texts(source) == ["4", "6"]


def test_when_the_later_record_is_deleted_meanwhile_the_earlier_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, compact_after_ms=0) as engine:
        for durability in ("disk", "fsync"):
            log = make(engine, durability, compact=True, durability=durability)
            put(log, "a=1", "a=2")
            with monkeypatch.context() as patch:
                # Not waited for: on a careful log it is journaled, and not made yet, when the compaction goes on.
                patch.setattr(engine.compacting, "_bring_in", lambda *_, log=log: log.delete(seqs=[2]))
                assert not engine.compact()
            engine.flush()
            assert texts(log) == ["1"]
            put(log, "a=3")
            assert engine.compact()
            assert texts(log) == ["3"]


def test_when_the_log_is_forked_meanwhile_the_fork_has_its_last_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, compact_after_ms=0) as engine:
        log = make(engine, compact=True)
        put(log, "a=1", "a=2")
        with monkeypatch.context() as patch:
            patch.setattr(engine.compacting, "_bring_in", lambda *_: engine.fork("fork", log, 1))
            assert not engine.compact()
        assert texts(engine.log("fork")) == ["1"]
        put(log, "a=3")
        assert engine.compact()
        assert texts(log) == ["1", "3"]


def test_a_hidden_record_supersedes_nothing_and_is_not_deleted(tmp_path: Path) -> None:
    with opened(tmp_path, compact_after_ms=0) as engine:
        log = make(engine, compact=True)
        put(log, "a=1", "a=2", "a=3")
        log.hide(seqs=[3]).wait()
        engine.compact()
        assert texts(log) == ["2"]
        log.restore(seqs=[3]).wait()
        assert texts(log) == ["2", "3"]
        put(log, "b=4")
        engine.compact()
        assert texts(log) == ["3", "4"]


def test_what_is_not_remembered_is_gone_through_again_once_it_is_worth_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1)
    with opened(tmp_path, compact_after_ms=0) as engine:
        one, two = make(engine, "one", compact=True), make(engine, "two", compact=True)
        for log in (one, two):
            put(log, *(f"k{number}=x" for number in range(8)))
        engine.compact()
        for log in (one, two):
            put(log, "k0=y")
        engine.compact()
        assert sorted((one.state().count, two.state().count)) == [8, 9]
        for log in (one, two):
            put(log, "k1=y", "k2=y", "k3=y", "k4=y")
        engine.compact()
        assert sorted((one.state().count, two.state().count)) == [8, 8]


def test_a_full_disk_is_said_once_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(compact_after_ms=0), clock=ManualClock(NOW), background=False)
    log = make(engine, "log", compact=True)
    put(log, "a=1", "a=2")
    disk.fail_from(1, errno.ENOSPC, kind="write")
    assert not engine.compact()
    assert not engine.compact()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert texts(log) == ["1", "2"]
    disk.heal()
    assert engine.compact()
    assert texts(log) == ["2"]
    engine.close()


def test_it_deletes_in_slices_and_appends_get_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_RECORDS", 10)
    with opened(tmp_path, compact_after_ms=0) as engine:
        log = make(engine, compact=True)
        log.append(Batch([b"x"] * 95, keys=["a"] * 95)).wait()
        engine.seal()
        bring_in = engine.compacting._bring_in

        def append_meanwhile(book: object, seqs: object) -> None:
            bring_in(book, seqs)  # type: ignore[arg-type]
            put(log, "b=between")

        monkeypatch.setattr(engine.compacting, "_bring_in", append_meanwhile)
        engine.compact()
        assert log.state().count == 1 + 10


def test_the_background_does_it_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.engine.engine.COMPACT_SECONDS", 0.001)
    done = threading.Event()
    with Engine.open(tmp_path, Options(compact_after_ms=0)) as engine:
        log: Log = make(engine, compact=True)
        run = engine.compacting.run

        def compact() -> bool:
            if run():
                done.set()
            return False

        monkeypatch.setattr(engine.compacting, "run", compact)
        put(log, "a=1", "a=2")
        assert done.wait(60)
        assert texts(log)[-1] == "2"
