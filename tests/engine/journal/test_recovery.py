"""Recovery: what it needs of memory and of the disk."""

from __future__ import annotations

import errno
import tracemalloc
from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts
from support.file_systems import fill_up, small_disk

from strandline.engine import Batch, Engine, ManualClock, disk
from strandline.engine.disk import START_BYTES, Disk
from strandline.engine.errors import NoSpaceToStart
from strandline.engine.journal import frame
from strandline.engine.journal.file import journal_path
from strandline.engine.testing.fault_disk import Crashed, FaultDisk

MIB = 1 << 20


@pytest.mark.parametrize("records", [1, 200])
def test_a_start_needs_memory_for_a_piece_of_the_journal(
    records: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (disk, frame):
        monkeypatch.setattr(module, "PIECE_BYTES", MIB)
    engine = Engine.open(tmp_path, background=False)
    log = make(engine, durability="memory", cap_records=records)
    for _ in range(20 * 256 // records):
        log.append(Batch([b"x" * (MIB // 256)] * records))
    assert engine.journal.size > 19 * MIB
    engine.disk.unlock()  # as when the process is killed
    tracemalloc.start()
    try:
        with opened(tmp_path) as again:
            peak = tracemalloc.get_traced_memory()[1]
            assert again.log("a").state().count == records
    finally:
        tracemalloc.stop()
    # The current piece and the one before it, and the records in one of them once more.
    assert peak < 5 * MIB


def killed(path: Path | Disk, *records: str) -> None:
    """An engine that ends without a word, as a killed process does."""
    engine = Engine.open(path, clock=ManualClock(NOW), background=False)
    fill(make(engine, durability="memory"), *records)
    engine.journal.close()
    engine.store.close()
    engine.disk.unlock()


def test_a_full_disk_with_a_little_room_is_enough_to_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * MIB) as disk:
        killed(disk / "data", *["x" * 1000] * 1000)
        with open(disk / "data" / journal_path(1), "ab") as file:
            file.write(b"torn")
        fill_up(disk, START_BYTES)
        with opened(disk / "data") as engine:
            assert engine.recovered.torn is not None
            assert engine.log("a").state().count == 1000


def test_a_start_on_a_full_disk_says_what_it_needs(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", MIB) as disk:
        killed(disk / "data", "one", "two")
        fill_up(disk)
        for _ in range(2):  # the first attempt leaves nothing behind, no lock either
            with pytest.raises(NoSpaceToStart) as caught:
                Engine.open(disk / "data", background=False)
            assert f"needs about {START_BYTES} bytes and 3 files in {disk}/data" in str(caught.value)
            assert "and the file system has 0 bytes" in str(caught.value)
            assert (caught.value.needed, caught.value.free_bytes) == (START_BYTES, 0)
        (disk / "filling").unlink()
        with opened(disk / "data") as engine:
            assert texts(engine.log("a")) == ["one", "two"]


def test_no_directory_is_made_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 16) as disk:
        fill_up(disk)
        with pytest.raises(NoSpaceToStart, match="the disk is full"):
            Engine.open(disk / "new" / "data", background=False)


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_what_was_rewritten_in_place_survives_a_power_cut(seed: int | None, tmp_path: Path) -> None:
    """A sync failed, so the system takes the pages for clean; and there is no space for a copy of the file."""
    first = FaultDisk(tmp_path)
    killed(first, *map(str, range(50)))
    first.fail_at(first.calls_of("sync") + 1, errno.EIO, kind="sync")
    handle = first.append_file(journal_path(1))
    with pytest.raises(OSError, match="Input/output"):
        handle.sync()
    handle.close()
    disk = first.process_kill()
    disk.fail_at(disk.calls_of("create") + 1, errno.ENOSPC, kind="create")  # the copy
    second = Engine.open(disk, clock=ManualClock(NOW), background=False)
    assert ("write", journal_path(1)) in disk.log
    assert len(texts(second.log("a"))) == 50
    with opened(disk.power_cut(seed)) as third:
        assert len(texts(third.log("a"))) == 50


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_while_the_journal_is_rewritten_takes_nothing_durable(seed: int, tmp_path: Path) -> None:
    first = FaultDisk(tmp_path)
    engine = Engine.open(first, clock=ManualClock(NOW), background=False)
    log = make(engine, durability="memory")
    fill(log, *map(str, range(20)))
    engine.flush()
    fill(log, *map(str, range(20, 40)))
    disk = first.process_kill()
    disk.fail_at(disk.calls_of("create") + 1, errno.ENOSPC, kind="create")
    disk.crash_after(disk.calls + 1 + seed % 3)
    with pytest.raises(Crashed):
        Engine.open(disk, clock=ManualClock(NOW), background=False)
    with opened(disk.power_cut(seed)) as again:
        found = texts(again.log("a"))
        assert found[:20] == list(map(str, range(20)))
        assert found == list(map(str, range(len(found))))


@pytest.mark.parametrize("seed", [None, *range(3)])
def test_a_file_that_was_flushed_to_its_end_is_not_written_again(seed: int | None, tmp_path: Path) -> None:
    first = FaultDisk(tmp_path)
    engine = Engine.open(first, clock=ManualClock(NOW), background=False)
    fill(make(engine, durability="fsync"), "one", "two")
    disk = first.process_kill()
    second = Engine.open(disk, clock=ManualClock(NOW), background=False)
    assert [kind for kind, path in disk.log if path.startswith(journal_path(1))] == ["sync"]
    assert texts(second.log("a")) == ["one", "two"]
    with opened(disk.power_cut(seed)) as third:
        assert texts(third.log("a")) == ["one", "two"]


def test_a_file_with_records_that_were_not_flushed_is_written_again(tmp_path: Path) -> None:
    first = FaultDisk(tmp_path)
    engine = Engine.open(first, clock=ManualClock(NOW), background=False)
    log = make(engine, durability="memory")
    fill(log, "one")
    engine.flush()
    fill(log, "two")
    disk = first.process_kill()
    second = Engine.open(disk, clock=ManualClock(NOW), background=False)
    assert "create" in [kind for kind, path in disk.log if path.startswith(journal_path(1))]
    assert texts(second.log("a")) == ["one", "two"]
    with opened(disk.power_cut(None)) as third:
        assert texts(third.log("a")) == ["one", "two"]
