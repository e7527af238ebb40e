"""A log that begins with the records of another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import (
    Appended,
    Batch,
    Config,
    Cursor,
    Engine,
    ForwardedCopy,
    Log,
    ManualClock,
    Options,
    Producer,
)
from strandline.engine.backup import backup, restore
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadRequest, LogExists, LogHasForks, UnknownLog, UnknownSeq
from strandline.engine.operations.erasures import NAME
from strandline.engine.segments import writer
from strandline.engine.segments.cold_tier import ObjectStoreCold
from strandline.engine.testing.fault_disk import FaultDisk
from strandline.engine.verify.directory_check import verify
from strandline.engine.verify.dump import dump
from strandline.engine.verify.repair import repair

CLASSES = ["memory", "disk", "fsync"]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BLOCK_ROWS", 4)


def source_of(engine: Engine, **config: object) -> Log:
    """Ten records, half of them sealed."""
    log = make(engine, "source", **config)
    for number in range(1, 11):
        log.append(Batch.of(f"s{number}".encode(), "ab"[number % 2], "nm"[number % 2])).wait()
        if number == 5:
            engine.seal()
    return log


def fork(engine: Engine, name: str = "fork", source: str = "source", through: int = 6, **config: object) -> Log:
    return engine.fork(name, engine.log(source), through, Config(**config)).wait()  # type: ignore[arg-type]


def pages(log: Log, limit: int = 3, **query: object) -> list[str]:
    found, after, caught_up = [], 0, False
    while not caught_up:
        page = log.read(after, limit, **query)  # type: ignore[arg-type]
        found += [record.data.decode() for record in page]
        after, caught_up = page.next_after, page.caught_up
    return found


@pytest.mark.parametrize("durability", CLASSES)
def test_a_fork_is_one_seamless_log(tmp_path: Path, durability: str) -> None:
    with opened(tmp_path) as engine:
        source = source_of(engine, durability=durability)
        log = fork(engine, durability=durability)
        assert (log.head, log.next_seq, log.base and (log.base[0].name, log.base[1])) == (6, 7, ("source", 6))
        assert source.forks == 1
        fill(log, "f7", "f8")
        fill(source, "s11")
        expected = ["s1", "s2", "s3", "s4", "s5", "s6", "f7", "f8"]
        assert texts(log) == pages(log) == pages(log, 1) == expected
        assert log.read(0, 256).seqs == list(range(1, 9))
        assert texts(log, after=5) == ["s6", "f7", "f8"]
        assert texts(log, after=6) == ["f7", "f8"]
        assert pages(source) == [f"s{number}" for number in range(1, 12)]
        state = log.state()
        assert (state.head, state.earliest, state.evict_floor, state.count, state.size) == (8, 1, 1, 2, 4)


def test_filters_and_limits_go_across_the_fork_point(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        source_of(engine)
        log = fork(engine)
        clock.advance(5)
        for number in range(7, 11):
            log.append(Batch.of(f"f{number}".encode(), "ab"[number % 2], "nm"[number % 2])).wait()
        assert texts(log, key="a") == pages(log, 2, key="a") == ["s2", "s4", "s6", "f8", "f10"]
        assert texts(log, key_prefix="b") == ["s1", "s3", "s5", "f7", "f9"]
        assert texts(log, without_nodes=["m"]) == ["s2", "s4", "s6", "f8", "f10"]
        assert texts(log, since=NOW + 1) == ["f7", "f8", "f9", "f10"]
        assert texts(log, since=NOW)[0] == "s1"
        assert texts(log, after=4, limit=3) == ["s5", "s6", "f7"]
        assert texts(log, after=4, max_bytes=5) == ["s5", "s6"]
        resident = log.read_resident(5, 2)
        assert resident is not None
        assert resident.data == [b"s6", b"f7"]


@pytest.mark.parametrize("through", [0, 3, 5, 10])
@pytest.mark.parametrize("seal", [False, True])
def test_a_fork_can_begin_anywhere_and_survives_restarts(tmp_path: Path, through: int, seal: bool) -> None:
    with opened(tmp_path) as engine:
        source_of(engine)
        log = fork(engine, through=through)
        assert (pages(log), log.head, log.read(through).caught_up) == (
            [f"s{n}" for n in range(1, through + 1)],
            through,
            True,
        )
        if seal:
            engine.seal()
        fill(log, "own")
        if seal:
            engine.seal()
        expected = pages(log)
    for _ in range(2):
        with opened(tmp_path) as engine:
            log = engine.log("fork")
            assert (pages(log), log.head, engine.log("source").forks) == (expected, through + 1, 1)
            assert log.base is not None
            assert (log.base[0].epoch, log.base[1]) == (engine.log("source").epoch, through)
    assert verify(LocalDisk(tmp_path)).sound


def test_forks_of_forks(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source_of(engine)
        fill(fork(engine, "one", "source", 6), "a7", "a8", "a9")
        fill(fork(engine, "two", "one", 8), "b9", "b10")
        engine.seal()
        fill(fork(engine, "three", "two", 9), "c10")
        fill(fork(engine, "early", "three", 4), "d5")
        fill(fork(engine, "empty", "three", 10))
        fork(engine, "same", "empty", 7)
        expected = {
            "one": ["s1", "s2", "s3", "s4", "s5", "s6", "a7", "a8", "a9"],
            "two": ["s1", "s2", "s3", "s4", "s5", "s6", "a7", "a8", "b9", "b10"],
            "three": ["s1", "s2", "s3", "s4", "s5", "s6", "a7", "a8", "b9", "c10"],
            "early": ["s1", "s2", "s3", "s4", "d5"],
            "empty": ["s1", "s2", "s3", "s4", "s5", "s6", "a7", "a8", "b9", "c10"],
            "same": ["s1", "s2", "s3", "s4", "s5", "s6", "a7"],
        }
        assert {name: pages(engine.log(name), 4) for name in expected} == expected
        assert [engine.log(name).forks for name in ("source", "one", "two", "three", "early")] == [1, 1, 1, 2, 0]
        engine.log("one").delete(seqs=[7]).wait()
    with opened(tmp_path) as engine:
        for name, data in expected.items():
            assert pages(engine.log(name), 4) == [text for text in data if text != "a7"]
        engine.seal()
        engine.seal()
        for name, data in expected.items():
            assert pages(engine.log(name), 4) == [text for text in data if text != "a7"]


def test_what_becomes_of_shared_records_in_the_source_is_so_in_the_fork(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = source_of(engine)
        log = fork(engine)
        fill(log, "f7")
        for change, expected in (
            (lambda: source.delete(seqs=[1, 9]), ["s2", "s3", "s4", "s5", "s6", "f7"]),
            (lambda: source.hide(seqs=[2, 6, 10]), ["s3", "s4", "s5", "f7"]),
            (lambda: source.restore(seqs=[2]), ["s2", "s3", "s4", "s5", "f7"]),
            (lambda: source.amend(3, b"other"), ["s2", "other", "s4", "s5", "f7"]),
        ):
            before = log.revision
            change().wait()
            assert log.revision != before
            assert pages(log) == expected
        assert (log.read().tombstone, log.state().earliest) == (None, 2)
        source.delete(before=100).wait()
        assert (pages(log), log.read().tombstone, log.state().earliest) == (["f7"], None, 7)
        engine.seal()
        assert (pages(log), log.state().earliest) == (["f7"], 7)


def test_what_is_evicted_in_the_source_shows_a_tombstone_in_the_fork(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = source_of(engine)
        log = fork(engine)
        fill(log, "f7")
        source.configure(Config(cap_records=6)).wait()
        page = log.read()
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (1, 4, "cap")
        assert (page.seqs, log.state().evict_floor, log.state().earliest) == ([5, 6, 7], 5, 5)
        fill(source, *"xxxxxx")
        page = log.read()
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.earliest) == (1, 6, 7)
        assert (page.seqs, log.state().evict_floor, log.state().earliest) == ([7], 7, 7)


@pytest.mark.parametrize("seal", [False, True])
def test_time_takes_shared_records_as_it_does_in_the_source(tmp_path: Path, seal: bool) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        source_of(engine, ttl_ms=1000)
        log = fork(engine)
        fill(log, "f7")
        if seal:
            engine.seal()
        before = log.revision
        clock.advance(1001)
        assert log.revision != before
        assert (log.state().earliest, texts(log)) == (7, ["f7"])
        resident = log.read_resident()
        assert resident is not None
        assert resident.tombstone is not None
        assert resident.tombstone.reason == "ttl"


def test_a_fork_keeps_its_own_records_by_its_own_rules(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source_of(engine)
        log = fork(engine, cap_records=2)
        fill(log, "f7", "f8", "f9", "f10")
        first, second = log.read(), log.read(6)
        assert ([*first.data], first.tombstone) == ([b"s1", b"s2", b"s3", b"s4", b"s5", b"s6"], None)
        assert second.tombstone is not None
        assert (second.tombstone.gap_from, second.tombstone.gap_to, second.tombstone.reason) == (7, 8, "cap")
        assert (second.data, log.state().earliest, log.state().evict_floor) == ([b"f9", b"f10"], 1, 1)
        # Losses on both sides of the fork point are one.
        engine.log("source").configure(Config(cap_records=1)).wait()
        page = log.read()
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to, page.seqs) == (1, 8, [9, 10])
        assert log.state().evict_floor == 9


def test_changes_of_a_fork_leave_shared_records_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = source_of(engine)
        log = fork(engine)
        log.append(Batch([b"f7", b"f8"], ["a", "b"])).wait()
        assert log.delete(before=8).wait().count == 1
        assert log.delete(key="a").wait().count == 0
        assert log.hide(prefix="").wait().count == 1
        assert log.restore(seqs=[1, 8]).wait().count == 1
        with pytest.raises(UnknownSeq):
            log.amend(6, b"other")
        log.amend(8, b"F8").wait()
        assert pages(log) == ["s1", "s2", "s3", "s4", "s5", "s6", "F8"]
        assert pages(source) == [f"s{number}" for number in range(1, 11)]


def test_nothing_but_records_is_shared(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = source_of(engine)
        source.append(
            Batch.of(b"s11"), idempotency_key="k", producer=Producer("p", 0, 0), notes={"closed": True}
        ).wait()
        source.move_cursor("c", 3).wait()
        log = fork(engine, through=11)
        assert (log.notes, log.cursors(), log.producer("p"), log.remembers("k")) == ({}, {}, None, False)
        assert log.append(Batch.of(b"f12"), idempotency_key="k").wait() == Appended(12, 12, NOW)
        log.note({"n": 1}).wait()
        assert source.notes == {"closed": True}


def test_a_fork_is_made_together_with_its_notes_and_first_records(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(), clock=ManualClock(NOW), background=False)
    source = source_of(engine)
    commit = engine.fork("fork", source, 3, notes={"n": 1}, batch=Batch.of(b"f4"))
    assert (commit.done, engine.log("fork").head, engine.log("fork").next_seq) == (False, 3, 5)
    log = commit.wait()
    assert (pages(log), log.notes, log.config) == (["s1", "s2", "s3", "f4"], {"n": 1}, source.config)
    engine = Engine.open(disk.power_cut(), Options(), clock=ManualClock(NOW), background=False)
    log = engine.log("fork")
    assert (pages(log), log.notes) == (["s1", "s2", "s3", "f4"], {"n": 1})


def test_times_do_not_go_backwards_at_the_fork_point(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        source = make(engine, "source")
        for ts in (NOW - 9, NOW - 5, NOW + 100):
            source.append(Batch.of(b"x"), ts=ts).wait()
        for through, expected in ((0, NOW - 50), (1, NOW - 9), (2, NOW - 5), (3, NOW + 100)):
            log = fork(engine, str(through), through=through)
            assert log.append(Batch.of(b"y"), ts=NOW - 50).wait().ts == expected
        engine.seal()
        log = fork(engine, "sealed", through=2)
        assert log.append(Batch.of(b"y"), ts=NOW - 50).wait().ts >= NOW - 5
    with opened(tmp_path, clock) as engine:
        for log in map(engine.log, engine.names()):
            assert log.read().ts == sorted(log.read().ts)
    assert verify(LocalDisk(tmp_path)).sound


def test_a_fork_point_behind_a_gap_has_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine, "source")
        fill(source, "1")
        source.delete(seqs=[1]).wait()
        source.skip(5, "source_trim").wait()
        log = fork(engine)
        page = log.read()
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (2, 6, "source_trim")
        assert log.append(Batch.of(b"f7")).wait() == Appended(7, 7, NOW)


def test_a_log_with_forks_cannot_be_dropped(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = source_of(engine)
        one, two = fork(engine, "one", through=0), fork(engine, "two", "one", 0)
        for log, name in ((source, "source"), (one, "one")):
            with pytest.raises(LogHasForks, match=name) as raised:
                log.drop()
            assert (raised.value.name, raised.value.forks) == (name, 1)
        assert pages(source, 100)[:1] == ["s1"]
        two.drop().wait()
        assert (one.forks, source.forks) == (0, 1)
    with opened(tmp_path) as engine:
        engine.log("one").drop().wait()
        engine.log("source").drop().wait()
        assert engine.names() == [NAME]
    with opened(tmp_path) as engine:
        assert engine.names() == [NAME]


def test_a_name_that_is_taken_or_a_point_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = source_of(engine)
        with pytest.raises(LogExists):
            engine.fork("source", source, 1)
        for through in (-1, 11, True, 1.0):
            with pytest.raises(BadRequest, match="0 to 10"):
                engine.fork("fork", source, through)  # type: ignore[arg-type]
        assert (source.forks, engine.find("fork")) == (0, None)
        source.drop().wait()
        with pytest.raises(UnknownLog):
            engine.fork("fork", source, 1)
        with opened(tmp_path / "other") as other, pytest.raises(BadRequest):
            engine.fork("fork", make(other), 0)


def test_what_is_in_memory_only_cannot_be_shared(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine, "source", durability="ephemeral")
        fill(source, "1")
        with pytest.raises(BadRequest, match="memory only"):
            fork(engine, through=1)
        fill(fork(engine, through=0), "f1")
        once = make(engine, "once")
        fill(once, "1", "2")
        once.configure(Config(durability="ephemeral")).wait()
        fill(once, "3")
        with pytest.raises(BadRequest, match="after seq 2"):
            fork(engine, "two", "once", 3)
        fill(fork(engine, "two", "once", 2, durability="ephemeral"), "f3")
        assert pages(engine.log("two")) == ["1", "2", "f3"]
        once.configure(Config()).wait()
        fork(engine, "three", "once", 3)
    with opened(tmp_path) as engine:
        assert pages(engine.log("fork")) == ["f1"]
        assert pages(engine.log("two")) == ["1", "2"]
        assert pages(engine.log("three")) == ["1", "2", "3"]
        assert engine.log("two").next_seq > 3


def test_records_of_a_fork_are_forwarded_the_shared_ones_too(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = source_of(engine)
        source.amend(6, b"S6").wait()
        source.hide(seqs=[4]).wait()
        log, taker = fork(engine), make(engine, "taker")
        fill(log, "f7", "f8")
        assert engine.forward(log, [ForwardedCopy(taker, "r", 8, [(3, 10)])]).wait() == [Appended(1, 5, NOW)]
        assert engine.forward(log, [ForwardedCopy(taker, "r", 8, [(8, 8)])]).wait() == [Appended(6, 6, NOW)]
        assert log.cursor("r") == Cursor(8, NOW)
    with opened(tmp_path) as engine:
        assert texts(engine.log("taker")) == ["s3", "s5", "S6", "f7", "f8", "f8"]


def test_sealing_merging_and_moving_the_source_go_on(tmp_path: Path) -> None:
    cold = ObjectStoreCold(str(tmp_path / "cold"))
    options = Options(hot_segments=1, cache_bytes=1)
    with Engine.open(tmp_path / "data", options, clock=ManualClock(NOW), cold=cold, background=False) as engine:
        source = source_of(engine)
        log = fork(engine)
        for number in range(7, 20):
            fill(log, f"f{number}")
            fill(source, f"s{number}")
            if number % 2:
                source.delete(seqs=[number + 3]).wait()
                engine.seal()
            expected = [f"s{n}" for n in range(1, 7)] + [f"f{n}" for n in range(7, number + 1)]
            assert pages(log) == expected
            assert log.read_resident(0, 100) is None
        assert any(entry.tier == "cold" for entry in engine.maintenance.manifest.segments)


def test_a_fork_costs_nothing_whatever_it_shares(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source = make(engine, "source")
        source.append(Batch([b"x" * 100] * 1000)).wait()
        engine.seal()
        before = engine.journal.written
        log = fork(engine, through=1000)
        assert engine.journal.written - before < 300
        assert (log.state().count, engine.stats().records) == (0, 1000)


@pytest.mark.parametrize("seal", [False, True])
def test_forks_are_in_backups(tmp_path: Path, seal: bool) -> None:
    with opened(tmp_path / "data") as engine:
        source_of(engine)
        fill(fork(engine), "f7")
        if seal:
            engine.seal()
        expected = pages(engine.log("fork"))
    backup(tmp_path / "data", str(tmp_path / "backup"))
    restore(str(tmp_path / "backup"), tmp_path / "again")
    with opened(tmp_path / "again") as engine:
        assert pages(engine.log("fork")) == expected
        assert engine.log("source").forks == 1


def test_forks_are_printed(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        epoch = source_of(engine).epoch
        fork(engine)
        path = tmp_path / "journal" / f"{engine.journal.index:08d}.journal"
        [line] = [item for item in dump(path) if item.facts.get("name") == "'fork'"]
        assert (line.facts["forked_from"], line.facts["through"]) == (epoch, 6)
        engine.seal()
        [full] = (tmp_path / "checkpoints").glob("*.changes")
        [line] = [item for item in dump(full) if item.facts.get("name") == "'fork'"]
        assert (line.facts["forked_from"], line.facts["through"]) == (epoch, 6)


# --- when the source is not there any more ---------------------------------------------------------------------


def without_frame(path: Path, spoil: Callable[[bytes], int]) -> None:
    raw = bytearray(path.read_bytes())
    raw[spoil(bytes(raw))] ^= 0xFF
    path.write_bytes(bytes(raw))


def test_what_was_shared_with_a_log_that_is_lost_is_told_as_lost(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        make(engine, "other")
        source = make(engine, "the source")
        fill(source, "s1", "s2")
        fill(fork(engine, "fork", "the source", 2), "f3")
        path = tmp_path / "journal" / f"{engine.journal.index:08d}.journal"
    without_frame(path, lambda raw: raw.index(b"the source"))
    report = verify(LocalDisk(tmp_path))
    assert any("fork" in problem and "1 to 2" in problem for problem in report.problems)
    with opened(tmp_path) as engine:
        log = engine.log("fork")
        page = log.read()
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (1, 2, "lost")
        assert (page.data, log.base, log.head) == ([b"f3"], None, 3)
        assert any(loss.path == "fork" for loss in engine.recovered.losses)
        engine.seal()
    with opened(tmp_path) as engine:
        assert [loss.path for loss in engine.recovered.losses] == []
        assert engine.log("fork").read().seqs == [3]


def test_a_repair_keeps_forks_together_with_what_they_share(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source_of(engine)
        fill(fork(engine), "f7")
        engine.seal()
        expected = pages(engine.log("fork"))
    (tmp_path / "MANIFEST").unlink()
    assert repair(LocalDisk(tmp_path)).sound
    with opened(tmp_path) as engine:
        assert pages(engine.log("fork")) == expected
        assert engine.log("source").forks == 1


def test_a_dropped_source_takes_forks_with_it_whose_end_cannot_be_read(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        source_of(engine)
        fill(fork(engine, "one"), "f7")
        fill(fork(engine, "two", "one"), "f7")
        engine.flush()
        at = engine.journal.size
        for name in ("two", "one", "source"):
            engine.log(name).drop().wait()
        path = tmp_path / "journal" / f"{engine.journal.index:08d}.journal"
    # The first two of three equal frames.
    without_frame(path, lambda raw: at + 20)
    without_frame(path, lambda raw: at + 56 + 20)
    with opened(tmp_path) as engine:
        assert engine.names() == []
