"""Records of one log go on into others."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from support.crash_oracle import observe_log
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Append, Batch, Config, Cursor, Engine, ForwardedCopy, Log, ManualClock, Options
from strandline.engine.backup import backup, restore
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadRequest, DiskFull, UnknownLog
from strandline.engine.journal.file import read_journal
from strandline.engine.journal.frame import FrameType
from strandline.engine.testing.fault_disk import FaultDisk
from strandline.engine.verify.directory_check import verify
from strandline.engine.verify.repair import repair

CLASSES = ["ephemeral", "memory", "disk", "fsync"]


def frames_of(engine: Engine) -> list[FrameType]:
    return [frame.type for frame in read_journal(engine.disk, engine.journal.index).frames()]  # type: ignore[union-attr]


def contents(log: Log) -> list[tuple[int, str | None, str | None, bytes | None, bytes]]:
    return [(record.seq, record.key, record.node, record.meta, record.data) for record in log.read()]


def filled(engine: Engine, **config: object) -> Log:
    """Five records; the third is deleted."""
    source = make(engine, "source", **config)
    source.append(Batch([b"1", b"2"], ["a", "b"], ["n", None], [b"m1", None])).wait()
    source.append(Batch([b"3", b"4", b"5"], None, None, [None, b"m4", b"m5"])).wait()
    source.delete(seqs=[3], erasure=False).wait()
    return source


@pytest.mark.parametrize("durability", CLASSES)
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("seal", [False, True])
def test_copies_are_the_same_after_restarts_and_seals(tmp_path: Path, durability: str, old: bool, seal: bool) -> None:
    copied = {
        "all": [(1, "a", "n", b"m1", b"1"), (2, "b", None, None, b"2"), (3, None, None, b"m4", b"4")],
        "bare": [(5, None, None, b"m1", b"1"), (6, None, None, b"m5", b"5")],
        "given": [(1, "b", None, b"x", b"2"), (2, None, None, None, b"4"), (3, None, None, b"z", b"5")],
    }
    with opened(tmp_path) as engine:
        source = filled(engine, durability=durability)
        if old:
            engine.seal()
        logs = {name: make(engine, name, durability="disk" if name == "all" else "fsync") for name in copied}
        results = engine.forward(
            source,
            [
                ForwardedCopy(logs["all"], "c1", 4, [(1, 4)]),
                ForwardedCopy(logs["bare"], "c2", 5, [(1, 1), (5, 9)], lost=4, keep_keys=False, keep_nodes=False),
                ForwardedCopy(logs["given"], "c3", 5, [(2, 5)], metas=[b"x", b"y", None, b"z"]),
            ],
        ).wait()
        assert [(result.first, result.last, result.ts) for result in results if result is not None] == [
            (1, 3, NOW),
            (5, 6, NOW),
            (1, 3, NOW),
        ]
        cursors = {"c1": Cursor(4, NOW), "c2": Cursor(5, NOW), "c3": Cursor(5, NOW)}
        by_reference = not old and durability != "ephemeral"
        assert (frames_of(engine).count(FrameType.APPEND) == 2) == by_reference or durability == "ephemeral"
        for _ in range(3):
            assert {name: contents(engine.log(name)) for name in copied} == copied
            assert engine.log("source").cursors() == cursors
            tombstone = engine.log("bare").read().tombstone
            assert tombstone is not None
            assert (tombstone.gap_from, tombstone.gap_to, tombstone.reason) == (1, 4, "source_trim")
            if seal:
                engine.seal()
            engine.close()
            engine = Engine.open(tmp_path, clock=ManualClock(NOW), background=False)
            assert engine.recovered.losses == []
        engine.close()


@pytest.mark.parametrize("seal", [False, True])
def test_copies_do_not_depend_on_what_becomes_of_the_source(tmp_path: Path, seal: bool) -> None:
    """A frame refers to what was appended, be it deleted, evicted or dropped since."""
    with opened(tmp_path) as engine:
        source = make(engine, "source", cap_records=3, durability="fsync")
        logs = [make(engine, name) for name in "abc"]
        source.append(Batch([b"1", b"2", b"3"])).wait()
        # One that still waits for the disk and then evicts; in the journal it comes first.
        source.append(Batch([b"4", b"5"]))
        deleting = source.delete(seqs=[3])
        engine.forward(source, [ForwardedCopy(logs[0], "a", 3, [(1, 3)])]).wait()
        deleting.wait()
        engine.forward(source, [ForwardedCopy(logs[1], "b", 5, [(1, 5)])]).wait()
        assert source.amend(5, b"five").wait() is None
        engine.forward(source, [ForwardedCopy(logs[2], "c", 5, [(4, 5)])]).wait()
        source.drop().wait()
        expected = [["1", "2", "3"], ["4", "5"], ["4", "five"]]
        assert [texts(log) for log in logs] == expected
        if seal:
            engine.seal()
            assert [texts(log) for log in logs] == expected
    with opened(tmp_path) as engine:
        assert [texts(engine.log(name)) for name in "abc"] == expected
        assert engine.recovered.losses == []
        engine.seal()
        assert [texts(engine.log(name)) for name in "abc"] == expected


@pytest.mark.parametrize("seal", [False, True])
def test_what_was_forwarded_can_be_forwarded_on(tmp_path: Path, seal: bool) -> None:
    with opened(tmp_path) as engine:
        source = filled(engine)
        logs = [source, *(make(engine, name) for name in "abcd")]
        engine.forward(logs[0], [ForwardedCopy(logs[1], "c", 5, [(1, 5)], keep_nodes=False)]).wait()
        engine.forward(logs[1], [ForwardedCopy(logs[2], "c", 4, [(1, 4)], metas=[None, b"x", None, None])]).wait()
        engine.forward(logs[2], [ForwardedCopy(logs[3], "c", 4, [(2, 4)], keep_keys=False)]).wait()
        engine.forward(
            logs[3], [ForwardedCopy(logs[4], "c", 4, [(1, 2)]), ForwardedCopy(logs[0], "d", 4, [(3, 3)])]
        ).wait()
        assert FrameType.APPEND not in frames_of(engine)[-4:]
        logs[2].drop().wait()
        logs[0].delete(seqs=[1, 2]).wait()
        expected = [contents(log) for log in (logs[0], logs[1], logs[3], logs[4])]
        assert expected[3] == [(1, None, None, b"x", b"2"), (2, None, None, None, b"4")]
        assert expected[0][-1] == (6, None, None, None, b"5")
        if seal:
            engine.seal()
            assert [contents(engine.log(name)) for name in ("source", "a", "c", "d")] == expected
    for _ in range(2):
        with opened(tmp_path) as engine:
            assert [contents(engine.log(name)) for name in ("source", "a", "c", "d")] == expected
            engine.seal()


def test_a_destination_that_is_full_or_gone_keeps_its_cursor(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = filled(engine)
        full = make(engine, "full", cap_records=3, discard="reject")
        small = make(engine, "small", cap_bytes=1, discard="reject", durability="fsync")
        gone, fine = make(engine, "gone"), make(engine, "fine")
        gone.drop().wait()
        copies = [
            ForwardedCopy(full, "one", 2, [(1, 2)]),
            ForwardedCopy(full, "two", 4, [(1, 2)]),
            ForwardedCopy(full, "three", 4, [(4, 4)], lost=7),
            ForwardedCopy(small, "four", 4, [(1, 4)]),
            ForwardedCopy(gone, "five", 4, [(1, 4)]),
            ForwardedCopy(fine, "six", 4, [(3, 3), (7, 8)]),
        ]
        results = engine.forward(source, copies).wait()
        assert [result and (result.first, result.last) for result in results] == [(1, 2), None, (10, 10), *[None] * 3]
        assert {name: cursor.seq for name, cursor in source.cursors().items()} == {"one": 2, "three": 4, "six": 4}
        assert (small.next_seq, fine.next_seq, full.room()) == (1, 1, (0, (1 << 63) - full.state().size))
        assert engine.forward(source, copies[3:5]).wait() == [None, None]
        assert engine.forward(source, []).wait() == []
    with opened(tmp_path) as engine:
        assert texts(engine.log("full")) == ["1", "2"]
        assert texts(engine.log("full"), after=2) == ["4"]
        assert {name: cursor.seq for name, cursor in engine.log("source").cursors().items()} == {
            "one": 2,
            "three": 4,
            "six": 4,
        }


def test_a_gap_may_be_all_there_is(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = filled(engine)
        logs = [make(engine, name, durability=name) for name in CLASSES]
        commit = engine.forward(source, [ForwardedCopy(log, log.name, 5, lost=3) for log in logs])
        assert commit.wait() == [None] * 4
        assert [log.head for log in logs] == [3] * 4
        fill(logs[2], "x")
    with opened(tmp_path) as engine:
        for name in CLASSES[1:]:
            page = engine.log(name).read()
            assert page.tombstone is not None
            assert (page.tombstone.gap_to, page.tombstone.reason) == (3, "source_trim")


def test_careful_destinations_wait_for_the_flush_and_the_others_do_not(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = filled(engine)
        logs = [make(engine, name, durability=name) for name in CLASSES]
        for log in logs:
            fill(log, "0")
        engine.flush()
        heard: list[str] = []
        for log in logs:
            log.listen(lambda log: heard.append(log.name))
        commit = engine.forward(source, [ForwardedCopy(log, "c", 2, [(1, 2)]) for log in logs])
        assert not commit.done
        assert [log.head for log in logs] == [3, 3, 3, 1]
        assert source.cursor("c") == Cursor(2, NOW)
        assert heard == CLASSES[:3]
        behind = logs[3].append(Batch.of(b"3"))
        engine.flush()
        assert heard == [*CLASSES, "fsync"]
        assert behind.done
        assert texts(logs[3]) == ["0", "1", "2", "3"]


def test_on_a_careful_source_the_cursor_moves_when_it_is_durable(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source, log = filled(engine, durability="fsync"), make(engine, "log")
        fill(log, "0")
        commit = engine.forward(source, [ForwardedCopy(log, "c", 2, [(1, 2)])])
        moving = source.move_cursor("c", 9)
        assert not commit.done
        assert log.head == 3
        assert source.cursor("c") is None
        engine.flush()
        assert source.cursor("c") == Cursor(9, NOW) == moving.wait()


def test_many_copies_share_one_frame_and_the_source_s_bytes(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine, "source")
        source.append(Batch([b"x" * 1000, b"y" * 1000])).wait()
        logs = [make(engine, f"{number}") for number in range(300)]
        before = engine.stats()
        engine.forward(source, [ForwardedCopy(log, log.name, 2, [(1, 2)]) for log in logs]).wait()
        after = engine.stats()
        assert after.frames == before.frames + 1
        assert after.bytes_written - before.bytes_written < 300 * 50
        blocks = {id(engine.by_epoch[log.epoch].tail.blocks[0].data) for log in (source, *logs)}  # type: ignore[union-attr]
        assert len(blocks) == 1
        assert (after.records, after.size) == (602, 602_000)


def test_old_and_new_records_go_to_one_log_in_order(tmp_path: Path) -> None:
    """By reference, by value, and by reference again, within one write."""
    with opened(tmp_path) as engine:
        source, log = make(engine, "source"), make(engine, "log")
        fill(source, "old")
        engine.seal()
        fill(source, "new")
        copies = [ForwardedCopy(log, f"{at}", at, [(at, at)]) for at in (2, 1, 2, 2, 1)]
        assert [result.first for result in engine.forward(source, copies).wait() if result] == [1, 2, 3, 4, 5]
        expected = ["new", "old", "new", "new", "old"]
        assert texts(log) == expected
    with opened(tmp_path) as engine:
        assert texts(engine.log("log")) == expected
        assert engine.recovered.losses == []
        engine.seal()
        assert texts(engine.log("log")) == expected


def test_records_of_a_log_that_was_ephemeral_are_forwarded_by_value(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source, log = make(engine, "source", durability="disk"), make(engine, "log")
        fill(source, "1")
        source.configure(Config(durability="ephemeral")).wait()
        fill(source, "2")
        engine.forward(source, [ForwardedCopy(log, "c", 2, [(1, 2)])]).wait()
        source.configure(Config(durability="disk")).wait()
        fill(source, "3")
        engine.forward(source, [ForwardedCopy(log, "c", 3, [(2, 3)]), ForwardedCopy(log, "d", 3, [(3, 3)])]).wait()
    with opened(tmp_path) as engine:
        assert texts(engine.log("log")) == ["1", "2", "2", "3", "3"]
        engine.seal()
        assert texts(engine.log("log")) == ["1", "2", "2", "3", "3"]


def test_a_failed_write_leaves_everything_as_it_was(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(), clock=ManualClock(NOW), background=False)
    source, log = filled(engine), make(engine, "log")
    fill(log, "0")
    disk.fail_from(1, errno.ENOSPC, kind="write", short=True)
    with pytest.raises(DiskFull):
        engine.forward(source, [ForwardedCopy(log, "c", 2, [(1, 2)], lost=3)])
    disk.heal()
    assert (log.next_seq, log.head, source.cursors()) == (2, 1, {})
    engine.forward(source, [ForwardedCopy(log, "c", 2, [(1, 2)])]).wait()
    assert texts(log) == ["0", "1", "2"]


def test_the_caps_of_a_destination_hold_for_copies(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        source, log = filled(engine), make(engine, "log", cap_records=2, ttl_ms=1000)
        fill(log, "0")
        clock.advance(1001)
        engine.forward(source, [ForwardedCopy(log, "c", 5, [(1, 5)])]).wait()
        assert texts(log) == ["4", "5"]
        state = log.state()
    with opened(tmp_path, clock) as engine:
        assert engine.log("log").state() == state


def test_damage_to_the_source_s_append_makes_the_copies_lost(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source, log = make(engine, "source"), make(engine, "log", durability="fsync")
        fill(source, "payload 1", "payload 2", "payload 3")
        engine.forward(source, [ForwardedCopy(log, "c", 3, [(1, 3)])]).wait()
        fill(log, "after")
    path = tmp_path / "journal" / "00000001.journal"
    path.write_bytes(path.read_bytes().replace(b"payload 2", b"payload x"))
    for _ in range(2):
        with opened(tmp_path) as engine:
            log = engine.log("log")
            assert texts(log) == ["payload 1"]
            page = log.read(after=1)
            assert page.tombstone is not None
            assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (2, 2, "lost")
            assert [record.data for record in page] == [b"payload 3", b"after"]
            assert engine.log("source").cursor("c") is not None
            engine.seal()


def test_copies_in_memory_get_the_journal_sealed(tmp_path: Path) -> None:
    with opened(tmp_path, journal_bytes=11_000) as engine:
        source = make(engine, "source")
        source.append(Batch.of(b"x" * 1000)).wait()
        logs = [make(engine, f"{number}") for number in range(45)]
        engine.forward(source, [ForwardedCopy(log, "c", 1, [(1, 1)]) for log in logs[:35]]).wait()
        assert not engine.maintenance.due
        engine.forward(source, [ForwardedCopy(log, "c", 1, [(1, 1)]) for log in logs[35:]]).wait()
        assert engine.maintenance.due
    with opened(tmp_path, journal_bytes=11_000) as engine:
        assert engine.maintenance.due
        engine.maintain()
        assert not engine.maintenance.due
        assert texts(engine.log("44")) == ["x" * 1000]


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as engine, opened(tmp_path / "other") as other:
        source, log = filled(engine), make(engine, "log")
        foreign = make(other, "foreign")
        for copy in (
            ForwardedCopy(source, "c", 1, [(1, 1)]),
            ForwardedCopy(foreign, "c", 1, [(1, 1)]),
            ForwardedCopy(log, "", 1, [(1, 1)]),
            ForwardedCopy(log, "c", -1, [(1, 1)]),
            ForwardedCopy(log, "c", 1, [(2, 1)]),
            ForwardedCopy(log, "c", 1, [(0, 1)]),
            ForwardedCopy(log, "c", 1, [(2, 2), (1, 1)]),
            ForwardedCopy(log, "c", 1, [(1, 2), (2, 3)]),
            ForwardedCopy(log, "c", 1, [(1, 1)], lost=-1),
            ForwardedCopy(log, "c", 1, [(1, 2)], metas=[b"x"]),
            ForwardedCopy(log, "c", 1, [(1, 1)], metas=["x"]),  # type: ignore[list-item]
        ):
            with pytest.raises(BadRequest):
                engine.forward(source, [ForwardedCopy(log, "c", 1, [(1, 1)]), copy])
        with pytest.raises(BadRequest):
            other.forward(source, [])
        assert (log.next_seq, source.cursors()) == (1, {})
        source.drop().wait()
        with pytest.raises(UnknownLog):
            engine.forward(source, [ForwardedCopy(log, "c", 1, [(1, 1)])])


def test_records_in_segments_are_fetched_first(tmp_path: Path) -> None:
    with opened(tmp_path, cache_bytes=1) as engine:
        source = filled(engine)
        engine.seal()
        source.amend(4, b"four").wait()
        source.hide(seqs=[1]).wait()
        fill(source, "6")
        log = make(engine, "log")
        engine.forward(source, [ForwardedCopy(log, "c", 6, [(1, 6)])]).wait()
        assert texts(log) == ["2", "four", "5", "6"]
        engine.append_all([Append(log, Batch.of(b"7"))]).wait()
    with opened(tmp_path) as engine:
        assert texts(engine.log("log")) == ["2", "four", "5", "6", "7"]


def test_a_copy_of_nothing_takes_no_reservation_back(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source, log = filled(engine), make(engine, "log", durability="ephemeral")
        engine.forward(source, [ForwardedCopy(log, "c", 5, lost=100_000), ForwardedCopy(log, "d", 5)]).wait()
        assert log.head == 100_000
    with opened(tmp_path) as engine:
        assert engine.log("log").append(Batch.of(b"x")).wait().first > 100_000


def forwarded(engine: Engine, clock: ManualClock) -> None:
    """A chain of three logs, and a second step a second later."""
    source, a, b = make(engine, "source"), make(engine, "a", durability="fsync"), make(engine, "b")
    fill(source, "1", "2")
    engine.forward(source, [ForwardedCopy(a, "a", 2, [(1, 2)])]).wait()
    engine.forward(a, [ForwardedCopy(b, "b", 2, [(1, 2)])]).wait()
    clock.advance(1000)
    fill(source, "3")
    engine.forward(source, [ForwardedCopy(a, "a", 3, [(3, 3)]), ForwardedCopy(b, "b", 3, [(3, 3)], lost=1)]).wait()
    source.delete(before=3).wait()


def test_a_directory_with_copies_is_sound_and_can_be_made_again(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        forwarded(engine, clock)
        expected = {name: observe_log(engine.log(name)) for name in ("source", "a", "b")}
    assert verify(LocalDisk(tmp_path)).sound
    (tmp_path / "MANIFEST").unlink()
    assert repair(LocalDisk(tmp_path)).sound
    with opened(tmp_path, clock) as engine:
        assert {name: observe_log(engine.log(name)) for name in ("source", "a", "b")} == expected


def test_copies_of_logs_whose_state_is_lost_are_kept(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        source, log = filled(engine), make(engine, "log")
        engine.seal()
        fill(source, "6")
        engine.forward(source, [ForwardedCopy(log, "c", 6, [(6, 6)])]).wait()
    (tmp_path / "MANIFEST").unlink()
    shutil.rmtree(tmp_path / "checkpoints")
    assert repair(LocalDisk(tmp_path)).sound
    with opened(tmp_path, clock) as engine:
        assert [texts(engine.log(name)) for name in engine.names(prefix="recovered-")] == [["6"]]


@pytest.mark.parametrize("at", [None, 500])
def test_copies_are_in_backups(tmp_path: Path, at: int | None) -> None:
    clock = ManualClock(NOW)
    pool = str(tmp_path / "pool")
    with opened(tmp_path / "data", clock) as engine:
        forwarded(engine, clock)
    backup(tmp_path / "data", pool)
    restore(pool, tmp_path / "again", at=None if at is None else NOW + at)
    with opened(tmp_path / "again", clock) as engine:
        assert engine.recovered.losses == []
        assert texts(engine.log("a")) == (["1", "2", "3"] if at is None else ["1", "2"])
        assert texts(engine.log("source")) == (["3"] if at is None else ["1", "2"])
        assert engine.log("source").cursors() == (
            {"a": Cursor(3, NOW + 1000), "b": Cursor(3, NOW + 1000)} if at is None else {"a": Cursor(2, NOW)}
        )
        assert engine.log("b").head == (4 if at is None else 2)


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_power_cut_takes_a_copy_and_its_cursor_together(durability: str, tmp_path: Path) -> None:
    """The router copies again. Readers can have seen the lost copy if the destination does not wait for the disk."""
    disk = FaultDisk(tmp_path / "data")
    engine = Engine.open(disk, clock=ManualClock(NOW), background=False)
    source, dest = make(engine, "source", durability="fsync"), make(engine, "dest", durability=durability)
    fill(dest, "before")
    fill(source, "record")
    copy = ForwardedCopy(dest, "router", 1, [(1, 1)])
    engine.forward(source, [copy])
    assert texts(dest) == (["before"] if durability == "fsync" else ["before", "record"])
    with opened(disk.power_cut()) as engine:
        source, dest = engine.log("source"), engine.log("dest")
        assert texts(dest) == ["before"]
        assert source.cursors() == {}
        (appended,) = engine.forward(source, [copy._replace(log=dest)]).wait()
        assert appended is not None
        assert texts(dest, after=appended.first - 1) == ["record"]
        assert (appended.first == 2) == (durability == "fsync")
