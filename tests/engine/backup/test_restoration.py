from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import xxhash
from engine.backup.test_creation import Everything, everything, files, restored
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Config, Engine, Log, ManualClock, Producer
from strandline.engine.backup import (
    DirectoryNotEmpty,
    NoBackup,
    NotRestorable,
    backup,
    list_backups,
    restore,
    verify_backups,
)
from strandline.engine.errors import DamagedFile, DirectoryInUse, EngineError
from strandline.engine.journal.file import journal_path
from strandline.engine.testing.fault_disk import Crashed, FaultDisk

HOUR = 3_600_000


class Life:
    """An engine whose clock is turned by hand, with everything that readers saw at each of its times."""

    def __init__(self, engine: Engine, clock: ManualClock, data: Path, pool: str) -> None:
        self.engine = engine
        self.clock = clock
        self.data = data
        self.pool = pool
        self.seen: dict[int, Everything] = {}

    def look(self) -> None:
        """Write down what is there, and let some time pass."""
        self.engine.flush()  # events of what was done are seen from then on
        self.seen[self.clock.now()] = everything(self.engine)
        self.clock.advance(10)

    def backup(self) -> None:
        backup(self.data, self.pool, clock=self.clock)


def check(life: Life, root: Path) -> int:
    """Restore every moment that the pool says it can, and a millisecond later; how many there were."""
    intervals = list_backups(life.pool).intervals
    checked = 0
    for time, seen in life.seen.items():
        if any(one.start <= time <= one.end for one in intervals):
            for at in (time, time + 1):
                if any(one.start <= at <= one.end for one in intervals):
                    assert restored(life.pool, root / str(at), ManualClock(time), at=at) == seen, f"at {at - NOW}"
            checked += 1
        else:
            with pytest.raises(NotRestorable):
                restore(life.pool, root / "never", at=time)
    return checked


def test_every_change_between_two_backups_can_be_undone(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path / "data", clock, keep_journal_ms=HOUR) as engine:
        life = Life(engine, clock, tmp_path / "data", str(tmp_path / "pool"))
        a, b = make(engine, "a"), make(engine, "b", durability="fsync")
        life.look()
        fill(a, "1", "2", "3", key="k")
        fill(b, "x", "y")
        life.look()
        life.backup()
        fill(a, "4")
        life.look()
        engine.seal()
        a.delete(seqs=[2]).wait()
        life.look()
        a.hide(seqs=[3]).wait()
        life.look()
        a.amend(1, b"another").wait()
        life.look()
        engine.seal()
        life.look()
        life.backup()
        a.restore(seqs=[3]).wait()
        b.configure(Config(durability="memory", cap_records=1, attributes={"n": 1})).wait()
        life.look()
        b.append(Batch.of(b"z"), idempotency_key="once").wait()
        b.append(Batch.of(b"p"), producer=Producer("p", 0, 0)).wait()
        life.look()
        engine.seal()
        engine.seal()
        b.drop().wait()
        life.look()
        fill(make(engine, "b", ttl_ms=15), "new", "newer")
        a.skip(3, "source_trim").wait()
        life.look()
        a.delete(before=100).wait()
        life.look()
        engine.seal()
        engine.seal()
        life.look()
        clock.advance(2000)
        life.backup()
    assert [(one.start, one.end) for one in list_backups(life.pool).intervals] == [(NOW, clock.now() - 1000)]
    assert check(life, tmp_path) == len(life.seen)


@pytest.mark.parametrize("keep_journal_ms", [0, 200, HOUR])
@pytest.mark.parametrize("seed", range(4))
def test_a_random_life_can_be_restored_at_every_moment_that_is_covered(
    tmp_path: Path, seed: int, keep_journal_ms: int
) -> None:
    random = Random(seed)
    clock = ManualClock(NOW)
    life: Life | None = None
    for _ in range(3):
        with opened(tmp_path / "data", clock, keep_journal_ms=keep_journal_ms) as engine:
            seen = {} if life is None else life.seen
            life = Life(engine, clock, tmp_path / "data", str(tmp_path / "pool"))
            life.seen = seen
            for _ in range(20):
                for _ in range(random.randrange(1, 4)):
                    change(engine, random)
                life.look()
                if random.random() < 0.25:
                    engine.seal()
                if random.random() < 0.2:
                    life.backup()
    assert life is not None
    clock.advance(2000)
    life.backup()
    assert check(life, tmp_path) >= 3


