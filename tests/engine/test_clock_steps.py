"""What becomes of times, times to live and windows when the clock is wrong or is set."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts
from support.system_clock import Machine

from strandline.engine import Batch, Engine, ManualClock, Options
from strandline.engine.backup.creation import backup
from strandline.engine.backup.restoration import restore
from strandline.engine.clock import FUTURE_MS, HOLD_MS, MAX_AHEAD_MS
from strandline.engine.disk import LocalDisk
from strandline.engine.verify.directory_check import verify
from strandline.history.directory import DirectoryHistory
from strandline.history.live import sweep
from strandline.history.pieces import Where

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
YEAR_2101 = 4_133_980_800_000


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- the clock of a server -----------------------------------------------------------------------------------------


def test_a_steady_clock_shows_the_system_clock_as_long_as_nobody_sets_it(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    for milliseconds in (0, 1, 99, 100, 5000, DAY, 30 * DAY):
        machine.pass_time(milliseconds)
        assert machine.clock.now() == machine.wall
    assert warnings(caplog) == []


@pytest.mark.parametrize(("step", "direction", "pace"), [(-HOUR, "back", "slower"), (HOUR, "forward", "faster")])
def test_a_step_is_made_up_for_gradually(
    step: int, direction: str, pace: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    machine.wall += step
    machine.pass_time(1000)
    before = machine.clock.now()
    assert abs(before - NOW - 1000) <= 100
    machine.pass_time(MINUTE)
    sign = 1 if step > 0 else -1
    assert machine.clock.now() - before == MINUTE + sign * MINUTE // 10
    for _ in range(10):
        machine.pass_time(HOUR)
    assert machine.clock.now() == machine.wall
    assert warnings(caplog) == [
        f"the system clock stepped {direction} by 3600.000 s; the server goes by elapsed time and runs 10% {pace} for"
        " 36000.000 s, until both agree"
    ]


def test_a_steady_clock_never_goes_backwards() -> None:
    machine, last = Machine(), 0
    for step in (-5, -900, 3 * SECOND, -HOUR, 2 * HOUR, -20 * DAY, 25 * DAY, -5 * DAY):
        machine.wall += step
        for milliseconds in (0, 1, 50, 100, 7, HOUR):
            machine.pass_time(milliseconds)
            assert last <= machine.clock.now()
            last = machine.clock.now()


def test_a_step_to_another_century_that_is_corrected_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.wall += YEAR_2101 - NOW
    machine.pass_time(HOLD_MS // 2)
    assert machine.clock.now() == NOW + HOLD_MS // 2
    machine.wall -= YEAR_2101 - NOW
    machine.pass_time(MINUTE)
    assert machine.clock.now() == NOW + HOLD_MS // 2 + MINUTE
    forward, back = warnings(caplog)
    assert "stepped forward by 2433980800.000 s; the server keeps its own time. It follows" in forward
    assert "stepped back by 2433980800.000 s; the server agrees with it again" in back


def test_a_step_to_another_century_that_stays_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    """The system clock was at 1970 when the machine started, for instance."""
    machine = Machine(now=MINUTE)
    machine.wall = NOW
    machine.pass_time(MINUTE)
    machine.pass_time(HOLD_MS)
    assert machine.clock.now() == machine.wall
    assert "the server now follows it" in warnings(caplog)[-1]


def test_a_step_far_back_is_followed_by_the_next_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(now=YEAR_2101)
    with opened(tmp_path, machine.clock) as engine:
        log = make(engine)
        fill(log, "a")
        machine.wall = NOW
        machine.pass_time(MINUTE)
        fill(log, "b")
        assert log.read().ts == [YEAR_2101, YEAR_2101 + MINUTE]
    assert "Restart it to use the system clock" in warnings(caplog)[-1]
    with opened(tmp_path, machine.start()) as engine:
        log = engine.log("a")
        fill(log, "c")
        assert log.read().ts == [YEAR_2101, YEAR_2101 + MINUTE, machine.wall]
    assert "was made with a wrong clock" in warnings(caplog)[-1]


def test_after_a_start_an_hour_earlier_time_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    with opened(tmp_path, machine.clock) as engine:
        fill(make(engine, ttl_ms=MINUTE), "a")
    machine.wall -= HOUR
    with opened(tmp_path, machine.start()) as engine:
        log = engine.log("a")
        machine.pass_time(20 * SECOND)
        fill(log, "b")
        assert log.read().ts == [NOW, NOW + 18 * SECOND]
        machine.pass_time(50 * SECOND)
        assert texts(log) == ["b"]
        machine.pass_time(20 * SECOND)
        assert texts(log) == []
    assert "3600.000 s behind the last write" in warnings(caplog)[0]


@pytest.mark.parametrize("step", [-HOUR, HOUR, YEAR_2101 - NOW, -30 * DAY])
def test_times_to_live_and_windows_follow_elapsed_time(tmp_path: Path, step: int) -> None:
    machine = Machine()
    with opened(tmp_path, machine.clock) as engine:
        log = make(engine, ttl_ms=MINUTE, idempotency_window_ms=MINUTE)
        log.append(Batch.of(b"a"), idempotency_key="k").wait()
        machine.wall += step
        machine.pass_time(50 * SECOND)
        assert texts(log) == ["a"]
        assert log.remembers("k")
        machine.pass_time(20 * SECOND)
        assert texts(log) == []
        assert not log.remembers("k")


# --- records from the future ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True], ids=["open", "opened again"])
@pytest.mark.parametrize("seal", [False, True], ids=["journal", "sealed"])
def test_a_record_from_the_future_moves_nothing_but_itself(tmp_path: Path, seal: bool, again: bool) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, ttl_ms=MINUTE)
        fill(log, "a")
        log.append(Batch.of(b"future"), ts=YEAR_2101).wait()
        clock.advance(10 * SECOND)
        if seal:
            engine.seal()
        fill(log, "b")
        if seal:
            engine.seal()
        clock.advance(20 * SECOND)
        fill(log, "c")
        if not again:
            check_expiry(engine, clock)
    if again:
        with opened(tmp_path, clock) as engine:
            check_expiry(engine, clock)
    assert verify(LocalDisk(tmp_path)).sound


def check_expiry(engine: Engine, clock: ManualClock) -> None:
    log = engine.log("a")
    assert log.read().ts == [NOW, YEAR_2101, NOW + 10 * SECOND, NOW + 30 * SECOND]
    assert texts(log, since=NOW + 1) == ["future", "b", "c"]
    assert texts(log, since=NOW + 10 * SECOND) in (["b", "c"], ["future", "b", "c"])
    assert texts(log, since=NOW + 20 * SECOND) == ["c"]
    clock.set(NOW + 65 * SECOND)
    assert texts(log) == ["future", "b", "c"]
    clock.set(NOW + 75 * SECOND)
    assert texts(log) == ["c"]
    clock.set(NOW + 95 * SECOND)
    assert texts(log) == []
    fill(log, "d")
    assert log.read().ts == [NOW + 95 * SECOND]


def test_a_client_that_is_a_little_ahead_keeps_the_times_in_order(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch.of(b"x"), ts=NOW + FUTURE_MS).wait()
        fill(log, "y")
        assert log.read().ts == [NOW + FUTURE_MS] * 2


def test_a_write_at_2101_does_not_hold_the_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine)
        fill(log, "a")
        clock.set(YEAR_2101)
        fill(log, "b")
        clock.set(NOW + 1)
        fill(log, "c")
        assert log.read().ts == [NOW, YEAR_2101, NOW + 1]
        assert engine.now() == NOW + 1
    for seal in (False, True):
        with opened(tmp_path, clock) as engine:
            fill(engine.log("a"), "d")
            assert engine.log("a").read().ts[3:] in ([NOW + 1], [NOW + 1] * 2)
            if seal:
                engine.seal()
    assert len(warnings(caplog)) == 1


def test_a_log_of_an_older_release_whose_time_was_held_at_2101_goes_on(tmp_path: Path) -> None:
    """Everything after the wrong write was given its time."""
    with opened(tmp_path, ManualClock(YEAR_2101)) as engine:
        fill(make(engine, ttl_ms=MINUTE), "a")
        engine.seal()
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = engine.log("a")
        fill(log, "b", "c")
        assert log.read().ts == [YEAR_2101, NOW, NOW]
        clock.advance(MINUTE + 1)
        assert texts(log) == []


@pytest.mark.parametrize("seal", [False, True], ids=["journal", "sealed"])
def test_many_appends_with_some_from_the_future_are_replayed_alike(tmp_path: Path, seal: bool) -> None:
    """Long runs of appends are replayed in bulk."""
    clock, random_times = ManualClock(NOW), [0, 0, YEAR_2101, 0, 0, NOW + HOUR, 0]
    with opened(tmp_path, clock) as engine:
        log = make(engine, ttl_ms=HOUR)
        for number in range(140):
            clock.advance(1)
            log.append(Batch.of(b"%d" % number), ts=random_times[number % 7] or None).wait()
        if seal:
            engine.seal()
        expected, last_ts = log.read(limit=200).ts, log.last_ts
    with opened(tmp_path, clock) as engine:
        log = engine.log("a")
        assert log.read(limit=200).ts == expected
        assert (log.last_ts, engine.now()) == (last_ts, NOW + 140)
        fill(log, "next")
        assert log.last_ts == NOW + 140


@pytest.mark.parametrize("seal", [False, True], ids=["journal", "sealed"])
def test_reads_by_time_find_what_is_around_a_record_from_the_future(tmp_path: Path, seal: bool) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine)
        for number in range(100):
            clock.set(NOW + number)
            log.append(Batch.of(b"%d" % number), ts=YEAR_2101 if number in (0, 40, 99) else None).wait()
        if seal:
            engine.seal()
        for since in (1, 41, 60):
            found = [int(text) for text in texts(log, since=NOW + since, limit=200)]
            assert found[-(100 - since) :] == list(range(since, 100))
        where = Where(since=NOW + 10, until=NOW + 60)
        live = {int(data.as_py()) for batch in sweep(log, 0, log.head, where) for data in batch.column("data")}
        assert set(range(10, 60)) - {40} <= live
    if seal:
        history = DirectoryHistory(tmp_path)
        (info,) = (each for each in history.logs() if each.name == "a")
        pieces = history.pieces(info, 0, 100, 1000, where)
        rows = {int(data.as_py()) for piece in pieces for batch in piece.read() for data in batch.column("data")}
        assert set(range(10, 60)) - {40} <= rows


def test_a_restore_to_a_moment_passes_a_write_from_the_future(tmp_path: Path) -> None:
    data, pool = tmp_path / "data", str(tmp_path / "pool")
    clock = ManualClock(NOW)
    with opened(data, clock) as engine:
        log = make(engine)
        fill(log, "a")
        clock.set(YEAR_2101)
        fill(log, "b")
        clock.set(NOW + MINUTE)
        fill(log, "c")
        clock.set(NOW + 2 * MINUTE)
        fill(log, "d")
    backup(data, pool, clock=clock)
    restore(pool, tmp_path / "restored", at=NOW + MINUTE)
    with opened(tmp_path / "restored", clock) as engine:
        assert texts(engine.log("a")) == ["a", "b", "c"]


def test_the_bounds_agree_with_each_other() -> None:
    assert FUTURE_MS < MAX_AHEAD_MS
    assert Options().compact_after_ms < FUTURE_MS
