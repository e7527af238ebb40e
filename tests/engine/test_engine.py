import errno
import threading
from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Config, Engine, ManualClock, Options
from strandline.engine.errors import (
    BadName,
    DirectoryInUse,
    DiskFull,
    EngineClosed,
    JournalFailed,
    LogExists,
    UnknownLog,
)
from strandline.engine.journal import frame, recovery
from strandline.engine.testing.fault_disk import FaultDisk


def test_logs_are_found_by_name(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        make(engine, "orders")
        assert engine.log("orders").name == "orders"
        assert engine.find("nope") is None
        with pytest.raises(UnknownLog) as unknown:
            engine.log("nope")
        assert unknown.value.name == "nope"
        with pytest.raises(LogExists):
            engine.create("orders")
        assert len(engine) == 1


@pytest.mark.parametrize("name", ["", "a\nb", "\ud800", "é" * 257, "\x00"])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as engine:
        with pytest.raises(BadName):
            engine.create(name)
        assert len(engine) == 0


def test_names_are_listed_in_order_by_prefix_and_page(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        for name in ("b", "a:2", "a:10", "c", "a:1", "a"):
            make(engine, name)
        assert engine.names() == ["a", "a:1", "a:10", "a:2", "b", "c"]
        assert engine.names(prefix="a:") == ["a:1", "a:10", "a:2"]
        assert engine.names(prefix="a:", after="a:1", limit=1) == ["a:10"]
        assert engine.names(after="b") == ["c"]
        engine.log("a:10").drop().wait()
        make(engine, "aa")
        assert engine.names(prefix="a") == ["a", "a:1", "a:2", "aa"]
        make(engine, "a:10")
        assert engine.names(prefix="a:") == ["a:1", "a:10", "a:2"]


def test_everything_is_there_after_an_orderly_stop(tmp_path: Path) -> None:
    classes = ("memory", "disk", "fsync")
    with opened(tmp_path) as engine:
        for durability in classes:
            fill(make(engine, durability, durability=durability), "1", "2")
    with opened(tmp_path) as engine:
        assert engine.recovered.clean
        assert engine.recovered.losses == []
        for durability in classes:
            log = engine.log(durability)
            assert (texts(log), log.config.durability) == (["1", "2"], durability)
            assert log.append(Batch.of(b"3")).wait().first == 3


def test_an_ephemeral_log_loses_its_records_but_not_its_seqs(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        fill(make(engine, durability="ephemeral"), "1", "2")
    with opened(tmp_path) as engine:
        log = engine.log("a")
        page = log.read(1)
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (2, 2, "lost")
        assert log.append(Batch.of(b"3")).wait().first == 3


def test_seqs_and_epochs_are_not_used_again_after_the_end_was_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "1", "2", "3")
        log.delete(seqs=[2, 3]).wait()
        engine.seal()
        gone = make(engine, "gone")
        gone.drop().wait()
        engine.seal()
    with opened(tmp_path) as engine:
        assert engine.log("a").append(Batch.of(b"4")).wait().first == 4
        assert make(engine, "new").epoch > gone.epoch


def test_a_second_engine_on_the_directory_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path):
        with pytest.raises(DirectoryInUse) as caught:
            Engine.open(tmp_path, background=False)
        assert "process" in caught.value.holder
    with opened(tmp_path):
        pass


def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
    engine.close()
    with pytest.raises(EngineClosed):
        log.append(Batch.of(b"x"))
    with pytest.raises(EngineClosed):
        engine.create("b")
    with pytest.raises(EngineClosed):
        engine.find("a")


def test_a_full_disk_refuses_the_append_and_nothing_else(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    with opened(disk) as engine:
        log = make(engine)
        fill(log, "1")
        for short in (False, True):
            disk.fail_from(disk.calls_of("write") + 1, errno.ENOSPC, kind="write", short=short)
            with pytest.raises(DiskFull):
                log.append(Batch.of(b"2"))
            disk.heal()
        assert texts(log) == ["1"]
        fill(log, "2")
    with opened(disk.process_kill()) as engine:
        assert texts(engine.log("a")) == ["1", "2"]


def test_a_failed_flush_fails_everybody_who_waits_and_ends_writing(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, clock=ManualClock(NOW), background=False)
    log = make(engine, durability="fsync")
    fill(log, "1")
    waiting = [log.append(Batch.of(b"2")), log.append(Batch.of(b"3"))]
    disk.fail_at(disk.calls_of("sync") + 1, errno.EIO, kind="sync")
    for commit in waiting:
        with pytest.raises(JournalFailed):
            commit.wait()
    with pytest.raises(JournalFailed) as caught:
        log.append(Batch.of(b"4"))
    assert caught.value.cause.errno == errno.EIO
    assert engine.stats().read_only
    assert texts(log) == ["1"]
    engine.close()
    with opened(disk.power_cut()) as engine:
        assert texts(engine.log("a")) == ["1"]


def test_one_flush_serves_many_threads(tmp_path: Path) -> None:
    with Engine.open(tmp_path, Options(flush_interval_ms=60_000)) as engine:
        log = engine.create("a", Config(durability="fsync")).wait()
        start = threading.Barrier(8)

        def write(number: int) -> None:
            start.wait()
            for _ in range(25):
                log.append(Batch.of(b"%d" % number)).wait()

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert log.state().count == 200
        assert engine.stats().flushes <= 202


def test_a_callback_gets_the_flush_going(tmp_path: Path) -> None:
    with Engine.open(tmp_path, Options(flush_interval_ms=60_000)) as engine:
        created = engine.create("a", Config(durability="fsync"))
        done = threading.Event()
        created.add_done_callback(lambda _: done.set())
        assert done.wait(30)
        assert created.done


def test_a_reservation_survives_a_power_cut_as_a_gap(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, clock=ManualClock(NOW), background=False)
    log = make(engine)
    fill(log, "1")
    engine.flush()
    fill(log, "2", "3")
    handed_out = log.head
    with opened(disk.power_cut()) as engine:
        log = engine.log("a")
        assert texts(log) == ["1"]
        page = log.read(1)
        assert page.tombstone is not None
        assert page.tombstone.reason == "lost"
        assert page.tombstone.gap_from == 2
        assert page.tombstone.gap_to >= handed_out
        assert log.append(Batch.of(b"x")).wait().first > handed_out
        assert [loss.path for loss in engine.recovered.losses] == ["a"]


def test_a_quiet_log_shows_no_gap_after_a_power_cut(tmp_path: Path) -> None:
    disk, clock = FaultDisk(tmp_path), ManualClock(NOW)
    engine = Engine.open(disk, clock=clock, background=False)
    fill(make(engine), "1", "2")
    engine.flush()
    clock.advance(Options().settle_after_ms)
    engine.settle_idle()
    engine.flush()
    with opened(disk.power_cut()) as engine:
        assert engine.recovered.losses == []
        assert engine.log("a").append(Batch.of(b"3")).wait().first == 3


def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, clock=ManualClock(NOW), background=False)
    for durability in ("memory", "disk", "fsync"):
        fill(make(engine, durability, durability=durability), "1", "2", "3")
    with opened(disk.process_kill()) as engine:
        assert not engine.recovered.clean
        for durability in ("memory", "disk", "fsync"):
            log = engine.log(durability)
            assert texts(log) == ["1", "2", "3"]
            assert log.append(Batch.of(b"4")).wait().first == 4


def test_the_threads_seal_by_themselves(tmp_path: Path) -> None:
    with Engine.open(tmp_path, Options(journal_bytes=1 << 16, flush_interval_ms=1)) as engine:
        log = engine.create("a").wait()
        written = 0
        while engine.stats().segments == 0:
            log.append(Batch([b"x" * 100] * 100)).wait()
            written += 100
            assert written < 5_000_000
        assert log.state().count == written
    with opened(tmp_path) as engine:
        assert engine.log("a").state().count == written


def test_a_start_tells_how_far_it_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "REPORT_BYTES", 200)
    monkeypatch.setattr(frame, "PIECE_BYTES", 200)
    seen: list[float] = []
    Engine.open(tmp_path, background=False, progress=seen.append).close()
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    for _ in range(2):
        with opened(tmp_path) as engine:
            log = engine.find("a") or make(engine)
            fill(log, *map(str, range(20)))
    seen.clear()
    with Engine.open(tmp_path, background=False, progress=seen.append) as engine:
        assert engine.log("a").state().count == 40
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)
    assert len(seen) > 10
