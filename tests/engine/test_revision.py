"""A log's revision tells whether what was read before is still true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.engine import Batch, Config, Engine, Log
from strandline.engine.clock import ManualClock


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.delete(seqs=[3]),
        lambda log: log.delete(before=3),
        lambda log: log.delete(key="b"),
        lambda log: log.hide(seqs=[3]),
        lambda log: log.amend(3, b"other"),
        lambda log: log.amend(3, b"data"),
        lambda log: log.skip(2, "lost"),
        lambda log: log.configure(Config(cap_records=5)),
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_every_change_to_what_is_there_changes_it(
    tmp_path: Path, change: Callable[[Log], object], sealed: bool
) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("log").wait()
        log.append(Batch([b"data"] * 10, keys=["a", "b"] * 5)).wait()
        if sealed:
            engine.seal()
        before = log.revision
        commit = change(log)
        commit.wait()  # type: ignore[attr-defined]
        assert log.revision != before


def test_a_record_that_comes_back_changes_it(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("log").wait()
        log.append(Batch([b"data"] * 10)).wait()
        log.hide(seqs=[3]).wait()
        before = log.revision
        log.restore(seqs=[3]).wait()
        assert log.revision != before


def test_appends_and_sealing_do_not_change_it(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("log").wait()
        log.append(Batch([b"data"] * 10)).wait()
        before = log.revision
        log.append(Batch([b"data"] * 10)).wait()
        engine.seal()
        assert log.revision == before


def test_time_changes_it(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with Engine.open(tmp_path, background=False, clock=clock) as engine:
        log = engine.create("log", Config(ttl_ms=100)).wait()
        log.append(Batch([b"data"] * 10)).wait()
        before = log.revision
        clock.advance(101)
        assert log.revision != before
