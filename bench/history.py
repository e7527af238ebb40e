"""A long history: the memory that it needs while it is written, sealed and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.measure import Effort, Row, Target, beside, single
from bench.probe import Memory, ask
from bench.workload import directory

RECORDS = 10_000_000
TARGET = Target(300.0, "MB")
FLOOR = "a process with an empty engine"


def run(root: Path, effort: Effort) -> Iterator[Row]:
    records = effort.scaled(RECORDS)
    with directory(root, "empty") as path:
        empty = ask("empty", path, 0).memory["open"]
    with directory(root, "history") as path:
        wrote = ask("write-history", path, records)
        read = ask("read-history", path, records)
    what = f"{records / 1e6:g} M records of 64 B"
    yield single(
        "history", f"write {what} in batches of 1000, sealing meanwhile", "records/s", records / wrote.seconds["write"]
    )
    yield single("history", "the same until all of it is sealed", "records/s", records / wrote.seconds["sealed"])
    yield from _memory(f"memory after writing {what}", wrote.memory["written"], empty)
    yield from _memory("memory when all of it is sealed", wrote.memory["sealed"], empty)
    yield single("history", "peak of the worker process that seals", "MB", wrote.memory["worker"].peak / 1e6)
    yield beside("history", "peak while writing", "MB", wrote.memory["sealed"].peak / 1e6, empty.peak / 1e6, FLOOR)
    yield single("history", f"read {what} back in pages of 1000", "records/s", records / read.seconds["read"])
    yield from _memory(f"memory after reading {what} back", read.memory["read"], empty)
    yield beside("history", "peak while reading", "MB", read.memory["read"].peak / 1e6, empty.peak / 1e6, FLOOR)


def _memory(name: str, memory: Memory, empty: Memory) -> Iterator[Row]:
    yield beside("history", name, "MB", memory.resident / 1e6, empty.resident / 1e6, FLOOR, target=TARGET)
    yield beside("history", f"{name}: anonymous", "MB", memory.anonymous / 1e6, empty.anonymous / 1e6, FLOOR)
    yield beside("history", f"{name}: of files", "MB", memory.of_files / 1e6, empty.of_files / 1e6, FLOOR)
