from __future__ import annotations

import errno
import mmap
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.engine.disk import AppendFile
from strandline.engine.errors import DirectoryInUse
from strandline.engine.testing.fault_disk import Crashed, DiskCall, FaultDisk, Kind
from strandline.engine.testing.fault_model import SECTOR

SEEDS = range(200)


@pytest.fixture
def disk(tmp_path: Path) -> FaultDisk:
    return FaultDisk(tmp_path)


def durable_file(disk: FaultDisk, path: str, data: bytes) -> AppendFile:
    file = disk.append_file(path)
    file.write([data])
    file.sync()
    disk.sync_directory(path.rpartition("/")[0])
    return file


def outcomes(disk: FaultDisk, path: str) -> set[bytes | None]:
    """All that the seeds make of a file, None when it is gone."""
    found: set[bytes | None] = set()
    for seed in SEEDS:
        after = disk.power_cut(seed)
        found.add(after.read(path) if after.exists(path) else None)
    return found


# What is durable


def test_what_the_directory_holds_at_first_is_durable(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"old")
    assert FaultDisk(tmp_path).power_cut().read("a/file") == b"old"


def test_appended_bytes_are_pending_until_their_file_is_synced(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"synced")
    other = durable_file(disk, "other", b"")
    file.write([b" lost"])
    other.sync()
    assert disk.read("journal") == b"synced lost"
    assert disk.power_cut().read("journal") == b"synced"


def test_a_truncation_is_pending_until_the_file_is_synced(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"0123456789")
    file.truncate(4)
    after = disk.power_cut()
    assert after.read("journal") == b"0123456789"
    file = after.append_file("journal")
    file.truncate(4)
    file.write([b"new"])
    file.sync()
    assert after.power_cut().read("journal") == b"0123new"


def test_an_overwritten_record_is_an_old_one_a_new_one_or_torn(disk: FaultDisk) -> None:
    file = disk.sector_file("mark")
    disk.sync_directory("")
    for record in (b"1111", b"2222"):
        file.write(record)
    assert outcomes(disk, "mark") == {b"", b"11", b"1111", b"2211", b"2222"}
    assert disk.power_cut().read("mark") == b""


def test_a_new_file_is_lost_without_a_sync_of_its_directory(disk: FaultDisk) -> None:
    file = disk.append_file("journal")
    file.write([b"synced"])
    file.sync()
    assert disk.power_cut().list("") == []


def test_a_synced_entry_of_an_unsynced_file_is_an_empty_file(disk: FaultDisk) -> None:
    disk.append_file("journal").write([b"lost"])
    disk.sync_directory("")
    assert disk.power_cut().read("journal") == b""


def test_a_removed_file_comes_back_with_its_durable_content(disk: FaultDisk) -> None:
    durable_file(disk, "journal", b"synced").write([b" lost"])
    disk.remove("journal")
    assert not disk.exists("journal")
    after = disk.power_cut()
    assert after.read("journal") == b"synced"
    after.remove("journal")
    after.sync_directory("")
    assert after.power_cut().list("") == []


def test_a_file_made_anew_under_a_removed_name_is_another_file(disk: FaultDisk) -> None:
    durable_file(disk, "journal", b"old")
    disk.remove("journal")
    file = disk.append_file("journal")
    file.write([b"new"])
    file.sync()
    assert disk.read("journal") == b"new"
    assert disk.power_cut().read("journal") == b"old"


def test_a_directory_is_lost_with_its_files_until_its_parent_is_synced(disk: FaultDisk) -> None:
    disk.make_directory("a/b")
    durable_file(disk, "a/b/file", b"x")
    disk.sync_directory("a")
    assert disk.power_cut().list("") == []


def test_a_directory_is_kept_once_all_above_it_are_synced(disk: FaultDisk) -> None:
    disk.make_directory("a/b")
    durable_file(disk, "a/b/file", b"x")
    disk.sync_directory("a/")
    disk.sync_directory(".")
    assert disk.power_cut().read("a/b/file") == b"x"


def test_a_sync_of_one_directory_does_not_help_another(disk: FaultDisk) -> None:
    disk.make_directory("a")
    disk.sync_directory("")
    disk.append_file("a/file")
    disk.append_file("b")
    disk.sync_directory("")
    after = disk.power_cut()
    assert after.list("") == ["a", "b"]
    assert after.list("a") == []


