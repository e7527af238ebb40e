"""What every disk does. The fault disk has to behave like the real one as long as nobody asks it to fail."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.engine.disk import Disk, LocalDisk
from strandline.engine.errors import DirectoryInUse
from strandline.engine.testing.fault_disk import FaultDisk

MakeDisk = Callable[[Path], Disk]


@pytest.fixture(params=[LocalDisk, FaultDisk])
def make_disk(request: pytest.FixtureRequest) -> MakeDisk:
    make: MakeDisk = request.param
    return make


@pytest.fixture
def disk(make_disk: MakeDisk, tmp_path: Path) -> Disk:
    return make_disk(tmp_path)


def test_an_append_file_grows_by_what_is_written(disk: Disk) -> None:
    file = disk.append_file("journal")
    file.write([b"one", b"", b"two"])
    file.sync()
    file.write([b"three"])
    file.close()
    assert disk.read("journal") == b"onetwothree"
    assert disk.size("journal") == 11


def test_the_record_of_a_sector_file_is_overwritten(disk: Disk) -> None:
    for record in (b"first", b"again"):
        file = disk.sector_file("mark")
        file.write(record[::-1])
        file.write(record)
        assert disk.read("mark") == record
        file.close()
        file.close()


def test_an_append_file_that_is_opened_again_goes_on_at_its_end(disk: Disk) -> None:
    for part in (b"one", b"two"):
        file = disk.append_file("journal")
        file.write([part])
        file.close()
    assert disk.read("journal") == b"onetwo"


def test_a_truncated_file_goes_on_at_its_new_end(disk: Disk) -> None:
    file = disk.append_file("journal")
    file.write([b"one", b"two"])
    file.truncate(3)
    file.write([b"three"])
    assert disk.read("journal") == b"onethree"
    file.truncate(10)
    file.close()
    assert disk.read("journal") == b"onethree\0\0"


def test_a_file_can_be_closed_twice_but_not_used_after(disk: Disk) -> None:
    file = disk.append_file("journal")
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.write([b"late"])
    with pytest.raises(OSError):
        file.truncate(0)
    with pytest.raises((OSError, ValueError)):
        file.sync()


def test_a_file_that_is_removed_while_open_takes_writes_and_shows_nothing(disk: Disk) -> None:
    file = disk.append_file("journal")
    disk.remove("journal")
    file.write([b"unseen"])
    file.sync()
    file.close()
    assert not disk.exists("journal")
    disk.append_file("journal").close()
    assert disk.read("journal") == b""


def test_a_part_of_a_file_can_be_read(disk: Disk) -> None:
    disk.write_file("file", b"0123456789")
    assert disk.read("file", 4) == b"456789"
    assert disk.read("file", 4, 3) == b"456"
    assert disk.read("file", 8, 100) == b"89"
    assert disk.read("file", 100) == b""
    assert disk.read("file", 0, 0) == b""


def test_a_written_file_replaces_the_one_before_and_leaves_nothing_else(disk: Disk) -> None:
    disk.write_file("file", b"a longer first version")
    disk.write_file("file", b"second")
    assert disk.read("file") == b"second"
    assert disk.list("") == ["file"]


def test_a_left_over_temporary_file_does_not_disturb(disk: Disk) -> None:
    disk.append_file("file.tmp").write([b"left over from a crash"])
    disk.write_file("file", b"new")
    assert disk.read("file") == b"new"
    assert disk.list("") == ["file"]


def test_directories_are_made_with_their_parents_and_listed_in_order(disk: Disk) -> None:
    disk.make_directory("a/b")
    disk.make_directory("a/b")
    disk.write_file("a/b/two", b"2")
    disk.write_file("a/b/one", b"1")
    disk.sync_directory("a/b")
    disk.sync_directory("a")
    disk.sync_directory("")
    assert disk.list("a/b") == ["one", "two"]
    assert disk.list("a") == ["b"]
    assert disk.list("") == ["a"]
    assert disk.list("nowhere") == []
    assert disk.exists("a/b/one")
    assert disk.exists("a/b")
    assert not disk.exists("a/one")


def test_a_file_can_be_moved_to_another_directory(disk: Disk) -> None:
    disk.make_directory("a")
    disk.make_directory("b")
    disk.write_file("a/file", b"x")
    disk.move("a/file", "b/other")
    assert disk.list("a") == []
    assert disk.read("b/other") == b"x"


def test_what_is_not_there_cannot_be_read_but_removed(disk: Disk) -> None:
    disk.remove("nothing")
    with pytest.raises(FileNotFoundError):
        disk.read("nothing")
    with pytest.raises(FileNotFoundError):
        disk.size("nothing")
    with pytest.raises(FileNotFoundError):
        disk.sync_directory("nowhere")
    with pytest.raises(FileNotFoundError):
        disk.append_file("nowhere/journal")
    with pytest.raises(FileNotFoundError):
        disk.write_file("nowhere/file", b"")


def test_a_file_can_be_memory_mapped(disk: Disk) -> None:
    disk.write_file("file", b"mapped")
    with (
        open(disk.local_path("file"), "rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view,
    ):
        assert view[:] == b"mapped"


def test_the_root_is_made_when_absent(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(tmp_path / "data")
    assert disk.list("") == []
    disk.make_directory("")
    disk.write_file("file", b"x")
    assert disk.read("file") == b"x"


def test_a_disk_finds_what_another_has_written(make_disk: MakeDisk, tmp_path: Path) -> None:
    LocalDisk(tmp_path).make_directory("a")
    LocalDisk(tmp_path).write_file("a/file", b"old")
    disk = make_disk(tmp_path)
    file = disk.append_file("a/file")
    file.write([b" and new"])
    file.close()
    assert disk.read("a/file") == b"old and new"


def test_the_boot_id_stays_the_same(disk: Disk) -> None:
    assert disk.boot_id() == disk.boot_id() != ""


def test_a_directory_has_one_holder_at_a_time(make_disk: MakeDisk, tmp_path: Path) -> None:
    first, second = make_disk(tmp_path), make_disk(tmp_path)
    first.lock()
    with pytest.raises(DirectoryInUse):
        second.lock()
    with pytest.raises(DirectoryInUse):
        first.lock()
    first.unlock()
    first.unlock()
    second.lock()
    second.unlock()
