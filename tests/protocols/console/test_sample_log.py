"""The history of the overview survives a restart, and nothing that goes wrong with it stops the server."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from protocols.console.test_sample_history import sample
from support.console_in_process import NOW, ConsoleStand

from strandline.engine import Config, Engine, ManualClock, Options
from strandline.engine.errors import BadConfig
from strandline.protocols.console.sample_history import MINUTE_MS
from strandline.protocols.console.sample_log import MAX_RECORDS, TOGETHER, SampleLog
from strandline.service.catalog import SAMPLE_LOG

HOUR_MS = 60 * MINUTE_MS
#: What an idle server may write in a day.
MAX_DAY_BYTES = 1_000_000


def minutes(stand: ConsoleStand, number: int) -> None:
    for _ in range(number):
        stand.sample(MINUTE_MS)


def kept(stand: ConsoleStand) -> list[int]:
    stand.engine.flush()
    return [one.at for one in SampleLog(stand.engine).read()]


def test_the_history_survives_a_restart(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path) as stand:
        minutes(stand, 25)
        before = stand.get("/history?hours=1")["samples"]
        # The minute that has not ended is lost.
        assert (len(before), len(kept(stand))) == (25, 20)
    with ConsoleStand(tmp_path) as stand:
        stand.clock.advance(25 * MINUTE_MS + HOUR_MS)
        minutes(stand, 1)
        after = stand.get("/history?hours=2")["samples"]
        assert after[:-1] == before[:-1]
        assert after[-1]["at"] == NOW + 26 * MINUTE_MS + HOUR_MS
        minutes(stand, TOGETHER)
        times = kept(stand)
        assert (len(times), times) == (24 + TOGETHER, sorted(set(times)))


def test_a_server_that_is_killed_loses_the_last_minutes(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path) as stand:
        minutes(stand, 2 * TOGETHER + 5)
        stand.face.overview._restored = False  # it is not told to stop
    with ConsoleStand(tmp_path) as stand:
        assert len(kept(stand)) == 2 * TOGETHER


def test_a_day_of_an_idle_server_is_small(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path) as stand:
        minutes(stand, 2 * TOGETHER)
        before = stand.engine.stats().bytes_written
        minutes(stand, 12 * TOGETHER)
        written = stand.engine.stats().bytes_written - before
        assert 0 < 12 * written < MAX_DAY_BYTES


def test_a_week_is_kept(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    engine = Engine.open(tmp_path, Options(), clock=clock, background=False)
    try:
        log = SampleLog(engine)
        assert log.read() == []
        for start in range(0, MAX_RECORDS + 1000, 500):
            assert log.append([sample(NOW + at * MINUTE_MS) for at in range(start, start + 500)])
        engine.flush()
        assert len(log.read()) == MAX_RECORDS
        clock.advance(8 * 24 * HOUR_MS)
        assert log.read() == []
    finally:
        engine.close()


def test_a_log_that_cannot_be_written_or_read_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise BadConfig("durability", "disk", "is not possible today")

    with ConsoleStand(tmp_path) as stand:
        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
            patched.setattr(Engine, "create", refuse)
            minutes(stand, TOGETHER + 2)
            assert "the history of the overview could not be written" in caplog.text
        assert len(stand.get("/history?hours=1")["samples"]) == TOGETHER + 2
        # Nothing is lost once the log can be written.
        minutes(stand, 1)
        assert len(kept(stand)) == TOGETHER + 2
        monkeypatch.setattr(Engine, "writable", property(lambda _: False))
        minutes(stand, TOGETHER)
        assert len(kept(stand)) == TOGETHER + 2
        monkeypatch.undo()


def test_a_log_that_cannot_be_read_is_an_empty_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ConsoleStand(tmp_path) as stand:
        stand.log(SAMPLE_LOG, 7)
        minutes(stand, 2)
        assert len(stand.get("/history?hours=1")["samples"]) == 2
    assert "it starts empty" in caplog.text


def test_the_log_is_internal(tmp_path: Path) -> None:
    with ConsoleStand(tmp_path, "all-of-it,looks:read") as stand:
        minutes(stand, TOGETHER + 2)
        stand.engine.flush()
        log = stand.engine.log(SAMPLE_LOG)
        assert log.config == Config(durability="disk", ttl_ms=7 * 24 * HOUR_MS, cap_records=MAX_RECORDS)
        assert SAMPLE_LOG not in [each["name"] for each in stand.get("/logs", key="looks")["logs"]]
        assert stand.refused(f"/log/{SAMPLE_LOG}", key="looks") == (404, "log_not_found")
        assert stand.get(f"/log/{SAMPLE_LOG}", key="all-of-it")["records"] == 10