def test_what_came_around_the_disk_is_not_durable(disk: FaultDisk, tmp_path: Path) -> None:
    (tmp_path / "stray").write_bytes(b"x")
    (tmp_path / "adopted").write_bytes(b"x")
    file = disk.append_file("adopted")
    file.write([b"y"])
    file.sync()
    disk.sync_directory("")
    after = disk.power_cut()
    assert after.list("") == ["adopted"]
    assert after.read("adopted") == b"xy"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, {"file": b"old"}),
        (1, {"file": b"old"}),
        (2, {"file": b"old"}),
        (3, {"file": b"old"}),
        (4, {"file": b"old"}),
        (5, {"file": b"new"}),
    ],
)
def test_a_written_file_is_the_old_or_the_new_one_at_every_step(
    disk: FaultDisk, step: int, expected: dict[str, bytes]
) -> None:
    disk.write_file("file", b"old")
    disk.crash_after(disk.calls + step)
    if step < 5:
        with pytest.raises(Crashed):
            disk.write_file("file", b"new")
    else:
        disk.write_file("file", b"new")
    for seed in SEEDS[:20]:
        assert disk.power_cut(seed).read("file") in (b"old", b"new")
    after = disk.power_cut()
    assert {name: after.read(name) for name in after.list("")} == expected


# Counting and crashing


def test_every_mutating_call_is_counted_and_logged(disk: FaultDisk) -> None:
    disk.make_directory("a")
    file = disk.append_file("a/journal")
    file.write([b"x", b"y"])
    file.truncate(1)
    file.sync()
    file.close()
    disk.append_file("a/journal").close()
    disk.write_file("file", b"x")
    disk.remove("file")
    disk.sync_directory("")
    disk.read("a/journal"), disk.size("a/journal"), disk.exists("a"), disk.list("a"), disk.local_path("a")
    assert disk.log == [
        ("make_directory", "a"),
        ("create", "a/journal"),
        ("write", "a/journal"),
        ("truncate", "a/journal"),
        ("sync", "a/journal"),
        ("create", "file.tmp"),
        ("write", "file.tmp"),
        ("sync", "file.tmp"),
        ("rename", "file"),
        ("sync_directory", ""),
        ("remove", "file"),
        ("sync_directory", ""),
    ]
    assert disk.calls == 12
    assert disk.calls_of("sync") == 2


def test_everything_raises_after_the_crash(disk: FaultDisk) -> None:
    disk.crash_after(2)
    file = disk.append_file("journal")
    assert disk.read("journal") == b""
    file.write([b"carried out"])
    calls: list[Callable[[], object]] = [
        lambda: file.write([b"x"]),
        lambda: file.truncate(0),
        lambda: file.sync(),
        lambda: disk.append_file("journal"),
        lambda: disk.read("journal"),
        lambda: disk.size("journal"),
        lambda: disk.exists("journal"),
        lambda: disk.list(""),
        lambda: disk.write_file("file", b""),
        lambda: disk.remove("journal"),
        lambda: disk.make_directory("a"),
        lambda: disk.sync_directory(""),
        lambda: disk.local_path("journal"),
        lambda: disk.boot_id(),
        lambda: disk.lock(),
        lambda: disk.damage("journal", 0, b"x"),
    ]
    for call in calls:
        with pytest.raises(Crashed):
            call()
    assert disk.calls == 2
    file.close()
    disk.unlock()
    assert disk.process_kill().read("journal") == b"carried out"


def test_a_crash_after_no_call_at_all_is_at_once(disk: FaultDisk) -> None:
    disk.crash_after(0)
    with pytest.raises(Crashed):
        disk.list("")


def test_no_handler_of_exceptions_swallows_a_crash() -> None:
    assert not issubclass(Crashed, Exception)


def test_the_lock_of_a_crashed_disk_is_gone(disk: FaultDisk) -> None:
    disk.lock()
    with pytest.raises(DirectoryInUse):
        FaultDisk(disk.root).lock()
    disk.crash_after(disk.calls)
    after = disk.power_cut()
    after.lock()
    after = after.process_kill()
    after.lock()
    after.unlock()


# Failing calls


