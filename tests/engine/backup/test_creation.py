from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Engine, Log, LogState, ManualClock, Options, Record, Tombstone
from strandline.engine.backup import NoDataDirectory, backup, list_backups, restore
from strandline.engine.backup.pool import Pool
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadConfig, BadRequest, DamagedFile, JournalIncomplete, MissingFile
from strandline.engine.journal.file import journal_path
from strandline.engine.journal.frame import FILE_HEADER
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.state.checkpoints import read_manifest

Everything = dict[str, tuple[LogState, list[Record], Tombstone | None]]


def records(log: Log) -> list[Record]:
    found: list[Record] = []
    after = 0
    while True:
        page = log.read(after, 1000)
        found += page
        after = page.next_after
        if page.caught_up:
            return found


def everything(engine: Engine) -> Everything:
    return {
        name: (engine.log(name).state(), records(engine.log(name)), engine.log(name).read(0).tombstone)
        for name in engine.names()
    }


def restored(target: str | Path, path: Path, clock: ManualClock | None = None, at: int | None = None) -> Everything:
    restore(str(target), path, at=at)
    with opened(path, clock) as engine:
        assert engine.recovered.losses == []
        return everything(engine)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_stopped_directory_comes_back_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        fill(make(engine, "a"), "1", "2", "3", key="k")
        engine.seal()
        fill(engine.log("a"), "4")
        fill(make(engine, "b", durability="fsync"), "x")
        engine.log("a").delete(seqs=[2]).wait()
        engine.flush()
        before = everything(engine)
    report = backup(tmp_path / "data", str(tmp_path / "pool"), clock=ManualClock(NOW))
    assert (report.files, report.copied_files, report.retries) == (3, 3, 0)
    assert report.last_ts == NOW
    assert restored(tmp_path / "pool", tmp_path / "again") == before


