from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from support.data_directories import (
    History,
    block_of,
    change_manifest,
    change_states,
    fill,
    make,
    open_engine,
    poke,
    read_all,
    records,
    tree,
)

from strandline.engine.disk import LocalDisk
from strandline.engine.errors import DirectoryInUse, UnsupportedFormat
from strandline.engine.journal.frame import FrameType
from strandline.engine.journal.recovery import SEQ_LEAP
from strandline.engine.operations.erasures import NAME
from strandline.engine.segments.cold_tier import ColdStore, ObjectStoreCold
from strandline.engine.state.checkpoints import read_checkpoint
from strandline.engine.testing.fault_disk import Crashed, FaultDisk
from strandline.engine.verify.directory_check import Report, verify
from strandline.engine.verify.repair import repair


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "data"
    make(path)
    return path


@pytest.fixture(scope="module")
def written(made: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    return records(Path(shutil.copytree(made, tmp_path_factory.mktemp("written") / "data")))


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


def mend(path: Path, cold: ColdStore | None = None) -> Report:
    """Repair; then all is well, and a second repair has nothing to do."""
    assert verify(LocalDisk(path), cold).problems
    report = repair(LocalDisk(path), cold)
    assert report.problems == []
    assert verify(LocalDisk(path), cold).problems == []
    before = tree(path)
    again = repair(LocalDisk(path), cold)
    assert (again.problems, again.repairs, again.losses, again.kept) == ([], [], [], [])
    assert tree(path) == before
    return report


def lost(report: Report, log: str) -> set[int]:
    return {seq for loss in report.losses if loss.log == log for seq in range(loss.first, loss.last + 1)}


def lost_ranges(report: Report, log: str) -> list[tuple[int, int]]:
    return [(loss.first, loss.last) for loss in report.losses if loss.log == log]


def check_losses(path: Path, written: History, report: Report, cold: ColdStore | None = None) -> None:
    """What is gone is what the report says, readers get a tombstone for it, and everything else is as it was."""
    with open_engine(path, cold) as engine:
        assert engine.names() == sorted(written)
        for name, before in written.items():
            gone = lost(report, name)
            after, tombstones = read_all(engine, name)
            assert after == [record for record in before if record.seq not in gone]
            told = {seq for stone in tombstones for seq in range(stone.gap_from, stone.gap_to + 1)}
            assert {record.seq for record in before} & gone <= told
            assert all(stone.reason == "lost" for stone in tombstones)
            state = engine.log(name).state()
            assert state.count == len(after)
            assert state.size == sum(len(record.data) + len(record.meta or b"") for record in after)


def test_a_sound_directory_is_left_as_it_is(path: Path) -> None:
    before = tree(path)
    report = repair(LocalDisk(path))
    assert (report.sound, report.repairs, report.losses) == (True, [], [])
    assert tree(path) == before


def test_a_directory_in_use_is_left_alone(path: Path) -> None:
    with open_engine(path), pytest.raises(DirectoryInUse):
        repair(LocalDisk(path))


# Segments


def test_a_segment_with_a_damaged_block_keeps_its_other_rows(path: Path, written: History) -> None:
    file, start, end = block_of(path, 1, 1)
    poke(file, (start + end) // 2)
    damaged = file.read_bytes()
    report = mend(path)
    (loss,) = report.losses
    assert (loss.log, loss.first, loss.last, loss.records) == ("a", 132, 261, 130)
    assert loss.path == "segments/00000001.arrow"
    assert report.repairs[0] == "segments/00000001.arrow: 210 of 340 rows were kept, in segments/00000003.arrow."
    assert report.kept == ["damaged/00000001.arrow"]
    assert (path / "damaged/00000001.arrow").read_bytes() == damaged
    check_losses(path, written, report)


def test_deleted_records_in_a_damaged_block_are_no_loss(path: Path, written: History) -> None:
    file, start, end = block_of(path, 1, 0)
    poke(file, (start + end) // 2)
    report = mend(path)
    assert [(loss.first, loss.last, loss.records) for loss in report.losses] == [(1, 4, 4), (8, 131, 124)]
    check_losses(path, written, report)
    with open_engine(path) as engine:
        assert engine.log("a").state().earliest == 132
        assert engine.log("a").restore(before=200).wait().count == 0


def test_a_missing_segment_loses_its_runs_only(path: Path, written: History) -> None:
    (path / "segments/00000002.arrow").unlink()
    report = mend(path)
    assert [(loss.log, loss.first, loss.last, loss.records) for loss in report.losses] == [
        ("a", 301, 330, 30),
        (NAME, 1, 3, 3),
    ]
    assert report.kept == []
    check_losses(path, written, report)


@pytest.mark.parametrize("offset", [100, -100])
def test_a_segment_whose_head_or_tail_is_damaged_is_lost_and_kept(path: Path, written: History, offset: int) -> None:
    poke(path / "segments/00000002.arrow", offset)
    report = mend(path)
    assert [(loss.log, loss.first, loss.last) for loss in report.losses] == [("a", 301, 330), (NAME, 1, 3)]
    assert report.kept == ["damaged/00000002.arrow"]
    check_losses(path, written, report)


def test_all_segments_at_once_can_be_damaged(path: Path, written: History) -> None:
    for segment in (1, 2):
        file, start, end = block_of(path, segment, 0)
        poke(file, (start + end) // 2)
    report = mend(path)
    assert lost(report, "a") == {*range(1, 5), *range(8, 132), *range(301, 331)}
    check_losses(path, written, report)


def test_a_log_goes_on_after_a_repair_where_it_was(path: Path) -> None:
    (path / "segments/00000002.arrow").unlink()
    mend(path)
    with open_engine(path) as engine:
        fill(engine, "a", 1)
        assert engine.log("a").head == 341
        engine.seal()
    assert verify(LocalDisk(path)).problems == []


def test_a_cold_segment_is_repaired_as_well(tmp_path: Path, written: History) -> None:
    path, cold = tmp_path / "data", ObjectStoreCold(str(tmp_path / "cold"))
    make(path, cold, hot_segments=0)
    before = records(path, cold)
    file = tmp_path / "cold/00000001.arrow"
    poke(file, file.stat().st_size // 2)
    damaged = file.read_bytes()
    report = mend(path, cold)
    assert lost(report, "a") == set(range(132, 262))
    assert (path / "damaged/00000001.arrow").read_bytes() == damaged
    assert not file.exists()
    check_losses(path, before, report, cold)


def test_a_segment_is_taken_from_the_tier_where_it_is_sound(tmp_path: Path) -> None:
    path, cold = tmp_path / "data", ObjectStoreCold(str(tmp_path / "cold"))
    make(path, cold, hot_segments=0)
    before = records(path, cold)
    (tmp_path / "cold/00000002.arrow").rename(path / "segments/00000002.arrow")
    report = mend(path, cold)
    assert report.losses == []
    assert "segments/00000002.arrow: replaced by the undamaged copy from the hot tier." in report.repairs
    check_losses(path, before, report, cold)


def test_a_damaged_leftover_of_a_cold_segment_does_no_harm(tmp_path: Path) -> None:
    path, cold = tmp_path / "data", ObjectStoreCold(str(tmp_path / "cold"))
    make(path, cold, hot_segments=0)
    before = records(path, cold)
    shutil.copy(tmp_path / "cold/00000001.arrow", path / "segments/00000001.arrow")
    poke(*block_of(path, 1, 1)[:2])
    report = mend(path, cold)
    assert report.losses == []
    assert report.kept == ["damaged/00000001.arrow"]
    check_losses(path, before, report, cold)


# The manifest and the checkpoints


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_lost_manifest_is_made_again_without_any_loss(path: Path, written: History, damage: str) -> None:
    file = path / "MANIFEST"
    if damage == "missing":
        file.unlink()
    else:
        poke(file, 20)
    report = mend(path)
    assert report.losses == []
    assert report.repairs == ["MANIFEST: rebuilt from 2 checkpoints, 2 segments and the journal from file 3 on."]
    assert report.kept == ([] if damage == "missing" else ["damaged/MANIFEST"])
    check_losses(path, written, report)


def test_a_lost_manifest_does_not_forget_which_segments_are_cold(tmp_path: Path) -> None:
    path, cold = tmp_path / "data", ObjectStoreCold(str(tmp_path / "cold"))
    make(path, cold, hot_segments=1)
    before = records(path, cold)
    (path / "MANIFEST").unlink()
    report = mend(path, cold)
    assert report.losses == []
    check_losses(path, before, report, cold)


def test_without_manifest_and_checkpoints_the_footers_tell_what_there_is(path: Path, written: History) -> None:
    (path / "MANIFEST").unlink()
    shutil.rmtree(path / "checkpoints")
    report = mend(path)
    assert report.losses == []
    after = records(path)
    # What was deleted, hidden or amended in segments is known to the checkpoints alone.
    assert [r.seq for r in after["a"]] == list(range(1, 341))
    assert [r for r in after["a"] if r.seq not in (5, 6, 7, 11, 12, 20, 290)] == [
        r for r in written["a"] if r.seq != 20
    ]
    assert after["b"] == written["b"]
    assert sum("it now has the default configuration" in sentence for sentence in report.repairs) == 3


def test_without_its_newest_checkpoint_a_log_has_an_older_state(path: Path, written: History) -> None:
    (path / "checkpoints/00000002.changes").unlink()
    report = mend(path)
    assert report.losses == []
    assert report.repairs[0].startswith(f"Log '{NAME}': its state is lost")
    assert report.repairs[1].startswith("Log 'a': its newest state is lost; an older one was used")
    after = records(path)
    assert [r.seq for r in after["a"]] == list(range(1, 341))
    assert after["b"] == written["b"]


def test_of_a_damaged_checkpoint_the_other_logs_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with open_engine(path) as engine:
        for name in ("a", "b", "c"):
            fill(engine, name, 3, cap_records=2)
        engine.seal()
    before = records(path)
    poke(path / "checkpoints/00000001.full", -20)
    report = mend(path)
    assert report.kept == ["damaged/00000001.full"]
    with open_engine(path) as engine:
        configs = {name: engine.log(name).config.cap_records for name in engine.names()}
        assert sorted(configs.values()) == [0, 2, 2]
        (rebuilt,) = [name for name, cap in configs.items() if not cap]
        for name in before:
            assert read_all(engine, name)[0][-2:] == before[name]
    assert f"Log {rebuilt!r}: its state is lost" in report.repairs[0]


def test_records_of_a_log_whose_name_is_lost_get_another(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with open_engine(path) as engine:
        engine.create("quiet").wait()
        engine.seal()
        fill(engine, "quiet", 3)
    (path / "checkpoints/00000001.full").unlink()
    report = mend(path)
    assert report.repairs[0] == "Log recovered-1: records of a log whose name and state are lost."
    assert [record.seq for record in records(path)["recovered-1"]] == [1, 2, 3]


def test_a_log_that_was_dropped_stays_dropped_if_its_name_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with open_engine(path) as engine:
        fill(engine, "other", 1)
        fill(engine, "a", 2)
        engine.seal()
        engine.log("a").drop().wait()
        fill(engine, "a", 1)
        engine.seal()
    before = records(path)
    shutil.rmtree(path / "checkpoints")
    mend(path)
    assert records(path) == before


@pytest.mark.parametrize("segment", [1, 2])
@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_damaged_checkpoint_together_with_a_segment_loses_no_seq(
    tmp_path: Path, segment: int, durability: str
) -> None:
    """Nothing is left that tells how far ``a`` had come: neither its state nor the footer with its last records."""
    path = tmp_path / "data"
    with open_engine(path) as engine:
        for _ in range(2):
            fill(engine, "a", 3, durability=durability)
            fill(engine, "b", 1)
            engine.seal()
    # The order of the logs in a checkpoint is arbitrary.
    (state,) = [
        frame
        for frame in read_checkpoint(LocalDisk(path), "00000002.changes")
        if frame.type is FrameType.STATE and frame.epoch == 1
    ]
    poke(path / "checkpoints/00000002.changes", state.offset, state.length)
    (path / f"segments/0000000{segment}.arrow").unlink()
    report = mend(path)
    assert report.lossy
    with open_engine(path) as engine:
        found, tombstones = read_all(engine, "a")
        kept = [4, 5, 6] if segment == 1 else [1, 2, 3]
        assert [record.seq for record in found] == kept
        assert {stone.reason for stone in tombstones} == {"lost"}
        gone = set(range(1, 7)) - set(kept)
        told = {seq for seq in gone for stone in tombstones if stone.gap_from <= seq <= stone.gap_to}
        listed = {seq for seq in gone for first, last in lost_ranges(report, "a") if first <= seq <= last}
        assert told == listed == gone
        fill(engine, "a", 1)
        # The orderly stop has taken back what a ``disk`` log had reserved, which tells how far it had come.
        assert engine.log("a").head > (SEQ_LEAP if durability == "fsync" else 6)


def test_seqs_whose_records_were_deleted_before_the_checkpoint_was_lost_are_not_reused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with open_engine(path) as engine:
        fill(engine, "a", 3, durability="fsync")
        engine.log("a").delete(seqs=[2, 3]).wait()
        engine.seal()
    (path / "checkpoints/00000001.full").unlink()
    mend(path)
    with open_engine(path) as engine:
        fill(engine, "a", 1)
        assert engine.log("a").head > 3


def test_without_manifest_and_newest_checkpoint_newer_segments_count_as_well(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with open_engine(path) as engine:
        for _ in range(2):
            fill(engine, "a", 3, durability="fsync")
            engine.seal()
    (path / "MANIFEST").unlink()
    (path / "checkpoints/00000002.changes").unlink()
    report = mend(path)
    assert report.lossy
    with open_engine(path) as engine:
        assert [record.seq for record in read_all(engine, "a")[0]] == [1, 2, 3, 4, 5, 6]
        fill(engine, "a", 1)
        assert engine.log("a").head > SEQ_LEAP
        fill(engine, "new", 1)
        assert engine.log("new").epoch > SEQ_LEAP


# Journals


def test_damage_in_a_journal_is_a_gap_and_the_file_is_kept(path: Path, written: History) -> None:
    file = path / "journal/00000003.journal"
    poke(file, 8200)
    damaged = file.read_bytes()
    report = mend(path)
    assert [(loss.log, loss.first, loss.last) for loss in report.losses] == [("a", 332, 332)]
    assert report.kept == ["damaged/00000003.journal"]
    assert (path / "damaged/00000003.journal").read_bytes() == damaged
    check_losses(path, written, report)


def test_a_journal_that_only_lost_its_header_gets_a_new_one(path: Path, written: History) -> None:
    poke(path / "journal/00000003.journal", 2)
    report = mend(path)
    assert report.losses == []
    assert report.repairs == ["journal/00000003.journal: its header was rebuilt."]
    check_losses(path, written, report)


def test_a_journal_that_cannot_be_read_at_all_is_lost_and_kept(path: Path, written: History) -> None:
    poke(path / "journal/00000003.journal", 25)
    report = mend(path)
    [(first, last)] = lost_ranges(report, "a")
    assert first == 331
    assert report.kept == ["damaged/00000003.journal"]
    with open_engine(path) as engine:
        # Seqs that may have been handed out are not handed out again.
        assert engine.log("a").head == last >= 340


def test_a_missing_journal_is_a_gap(path: Path, written: History) -> None:
    with open_engine(path) as engine:
        fill(engine, "a", 1)
    (path / "journal/00000003.journal").unlink()
    report = mend(path)
    assert report.lossy
    # The next file tells how far ``a`` had come, and nothing tells it of ``b``.
    assert lost_ranges(report, "a") == [(331, 340)]
    [(first, last)] = lost_ranges(report, "b")
    assert first == 41
    assert last > SEQ_LEAP
    assert [record.seq for record in records(path)["a"]][-2:] == [330, 341]


def test_a_missing_last_journal_makes_every_log_leap(path: Path) -> None:
    (path / "journal/00000003.journal").unlink()
    report = mend(path)
    [(first, last)] = lost_ranges(report, "a")
    assert first == 331
    assert last >= first + SEQ_LEAP - 1
    with open_engine(path) as engine:
        assert read_all(engine, "a")[0][-1].seq == 330
        fill(engine, "a", 1)
        assert engine.log("a").head == last + 1


def test_a_damaged_journal_that_was_kept_is_put_aside(path: Path, written: History) -> None:
    with open_engine(path, keep_journal_ms=1000) as engine:
        engine.seal()
    poke(path / "journal/00000003.journal", 8200)
    report = mend(path)
    assert report.losses == []
    assert report.kept == ["damaged/00000003.journal"]
    check_losses(path, written, report)


def test_a_start_and_a_seal_put_a_damaged_journal_aside_by_themselves(path: Path) -> None:
    poke(path / "journal/00000003.journal", 8200)
    with open_engine(path) as engine:
        engine.seal()
    assert (path / "damaged/00000003.journal").exists()
    assert not (path / "journal/00000003.journal").exists()
    assert verify(LocalDisk(path)).problems == []


# States


def test_wrong_counts_and_floors_are_put_right(path: Path, written: History) -> None:
    change_states(path, "a", lambda state: setattr(state, "count", 7))
    change_states(path, "a", lambda state: setattr(state, "size", 7))
    change_states(path, "a", lambda state: setattr(state, "earliest", 30))
    change_states(path, "a", lambda state: setattr(state, "cap_floor", 40))
    report = mend(path)
    assert report.losses == []
    check_losses(path, written, report)


def test_a_run_that_the_footer_contradicts_is_put_right(path: Path, written: History) -> None:
    change_states(path, "a", lambda state: setattr(state.runs[0], "rows", 299))
    report = mend(path)
    assert report.losses == []
    check_losses(path, written, report)


def test_a_run_in_an_unknown_segment_is_lost(path: Path, written: History) -> None:
    change_states(path, "a", lambda state: setattr(state.runs[1], "segment", 9))
    report = mend(path)
    assert [(loss.first, loss.last) for loss in report.losses] == [(301, 330)]
    check_losses(path, written, report)


def test_numbers_that_would_be_used_twice_are_put_right(path: Path, written: History) -> None:
    change_manifest(path, lambda manifest: setattr(manifest, "next_segment", 1))
    report = mend(path)
    assert report.losses == []
    check_losses(path, written, report)


# Crashes


def test_a_repair_that_crashes_can_be_done_again(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    make(origin)
    before = records(Path(shutil.copytree(origin, tmp_path / "written")))
    file, start, end = block_of(origin, 1, 1)
    poke(file, (start + end) // 2)
    poke(origin / "MANIFEST", 20)
    damaged = file.read_bytes()
    calls = 0
    while True:
        calls += 1
        path = tmp_path / "data"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(origin, path)
        disk = FaultDisk(path)
        disk.crash_after(calls)
        try:
            repair(disk)
        except Crashed:
            disk = disk.power_cut()
            repair(disk)
        else:
            break
        assert verify(disk).problems == []
        assert damaged in tree(path).values()
        with open_engine(path) as engine:
            after, _ = read_all(engine, "a")
            assert after == [record for record in before["a"] if not 132 <= record.seq <= 261]
            assert read_all(engine, "b")[0] == before["b"]
    assert calls > 10


# Anything


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "data"
    with open_engine(path) as engine:
        for _ in range(2):
            fill(engine, "a", 3)
            fill(engine, "b", 2, cap_records=3)
            engine.log("a").delete(key="k2").wait()
            engine.log("a").hide(key="k1").wait()
            engine.seal()
        fill(engine, "a", 2)
    return path


@pytest.mark.parametrize("seed", range(16))
def test_whichever_bit_is_wrong_a_repair_makes_the_directory_sound(small: Path, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    path = Path(shutil.copytree(small, tmp_path / "data"))
    file = path / random.choice(sorted(tree(path)))
    raw = bytearray(file.read_bytes())
    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    file.write_bytes(raw)
    try:
        report = mend(path)
    except UnsupportedFormat:
        return  # the bit was in a version: that file may be of a release to come
    with open_engine(path) as engine:
        for name in engine.names():
            read_all(engine, name)
    for name, kept in records(path).items():
        gone = [loss for loss in report.losses if loss.log == name]
        assert not [record.seq for record in kept if any(loss.first <= record.seq <= loss.last for loss in gone)]
