"""Recovery: opening a directory whose records are all in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import xxhash

from bench.measure import Effort, Row, Sample, Target, in_rounds, timed
from bench.workload import NEVER, directory, fill, quiet_engine
from strandline.engine import Engine, Options

RECORDS = 1_000_000
TARGET = Target(2.0, "s")
FLOOR = "read the file, xxh3 over it"


def run(root: Path, effort: Effort) -> Iterator[Row]:
    records = effort.scaled(RECORDS, 10_000)
    for count in (1000, 1):
        with directory(root, "recovery") as path:
            with quiet_engine(path) as engine:
                fill(engine, "log", records, count)
            yield from _recover(path, effort, records, count)


def _recover(path: Path, effort: Effort, records: int, count: int) -> Iterator[Row]:
    journals = sorted((path / "journal").iterdir())
    frames = 0

    def work() -> Sample:
        nonlocal frames
        engine: Engine | None = None

        def open() -> None:
            nonlocal engine
            engine = Engine.open(path, Options(journal_bytes=NEVER), background=False)

        sample = timed(records, open)
        assert engine is not None
        frames = frames or engine.recovered.replayed_frames
        engine.close()
        return sample

    def floor() -> Sample:
        return timed(records, lambda: [xxhash.xxh3_64_intdigest(file.read_bytes()) for file in journals])

    rounds = in_rounds(work, floor, effort.rounds)
    name = f"recover {records:,} records in batches of {count} ({frames:,} frames)"
    yield rounds.row("recovery", name, "s", FLOOR, target=TARGET)
    yield rounds.row("recovery", name, "records/s", FLOOR)
