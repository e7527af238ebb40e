from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.data_directories import (
    block_of,
    change_manifest,
    change_states,
    fill,
    make,
    open_engine,
    poke,
    tree,
)

from strandline.engine import Batch, Config
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadConfig, DirectoryInUse, NoDataDirectory
from strandline.engine.operations.erasures import NAME
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.segments.segment import Segment
from strandline.engine.state.block import Block
from strandline.engine.state.checkpoints import BookState, JournalEntry, Manifest, SegmentEntry
from strandline.engine.state.logbook import Gap, Logbook
from strandline.engine.testing.fault_disk import FaultDisk
from strandline.engine.verify.directory_check import Report, verify
from strandline.engine.verify.log_check import check_book


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "data"
    make(path)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


class _NoSegments:
    def segment(self, id: int) -> Segment:
        raise AssertionError

    def load(self, id: int, index: int) -> Block:
        raise AssertionError


NO_SEGMENTS = _NoSegments()


def check(path: Path) -> Report:
    """Verify, and make sure that it changed nothing."""
    before = tree(path)
    report = verify(LocalDisk(path))
    assert tree(path) == before
    return report


def problem_of(path: Path) -> str:
    problems = check(path).problems
    assert len(problems) == 1
    return problems[0]


def test_a_sound_directory_has_no_problem_and_true_figures(path: Path) -> None:
    report = check(path)
    assert report.sound
    assert report.notes == []
    # 340 of a, of which 4 are deleted and 2 hidden; 50 of b, of which 3 are deleted; and the events that tell of it.
    assert (report.logs, report.records) == (3, 334 + 47 + 4)
    assert (report.segments, report.checkpoints, report.journal_files) == (2, 2, 1)
    # 20 appends, a delete with its event, two settled reservations, and the end.
    assert report.journal_frames == 25
    assert report.file_bytes == sum(len(data) for name, data in tree(path).items() if name != "MANIFEST")


def test_a_directory_that_is_in_use_cannot_be_checked(path: Path) -> None:
    with open_engine(path), pytest.raises(DirectoryInUse):
        verify(LocalDisk(path))
    verify(LocalDisk(path))


