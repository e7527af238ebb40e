"""Checkpoints: when a log was created."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened

from strandline.engine import Config, ManualClock
from strandline.engine.state.checkpoints import BookState
from strandline.engine.state.logbook import Logbook

DAY = 86_400_000


def test_a_log_knows_when_it_was_created_whatever_happens_to_it_later(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        make(engine, "a")
        clock.advance(DAY)
        fill(engine.log("a"), "one")
        fork = engine.fork("b", engine.log("a"), 1).wait()
        engine.log("a").configure(Config(cap_records=5)).wait()
        assert (engine.log("a").created_at, fork.created_at) == (NOW, NOW + DAY)
    for seals in (False, True, True):
        with opened(tmp_path, clock) as engine:
            assert (engine.log("a").created_at, engine.log("b").created_at) == (NOW, NOW + DAY)
            clock.advance(DAY)
            if seals:
                fill(engine.log("a"), "more")
                engine.seal()


def test_a_log_that_is_created_again_is_a_new_one(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        make(engine, "a").drop().wait()
        clock.advance(DAY)
        make(engine, "a")
    with opened(tmp_path, clock) as engine:
        assert engine.log("a").created_at == NOW + DAY


def test_logs_of_older_releases_get_the_time_of_their_first_record_and_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older releases did not store when a log was created, except for streams."""
    clock = ManualClock(NOW)

    def without_time(book: Logbook) -> BookState:
        state = now_written(book)
        state.created_ts = 0
        return state

    now_written = BookState.of
    with monkeypatch.context() as older, opened(tmp_path, clock) as engine:
        older.setattr(BookState, "of", without_time)
        make(engine, "empty")
        make(engine, "stream", attributes={"streams": {"created_at": NOW - DAY}})
        make(engine, "written", cap_records=1)
        clock.advance(DAY)
        fill(engine.log("written"), "one")
        engine.seal()
    expected = {"empty": NOW + DAY, "stream": NOW - DAY, "written": NOW + DAY}
    for _ in range(2):
        with opened(tmp_path, clock) as engine:
            assert {name: engine.log(name).created_at for name in expected} == expected
            clock.advance(DAY)
            # The first record is removed, and its time with it.
            fill(engine.log("written"), "next")
            engine.seal()