def test_a_failed_call_changes_nothing(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"old")
    disk.fail_from(1, errno.EIO)
    calls: list[Callable[[], object]] = [
        lambda: file.write([b"new"]),
        lambda: file.truncate(0),
        lambda: disk.append_file("other"),
        lambda: disk.write_file("journal", b"new"),
        lambda: disk.remove("journal"),
        lambda: disk.make_directory("a"),
        lambda: disk.sync_directory(""),
    ]
    for call in calls:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EIO
    assert disk.list("") == ["journal"]
    assert disk.read("journal") == b"old"


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.ESTALE])
def test_only_the_nth_call_fails(disk: FaultDisk, error: int) -> None:
    disk.fail_at(3, error)
    file = disk.append_file("journal")
    file.write([b"one"])
    with pytest.raises(OSError) as caught:
        file.write([b"two"])
    assert caught.value.errno == error
    assert caught.value.filename == "journal"
    file.write([b"three"])
    assert disk.read("journal") == b"onethree"
    assert disk.log[2] == DiskCall("write", "journal")


def test_calls_of_one_kind_are_counted_apart(disk: FaultDisk) -> None:
    disk.fail_at(2, errno.EIO, kind="sync")
    file = disk.append_file("journal")
    file.write([b"one"])
    file.sync()
    file.write([b"two"])
    with pytest.raises(OSError):
        file.sync()
    file.sync()


def test_calls_fail_until_the_disk_is_healed(disk: FaultDisk) -> None:
    disk.fail_from(2, errno.ENOSPC, kind="write")
    file = disk.append_file("journal")
    file.write([b"one"])
    for _ in range(3):
        with pytest.raises(OSError):
            file.write([b"no"])
    file.sync()
    disk.heal()
    file.write([b"two"])
    assert disk.read("journal") == b"onetwo"


def test_a_short_write_leaves_a_part(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"")
    disk.fail_at(disk.calls + 1, errno.ENOSPC, short=True)
    with pytest.raises(OSError):
        file.write([b"012", b"345"])
    assert disk.read("journal") == b"012"
    file.sync()
    assert disk.power_cut().read("journal") == b"012"


@pytest.mark.parametrize("kind", ["create", "write", "sync"])
def test_a_failed_write_of_a_file_removes_the_temporary_one(disk: FaultDisk, kind: Kind) -> None:
    disk.write_file("file", b"old")
    disk.fail_at(2, errno.ENOSPC, kind=kind, short=True)
    with pytest.raises(OSError):
        disk.write_file("file", b"new")
    assert disk.list("") == ["file"]
    assert disk.read("file") == b"old"
    assert disk.log[-1] == ("remove", "file.tmp")


def test_a_failed_rename_leaves_the_old_file(disk: FaultDisk) -> None:
    disk.write_file("file", b"old")
    disk.fail_at(2, errno.EIO, kind="rename")
    with pytest.raises(OSError):
        disk.write_file("file", b"new")
    assert disk.read("file") == b"old"
    assert disk.power_cut().read("file") == b"old"


def test_a_failed_sync_of_the_directory_leaves_its_changes_pending(disk: FaultDisk) -> None:
    disk.fail_at(1, errno.EIO, kind="sync_directory")
    with pytest.raises(OSError):
        disk.write_file("file", b"new")
    assert disk.read("file") == b"new"
    disk.sync_directory("")
    assert disk.power_cut().read("file") == b"new"


def test_bytes_of_a_failed_sync_are_lost_though_the_next_sync_succeeds(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"old")
    disk.fail_at(disk.calls + 2, errno.EIO)
    file.write([b"given up"])
    with pytest.raises(OSError):
        file.sync()
    file.write([b"new"])
    file.sync()
    assert disk.read("journal") == b"oldgiven upnew"
    assert disk.process_kill().power_cut().read("journal") == b"old" + bytes(8) + b"new"


def test_bytes_of_a_failed_sync_may_have_made_it(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"old")
    disk.fail_at(disk.calls + 2, errno.EIO)
    file.write([b"given up"])
    with pytest.raises(OSError):
        file.sync()
    assert {b"old", b"oldgiven up"} <= outcomes(disk, "journal")
    assert disk.power_cut().read("journal") == b"old"


def test_bytes_of_a_failed_sync_can_be_cut_off_and_written_again(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"old")
    disk.fail_at(disk.calls + 2, errno.EIO)
    file.write([b"given up"])
    with pytest.raises(OSError):
        file.sync()
    file.truncate(3)
    file.write([b"again"])
    file.sync()
    assert outcomes(disk, "journal") == {b"oldagain"}


