"""Many logs: the memory of an idle log, and the time to open and to list them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import xxhash

from bench.measure import Effort, Row, Target, beside, single
from bench.probe import ask
from bench.workload import directory

COUNTS = (100_000, 1_000_000)
TARGET = Target(1000.0, "bytes")


def run(root: Path, effort: Effort) -> Iterator[Row]:
    for count in COUNTS:
        yield from _many(root, effort.scaled(count))


def _many(root: Path, count: int) -> Iterator[Row]:
    with directory(root, "logs") as path:
        made = ask("make-logs", path, count)
        opened = ask("open-logs", path, count)
        plain = ask("names-only", path, count)
        floor = _read_checkpoints(path)
    group, what = "logs", f"{count:,} logs"
    yield single(group, f"{what}: create", "calls/s", count / made.seconds["create"])
    yield beside(group, f"{what}: open", "s", opened.seconds["open"], floor, "read the checkpoint, xxh3 over it")
    resident = opened.memory["open"].resident - opened.memory["before"].resident
    names = plain.memory["open"].resident - plain.memory["before"].resident
    yield beside(
        group, f"{what}: memory of an idle log", "bytes", resident / count, names / count,
        "the names in a dict", target=TARGET,
    )  # fmt: skip
    yield beside(
        group, f"{what}: memory of the process, all listed", "MB", opened.memory["listed"].resident / 1e6,
        plain.memory["open"].resident / 1e6, "a process with the names in a dict",
    )  # fmt: skip
    for listing, floor_is in (
        ("first page", "sort the names"),
        ("first page again", "a slice of the sorted names"),
        ("page in the middle", "a slice of the sorted names"),
        ("all", "a copy of the sorted names"),
    ):
        name = f"{what}: list, {listing}"
        yield beside(group, name, "ms", opened.seconds[listing] * 1e3, plain.seconds[listing] * 1e3, floor_is)


def _read_checkpoints(path: Path) -> float:
    start = time.perf_counter()
    for file in (path / "checkpoints").iterdir():
        xxhash.xxh3_64_intdigest(file.read_bytes())
    return time.perf_counter() - start
