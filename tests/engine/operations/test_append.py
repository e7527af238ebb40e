"""Appending to several logs in one step."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Append, Batch, Engine, ManualClock, Options
from strandline.engine.errors import BadRequest, BatchTooLarge, DiskFull, LogFull, RecordTooLarge, UnknownLog
from strandline.engine.testing.fault_disk import FaultDisk


def test_all_appends_are_made_in_order_and_a_log_may_occur_twice(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        a, b = make(engine, "a"), make(engine, "b", durability="fsync")
        fill(a, "0")
        step = [Append(a, Batch([b"1", b"2"])), Append(b, Batch.of(b"x")), Append(a, Batch.of(b"3"))]
        results = engine.append_all(step).wait()
        assert [(result.first, result.last) for result in results] == [(2, 3), (1, 1), (4, 4)]
        assert {result.ts for result in results} == {NOW}
        assert texts(a) == ["0", "1", "2", "3"]
        engine.seal()
        fill(a, "4")
    with opened(tmp_path) as engine:
        assert texts(engine.log("a")) == ["0", "1", "2", "3", "4"]
        assert texts(engine.log("b")) == ["x"]


def test_when_one_must_wait_nobody_sees_any_of_them_before_the_flush(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        logs = [make(engine, name, durability=name) for name in ("disk", "ephemeral", "fsync")]
        for log in logs:
            fill(log, "0")
        engine.flush()
        heard: list[str] = []
        for log in logs:
            log.listen(lambda log: heard.append(log.name))
        commit = engine.append_all([Append(log, Batch.of(b"1")) for log in logs])
        later = [log.append(Batch.of(b"2")) for log in logs]
        assert not commit.done
        assert [log.head for log in logs] == [1, 1, 1]
        assert [log.next_seq for log in logs] == [4, 4, 4]
        assert heard == []
        engine.flush()
        assert [commit.done for commit in later] == [True] * 3
        assert [texts(log) for log in logs] == [["0", "1", "2"]] * 3
        assert heard[:3] == ["disk", "ephemeral", "fsync"]


def test_without_a_need_to_wait_it_is_done_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        logs = [make(engine, name) for name in ("a", "b")]
        for log in logs:
            fill(log, "0")
        assert engine.append_all([Append(log, Batch.of(b"1")) for log in logs]).done
        assert [log.head for log in logs] == [2, 2]
        assert engine.append_all([]).wait() == []


def test_a_duplicate_gives_the_earlier_result_and_the_others_are_appended(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        a, b = make(engine, "a", durability="fsync"), make(engine, "b")
        first = a.append(Batch.of(b"1"), idempotency_key="k").wait()
        results = engine.append_all(
            [
                Append(a, Batch.of(b"again"), "k"),
                Append(b, Batch.of(b"1"), "k"),
                Append(b, Batch.of(b"again"), "k"),
                Append(b, Batch.of(b"2"), "l"),
            ]
        ).wait()
        assert results[0] == first.again()
        assert [(result.first, result.deduped) for result in results] == [(1, True), (1, False), (1, True), (2, False)]
        assert texts(a) == ["1"]
        assert texts(b) == ["1", "2"]
        pending = a.append(Batch.of(b"2"), idempotency_key="m")
        commit = engine.append_all([Append(a, Batch.of(b"again"), "m")])
        assert not commit.done
        assert commit.wait()[0].first == pending.wait().first == 2


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_when_one_cannot_be_made_none_is(tmp_path: Path, durability: str) -> None:
    with opened(tmp_path, max_record_bytes=100) as engine, opened(tmp_path / "other") as other:
        a = make(engine, "a", durability=durability)
        full = make(engine, "full", durability=durability, cap_records=3, discard="reject")
        gone = make(engine, "gone")
        gone.drop().wait()
        fill(a, "0")
        fill(full, "0")
        engine.flush()
        written = engine.journal.written
        for last, error in (
            ([Append(full, Batch([b"1"] * 2)), Append(full, Batch.of(b"3"))], LogFull),
            ([Append(full, Batch([b"1"] * 4))], BatchTooLarge),
            ([Append(gone, Batch.of(b"1"))], UnknownLog),
            ([Append(a, Batch([]))], BadRequest),
            ([Append(a, Batch.of(b"x" * 101))], RecordTooLarge),
            ([Append(a, Batch.of(b"x"), "")], BadRequest),
            ([Append(make(other), Batch.of(b"x"))] if "a" not in other.names() else [], BadRequest),
        ):
            with pytest.raises(error):
                engine.append_all([Append(a, Batch.of(b"1"), "key"), *last])
        assert engine.journal.written == written
        assert (a.next_seq, full.next_seq) == (2, 2)
        assert engine.append_all([Append(a, Batch.of(b"1"), "key"), Append(full, Batch([b"1"] * 2))]).wait()


def test_a_failed_write_leaves_nothing_of_any_of_them(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(), clock=ManualClock(NOW), background=False)
    a, b = make(engine, "a"), make(engine, "b", durability="fsync")
    fill(a, "0")
    fill(b, "0")
    for short in (False, True):
        disk.fail_from(1, errno.ENOSPC, kind="write", short=short)
        with pytest.raises(DiskFull):
            engine.append_all([Append(a, Batch.of(b"1" * 2000)), Append(b, Batch.of(b"1"))])
        disk.heal()
        assert (a.next_seq, b.next_seq) == (2, 2)
    engine.append_all([Append(a, Batch.of(b"1")), Append(b, Batch.of(b"1"))]).wait()
    engine = Engine.open(disk.process_kill(), Options(), clock=ManualClock(NOW), background=False)
    assert engine.recovered.torn is None
    assert [texts(engine.log(name)) for name in "ab"] == [["0", "1"]] * 2


def test_many_logs_are_one_write(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, Options(), clock=ManualClock(NOW), background=False)
    logs = [make(engine, f"{number}") for number in range(600)]
    before = disk.calls_of("write")
    engine.append_all([Append(log, Batch.of(b"x")) for log in logs]).wait()
    assert disk.calls_of("write") == before + 1
    engine = Engine.open(disk.process_kill(), Options(), clock=ManualClock(NOW), background=False)
    assert {engine.log(f"{number}").head for number in range(600)} == {1}


def test_damage_to_one_takes_all_of_them_and_readers_are_told(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        logs = [make(engine, name, durability="fsync") for name in "abc"]
        engine.append_all([Append(log, Batch.of(f"payload {log.name}".encode())) for log in logs]).wait()
        for log in logs:
            fill(log, "after")
    path = tmp_path / "journal" / "00000001.journal"
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"payload b", b"payload x"))
    for _ in range(2):
        with opened(tmp_path) as engine:
            for name in "abc":
                page = engine.log(name).read()
                assert [record.data for record in page] == [b"after"]
                assert page.tombstone is not None
                assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (1, 1, "lost")
            engine.seal()