def test_a_restored_directory_goes_on_where_the_backup_ended_and_is_another_one(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1", "2")
        backup(tmp_path / "data", str(tmp_path / "pool"))
    restore(str(tmp_path / "pool"), tmp_path / "again")
    with opened(tmp_path / "again") as engine:
        assert engine.recovered.clean
        log = engine.log("a")
        fill(log, "3")
        assert [record.seq for record in log.read()] == [1, 2, 3]
        assert log.read().tombstone is None
    first, second = (read_manifest(LocalDisk(tmp_path / name)) for name in ("data", "again"))
    assert first is not None
    assert second is not None
    assert first.id != second.id


def test_a_new_directory_in_which_nothing_happened_yet_can_be_backed_up(tmp_path: Path) -> None:
    with opened(tmp_path / "data"):
        backup(tmp_path / "data", str(tmp_path / "pool"))
    assert restored(tmp_path / "pool", tmp_path / "again") == {}


def test_only_what_is_new_is_copied(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    with opened(tmp_path / "data") as engine:
        log = make(engine)
        for number in range(3):
            fill(log, f"{number}" * 1000)
            engine.seal()
        first = backup(tmp_path / "data", str(pool))
        before = {name: (pool / name).stat().st_mtime_ns for name in files(pool)}
        fill(log, "more")
        second = backup(tmp_path / "data", str(pool))
        assert (second.copied_files, second.files) == (1, first.files + 1)
        assert second.copied_bytes < 200
        engine.seal()
        third = backup(tmp_path / "data", str(pool))
    # One segment that all four were merged into or one more of them, and one checkpoint.
    assert third.copied_files <= 3
    assert {name: (pool / name).stat().st_mtime_ns for name in before} == before
    again = backup(tmp_path / "data", str(pool))
    assert again.copied_files <= 1  # what the orderly stop added


def test_of_a_journal_file_that_grows_only_the_longest_copy_stays_and_older_backups_live_on_it(tmp_path: Path) -> None:
    pool, clock = tmp_path / "pool", ManualClock(NOW)
    with opened(tmp_path / "data", clock) as engine:
        log = make(engine)
        for text in "abc":
            fill(log, text)
            backup(tmp_path / "data", str(pool), clock=clock)
    assert len(files(pool / "journal")) == 1
    assert len(list_backups(str(pool)).backups) == 3
    for number, name in enumerate(sorted(files(pool / "backups"), reverse=True)):
        restore(str(pool), tmp_path / str(number))
        with opened(tmp_path / str(number)) as engine:
            assert texts(engine.log("a")) == ["a", "b", "c"][: 3 - number]
        (pool / "backups" / name).unlink()


def test_a_backup_that_was_cut_off_is_none_and_its_segments_are_not_copied_again(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "x" * 1000)
        engine.seal()
    backup(tmp_path / "data", str(pool))
    for name in files(pool / "backups"):
        (pool / "backups" / name).unlink()
    with pytest.raises(Exception, match="no backup found in"):
        restore(str(pool), tmp_path / "again")
    assert backup(tmp_path / "data", str(pool)).copied_files == 0
    assert len(restored(pool, tmp_path / "again")["a"][1]) == 1


def test_old_backups_go_with_the_files_that_only_they_needed(tmp_path: Path) -> None:
    pool, clock = tmp_path / "pool", ManualClock(NOW)
    with opened(tmp_path / "data", clock, keep_journal_ms=10_000) as engine:
        log = make(engine)
        for number in range(6):
            clock.advance(1000)
            fill(log, str(number))
            engine.seal()
            report = backup(tmp_path / "data", str(pool), keep=2, clock=clock)
        before = everything(engine)
    assert report.pruned
    assert report.pruned_files
    kept = list_backups(str(pool)).backups
    assert len(kept) == 2
    names = {f"segments/{copy.name}" for one in kept for copy in one.segments}
    names |= {f"checkpoints/{copy.name}" for one in kept for copy in one.checkpoints}
    names |= {f"backups/{one.name}.json" for one in kept}
    oldest = kept[0].manifest.boundary
    names |= {f"journal/{copy.name}" for one in kept for copy in one.journal if copy.index >= oldest}
    assert files(pool) == names
    assert restored(pool, tmp_path / "again", clock) == before
    assert [record.data for record in restored(pool, tmp_path / "then", clock, at=NOW + 5500)["a"][1]] == [
        b"0", b"1", b"2", b"3", b"4"
    ]  # fmt: skip


class Interrupted(LocalDisk):
    """A source in which something happens just before the n-th call."""

    def __init__(self, root: Path, at: int, happens: Callable[[], None]) -> None:
        super().__init__(root)
        self._left = at
        self._happens = happens
        self.happened = False

    def _call(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.happened = True
            self._happens()

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        self._call()
        return super().read(path, offset, size)

    def size(self, path: str) -> int:
        self._call()
        return super().size(path)

    def exists(self, path: str) -> bool:
        self._call()
        return super().exists(path)

    def list(self, directory: str) -> list[str]:
        self._call()
        return super().list(directory)


@pytest.mark.parametrize("keep_journal_ms", [0, 1_000_000])
@pytest.mark.parametrize("what", ["appends", "prepares", "seals", "merges"])
def test_whatever_the_server_does_between_two_reads_the_backup_is_a_moment_of_its_life(
    tmp_path: Path, what: str, keep_journal_ms: int
) -> None:
    """Appends go to two logs in turn: of every state that ever was, both hold the same number or "a" one more."""
    happened = True
    at = 0
    while happened:
        at += 1
        root = tmp_path / str(at)
        with opened(root / "data", keep_journal_ms=keep_journal_ms) as engine:
            logs = make(engine, "a"), make(engine, "b")
            count = 0

            def add(logs: tuple[Log, Log] = logs) -> None:
                nonlocal count
                fill(logs[count % 2], str(count))
                count += 1

            def happens(engine: Engine = engine, add: Callable[[], None] = add) -> None:
                add()
                if what == "prepares":
                    engine.journal.prepare()
                for _ in range({"seals": 1, "merges": 5}.get(what, 0)):
                    engine.seal()
                    add()
                add()

            for _ in range(2):
                add()
                engine.seal()
            backup(root / "data", str(root / "pool"))
            add()
            least = count
            disk = Interrupted(root / "data", at, happens)
            backup(disk, str(root / "pool"))
            happened = disk.happened
        found = restored(root / "pool", root / "again")
        numbers = sorted(int(record.data) for log in found.values() for record in log[1])
        assert least <= len(numbers) <= count
        assert numbers == list(range(len(numbers)))
    assert at > 10


def test_backups_of_a_busy_server_are_consistent(tmp_path: Path) -> None:
    """A real one, with its threads and its sealing process. It goes on until it was caught in the act often enough."""
    data, pool = tmp_path / "data", tmp_path / "pool"
    written = 0
    stop = threading.Event()
    with Engine.open(data, Options(journal_bytes=32 << 10)) as engine:
        logs = [make(engine, name, durability="fsync") for name in "abc"]

        def write() -> None:
            nonlocal written
            while not stop.is_set():
                logs[written % 3].append(Batch.of(b"%d" % written + b" " * 200)).wait()
                written += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            boundaries: set[int] = set()
            segments: list[set[str]] = []
            least: list[int] = []
            for _ in range(300):
                least.append(written)
                backup(data, str(pool))
                newest = list_backups(str(pool)).backups[-1]
                boundaries.add(newest.manifest.boundary)
                segments.append({copy.name for copy in newest.segments})
                merges = sum(1 for one, next in pairwise(segments) if one - next)
                if len(boundaries) > 5 and merges > 1:
                    break
        finally:
            stop.set()
            writer.join()
    assert len(boundaries) > 5
    assert merges > 1
    descriptions = sorted(files(pool / "backups"), reverse=True)
    for number, name in list(enumerate(descriptions))[:: max(1, len(descriptions) // 8)]:
        for newer in descriptions[:number]:
            (pool / "backups" / newer).unlink(missing_ok=True)
        found = restored(pool, tmp_path / name)
        numbers = sorted(int(record.data) for log in found.values() for record in log[1])
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= least[len(descriptions) - 1 - number]


def test_a_half_written_frame_at_the_end_is_left_out(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1", "2")
        journal = tmp_path / "data" / journal_path(engine.journal.index)
        whole = journal.read_bytes()
        journal.write_bytes(whole[:-3])
        report = backup(tmp_path / "data", str(tmp_path / "pool"))
        journal.write_bytes(whole)
    assert report.damage == []
    assert [record.data for record in restored(tmp_path / "pool", tmp_path / "again")["a"][1]] == [b"1"]


def test_damage_in_the_journal_is_told_and_backed_up_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1", "2", "3")
        journal = tmp_path / "data" / journal_path(engine.journal.index)
    raw = bytearray(journal.read_bytes())
    raw[raw.index(b"2", FILE_HEADER.size + 150)] ^= 1
    journal.write_bytes(raw)
    report = backup(tmp_path / "data", str(tmp_path / "pool"))
    assert len(report.damage) == 1
    assert "are unreadable" in report.damage[0]
    restore(str(tmp_path / "pool"), tmp_path / "again")
    with opened(tmp_path / "again") as engine:
        assert len(engine.recovered.losses) == 1


def test_a_damaged_segment_is_not_backed_up(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1", "2", "3")
        engine.seal()
    path = next((tmp_path / "data" / "segments").iterdir())
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DamagedFile, match=r"segments/00000001\.arrow"):
        backup(tmp_path / "data", str(tmp_path / "pool"))
    assert files(tmp_path / "pool" / "segments") == set()
    assert files(tmp_path / "pool" / "backups") == set()


def test_a_file_that_is_really_missing_is_an_error(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1")
        engine.seal()
    next((tmp_path / "data" / "segments").iterdir()).unlink()
    with pytest.raises(MissingFile, match=r"segments/00000001\.arrow"):
        backup(tmp_path / "data", str(tmp_path / "pool"))


@pytest.mark.parametrize("size", [None, 20, FILE_HEADER.size])
def test_a_directory_with_lost_journal_files_is_not_backed_up(size: int | None, tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1")
        engine.seal()
        fill(engine.log("a"), "2")
    path = tmp_path / "data" / journal_path(2)
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size)
    with pytest.raises(JournalIncomplete, match=r"00000002\.journal"):
        backup(tmp_path / "data", str(tmp_path / "pool"))


def test_cold_segments_are_read_from_the_cold_tier_once(tmp_path: Path) -> None:
    data, pool, cold = tmp_path / "data", str(tmp_path / "pool"), str(tmp_path / "cold")
    with opened(data, cold_url=cold, hot_segments=0) as engine:
        fill(make(engine), "1", "2")
        engine.seal()
        assert files(data / "segments") == set()
        fill(engine.log("a"), "3")
        before = everything(engine)
        with pytest.raises(BadConfig, match="segment 1 is in the cold tier"):
            backup(data, pool)
        assert backup(data, pool, cold=cold).files == 3
        assert backup(data, pool).copied_files == 0
    assert restored(pool, tmp_path / "again") == before
    manifest = read_manifest(LocalDisk(tmp_path / "again"))
    assert manifest is not None
    assert [entry.tier for entry in manifest.segments] == ["hot"]


def test_a_segment_that_goes_cold_during_the_backup_is_found_there(tmp_path: Path) -> None:
    data, pool, cold = tmp_path / "data", str(tmp_path / "pool"), str(tmp_path / "cold")
    happened, at = True, 0
    while happened:
        at += 1
        root = tmp_path / str(at)
        with opened(root / "data", cold_url=str(root / "cold"), hot_segments=1) as engine:
            fill(make(engine), "1")
            engine.seal()

            def happens(engine: Engine = engine) -> None:
                fill(engine.log("a"), "2")
                engine.seal()

            disk = Interrupted(root / "data", at, happens)
            backup(disk, str(root / "pool"), cold=ObjectStoreCold(str(root / "cold")))
            happened = disk.happened
        found = [record.data for record in restored(root / "pool", root / "again")["a"][1]]
        assert found in ([b"1"], [b"1", b"2"])
    assert not data.exists()
    assert not os.path.exists(pool)
    assert not os.path.exists(cold)


def test_a_bucket_is_as_good_as_a_directory(tmp_path: Path, s3: dict[str, str | bool]) -> None:
    target, clock = f"s3://cold/{uuid4().hex}/pool", ManualClock(NOW)
    with opened(tmp_path / "data", clock, keep_journal_ms=100_000) as engine:
        log = make(engine)
        fill(log, "1", "2")
        engine.seal()
        backup(tmp_path / "data", target, clock=clock, options=s3)
        then = everything(engine)
        clock.advance(1000)
        log.delete(seqs=[1]).wait()
        fill(log, "3" * 100)
        engine.seal()
        clock.advance(1000)
        fill(log, "4")
        report = backup(tmp_path / "data", target, clock=clock, options=s3)
        before = everything(engine)
    assert report.copied_files < report.files
    assert len(list_backups(target, options=s3).backups) == 2
    restore(target, tmp_path / "now", options=s3)
    with opened(tmp_path / "now", clock) as engine:
        assert everything(engine) == before
    restore(target, tmp_path / "then", at=NOW + 500, options=s3)
    with opened(tmp_path / "then", ManualClock(NOW)) as engine:
        assert everything(engine) == then
    report = backup(tmp_path / "data", target, clock=clock, keep=1, options=s3)
    assert len(report.pruned) == 2
    assert len(Pool(target, s3).backups()) == 1


def test_two_data_directories_in_one_pool_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    for name in ("one", "two"):
        with opened(tmp_path / name) as engine:
            fill(make(engine), name)
            engine.seal()
            history = backup(tmp_path / name, pool).history
            if name == "one":
                first = history
    assert [record.data for record in restored(pool, tmp_path / "newest")["a"][1]] == [b"two"]
    restore(pool, tmp_path / "other", history=first)
    with opened(tmp_path / "other") as engine:
        assert texts(engine.log("a")) == ["one"]


def test_what_is_no_data_directory_and_what_is_in_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoDataDirectory, match="has no MANIFEST"):
        backup(tmp_path, str(tmp_path / "pool"))
    with opened(tmp_path / "data") as engine:
        make(engine)
    for target in (tmp_path / "data", tmp_path / "data" / "pool"):
        with pytest.raises(BadRequest, match="inside the data directory"):
            backup(tmp_path / "data", str(target))
    with pytest.raises(BadRequest, match="keep must be 1 or more"):
        backup(tmp_path / "data", str(tmp_path / "pool"), keep=0)
