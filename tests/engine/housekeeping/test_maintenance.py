import errno
from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Config, Engine, ManualClock
from strandline.engine.errors import BadConfig, DamagedFile, EngineError
from strandline.engine.testing.fault_disk import FaultDisk


def files(path: Path, directory: str) -> list[str]:
    return sorted(entry.name for entry in (path / directory).iterdir())


def test_a_seal_moves_records_from_the_journal_into_a_segment(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        one, two = make(engine, "one"), make(engine, "two")
        fill(one, "1", "2")
        fill(two, "x")
        engine.seal()
        assert files(tmp_path, "segments") == ["00000001.arrow"]
        assert files(tmp_path, "journal") == ["00000002.journal"]
        fill(one, "3")
        assert (texts(one), texts(two)) == (["1", "2", "3"], ["x"])
    with opened(tmp_path) as engine:
        assert (texts(engine.log("one")), texts(engine.log("two"))) == (["1", "2", "3"], ["x"])


def test_a_seal_can_be_left_to_housekeeping(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        fill(make(engine), "1", "2")
        assert not engine.maintain(), "there is little"
        engine.seal_soon()
        assert engine.maintain()
        assert engine.backlog.size == 0
        assert not engine.maintain()


def test_four_segments_are_merged_into_one(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        for number in range(6):
            fill(log, f"{number}a", f"{number}b")
            engine.seal()
        assert len(files(tmp_path, "segments")) < 4
        assert texts(log) == [f"{number}{letter}" for number in range(6) for letter in "ab"]
        assert len(log._book.runs) == len(files(tmp_path, "segments"))


def test_what_happened_to_sealed_records_survives_seals_merges_and_restarts(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"%d" % n for n in range(1, 9)], keys=list("aabbccdd"))).wait()
        engine.seal()
        log.delete(key="a").wait()
        log.hide(key="b").wait()
        log.amend(5, b"five").wait()
        for _ in range(6):
            fill(log, "more")
            engine.seal()
        expected = ["five", "6", "7", "8"] + ["more"] * 6
        assert texts(log) == expected
    with opened(tmp_path) as engine:
        log = engine.log("a")
        assert (texts(log), log.state().count) == (expected, 10)
        log.restore(key="b").wait()
        assert texts(log)[:3] == ["3", "4", "five"]


def test_a_segment_that_nobody_needs_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        doomed, trimmed = make(engine, "doomed"), make(engine, "trimmed")
        fill(doomed, "1")
        fill(trimmed, "1")
        engine.seal()
        doomed.drop().wait()
        trimmed.delete(before=2).wait()
        fill(trimmed, "2")
        engine.seal()
        assert files(tmp_path, "segments") == ["00000002.arrow"]
    with opened(tmp_path) as engine:
        assert texts(engine.log("trimmed")) == ["2"]
        assert engine.find("doomed") is None


def test_a_segment_that_is_mostly_deleted_is_written_anew(tmp_path: Path) -> None:
    secret = b"do not keep this"
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([secret] * 90 + [b"public"] * 10, keys=["s"] * 90 + ["p"] * 10)).wait()
        engine.seal()
        log.delete(key="s").wait()
        engine.seal()
        engine.seal()
        assert texts(log) == ["public"] * 10
        entries = engine.maintenance.manifest.segments
        assert sorted(entry.rows for entry in entries) == [1, 10]  # and the event that tells of it


def test_changes_made_while_sealing_are_kept(tmp_path: Path) -> None:
    """Everything that can happen to a log between the boundary and the installation of its run."""
    with opened(tmp_path) as engine:
        log = make(engine, cap_records=8)
        dropped = make(engine, "dropped")
        fill(dropped, "x")
        log.append(Batch([b"%d" % n for n in range(1, 9)], keys=list("aabbccdd"))).wait()
        run_job = engine.maintenance._runner.run

        def meanwhile(job):
            info = run_job(job)
            log.delete(key="b").wait()
            log.hide(seqs=[5]).wait()
            log.amend(6, b"six").wait()
            fill(log, "9", "10", "11", "12")
            dropped.drop().wait()
            make(engine, "born")
            fill(engine.log("born"), "y")
            return info

        engine.maintenance._runner.run = meanwhile
        engine.seal()
        engine.maintenance._runner.run = run_job
        expected = ["2", "six", "7", "8", "9", "10", "11", "12"]
        assert (texts(log), log.state().count, log.state().size) == (expected, 8, 13)
        assert texts(engine.log("born")) == ["y"]
    for _ in range(2):
        with opened(tmp_path) as engine:
            log = engine.log("a")
            assert (texts(log), log.state().count, log.state().size) == (expected, 8, 13)
            assert texts(engine.log("born")) == ["y"]
            assert engine.find("dropped") is None
            engine.seal()