def change(engine: Engine, random: Random) -> None:
    name = random.choice("abc")
    log = engine.find(name)
    if log is None:
        durability = random.choice(["memory", "disk", "fsync"])
        make(engine, name, durability=durability, cap_records=random.choice([0, 0, 5]), ttl_ms=random.choice([0, 300]))
        return
    seqs = [random.randrange(1, log.head + 2) for _ in range(3)]
    match random.randrange(12):
        case 0:
            log.delete(seqs=seqs).wait()
        case 1:
            log.hide(seqs=seqs).wait()
        case 2:
            log.restore(before=log.head + 1).wait()
        case 3:
            amend(log, seqs[0], random.randbytes(5))
        case 4:
            log.delete(before=random.randrange(log.head + 2)).wait()
        case 5:
            log.configure(Config(cap_bytes=random.choice([0, 40]), durability=random.choice(["disk", "fsync"]))).wait()
        case 6 if random.random() < 0.3:
            log.drop().wait()
        case 7:
            log.skip(2, "lost").wait()
        case _:
            log.append(Batch([random.randbytes(8)] * 3, keys=["k", None, "l"])).wait()


def amend(log: Log, seq: int, data: bytes) -> None:
    try:
        log.amend(seq, data).wait()
    except EngineError:
        pass  # it is not there


def test_frames_of_the_very_same_millisecond_are_included(tmp_path: Path) -> None:
    clock, pool = ManualClock(NOW), str(tmp_path / "pool")
    with opened(tmp_path / "data", clock) as engine:
        log = make(engine)
        fill(log, "1", "2")
        clock.advance(1)
        fill(log, "3", "4")
        clock.advance(1)
        fill(log, "5")
        backup(tmp_path / "data", pool, clock=clock)
        fill(log, "6")
        # Of the millisecond in which it was taken, the backup cannot know everything.
        assert [(one.start, one.end) for one in list_backups(pool).intervals] == [(NOW, NOW + 1)]
        clock.advance(2000)
        backup(tmp_path / "data", pool, clock=clock)
    for after, expected in ((0, "12"), (1, "1234"), (2, "123456")):
        report = restore(pool, tmp_path / str(after), at=NOW + after)
        assert report.last_ts == NOW + after
        with opened(tmp_path / str(after)) as engine:
            assert "".join(texts(engine.log("a"))) == expected


