"""The live ranges of a log: what was read of a seq in them is still there."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.engine import Batch, Config, Engine, Log
from strandline.engine.errors import DamagedFile
from strandline.engine.reads.status import known_live_ranges_of, live_ranges_of


def fill(log: Log, count: int) -> None:
    log.append(Batch(data=[b'{"a":1}'] * count)).wait()


def seqs_of(log: Log) -> list[int]:
    return [seq for first, last in live_ranges_of(log).ranges for seq in range(first, last + 1)]


def test_removed_records_are_not_live_after_they_were_sealed_and_merged(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("log", Config(durability="memory")).wait()
        fill(log, 10)
        log.delete(seqs=[2, 3]).wait()
        engine.seal()
        fill(log, 10)
        engine.seal()
        log.delete(seqs=[5, 15]).wait()
        for _ in range(4):
            fill(log, 1)
            engine.seal()
        expected = log.read(0, 100).seqs
        assert seqs_of(log) == expected
        assert len(log.book.runs) < 6, "segments were merged"
        assert known_live_ranges_of(log).ranges[0] == (1, 22)
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.log("log")
        assert seqs_of(log) == log.read(0, 100).seqs == expected


def test_a_damaged_segment_is_taken_as_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("log", Config(durability="memory")).wait()
        fill(log, 10)
        log.delete(seqs=[2, 3]).wait()
        engine.seal()

        def damaged(*_: object) -> None:
            raise DamagedFile("segments/1", "it is damaged")

        monkeypatch.setattr(engine.store, "read_seqs", damaged)
        assert live_ranges_of(log).ranges == [(1, 10)]