def test_what_is_no_data_directory_cannot_be_checked(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(NoDataDirectory):
        verify(LocalDisk(tmp_path))
    assert not (tmp_path / "LOCK").exists()


# The manifest


def test_a_missing_manifest_is_found(path: Path) -> None:
    (path / "MANIFEST").unlink()
    assert problem_of(path) == "MANIFEST: the file is missing."


def test_a_damaged_manifest_is_found(path: Path) -> None:
    poke(path / "MANIFEST", 20)
    assert problem_of(path) == "MANIFEST: its checksum does not match."


def test_numbers_that_would_be_used_twice_are_found(path: Path) -> None:
    def change(manifest: Manifest) -> None:
        manifest.next_segment = 2
        manifest.next_checkpoint = 2
        manifest.next_epoch = 2

    change_manifest(path, change)
    assert check(path).problems == [
        "MANIFEST: the next segment number is 2, but segment 2 exists.",
        "MANIFEST: the next checkpoint number is 2, but checkpoint 2 exists.",
        "MANIFEST: the next epoch is 2, but log 'b' has epoch 2.",
        "MANIFEST: the next epoch is 2, but log '__erasures__' has epoch 3.",
    ]


# Checkpoints


def test_a_missing_checkpoint_is_found(path: Path) -> None:
    (path / "checkpoints/00000002.changes").unlink()
    assert "checkpoints/00000002.changes: the file is missing." in check(path).problems


def test_a_damaged_checkpoint_is_found(path: Path) -> None:
    file = path / "checkpoints/00000002.changes"
    poke(file, -10)
    problems = check(path).problems
    assert any(p.startswith("checkpoints/00000002.changes: ") and "checksum does not match" in p for p in problems)


def test_a_checkpoint_under_another_name_is_found(path: Path) -> None:
    (path / "checkpoints/00000001.full").rename(path / "checkpoints/00000007.full")
    change_manifest(path, lambda manifest: manifest.checkpoints.__setitem__(0, "00000007.full"))
    assert "checkpoints/00000007.full: its header has the checkpoint number 1." in check(path).problems


def test_an_overlay_without_a_run_is_found(path: Path) -> None:
    change_states(path, "a", lambda state: state.runs.pop(0))
    problems = check(path).problems
    assert any("is for segment 1, in which the log (epoch 1) has no run" in problem for problem in problems)


# Segments


def test_a_damaged_block_is_found_with_what_is_in_it(path: Path) -> None:
    file, start, end = block_of(path, 1, 1)
    poke(file, (start + end) // 2)
    assert check(path).problems == [
        "segments/00000001.arrow: Block 1: the checksum of block 1 does not match.",
        "segments/00000001.arrow: 130 records of log 'a' between seq 132 and seq 261 are unreadable.",
    ]


def test_a_damaged_block_with_two_logs_names_both(path: Path) -> None:
    file, start, end = block_of(path, 1, 2)
    poke(file, (start + end) // 2)
    assert check(path).problems[1:] == [
        "segments/00000001.arrow: 39 records of log 'a' between seq 262 and seq 300 are unreadable.",
        "segments/00000001.arrow: 40 records of log 'b' between seq 1 and seq 40 are unreadable.",
        "journal/00000003.journal: 62 bytes at offset 161798: delete of 'b' could not be replayed: "
        "segments/00000001.arrow is damaged: the checksum of block 2 does not match.",
    ]


@pytest.mark.parametrize("offset", [100, -100])
def test_a_damaged_head_or_tail_of_a_segment_is_found(path: Path, offset: int) -> None:
    poke(path / "segments/00000002.arrow", offset)
    assert problem_of(path).startswith("segments/00000002.arrow: ")


def test_a_missing_segment_is_found(path: Path) -> None:
    (path / "segments/00000002.arrow").unlink()
    assert problem_of(path) == "segments/00000002.arrow: the file is missing."


def test_a_cut_off_segment_is_found(path: Path) -> None:
    file = path / "segments/00000002.arrow"
    file.write_bytes(file.read_bytes()[:-1])
    size = file.stat().st_size
    assert problem_of(path) == f"segments/00000002.arrow: it has {size} bytes; expected {size + 1}."


def test_a_wrong_number_of_rows_in_the_manifest_is_found(path: Path) -> None:
    def change(manifest: Manifest) -> None:
        entry = manifest.segments[1]
        manifest.segments[1] = SegmentEntry(entry.id, entry.size, entry.edges, 31)

    change_manifest(path, change)
    assert problem_of(path) == "segments/00000002.arrow: it has 33 rows; the manifest says 31."


def test_a_segment_that_no_log_uses_is_noted(path: Path) -> None:
    for name in ("a", NAME):
        change_states(path, name, lambda state: state.runs.pop())
    note = "segments/00000002.arrow: no log has records in it; the next round of sealing removes it."
    assert note in check(path).notes


def test_segments_in_the_cold_tier_are_checked_as_well(tmp_path: Path) -> None:
    path, cold = tmp_path / "data", ObjectStoreCold(str(tmp_path / "cold"))
    make(path, cold, hot_segments=0)
    assert [file.name for file in (path / "segments").iterdir()] == []
    with pytest.raises(BadConfig):
        verify(LocalDisk(path))
    before = tree(path)
    report = verify(LocalDisk(path), cold)
    assert report.sound
    assert report.segments == 2
    file = tmp_path / "cold/00000002.arrow"
    poke(file, file.stat().st_size // 2)
    assert "the checksum of block 0 does not match" in verify(LocalDisk(path), cold).problems[0]
    file.unlink()
    assert verify(LocalDisk(path), cold).problems[0] == f"{tmp_path}/cold/00000002.arrow: the file is missing."
    assert tree(path) == before


def test_a_hot_file_does_not_hide_damage_in_the_cold_tier(tmp_path: Path) -> None:
    path, cold = tmp_path / "data", ObjectStoreCold(str(tmp_path / "cold"))
    make(path, cold, hot_segments=0)
    file = tmp_path / "cold/00000002.arrow"
    (path / "segments/00000002.arrow").write_bytes(file.read_bytes())
    report = verify(LocalDisk(path), cold)
    assert report.sound
    assert report.notes == ["segments/00000002.arrow: it belongs to no segment; the next start removes it."]
    poke(file, file.stat().st_size // 2)
    problems = verify(LocalDisk(path), cold).problems
    assert problems == ["00000002.arrow in the cold tier is missing or damaged."]


def test_a_cold_tier_of_another_directory_is_found(tmp_path: Path) -> None:
    path, cold = tmp_path / "data", ObjectStoreCold(str(tmp_path / "cold"))
    make(path)
    cold.put("OWNER", b"somebody")
    problems = verify(LocalDisk(path), cold).problems
    assert problems == [f"{tmp_path}/cold: it belongs to another data directory (somebody)."]


# The journal


def test_a_damaged_frame_is_found(path: Path) -> None:
    poke(path / "journal/00000003.journal", 8200)
    problem = problem_of(path)
    assert problem == "journal/00000003.journal: 8080 bytes at offset 8128: the frame's checksum does not match."


@pytest.mark.parametrize("offset", [0, 20, 25])
def test_a_damaged_header_of_a_journal_is_found(path: Path, offset: int) -> None:
    poke(path / "journal/00000003.journal", offset)
    problem = check(path).problems[0]
    assert problem.startswith("journal/00000003.journal: ")
    assert "header does not match" in problem or "magic" in problem


def test_a_missing_journal_is_found(path: Path) -> None:
    with open_engine(path):
        pass
    (path / "journal/00000003.journal").unlink()
    report = check(path)
    assert report.problems[0] == "journal/00000003.journal: the file is missing."
    assert any("The server refuses to start" in note for note in report.notes)


def test_a_missing_last_journal_is_found(path: Path) -> None:
    (path / "journal/00000003.journal").unlink()
    assert check(path).problems[0] == "journal/00000003.journal: the file is missing."


@pytest.mark.parametrize("size", [0, 20, 48, 161860])
def test_a_journal_that_was_cut_off_after_an_orderly_stop_is_found(path: Path, size: int) -> None:
    os.truncate(path / "journal/00000003.journal", size)
    missing = "its header has" if size < 48 else f"it was truncated: {162028 - size} of 162028 bytes are missing"
    assert check(path).problems[0].startswith(f"journal/00000003.journal: {missing}")


def test_a_torn_end_is_no_problem_but_noted(path: Path) -> None:
    """After a stop that was not an orderly one: neither the manifest nor a flush mark knows where the journal ended."""
    (path / "FLUSHED").unlink()
    change_manifest(path, lambda manifest: setattr(manifest, "journals", [JournalEntry(3)]))
    file = path / "journal/00000003.journal"
    file.write_bytes(file.read_bytes()[:-160])
    report = check(path)
    assert report.sound
    assert report.notes[0] == "journal/00000003.journal: 8 bytes at offset 161860 were partly written at the stop."
    assert report.notes[-1] == "The last shutdown was not clean."


def test_what_a_power_cut_may_take_is_no_problem_but_noted(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = open_engine(disk)  # type: ignore[arg-type]
    fill(engine, "a", 3)
    report = verify(disk.power_cut())
    assert report.sound
    assert report.notes[0] == "Log 'a': seqs 1 to 256 may have been acknowledged and lost."


def test_kept_journals_are_checked_as_well(path: Path) -> None:
    with open_engine(path, keep_journal_ms=1000) as engine:
        engine.seal()
    assert check(path).sound
    poke(path / "journal/00000003.journal", 8200)
    assert problem_of(path).startswith("journal/00000003.journal: 8080 bytes at offset 8128 are unreadable: ")


# Logs


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("count", 7, "it has 334 live records; expected 17"),
        ("size", 1, "its live records have 2665574 bytes; expected 80051"),
        ("earliest", 2, "its earliest record is 1; expected 2"),
        ("cap_floor", 2, "its floor 2 is above its earliest record 1"),
        ("ttl_floor", 2, "its floor 2 is above its earliest record 1"),
        ("gaps", [Gap(9, 9, "lost"), Gap(8, 8, "lost")], "its gaps 9 to 9 and 8 to 8 are out of order"),
        ("gaps", [Gap(9, 9000, "lost")], "its gap 9 to 9000 extends beyond the assigned seqs"),
    ],
)
def test_a_wrong_state_of_a_log_is_found(path: Path, field: str, value: object, problem: str) -> None:
    change_states(path, "a", lambda state: setattr(state, field, value))
    assert problem_of(path) == f"Log 'a': {problem}."


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("live", 1, "has 294 live records of 2345374 bytes; expected 1 of 2345374"),
        ("live_size", 1, "has 294 live records of 2345374 bytes; expected 294 of 1"),
        ("rows", 299, "has rows 299; the segment's footer says 300"),
        ("ts_last", 1, "has ts_last 1; the segment's footer says 1700000000000"),
        ("key_first", "j", "has key_first 'j'; the segment's footer says 'k0'"),
        ("row", 1, "is not in the segment's footer"),
        ("segment", 9, "is in a segment that the manifest does not name"),
    ],
)
def test_a_wrong_run_is_found(path: Path, field: str, value: object, problem: str) -> None:
    change_states(path, "a", lambda state: setattr(state.runs[0], field, value))
    problems = [problem for problem in check(path).problems if problem.startswith("Log 'a': its run 1 to 300")]
    segment = value if field == "segment" else 1
    assert problems == [f"Log 'a': its run 1 to 300 in segment {segment} {problem}."]


def test_runs_in_the_wrong_order_are_found(path: Path) -> None:
    change_states(path, "a", lambda state: state.runs.reverse())
    assert "Log 'a': its runs in segments 2 and 1 are not in the order of the manifest." in check(path).problems


def test_records_beyond_the_last_seq_are_found(path: Path) -> None:
    def change(state: BookState) -> None:
        state.assigned = 5

    with open_engine(path) as engine:
        engine.seal()
    change_states(path, "a", change)
    problems = check(path).problems
    assert "Log 'a': it has a record 340, but the highest assigned seq is 5." in problems


def test_seqs_that_go_backwards_are_found() -> None:
    book = Logbook("a", 1, Config())
    for seq, ts in ((5, 20), (3, 10)):
        block = Block.of_batch(seq, ts, Batch.of(b"x"))
        book.assign(block, ts, None, ts)
        book.publish(block, NO_SEGMENTS)
    problems = list(check_book(book, {}, NO_SEGMENTS))
    assert "Log 'a': seqs 3 to 3 come after seqs 5 to 5." in problems


def test_two_logs_of_one_name_are_found(path: Path) -> None:
    change_states(path, "a", lambda state: setattr(state, "name", "b"))
    assert "Log 'b': there are 2 logs of this name (epoch 1)." in check(path).problems


# What lies around


def test_leftovers_are_noted(path: Path) -> None:
    (path / "segments/00000009.arrow").write_bytes(b"half")
    (path / "checkpoints/00000009.full").write_bytes(b"half")
    (path / "MANIFEST.tmp").write_bytes(b"half")
    (path / "damaged").mkdir()
    (path / "damaged/00000001.journal").write_bytes(b"old")
    report = check(path)
    assert report.sound
    assert report.notes == [
        "segments/00000009.arrow: it belongs to no segment; the next start removes it.",
        "checkpoints/00000009.full: the manifest does not name it; the next start removes it.",
        "MANIFEST.tmp: it is incomplete; the next start removes it.",
        "damaged/: 1 damaged files are kept here; remove them if they are not needed.",
    ]