def test_what_was_quiet_before_a_backup_is_known_to_have_been_quiet(tmp_path: Path) -> None:
    clock, pool = ManualClock(NOW), str(tmp_path / "pool")
    with opened(tmp_path / "data", clock) as engine:
        fill(make(engine), "1")
        clock.advance(HOUR)
        backup(tmp_path / "data", pool, clock=clock)
    restore(pool, tmp_path / "again", at=NOW + HOUR // 2)
    with pytest.raises(NotRestorable):
        restore(pool, tmp_path / "later", at=NOW + HOUR)


def test_a_broken_chain_is_told_with_what_can_be_restored(tmp_path: Path) -> None:
    clock, pool = ManualClock(NOW), str(tmp_path / "pool")
    with opened(tmp_path / "data", clock) as engine:
        log = make(engine)
        clock.advance(1)
        fill(log, "1")
        backup(tmp_path / "data", pool, clock=clock)
        clock.advance(9)
        fill(log, "2")
        clock.advance(10)
        engine.seal()
        clock.advance(11)
        fill(log, "3")
        backup(tmp_path / "data", pool, clock=clock)
    with pytest.raises(NotRestorable) as caught:
        restore(pool, tmp_path / "again", at=NOW + 10)
    assert [(one.start - NOW, one.end - NOW) for one in caught.value.intervals] == [(0, 0), (20, 30)]
    assert str(caught.value) == (
        "2023-11-14T22:13:20.010Z cannot be restored; the backups cover: "
        "2023-11-14T22:13:20.000Z to 2023-11-14T22:13:20.000Z, 2023-11-14T22:13:20.020Z to 2023-11-14T22:13:20.030Z"
    )
    assert not (tmp_path / "again").exists()
    assert [record.data for record in restored(pool, tmp_path / "then", clock, at=NOW + 25)["a"][1]] == [b"1", b"2"]


def test_a_missing_journal_file_breaks_the_chain_where_it_is_missing(tmp_path: Path) -> None:
    clock, pool = ManualClock(NOW), str(tmp_path / "pool")
    with opened(tmp_path / "data", clock, keep_journal_ms=HOUR) as engine:
        log = make(engine)
        backup(tmp_path / "data", pool, clock=clock)
        for number in range(3):
            clock.advance(10)
            fill(log, str(number))
            engine.seal()
        (tmp_path / "data" / journal_path(2)).unlink()
        clock.advance(10)
        fill(log, "last")
        backup(tmp_path / "data", pool, clock=clock)
    assert [(one.start - NOW, one.end - NOW) for one in list_backups(pool).intervals] == [(0, 9), (30, 39)]


def test_after_an_orderly_stop_the_chain_goes_on_in_the_next_file(tmp_path: Path) -> None:
    clock, pool = ManualClock(NOW), str(tmp_path / "pool")
    with opened(tmp_path / "data", clock) as engine:
        fill(make(engine), "1")
    backup(tmp_path / "data", pool, clock=clock)
    with opened(tmp_path / "data", clock) as engine:
        clock.advance(10)
        fill(engine.log("a"), "2")
        clock.advance(10)
        fill(engine.log("a"), "3")
        backup(tmp_path / "data", pool, clock=clock)
    assert [(one.start - NOW, one.end - NOW) for one in list_backups(pool).intervals] == [(0, 19)]
    assert len(restored(pool, tmp_path / "again", clock, at=NOW + 15)["a"][1]) == 2


def test_a_journal_that_lost_its_end_in_a_power_cut_goes_on_as_it_was_found_afterwards(tmp_path: Path) -> None:
    clock, pool = ManualClock(NOW), str(tmp_path / "pool")
    disk = FaultDisk(tmp_path / "data")
    engine = Engine.open(disk, clock=clock, background=False)
    log = make(engine, durability="fsync")
    fill(log, "1")
    clock.advance(10)
    log.append(Batch.of(b"never acknowledged"))
    backup(disk, pool, clock=clock)
    first = list_backups(pool).backups[0]
    disk = disk.power_cut()
    with opened(disk, clock) as engine:
        clock.advance(10)
        fill(engine.log("a"), "2")
        clock.advance(10)
        fill(engine.log("a"), "3")
        backup(disk, pool, clock=clock)
    second = list_backups(pool).backups[1]
    assert second.journal[0].size < first.journal[0].size
    found = restored(pool, tmp_path / "again", clock, at=NOW + 25)
    assert [record.data for record in found["a"][1]] == [b"1", b"2"]


def test_a_restored_directory_has_a_history_of_its_own_in_the_same_pool(tmp_path: Path) -> None:
    clock, pool = ManualClock(NOW), str(tmp_path / "pool")
    with opened(tmp_path / "data", clock) as engine:
        log = make(engine)
        fill(log, "1")
        engine.seal()
        clock.advance(10)
        fill(log, "2")
        clock.advance(1)
        fill(log, "3")
        backup(tmp_path / "data", pool, clock=clock)
    first = list_backups(pool).backups[0].history
    restore(pool, tmp_path / "again", at=NOW)
    clock.advance(10)
    with opened(tmp_path / "again", clock) as engine:
        fill(engine.log("a"), "another 2")
        report = backup(tmp_path / "again", pool, clock=clock)
        assert report.copied_files == 2  # the segment and its checkpoint are there
    assert [one.history for one in list_backups(pool).intervals] == [report.history, first]
    assert [record.data for record in restored(pool, tmp_path / "new", clock)["a"][1]] == [b"1", b"another 2"]
    restore(pool, tmp_path / "old", at=NOW + 10, history=first)
    with opened(tmp_path / "old", clock) as engine:
        assert texts(engine.log("a")) == ["1", "2"]


@pytest.mark.parametrize("folder", ["segments", "checkpoints", "journal"])
@pytest.mark.parametrize("how", ["flipped", "shorter", "gone"])
def test_a_damaged_file_is_found_and_nothing_is_left_behind(tmp_path: Path, folder: str, how: str) -> None:
    pool = tmp_path / "pool"
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1")
        engine.seal()
        fill(engine.log("a"), "2")
    backup(tmp_path / "data", str(pool))
    path = next((pool / folder).iterdir())
    raw = path.read_bytes()
    if how == "flipped":
        path.write_bytes(raw[:60] + bytes([raw[60] ^ 1]) + raw[61:])
    elif how == "shorter":
        path.write_bytes(raw[:-1])
    else:
        path.unlink()
    with pytest.raises(DamagedFile, match=path.name):
        restore(str(pool), tmp_path / "again")
    assert files(tmp_path / "again") <= {"LOCK"}
    path.write_bytes(raw)
    assert len(restored(pool, tmp_path / "again")["a"][1]) == 2


def test_a_damaged_description_makes_no_backup_and_does_not_harm_the_others(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    with opened(tmp_path / "data") as engine:
        log = make(engine)
        for text in "12":
            fill(log, text)
            backup(tmp_path / "data", str(pool))
    newest = max((pool / "backups").iterdir())
    newest.write_bytes(newest.read_bytes().replace(b'"boundary":1', b'"boundary":2'))
    assert [record.data for record in restored(pool, tmp_path / "again")["a"][1]] == [b"1"]
    newest.unlink()
    min((pool / "backups").iterdir()).write_bytes(b"{")
    with pytest.raises(DamagedFile, match=r"backups/.*\.json is damaged"):
        restore(str(pool), tmp_path / "never")


# --- backups that somebody has tampered with ---------------------------------------------------------------------


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """One backup, with a segment, a checkpoint and a journal file."""
    with opened(tmp_path / "data") as engine:
        log = make(engine)
        fill(log, "1", "2")
        engine.seal()
        fill(log, "3")
    backup(tmp_path / "data", str(tmp_path / "pool"))
    return tmp_path / "pool"


Described = dict[str, Any]


def rewrite(pool: Path, change: Callable[[Described], object]) -> None:
    """Change the description of the backup, checksum and all."""
    [path] = (pool / "backups").iterdir()
    described = msgspec.json.decode(path.read_bytes())["backup"]
    change(described)
    raw = msgspec.json.encode(described)
    path.write_bytes(msgspec.json.encode({"checksum": xxhash.xxh3_128_hexdigest(raw), "backup": msgspec.Raw(raw)}))


OUT = "../../outside"
TAMPERED: dict[str, Callable[[Described], object]] = {
    "a checkpoint of the manifest": lambda made: made["manifest"]["checkpoints"].__setitem__(0, OUT),
    "an absolute path": lambda made: made["manifest"]["checkpoints"].__setitem__(0, "/tmp/outside"),
    "a name with a zero byte": lambda made: made["manifest"]["checkpoints"].__setitem__(0, "00000001.full\x00"),
    "digits of another script": lambda made: made["manifest"]["checkpoints"].__setitem__(0, "٠٠٠٠٠٠٠١.full"),
    "one more digit than needed": lambda made: made["manifest"]["checkpoints"].__setitem__(0, "000000001.full"),
    "a negative segment": lambda made: made["manifest"]["segments"][0].update(id=-1),
    "a negative boundary": lambda made: made["manifest"].update(boundary=-1),
    "a huge journal file": lambda made: made["journal"][0].update(index=1 << 60),
    "a copy of a segment": lambda made: made["segments"][0].update(name=OUT),
    "a copy of a checkpoint": lambda made: made["checkpoints"][0].update(name=OUT),
    "a copy of a journal file": lambda made: made["journal"][0].update(name=OUT),
    "a size below zero": lambda made: made["segments"][0].update(size=-1),
    "too few copies": lambda made: made["segments"].clear(),
    "a time that is none": lambda made: made.update(time=1 << 62),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_backup_that_names_other_files_is_refused_and_writes_nothing(what: str, pool: Path) -> None:
    root = pool.parent
    rewrite(pool, TAMPERED[what])
    before = files(root)
    with pytest.raises(DamagedFile, match=r"\.json is damaged: its? "):
        restore(str(pool), root / "again")
    assert files(root) == before
    assert not verify_backups(str(pool)).sound


@pytest.mark.parametrize("folder", ["segments", "checkpoints", "journal"])
def test_symbolic_links_in_a_pool_are_not_followed(folder: str, pool: Path, tmp_path: Path) -> None:
    [path] = (pool / folder).iterdir()
    outside = path.rename(tmp_path / "outside")
    path.symlink_to(outside)
    with pytest.raises(DamagedFile, match="symbolic link"):
        restore(str(pool), tmp_path / "again")
    assert "symbolic link" in verify_backups(str(pool)).damaged[0].why
    # The next backup puts a file in its place, and leaves alone what the link led to.
    secret = outside.read_bytes()
    report = backup(tmp_path / "data", str(pool))
    assert report.replaced == [f"{folder}/{path.name}"]
    assert not path.is_symlink()
    assert outside.read_bytes() == secret
    assert verify_backups(str(pool)).sound


def test_a_folder_of_a_pool_that_is_a_symbolic_link_is_refused(pool: Path, tmp_path: Path) -> None:
    (pool / "segments").rename(tmp_path / "elsewhere")
    (pool / "segments").symlink_to(tmp_path / "elsewhere")
    for use in (
        lambda: restore(str(pool), tmp_path / "again"),
        lambda: backup(tmp_path / "data", str(pool), keep=1),
        lambda: verify_backups(str(pool)),
    ):
        with pytest.raises(DamagedFile, match="symbolic link"):
            use()


# --- files of a pool that rot ------------------------------------------------------------------------------------


def rot(path: Path) -> bytes:
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1 :])
    return good


@pytest.mark.parametrize("folder", ["segments", "checkpoints", "journal"])
@pytest.mark.parametrize("how", ["rotten", "cut off", "missing"])
def test_a_backup_notices_rotten_files_that_it_uses_again_and_replaces_them(
    folder: str, how: str, pool: Path, tmp_path: Path
) -> None:
    before = restored(pool, tmp_path / "before")
    [path] = (pool / folder).iterdir()
    good = rot(path)
    if how == "cut off":
        path.write_bytes(good[:-1])
    elif how == "missing":
        path.unlink()
    report = verify_backups(str(pool))
    assert [(damaged.file, len(damaged.backups)) for damaged in report.damaged] == [(f"{folder}/{path.name}", 1)]
    # Nothing has happened in the directory since, so everything would be used again.
    taken = backup(tmp_path / "data", str(pool))
    assert taken.replaced == [f"{folder}/{path.name}"]
    assert taken.copied_files == 1
    assert path.read_bytes() == good
    assert verify_backups(str(pool)).sound
    assert restored(pool, tmp_path / "again") == before


def test_files_that_were_not_read_for_longest_are_read_first(tmp_path: Path) -> None:
    """With a bound that allows one file at a time, every file has its turn."""
    clock = ManualClock(NOW)
    with opened(tmp_path / "data", clock) as engine:
        log = make(engine)
        for text in "12":
            fill(log, text)
            engine.seal()
        backup(tmp_path / "data", str(tmp_path / "pool"), clock=clock)
        copies = list_backups(str(tmp_path / "pool")).backups[-1].files
        rotten = sorted((tmp_path / "pool" / "segments").iterdir())[-1]
        rot(rotten)
        replaced: list[str] = []
        for _ in copies:
            clock.advance(1000)
            report = backup(tmp_path / "data", str(tmp_path / "pool"), clock=clock, verify_bytes=1)
            assert report.verified_files <= 1
            replaced += report.replaced
        assert replaced == [f"segments/{rotten.name}"]


def test_only_an_empty_directory_is_restored_into(tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1")
        backup(tmp_path / "data", pool)
        with pytest.raises(DirectoryNotEmpty, match="is not empty"):
            restore(pool, tmp_path / "data")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(DirectoryNotEmpty):
        restore(pool, tmp_path / "other")
    assert files(tmp_path / "other") == {"notes.txt"}
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    restore(pool, tmp_path / "volume")


def test_a_directory_that_is_being_restored_is_taken(tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1")
        backup(tmp_path / "data", pool)

    def watch(what: str, done: int, total: int) -> None:
        with pytest.raises(DirectoryInUse):
            Engine.open(tmp_path / "again", background=False)

    restore(pool, tmp_path / "again", progress=watch)


def test_a_restore_that_is_cut_off_anywhere_leaves_nothing_that_opens_as_if_it_were_whole(tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    with opened(tmp_path / "data") as engine:
        fill(make(engine), "1")
        engine.seal()
        fill(engine.log("a"), "2")
        backup(tmp_path / "data", pool)
        whole = everything(engine)
    calls, refused = 0, 0
    while True:
        calls += 1
        disk = FaultDisk(tmp_path / str(calls))
        disk.crash_after(calls)
        try:
            restore(pool, disk)
        except Crashed:
            disk = disk.power_cut(seed=calls)
        else:
            break
        try:
            with opened(disk) as engine:
                found = everything(engine)
        except DamagedFile as error:
            refused += error.path == "MANIFEST"
        else:
            assert found in ({}, whole)
    assert calls > 15
    assert refused > 5


def test_no_backup_is_told_as_such_and_nothing_is_made(tmp_path: Path) -> None:
    for look in (list_backups, lambda pool: restore(pool, tmp_path / "again")):
        with pytest.raises(NoBackup, match="no backup found in"):
            look(str(tmp_path / "pool"))
    assert list(tmp_path.iterdir()) == []