def test_a_round_that_fails_loses_nothing_and_is_tried_again(tmp_path: Path) -> None:
    step, reached = 0, True
    while reached:
        step += 1
        disk = FaultDisk(tmp_path / str(step))
        with opened(disk) as engine:
            log = make(engine)
            fill(log, "1", "2")
            engine.seal()
            fill(log, "3", "4")
            log.delete(seqs=[1, 3]).wait()
            fault = disk.calls + step
            disk.fail_at(fault, errno.ENOSPC)
            try:
                engine.seal()
            except (OSError, EngineError):
                pass
            reached = disk.calls >= fault
            disk.heal()
            assert texts(log) == ["2", "4"]
            if engine.writable:
                fill(log, "5")
                engine.seal()
                assert engine.maintenance.failure is None
                log.delete(seqs=[5]).wait()
        with opened(disk.process_kill()) as engine:
            assert texts(engine.log("a")) == ["2", "4"]
    assert step > 15


def test_only_changed_logs_are_checkpointed(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        for number in range(2000):
            engine.create(f"log {number:05d}", Config(attributes={"number": str(number)}))
        engine.flush()
        engine.seal()
        fill(engine.log("log 00007"), "x")
        engine.seal()
        full, changes = (tmp_path / "checkpoints" / name for name in files(tmp_path, "checkpoints"))
        assert (full.suffix, changes.suffix) == (".full", ".changes")
        assert changes.stat().st_size * 100 < full.stat().st_size
    with opened(tmp_path) as engine:
        assert len(engine) == 2000
        assert texts(engine.log("log 00007")) == ["x"]
        assert engine.log("log 01999").config.attributes == {"number": "1999"}


def test_old_segments_move_to_the_cold_tier_and_are_read_from_there(tmp_path: Path) -> None:
    options = {"cold_url": str(tmp_path / "cold"), "hot_segments": 1, "segment_bytes": 1}
    with opened(tmp_path / "data", **options) as engine:
        log = make(engine)
        for number in range(4):
            fill(log, str(number))
            engine.seal()
        tiers = [entry.tier for entry in engine.maintenance.manifest.segments]
        assert tiers == ["cold", "cold", "cold", "hot"]
        assert files(tmp_path / "data", "segments") == ["00000004.arrow"]
        assert texts(log) == ["0", "1", "2", "3"]
        log.delete(seqs=[2]).wait()
    with opened(tmp_path / "data", **options) as engine:
        assert texts(engine.log("a")) == ["0", "2", "3"]


def test_a_cold_tier_belongs_to_one_directory(tmp_path: Path) -> None:
    options = {"cold_url": str(tmp_path / "cold"), "hot_segments": 0}
    with opened(tmp_path / "one", **options) as engine:
        fill(make(engine), "1")
        engine.seal()
    with pytest.raises(BadConfig, match="another data directory"), opened(tmp_path / "two", **options):
        pass


def test_a_clock_that_stands_still_is_no_obstacle(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path, clock=ManualClock(NOW), background=False)
    log = make(engine)
    for number in range(3):
        fill(log, str(number))
        engine.seal()
    assert [record.ts for record in log.read()] == [NOW] * 3
    engine.close()


def test_a_journal_that_is_damaged_before_it_is_sealed_is_not_given_up(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, clock=ManualClock(NOW), background=False)
    log = make(engine)
    fill(log, "one", "two")
    at = (tmp_path / "journal" / "00000001.journal").read_bytes().index(b"two")
    disk.damage("journal/00000001.journal", at, b"TWO")
    with pytest.raises(DamagedFile, match="2 records of log 'a' should be sealed, but the segment has 1"):
        engine.seal()
    assert texts(log) == ["one", "two"]
    assert "00000001.journal" in files(tmp_path, "journal")
    engine.close()
