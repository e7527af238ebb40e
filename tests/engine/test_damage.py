"""Bytes that are not what was written: what a start, a read and housekeeping make of a poked directory."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import xxhash
from support.crash_oracle import observe_log
from support.data_directories import change_manifest

from strandline.engine import Batch, Config, Engine, ManualClock, Options
from strandline.engine.backup import creation as taking
from strandline.engine.backup.creation import backup
from strandline.engine.disk import Disk, LocalDisk
from strandline.engine.errors import (
    DamagedFile,
    DirectoryInUse,
    EngineError,
    JournalIncomplete,
    MissingFile,
    UnsupportedFormat,
)
from strandline.engine.journal.file import FLUSHED, journal_indexes, journal_path, read_journal, read_mark
from strandline.engine.journal.frame import (
    FILE_HEADER,
    HEADER,
    MARK_BYTES,
    FileKind,
    Frame,
    FrameType,
    file_header,
    scan,
)
from strandline.engine.journal.recovery import SEQ_LEAP
from strandline.engine.reads import directory_view
from strandline.engine.reads.directory_view import DirectoryView
from strandline.engine.state.checkpoints import Manifest, write_manifest
from strandline.engine.testing.fault_disk import Crashed, FaultDisk
from strandline.engine.verify.directory_check import verify
from strandline.engine.verify.repair import repair

FSYNC = Config(durability="fsync")
PAYLOADS = [b"record %d " % number + b"." * (number * 20) for number in range(1, 6)]


def open_engine(root: Path, clock: ManualClock | None = None) -> Engine:
    return Engine.open(root, Options(cache_bytes=0), clock=clock or ManualClock(), background=False)


def abandon(engine: Engine) -> None:
    """Let go of the directory as a killed process does: without a word."""
    engine.journal.close()
    engine.store.close()
    engine.disk.unlock()


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory whose process was killed: five appends to ``log``, with one to ``other`` after the second."""
    engine = open_engine(tmp_path)
    engine.create("log", FSYNC).wait()
    engine.create("other", FSYNC).wait()
    for number, payload in enumerate(PAYLOADS, 1):
        engine.log("log").append(Batch.of(payload, f"key {number}")).wait()
        if number == 2:
            engine.log("other").append(Batch.of(b"other")).wait()
    abandon(engine)
    return tmp_path


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """Two segments, one with ``log`` and one with ``other``, and a clean stop."""
    engine = open_engine(tmp_path)
    for name in ("log", "other"):
        engine.create(name, FSYNC).wait()
        for payload in PAYLOADS:
            engine.log(name).append(Batch.of(payload, "key")).wait()
        engine.seal()
    engine.close()
    return tmp_path


def journal(root: Path) -> Path:
    """The journal file that has frames."""
    disk = LocalDisk(root)
    return root / next(journal_path(i) for i in journal_indexes(disk) if disk.size(journal_path(i)) > FILE_HEADER.size)


def frames(root: Path) -> list[Frame]:
    path = journal(root)
    file = read_journal(LocalDisk(root), int(path.name.partition(".")[0]))
    return [item for item in file.frames() if isinstance(item, Frame)]


def appends(root: Path) -> list[Frame]:
    """The appends to ``log``."""
    return [frame for frame in frames(root) if frame.type is FrameType.APPEND and frame.epoch == 1]


def poke(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int) -> None:
    poke(path, offset, bytes([path.read_bytes()[offset] ^ 0x10]))


def data_of(engine: Engine, name: str = "log") -> list[bytes]:
    return [record.data for record in observe_log(engine.log(name)).records]


# --- the end of the journal ------------------------------------------------------------------------------------