def test_reads_fail_by_path(disk: FaultDisk) -> None:
    disk.make_directory("bad")
    disk.write_file("bad/file", b"x")
    disk.write_file("good", b"x")
    disk.fail_read("bad", errno.ESTALE)
    reads: list[Callable[[], object]] = [
        lambda: disk.read("bad/file"),
        lambda: disk.list("bad"),
        lambda: disk.local_path("bad/file"),
    ]
    for read in reads:
        with pytest.raises(OSError) as caught:
            read()
        assert caught.value.errno == errno.ESTALE
    assert disk.exists("bad/file")
    assert disk.size("bad/file") == 1
    assert disk.read("good") == b"x"
    disk.heal()
    assert disk.read("bad/file") == b"x"


def test_a_lying_disk_makes_nothing_durable(disk: FaultDisk) -> None:
    disk.lie()
    durable_file(disk, "journal", b"x")
    disk.write_file("file", b"x")
    assert disk.list("") == ["file", "journal"]
    assert disk.power_cut().list("") == []


def test_an_honest_sync_makes_up_for_the_lies(disk: FaultDisk) -> None:
    disk.lie()
    file = durable_file(disk, "journal", b"x")
    disk.lie(False)
    file.sync()
    disk.sync_directory("")
    assert disk.power_cut().read("journal") == b"x"


# Power cuts


def test_a_power_cut_changes_the_boot_id_and_a_kill_does_not(disk: FaultDisk) -> None:
    before = disk.boot_id()
    disk = disk.process_kill()
    assert disk.boot_id() == before
    assert disk.power_cut().boot_id() != before


def test_a_killed_process_leaves_all_it_has_written_and_it_is_still_pending(disk: FaultDisk) -> None:
    durable_file(disk, "journal", b"synced").write([b" written"])
    disk.append_file("new").write([b"x"])
    after = disk.process_kill()
    with pytest.raises(Crashed):
        disk.read("journal")
    assert after.calls == 0
    assert after.read("journal") == b"synced written"
    assert after.read("new") == b"x"
    after.append_file("journal").sync()
    after = after.power_cut()
    assert after.read("journal") == b"synced written"
    assert after.list("") == ["journal"]


def test_a_killed_process_is_not_killed_again(disk: FaultDisk) -> None:
    disk.power_cut()
    with pytest.raises(Crashed):
        disk.process_kill()


def test_the_disk_before_a_power_cut_is_dead(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"x")
    after = disk.power_cut()
    with pytest.raises(Crashed):
        disk.read("journal")
    with pytest.raises(Crashed):
        file.write([b"y"])
    assert after.read("journal") == b"x"


def test_the_same_seed_does_the_same_damage(tmp_path: Path) -> None:
    def damaged(name: str, seed: int) -> list[tuple[str, bytes]]:
        disk = FaultDisk(tmp_path / name)
        disk.make_directory("")
        for path in ("a", "b", "c"):
            disk.append_file(path).write([path.encode() * 2000])
        after = disk.power_cut(seed)
        return [(path, after.read(path)) for path in after.list("")]

    results = [damaged(f"one-{seed}", seed) for seed in range(20)]
    assert results == [damaged(f"two-{seed}", seed) for seed in range(20)]
    assert any(result != results[0] for result in results)


def test_the_same_cut_can_be_made_again_whatever_was_done_after_it(disk: FaultDisk) -> None:
    durable_file(disk, "journal", b"synced")
    first = disk.power_cut()
    first.append_file("journal").write([b" more"])
    first.write_file("other", b"x")
    second = disk.power_cut()
    with pytest.raises(Crashed):
        first.read("journal")
    assert second.list("") == ["journal"]
    assert second.read("journal") == b"synced"


def test_pending_bytes_survive_in_every_way_and_synced_ones_always(disk: FaultDisk) -> None:
    synced, pending = b"s" * 700, b"p" * 3000
    durable_file(disk, "journal", synced).write([pending])
    whole = synced + pending
    found = outcomes(disk, "journal")
    tails = {content.removeprefix(synced) for content in found if content is not None}
    assert None not in found
    assert all(content is not None and content.startswith(synced) for content in found)
    assert all(len(tail) <= len(pending) for tail in tails)
    assert {b"", pending} <= tails

    kept = {tail: tail[: len(tail) - len(tail.lstrip(b"p"))] for tail in tails}
    prefixes = [tail for tail in tails if tail and tail == kept[tail] != pending]
    zeroes = [tail for tail in tails if tail != kept[tail] and not tail.removeprefix(kept[tail]).strip(b"\0")]
    holes = [tail for tail in tails if len(tail) == len(pending) and set(tail) == set(b"p\0") and tail not in zeroes]
    garbage = [tail for tail in tails if set(tail) - set(b"p\0")]
    assert prefixes
    assert zeroes
    assert holes
    assert garbage
    for tail in holes:
        content = synced + tail
        for start in range(0, len(whole), SECTOR):
            sector = content[max(start, len(synced)) : start + SECTOR]
            assert len(set(sector)) <= 1


