"""Appends that say which time their records are of."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import NOW, make, opened, texts

from strandline.engine import Append, Appended, Batch, Config, ForwardedCopy, ManualClock
from strandline.engine.disk import LocalDisk
from strandline.engine.errors import BadRequest
from strandline.engine.log import Log
from strandline.engine.record import MAX_TIME
from strandline.engine.verify.directory_check import verify
from strandline.engine.verify.repair import repair

CLASSES = ["ephemeral", "memory", "disk", "fsync"]
PAST, FUTURE = NOW - 5000, NOW + 5000


def times(log: Log) -> list[int]:
    return log.read().ts


@pytest.mark.parametrize("durability", CLASSES)
def test_records_get_the_time_that_is_given_and_never_an_earlier_one_than_the_last(
    tmp_path: Path, durability: str
) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability=durability)
        assert log.append(Batch.of(b"1"), ts=PAST).wait() == Appended(1, 1, PAST)
        assert log.append(Batch.of(b"2"), ts=PAST - 1).wait().ts == PAST
        assert log.append(Batch.of(b"3")).wait().ts == NOW
        assert log.append(Batch.of(b"4"), ts=FUTURE).wait().ts == FUTURE
        assert log.append(Batch.of(b"5")).wait().ts == FUTURE
        assert log.append(Batch.of(b"6"), ts=NOW).wait().ts == FUTURE
        assert times(log) == [PAST, PAST, NOW, FUTURE, FUTURE, FUTURE]
        assert log.state().last_ts == FUTURE
        assert log.read(since=NOW).seqs == [3, 4, 5, 6]


@pytest.mark.parametrize("seal", [False, True])
def test_times_survive_restarts_and_the_clock_is_not_moved_by_them(tmp_path: Path, seal: bool) -> None:
    with opened(tmp_path) as engine:
        log, other = make(engine), make(engine, "b")
        log.append(Batch([b"1", b"2"], ["k", None], metas=[b"m", None]), ts=PAST, idempotency_key="a").wait()
        log.append(Batch.of(b"3"), ts=FUTURE, notes={"n": 1}).wait()
        log.append(Batch.of(b"4")).wait()
        assert other.append(Batch.of(b"1")).wait().ts == NOW
        if seal:
            engine.seal()
            log.append(Batch.of(b"5")).wait()
    for _ in range(2):
        with opened(tmp_path) as engine:
            log = engine.log("a")
            assert times(log)[:4] == [PAST, PAST, FUTURE, FUTURE]
            assert next(iter(log.read()))[2:] == ("k", None, b"m", b"1")
            assert texts(log)[2:4] == ["3", "4"]
            assert engine.now() == NOW
            assert engine.log("b").append(Batch.of(b"x")).wait().ts == NOW
            assert log.append(Batch.of(b"x")).wait().ts == FUTURE
    assert verify(LocalDisk(tmp_path)).sound


def test_a_repair_does_not_move_the_clock_either(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        make(engine).append(Batch.of(b"1"), ts=MAX_TIME).wait()
        engine.seal()
    (tmp_path / "MANIFEST").unlink()
    assert repair(LocalDisk(tmp_path)).sound
    with opened(tmp_path) as engine:
        assert times(engine.log("a")) == [MAX_TIME]
        assert make(engine, "b").append(Batch.of(b"1")).wait().ts < MAX_TIME


def test_records_that_are_written_down_late_keep_their_times(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="ephemeral")
        for ts in (PAST, PAST, NOW, FUTURE):
            log.append(Batch.of(b"x"), ts=ts).wait()
        log.configure(Config(durability="disk")).wait()
    with opened(tmp_path) as engine:
        assert times(engine.log("a")) == [PAST, PAST, NOW, FUTURE]
        assert engine.now() == NOW


@pytest.mark.parametrize("seal", [False, True])
def test_copies_and_steps_of_several_logs_do_not_go_back_in_time(tmp_path: Path, seal: bool) -> None:
    with opened(tmp_path) as engine:
        source, ahead, other = make(engine), make(engine, "b"), make(engine, "c")
        ahead.append(Batch.of(b"0"), ts=FUTURE).wait()
        source.append(Batch.of(b"1"), ts=PAST).wait()
        copies = [ForwardedCopy(log, log.name, 1, [(1, 1)]) for log in (ahead, other)]
        assert engine.forward(source, copies).wait() == [Appended(2, 2, FUTURE), Appended(1, 1, NOW)]
        steps = [Append(log, Batch.of(b"2")) for log in (ahead, other, ahead)]
        assert [appended.ts for appended in engine.append_all(steps).wait()] == [FUTURE, NOW, FUTURE]
        if seal:
            engine.seal()
    with opened(tmp_path) as engine:
        assert times(engine.log("b")) == [FUTURE] * 4
        assert times(engine.log("c")) == [NOW] * 2
        assert engine.now() == NOW


def test_a_ttl_counts_from_the_time_of_the_records(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, ttl_ms=1000)
        log.append(Batch.of(b"old"), ts=PAST).wait()
        page = log.read()
        assert (len(page), page.tombstone and page.tombstone.reason) == (0, "ttl")
        log.append(Batch.of(b"half"), ts=NOW - 500).wait()
        log.append(Batch.of(b"ahead"), ts=FUTURE).wait()
        assert texts(log) == ["half", "ahead"]
        clock.advance(501)
        assert texts(log) == ["ahead"]
        clock.set(FUTURE + 1000)
        assert texts(log) == ["ahead"]
        clock.advance(1)
        assert texts(log) == []


@pytest.mark.parametrize("ts", [PAST, FUTURE])
@pytest.mark.parametrize("restart", [False, True])
def test_idempotency_keys_are_remembered_from_when_they_came(tmp_path: Path, ts: int, restart: bool) -> None:
    clock = ManualClock(NOW)
    engine = opened(tmp_path, clock)
    with engine as first:
        log = make(first, idempotency_window_ms=1000)
        log.append(Batch.of(b"1"), ts=ts, idempotency_key="k").wait()
        if restart:
            first.seal()
        clock.advance(1000)
        assert log.append(Batch.of(b"1"), idempotency_key="k").wait() == Appended(1, 1, ts, True)
    with opened(tmp_path, clock) as second:
        log = second.log("a")
        assert log.remembers("k")
        clock.advance(1)
        assert not log.remembers("k")
        assert not log.append(Batch.of(b"1"), idempotency_key="k").wait().deduped


def test_a_log_that_is_ahead_of_its_time_takes_its_reservation_back_when_it_is_quiet(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine)
        log.append(Batch.of(b"1"), ts=FUTURE).wait()
        engine.flush()
        clock.advance(engine.options.settle_after_ms)
        engine.settle_idle()
        assert log.book.reserved == 1


@pytest.mark.parametrize("ts", [-1, MAX_TIME + 1, 1.0, True, "1"])
def test_a_bad_time_is_refused(tmp_path: Path, ts: int) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        with pytest.raises(BadRequest):
            log.append(Batch.of(b"1"), ts=ts)
        assert log.head == 0


@pytest.mark.parametrize("ts", [0, MAX_TIME])
def test_the_first_and_the_last_time_can_be_sealed(tmp_path: Path, ts: int) -> None:
    with opened(tmp_path) as engine:
        make(engine).append(Batch.of(b"1"), ts=ts).wait()
        engine.seal()
        assert times(engine.log("a")) == [ts]