GARBAGE: dict[str, bytes] = {
    "garbage": os.urandom(333),
    "one byte": b"\x01",
    "zeroes": bytes(4096),
    "a mark and nothing more": MARK_BYTES,
    "a huge length": MARK_BYTES + struct.pack("<I", 0xFFFFFFFF) + bytes(200),
    "a length below the least": MARK_BYTES + struct.pack("<I", 3) + bytes(200),
    "a length of nothing": MARK_BYTES + bytes(200),
    "half a header": HEADER.pack(0xA15EA5ED, 200, 1, 1, 0, 0, 1, 1, 6, 0, 6)[:30],
    "a header without its payload": HEADER.pack(0xA15EA5ED, 200, 1, 1, 0, 0, 1, 1, 6, 0, 6),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_behind_the_last_frame_is_cut_off(what: str, killed: Path) -> None:
    path = journal(killed)
    good = path.read_bytes()
    path.write_bytes(good + GARBAGE[what])
    engine = open_engine(killed)
    assert data_of(engine) == PAYLOADS
    assert engine.recovered.torn is not None
    assert engine.recovered.torn.length == len(GARBAGE[what])
    assert engine.recovered.losses == []
    assert path.read_bytes() == good
    assert engine.log("log").append(Batch.of(b"next")).wait().first == 6
    engine.close()


@pytest.mark.parametrize("kept", [0, 3, 4, 8, 20, HEADER.size - 1, HEADER.size, HEADER.size + 7, -1])
def test_a_torn_last_frame_is_cut_off(kept: int, killed: Path) -> None:
    """It was not flushed: the mark does not cover it, or the power cut took the mark as well."""
    (killed / FLUSHED).unlink()
    last = frames(killed)[-1]
    size = last.offset + (kept if kept >= 0 else last.length - 1)
    os.truncate(journal(killed), size)
    engine = open_engine(killed)
    assert data_of(engine) == PAYLOADS[:4]
    assert engine.recovered.losses == []
    assert journal(killed).stat().st_size == last.offset
    engine.close()
    again = open_engine(killed)
    assert data_of(again) == PAYLOADS[:4]
    assert again.recovered.clean
    again.close()


def test_no_flipped_bit_of_the_last_frame_passes(killed: Path) -> None:
    last = frames(killed)[-1]
    good, manifest = journal(killed).read_bytes(), (killed / "MANIFEST").read_bytes()
    for at in range(last.offset, last.offset + last.length, 5):
        journal(killed).write_bytes(good)
        flip(journal(killed), at)
        engine = open_engine(killed)
        assert data_of(engine) == PAYLOADS[:4]
        [loss] = engine.recovered.losses
        assert (loss.path, loss.offset, loss.allowed) == (journal_path(1), last.offset, False)
        assert engine.recovered.torn is None, "it was flushed, so no crash can have torn it"
        abandon(engine)
        for index in journal_indexes(LocalDisk(killed))[1:]:
            (killed / journal_path(index)).unlink()
        (killed / "MANIFEST").write_bytes(manifest)


# --- the middle of the journal ---------------------------------------------------------------------------------


def damage_third(root: Path, how: Callable[[Path, Frame], None]) -> Engine:
    third = appends(root)[2]
    how(journal(root), third)
    return open_engine(root)


DAMAGE: dict[str, Callable[[Path, Frame], None]] = {
    "a flipped bit in the payload": lambda path, frame: flip(path, frame.offset + frame.length - 2),
    "a flipped bit in the header": lambda path, frame: flip(path, frame.offset + 33),
    "a flipped bit in the mark": lambda path, frame: flip(path, frame.offset),
    "a wrong length": lambda path, frame: poke(path, frame.offset + 4, struct.pack("<I", frame.length + 1)),
    "a huge length": lambda path, frame: poke(path, frame.offset + 4, b"\xff\xff\xff\xff"),
    "zeroes": lambda path, frame: poke(path, frame.offset, bytes(frame.length)),
    "garbage": lambda path, frame: poke(path, frame.offset, os.urandom(frame.length)),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_lies_behind_damage_is_salvaged_and_the_gap_is_told(what: str, killed: Path) -> None:
    engine = damage_third(killed, DAMAGE[what])
    seen = observe_log(engine.log("log"))
    assert [record.data for record in seen.records] == [*PAYLOADS[:2], *PAYLOADS[3:]]
    assert seen.lost == (range(3, 4),)
    assert data_of(engine, "other") == [b"other"]
    [loss] = engine.recovered.losses
    assert loss.path.startswith("journal/")
    assert not loss.allowed
    engine.seal()
    assert observe_log(engine.log("log")) == seen
    engine.close()
    again = open_engine(killed)
    assert observe_log(again.log("log")) == seen
    again.close()


def test_seqs_of_a_damaged_append_are_not_handed_out_again(killed: Path) -> None:
    """The only append to ``other`` is lost; nothing behind it tells, but its header does."""
    only = next(frame for frame in frames(killed) if frame.type is FrameType.APPEND and frame.epoch == 2)
    flip(journal(killed), only.offset + only.length - 1)
    engine = open_engine(killed)
    assert observe_log(engine.log("other")).lost == (range(1, 2),)
    assert engine.log("other").append(Batch.of(b"again")).wait().first == 2
    assert data_of(engine) == PAYLOADS
    engine.close()


def test_a_later_change_of_the_log_tells_of_a_lost_append(tmp_path: Path) -> None:
    """Nothing of the append can be made out, and no append follows; but a delete says how far the log had got."""
    engine = open_engine(tmp_path)
    log = engine.create("log", FSYNC).wait()
    for payload in PAYLOADS[:3]:
        log.append(Batch.of(payload)).wait()
    log.delete(seqs=[1]).wait()
    abandon(engine)
    third = appends(tmp_path)[2]
    poke(journal(tmp_path), third.offset, bytes(third.length))
    engine = open_engine(tmp_path)
    assert observe_log(engine.log("log")).lost == (range(3, 4),)
    assert engine.log("log").append(Batch.of(b"next")).wait().first == 4
    engine.close()


def test_a_log_whose_drop_cannot_be_read_does_not_come_back(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    engine.create("log", FSYNC).wait().append(Batch.of(b"old life")).wait()
    engine.log("log").drop().wait()
    engine.create("log", FSYNC).wait().append(Batch.of(b"new life")).wait()
    abandon(engine)
    drop = next(frame for frame in frames(tmp_path) if frame.type is FrameType.DROP)
    poke(journal(tmp_path), drop.offset, bytes(drop.length))
    engine = open_engine(tmp_path)
    assert data_of(engine) == [b"new life"]
    engine.log("log").drop().wait()
    engine.close()
    engine = open_engine(tmp_path)
    assert engine.find("log") is None
    engine.close()


def test_a_frame_in_another_place_is_not_taken_for_one(killed: Path) -> None:
    """The fourth append stands where the third was: same file, same length, wrong place."""
    path = journal(killed)
    raw = path.read_bytes()
    third, fourth = appends(killed)[2:4]
    copy = raw[fourth.offset : fourth.offset + fourth.length]
    path.write_bytes(raw[: third.offset] + copy + raw[third.offset + third.length :])
    engine = open_engine(killed)
    # Everything behind it has moved by the difference in length, so none of it is where it was written.
    assert data_of(engine) == PAYLOADS[:2]
    engine.close()


def test_a_frame_of_another_file_is_not_taken_for_one(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    engine = open_engine(other)
    engine.create("log", FSYNC).wait()
    engine.create("other", FSYNC).wait()
    for number in range(1, 6):
        engine.log("log").append(Batch.of(PAYLOADS[number - 1].replace(b"record", b"forged"), f"key {number}")).wait()
        if number == 2:
            engine.log("other").append(Batch.of(b"other")).wait()
    abandon(engine)
    third = appends(killed)[2]
    poke(journal(killed), third.offset, journal(other).read_bytes()[third.offset : third.offset + third.length])
    engine = open_engine(killed)
    assert data_of(engine) == [*PAYLOADS[:2], *PAYLOADS[3:]]
    engine.close()


def test_a_payload_that_looks_like_a_frame_is_never_read_as_one(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    engine.create("log", FSYNC).wait()
    engine.log("log").append(Batch.of(b"before")).wait()
    abandon(engine)
    frame = appends(tmp_path)[0]
    whole = journal(tmp_path).read_bytes()[frame.offset : frame.offset + frame.length]
    engine = open_engine(tmp_path)
    engine.log("log").append(Batch.of(whole + b"tail")).wait()
    engine.log("log").append(Batch.of(b"after")).wait()
    abandon(engine)
    path = tmp_path / journal_path(2)
    raw = path.read_bytes()
    for at in (FILE_HEADER.size, FILE_HEADER.size + 20):
        path.write_bytes(raw)
        flip(path, at)
        [*items] = scan(path.read_bytes(), struct.unpack_from("<Q", raw, 24)[0], FILE_HEADER.size)
        assert [item.first for item in items if isinstance(item, Frame)] == [3]
    engine = open_engine(tmp_path)
    seen = observe_log(engine.log("log"))
    assert [(record.seq, record.data) for record in seen.records] == [(1, b"before"), (3, b"after")]
    assert seen.lost == (range(2, 3),)
    engine.close()


# --- lost journal files ------------------------------------------------------------------------------------------


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """200 acknowledged records in ``log``, 117 of them sealed, and a log that was made since; then a kill."""
    engine = open_engine(tmp_path)
    engine.create("log", FSYNC).wait()
    engine.log("log").append(Batch([b"sealed"] * 117)).wait()
    engine.seal()
    engine.log("log").append(Batch([b"in the journal"] * 83)).wait()
    engine.create("young", FSYNC).wait()
    abandon(engine)
    return tmp_path


def files_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "LOCK"}


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


LOSSES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: path.unlink(),
    "empty": cut(0),
    "half a header": cut(20),
    "a damaged magic": lambda path: flip(path, 0),
    "a damaged seed": lambda path: flip(path, 24),
    "a damaged checksum": lambda path: flip(path, 47),
    "another file": lambda path: poke(path, 0, file_header(FileKind.JOURNAL, 77, 1)),
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_start_without_a_journal_file_is_refused_and_changes_nothing(what: str, crashed: Path) -> None:
    LOSSES[what](journal(crashed))
    before = files_of(crashed)
    with pytest.raises(JournalIncomplete, match=r"journal/00000002.journal.*strandline verify --repair") as raised:
        open_engine(crashed)
    assert raised.value.path == journal_path(2)
    assert files_of(crashed) == before
    assert verify(LocalDisk(crashed)).problems[0].startswith(f"{journal_path(2)}: ")


@pytest.mark.parametrize("what", ["missing", "empty", "half a header", "a damaged seed", "another file"])
def test_a_repair_of_a_lost_journal_file_reuses_no_seq_and_no_epoch(what: str, crashed: Path) -> None:
    LOSSES[what](journal(crashed))
    report = repair(LocalDisk(crashed))
    assert (report.problems, report.lossy) == ([], True)
    [loss] = report.losses
    assert (loss.log, loss.first, loss.last, loss.path) == ("log", 118, 117 + SEQ_LEAP, journal_path(2))
    engine = open_engine(crashed)
    page = engine.log("log").read(after=117)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (118, 117 + SEQ_LEAP, "lost")
    assert len(data_of_up_to(engine, 117)) == 117
    assert engine.log("log").append(Batch.of(b"next")).wait().first == 118 + SEQ_LEAP
    assert engine.create("new", FSYNC).wait().epoch > SEQ_LEAP
    engine.close()


def data_of_up_to(engine: Engine, last: int) -> list[bytes]:
    return [record.data for record in engine.log("log").read(limit=last)]


def test_all_journal_files_may_be_lost_at_once(crashed: Path) -> None:
    for path in (crashed / "journal").iterdir():
        path.unlink()
    with pytest.raises(JournalIncomplete):
        open_engine(crashed)
    repair(LocalDisk(crashed))
    engine = open_engine(crashed)
    assert engine.log("log").append(Batch.of(b"next")).wait().first == 118 + SEQ_LEAP
    engine.close()


@pytest.mark.parametrize("what", ["missing", "cut off"])
def test_a_repair_that_crashes_can_be_repeated(
    what: str, crashed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wherever it stops, the loss is not forgotten: the start is refused, or the seqs are given up."""
    if what == "missing":
        journal(crashed).unlink()
    else:
        os.truncate(journal(crashed), FILE_HEADER.size)
    whole = FaultDisk(shutil.copytree(crashed, tmp_path_factory.mktemp("whole") / "data"))
    repair(whole)
    for call in range(0, whole.calls, 3):
        disk = FaultDisk(shutil.copytree(crashed, tmp_path_factory.mktemp("crash") / "data"))
        disk.crash_after(call)
        with suppress(Crashed):
            repair(disk)
        disk = disk.power_cut()
        try:
            engine = Engine.open(disk, clock=ManualClock(), background=False)
        except JournalIncomplete:
            repair(disk)
            engine = Engine.open(disk, clock=ManualClock(), background=False)
        assert engine.log("log").append(Batch.of(b"next")).wait().first == 118 + SEQ_LEAP
        engine.close()


def test_records_of_a_log_that_was_made_in_a_lost_file_are_kept(crashed: Path) -> None:
    engine = open_engine(crashed)
    engine.log("young").append(Batch.of(b"kept")).wait()
    abandon(engine)
    (crashed / journal_path(2)).unlink()
    repair(LocalDisk(crashed))
    engine = open_engine(crashed)
    assert data_of(engine, "recovered-2") == [b"kept"]
    engine.close()


def test_a_later_file_tells_how_far_a_log_had_come(tmp_path: Path) -> None:
    for number in range(3):
        engine = open_engine(tmp_path)
        if not number:
            engine.create("log", FSYNC).wait()
            engine.create("quiet", FSYNC).wait()
        if number == 1:
            engine.log("quiet").append(Batch.of(b"first")).wait()
        if number == 2:
            engine.log("quiet").amend(1, b"amended").wait()
        engine.log("log").append(Batch.of(b"%d" % number)).wait()
        abandon(engine)
    (tmp_path / journal_path(2)).unlink()
    with pytest.raises(JournalIncomplete, match=r"00000002.journal: the file is missing"):
        open_engine(tmp_path)
    report = repair(LocalDisk(tmp_path))
    assert {(loss.log, loss.first, loss.last) for loss in report.losses} == {
        ("log", 2, 2),
        # An amendment of record 1 does not tell whether there was a record 2.
        ("quiet", 1, 1 + SEQ_LEAP),
    }
    engine = open_engine(tmp_path)
    assert [record.data for record in observe_log(engine.log("log")).records] == [b"0", b"2"]
    assert observe_log(engine.log("log")).lost == (range(2, 3),)
    engine.close()


@pytest.mark.parametrize("what", ["at the end of a frame", "within a frame", "behind the header"])
def test_a_journal_that_was_cut_off_after_an_orderly_stop_is_noticed(what: str, killed: Path) -> None:
    engine = open_engine(killed)
    engine.log("log").append(Batch.of(b"sixth")).wait()
    engine.close()
    path = killed / journal_path(2)
    raw = path.read_bytes()
    first = next(item for item in read_journal(LocalDisk(killed), 2).frames() if isinstance(item, Frame))
    sizes = {"at the end of a frame": FILE_HEADER.size + first.length, "within a frame": len(raw) - 7}
    os.truncate(path, sizes.get(what, FILE_HEADER.size))
    with pytest.raises(JournalIncomplete, match=r"00000002.journal: it was truncated: \d+ of \d+ bytes are missing"):
        open_engine(killed)
    assert not verify(LocalDisk(killed)).sound
    report = repair(LocalDisk(killed))
    assert report.lossy
    engine = open_engine(killed)
    assert data_of_up_to(engine, 5) == PAYLOADS
    assert engine.log("log").append(Batch.of(b"next")).wait().first > SEQ_LEAP
    engine.close()


CUTS: dict[str, Callable[[Path], None]] = {
    "to its header": cut(FILE_HEADER.size),
    "to half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "by one byte": lambda path: os.truncate(path, path.stat().st_size - 1),
}


@pytest.mark.parametrize("what", CUTS)
def test_a_newest_journal_that_was_cut_off_after_a_kill_is_noticed(
    what: str, crashed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    CUTS[what](journal(crashed))
    before = files_of(crashed)
    with pytest.raises(JournalIncomplete, match=r"00000002.journal: it was truncated: \d+ of \d+ bytes are missing"):
        open_engine(crashed)
    with pytest.raises(JournalIncomplete):
        DirectoryView.take(crashed)
    with pytest.raises(JournalIncomplete):
        backup(crashed, str(tmp_path_factory.mktemp("pool")))
    assert files_of(crashed) == before
    report = repair(LocalDisk(crashed))
    assert (report.problems, report.lossy) == ([], True)
    engine = open_engine(crashed)
    assert engine.log("log").append(Batch.of(b"next")).wait().first > SEQ_LEAP
    assert engine.create("new", FSYNC).wait().epoch > SEQ_LEAP
    engine.close()
    assert verify(LocalDisk(crashed)).sound


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), cut(0), cut(30), lambda path: flip(path, 33)])
def test_a_flush_mark_that_is_missing_torn_or_damaged_is_ignored(damage: Callable[[Path], None], crashed: Path) -> None:
    damage(crashed / FLUSHED)
    assert verify(LocalDisk(crashed)).sound
    CUTS["by one byte"](journal(crashed))
    engine = open_engine(crashed)
    assert engine.recovered.torn is not None
    engine.close()


def test_a_view_and_a_backup_are_not_disturbed_by_flushes_under_way(
    crashed: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server writes and flushes after the journal was listed: then the mark is ahead of the sizes that were seen."""
    engine = open_engine(crashed)

    def indexes_before_a_flush(disk: Disk) -> list[int]:
        found = journal_indexes(disk)
        engine.log("log").append(Batch.of(b"meanwhile")).wait()
        return found

    class FrozenBeforeAFlush(directory_view._FrozenDisk):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            engine.log("log").append(Batch.of(b"meanwhile")).wait()

    monkeypatch.setattr(directory_view, "_FrozenDisk", FrozenBeforeAFlush)
    monkeypatch.setattr(directory_view, "ATTEMPTS", 1)
    monkeypatch.setattr(taking, "journal_indexes", indexes_before_a_flush)
    with DirectoryView.take(crashed) as view:
        assert view.books
    assert backup(crashed, str(tmp_path_factory.mktemp("pool"))).retries == 0
    engine.close()


def test_the_flush_mark_of_another_directory_is_ignored(
    crashed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    open_engine(other).close()
    shutil.copy(crashed / FLUSHED, other / FLUSHED)
    assert verify(LocalDisk(other)).sound
    open_engine(other).close()


def test_a_flush_mark_that_cannot_be_written_fails_no_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, clock=ManualClock(), background=False)
    disk.fail_from(1, errno.ENOSPC, kind="overwrite")
    log = engine.create("log", FSYNC).wait()
    assert [log.append(Batch.of(b"record")).wait().first for _ in range(3)] == [1, 2, 3]
    assert [record.message[:20] for record in caplog.records] == ["cannot write FLUSHED"]
    disk.heal()
    log.append(Batch.of(b"record")).wait()
    mark = read_mark(disk)
    assert mark is not None
    assert (mark.number, mark.size) == (1, disk.size(journal_path(1)))


def test_a_file_that_was_left_while_a_round_was_under_way_is_covered_by_the_mark(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    log = engine.create("log", FSYNC).wait()
    log.append(Batch.of(b"first file")).wait()
    engine.maintenance._rotate(engine.switch_journal)
    log.append(Batch.of(b"second file")).wait()
    abandon(engine)
    CUTS["to half"](tmp_path / journal_path(1))
    with pytest.raises(JournalIncomplete, match=r"00000001\.journal: it was truncated"):
        open_engine(tmp_path)


def test_an_earlier_journal_file_that_was_cut_off_at_a_frame_is_noticed(killed: Path) -> None:
    """The start after the kill has written down how long the file was."""
    abandon(open_engine(killed))
    os.truncate(killed / journal_path(1), appends(killed)[-1].offset)
    with pytest.raises(JournalIncomplete, match=r"00000001.journal: it was truncated"):
        open_engine(killed)


@pytest.mark.parametrize("size", [0, 20, FILE_HEADER.size])
def test_a_file_that_was_being_made_during_a_crash_is_used_and_sealed(size: int, killed: Path) -> None:
    """The next file is made ahead of time. What a crash left of it is written again under the same number."""
    (killed / journal_path(2)).write_bytes(bytes(size))
    engine = open_engine(killed)
    engine.log("log").append(Batch.of(b"sixth")).wait()
    engine.seal()
    engine.close()
    engine = open_engine(killed)
    assert data_of(engine) == [*PAYLOADS, b"sixth"]
    assert engine.recovered.losses == []
    engine.close()
    assert verify(LocalDisk(killed)).sound


def test_a_new_directory_that_crashed_before_its_first_journal_file_opens(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    for directory in ("journal", "segments", "checkpoints"):
        disk.make_directory(directory)
    write_manifest(disk, Manifest())
    open_engine(tmp_path).close()


def test_an_emptied_directory_is_noticed_by_its_lock(killed: Path) -> None:
    for path in killed.iterdir():
        if path.name != LocalDisk.LOCK_FILE:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(2):
        with pytest.raises(DamagedFile, match="LOCK says that this directory had data"):
            open_engine(killed)
        assert [path.name for path in killed.iterdir()] == [LocalDisk.LOCK_FILE]
    (killed / LocalDisk.LOCK_FILE).unlink()
    open_engine(killed).close()


def test_a_lock_without_data_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """A crash after the lock was taken, or a directory of an older release."""
    (tmp_path / LocalDisk.LOCK_FILE).write_text("process 123456789\n")
    open_engine(tmp_path).close()


@pytest.mark.parametrize("journal_files", [True, False])
def test_a_directory_of_an_older_release_opens(journal_files: bool, sealed: Path) -> None:
    """It has no flush mark, and its manifest names no journal files; just restored from a backup it may have none."""
    (sealed / FLUSHED).unlink()
    change_manifest(sealed, lambda manifest: setattr(manifest, "journals", []))
    if not journal_files:
        for path in (sealed / "journal").iterdir():
            path.unlink()
    engine = open_engine(sealed)
    assert data_of(engine) == data_of(engine, "other") == PAYLOADS
    assert engine.recovered.losses == []
    engine.close()


@pytest.mark.parametrize("at", [0, 12, 16, 24, 31, 32, 40, 47])
def test_a_journal_with_a_damaged_header_is_kept_whatever_a_repair_can_do(at: int, killed: Path) -> None:
    path = journal(killed)
    flip(path, at)
    damaged = path.read_bytes()
    with pytest.raises(JournalIncomplete) as raised:
        open_engine(killed)
    assert raised.value.path == str(path.relative_to(killed))
    assert path.read_bytes() == damaged
    repair(LocalDisk(killed))
    assert damaged in [file.read_bytes() for file in killed.rglob("*.journal*")]
    engine = open_engine(killed)
    # Without its seed nothing in the file can be told from garbage.
    assert (engine.find("log") is None) == (at in (24, 31))
    engine.close()


# --- manifest and checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-5]),
        lambda path: path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2]),
        lambda path: flip(path, 20),
        lambda path: path.write_bytes(os.urandom(500)),
        lambda path: path.unlink(),
    ],
    ids=["empty", "without its end", "half", "a flipped bit", "garbage", "missing"],
)
def test_without_a_good_manifest_nothing_is_guessed(damage: Callable[[Path], None], sealed: Path) -> None:
    damage(sealed / "MANIFEST")
    before = {path: path.read_bytes() for path in sealed.rglob("*.*") if path.is_file()}
    with pytest.raises(DamagedFile) as raised:
        open_engine(sealed)
    assert raised.value.path == "MANIFEST"
    assert {path: path.read_bytes() for path in sealed.rglob("*.*") if path.is_file()} == before


def test_a_damaged_checkpoint_is_named(sealed: Path) -> None:
    path = sorted((sealed / "checkpoints").iterdir())[0]
    for damage in (lambda: flip(path, 100), lambda: os.truncate(path, 60), path.unlink):
        damage()
        with pytest.raises(DamagedFile) as raised:
            open_engine(sealed)
        assert raised.value.path == f"checkpoints/{path.name}"


@pytest.mark.parametrize("where", ["MANIFEST", "journal", "checkpoints"])
def test_a_future_format_version_is_refused(where: str, sealed: Path) -> None:
    if where == "MANIFEST":
        body = (sealed / where).read_bytes().rstrip(b"\n").rpartition(b"\n")[0]
        body = body.replace(b'"version": 1', b'"version": 99')
        (sealed / where).write_bytes(body + f"\nxxh3 {xxhash.xxh3_64_hexdigest(body)}\n".encode())
    else:
        path = sorted((sealed / where).iterdir())[-1]
        poke(path, 8, struct.pack("<I", 99))
    with pytest.raises(UnsupportedFormat) as raised:
        open_engine(sealed)
    assert raised.value.found == 99


def test_leftovers_of_a_crash_are_removed(sealed: Path) -> None:
    strays = ["MANIFEST.tmp", "segments/00000077.arrow", "segments/00000078.arrow.tmp"]
    strays += ["checkpoints/00000077.full", "checkpoints/00000078.changes.tmp", "journal/00000001.journal.tmp"]
    for stray in strays:
        (sealed / stray).write_bytes(b"left over")
    engine = open_engine(sealed)
    assert [stray for stray in strays if (sealed / stray).exists()] == []
    assert data_of(engine) == data_of(engine, "other") == PAYLOADS
    assert engine.recovered.losses == []
    engine.close()


# --- segments --------------------------------------------------------------------------------------------------


def segment_with_log(root: Path) -> Path:
    return sorted((root / "segments").iterdir())[0]


SEGMENT_DAMAGE: dict[str, Callable[[Path], None]] = {
    "a flipped bit in a block": lambda path: flip(path, path.read_bytes().find(b"ARROW1", 6) // 2),
    "a flipped bit in the schema": lambda path: flip(path, 40),
    "a flipped bit in the footer": lambda path: flip(path, path.stat().st_size - 40),
    "a cut end": lambda path: os.truncate(path, path.stat().st_size - 1),
    "nothing in it": lambda path: os.truncate(path, 0),
    "garbage behind it": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("what", SEGMENT_DAMAGE)
def test_a_damaged_segment_is_named_and_other_logs_go_on(what: str, sealed: Path) -> None:
    path = segment_with_log(sealed)
    SEGMENT_DAMAGE[what](path)
    engine = open_engine(sealed)
    with pytest.raises(DamagedFile) as raised:
        engine.log("log").read()
    assert raised.value.path == f"segments/{path.name}"
    assert isinstance(raised.value, MissingFile) == (what == "missing")
    assert data_of(engine, "other") == PAYLOADS
    assert engine.log("log").append(Batch.of(b"goes on")).wait().first == 6
    assert [record.data for record in engine.log("log").read(after=5)] == [b"goes on"]
    engine.seal()
    engine.close()
    again = open_engine(sealed)
    assert [record.data for record in again.log("log").read(after=5)] == [b"goes on"]
    again.close()


def test_a_delete_that_meets_a_damaged_segment_does_nothing_at_all(sealed: Path) -> None:
    engine = open_engine(sealed)
    engine.log("log").append(Batch.of(b"tail", "key")).wait()
    good = segment_with_log(sealed).read_bytes()
    segment_with_log(sealed).write_bytes(b"")
    state, written = engine.log("log").state(), engine.journal.written
    log = engine.log("log")
    for change in (
        lambda: log.delete(key="key"),
        lambda: log.delete(prefix="k"),
        lambda: log.delete(seqs=[2, 6]),
        lambda: log.delete(before=4),
        lambda: log.hide(key="key"),
        lambda: log.hide(seqs=[1, 6]),
        lambda: log.amend(2, b"other"),
    ):
        with pytest.raises(EngineError):
            change()
    assert log.state() == state
    assert engine.journal.written == written
    segment_with_log(sealed).write_bytes(good)
    assert data_of(engine) == [*PAYLOADS, b"tail"]
    assert log.delete(key="key").wait().count == 6
    engine.close()


def test_whole_segments_can_be_deleted_even_if_they_are_damaged(sealed: Path) -> None:
    segment_with_log(sealed).write_bytes(b"")
    engine = open_engine(sealed)
    assert engine.log("log").delete(before=100).wait().count == 5
    assert data_of(engine) == []
    engine.seal()
    engine.close()
    open_engine(sealed).close()


def test_eviction_waits_until_the_segment_can_be_read(sealed: Path) -> None:
    engine = open_engine(sealed)
    good = segment_with_log(sealed).read_bytes()
    segment_with_log(sealed).write_bytes(b"")
    log = engine.log("log")
    log.configure(Config(durability="fsync", cap_records=4)).wait()
    assert log.append(Batch.of(b"six")).wait().first == 6
    assert log.state().count == 6
    assert log.state().evict_floor == 1
    segment_with_log(sealed).write_bytes(good)
    assert log.append(Batch.of(b"seven")).wait().first == 7
    assert [record.seq for record in log.read()] == [4, 5, 6, 7]
    assert log.state().evict_floor == 4
    engine.close()


def test_records_too_old_in_a_damaged_segment_do_not_stop_appends(sealed: Path) -> None:
    clock = ManualClock()
    engine = open_engine(sealed, clock)
    log = engine.log("log")
    log.configure(Config(durability="fsync", ttl_ms=1000)).wait()
    clock.advance(500)
    segment_with_log(sealed).write_bytes(b"")
    clock.advance(5000)
    assert log.append(Batch.of(b"six")).wait().first == 6
    engine.close()


def test_one_damaged_segment_does_not_stop_sealing_and_merging(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    engine.create("log", FSYNC).wait()
    for number in range(3):
        engine.log("log").append(Batch.of(b"%d" % number)).wait()
        engine.seal()
    segment_with_log(tmp_path).write_bytes(b"")
    for number in range(3, 12):
        engine.log("log").append(Batch.of(b"%d" % number)).wait()
        engine.seal()
    assert engine.maintenance.failure is None
    assert [record.data for record in engine.log("log").read(after=1)] == [b"%d" % number for number in range(1, 12)]
    assert len(list((tmp_path / "segments").iterdir())) < 12
    engine.close()


def test_a_replayed_delete_that_needs_a_damaged_segment_does_not_stop_the_start(sealed: Path) -> None:
    engine = open_engine(sealed)
    engine.log("log").delete(key="key").wait()
    engine.log("other").delete(seqs=[1]).wait()
    abandon(engine)
    segment_with_log(sealed).write_bytes(b"")
    engine = open_engine(sealed)
    assert len(engine.recovered.losses) == 1
    assert data_of(engine, "other") == PAYLOADS[1:]
    engine.close()


# --- two processes ---------------------------------------------------------------------------------------------


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    script = "import sys; from strandline.engine import Engine; Engine.open(sys.argv[1], background=False)"
    engine = open_engine(tmp_path)
    with pytest.raises(DirectoryInUse):
        open_engine(tmp_path)
    second = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert f"DirectoryInUse: {tmp_path} is in use by process {os.getpid()}" in second.stderr
    engine.create("log", FSYNC).wait()
    engine.close()
    second = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert second.returncode == 0, second.stderr