def test_a_pending_truncation_happened_or_not(disk: FaultDisk) -> None:
    durable_file(disk, "journal", b"0123456789").truncate(4)
    assert outcomes(disk, "journal") == {b"0123456789", b"0123"}


def test_what_was_written_behind_a_truncation_is_there_only_with_it(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"0123456789")
    file.truncate(4)
    file.write([b"abc"])
    found = outcomes(disk, "journal")
    assert {b"0123456789", b"0123", b"0123abc"} <= found
    for content in found - {b"0123456789"}:
        assert content is not None
        assert content.startswith(b"0123")
        assert len(content) <= 7


def test_pending_entries_survive_independently_and_durable_ones_always(disk: FaultDisk) -> None:
    durable_file(disk, "kept", b"")
    durable_file(disk, "removed", b"old")
    disk.append_file("one")
    disk.append_file("two")
    disk.remove("removed")
    found = {tuple(disk.power_cut(seed).list("")) for seed in SEEDS}
    assert len(found) == 8
    assert all("kept" in names for names in found)


def test_a_rename_is_atomic(disk: FaultDisk) -> None:
    durable_file(disk, "file.tmp", b"")
    durable_file(disk, "file", b"old")
    disk.crash_after(disk.calls + 4)
    with pytest.raises(Crashed):
        disk.write_file("file", b"new")
    found = set()
    for seed in SEEDS:
        after = disk.power_cut(seed)
        found.add((after.read("file"), after.exists("file.tmp")))
    assert found == {(b"old", True), (b"new", False)}


def test_a_map_of_a_file_outlives_the_power_cut(disk: FaultDisk) -> None:
    disk.append_file("journal").write([b"x" * 10000])
    with (
        open(disk.local_path("journal"), "rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view,
    ):
        disk.sync_directory("")
        assert disk.power_cut().size("journal") == 0
        assert view[9999:] == b"x"


# Bit rot and monitors


def test_damage_is_seen_now_and_after_a_power_cut(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"0123456789")
    file.write([b"abc"])
    file.write([b"def"])
    disk.damage("journal", 8, b"######")
    assert disk.read("journal") == b"01234567######ef"
    assert disk.power_cut().read("journal") == b"01234567##"


def test_damage_to_pending_bytes_is_synced_with_them(disk: FaultDisk) -> None:
    file = durable_file(disk, "journal", b"0123456789")
    file.truncate(8)
    file.write([b"abc"])
    disk.damage("journal", 9, b"#")
    file.sync()
    assert disk.power_cut().read("journal") == b"01234567a#c"


def test_damage_stays_inside_the_file(disk: FaultDisk) -> None:
    durable_file(disk, "journal", b"0123")
    with pytest.raises(ValueError):
        disk.damage("journal", 3, b"##")
    with pytest.raises(FileNotFoundError):
        disk.damage("nothing", 0, b"#")


def test_a_monitor_sees_the_calls_that_succeed_in_their_order(disk: FaultDisk) -> None:
    synced: set[str] = set()

    def no_rename_before_the_sync(name: str, path: str) -> None:
        if name == "sync":
            synced.add(path)
        assert name != "rename" or f"{path}.tmp" in synced

    disk.monitor.append(no_rename_before_the_sync)
    disk.write_file("file", b"x")
    synced.clear()
    disk.fail_at(2, errno.EIO, kind="sync")
    with pytest.raises(OSError):
        disk.write_file("file", b"y")
    assert synced == set()


def test_what_a_monitor_raises_comes_out_of_the_call(disk: FaultDisk) -> None:
    def forbid_removal(name: str, path: str) -> None:
        assert name != "remove", path

    disk.monitor.append(forbid_removal)
    disk.append_file("journal")
    with pytest.raises(AssertionError):
        disk.remove("journal")
