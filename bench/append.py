"""Appends: how fast records are acknowledged, by durability, size and batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Effort, Row, Sample, Target, in_rounds, repeated
from bench.workload import NEVER, PlainFile, batches, directory
from strandline.engine import Config, Engine, Log, Options
from strandline.engine.record import Durability

SIZES = (64, 1024)
COUNTS = (1, 10, 100, 1000)
THREADS = 32
#: A turn ends early after this many bytes, because records stay in memory until they are sealed.
TURN_BYTES = 64 << 20

TARGET = Target(1_000_000, "records/s")

#: The group "replica" has the durability that is missing here.
FLOORS: dict[Durability, str] = {
    "ephemeral": "join, kept in a list",
    "memory": "writev, fdatasync every 50 ms",
    "disk": "writev, fdatasync every 50 ms",
    "fsync": "writev and fdatasync",
}


def run(root: Path, effort: Effort) -> Iterator[Row]:
    for durability in FLOORS:
        for size in SIZES:
            for count in COUNTS:
                yield _alone(root, effort, durability, size, count)
    for size in SIZES:
        for count in COUNTS:
            yield _together(root, effort, size, count)


def _alone(root: Path, effort: Effort, durability: Durability, size: int, count: int) -> Row:
    """One thread that waits for every acknowledgement."""
    source = batches(size, count)
    limit = TURN_BYTES // (size * count)

    def floor() -> Sample:
        if durability == "ephemeral":
            kept: list[bytes] = []
            return repeated(lambda: kept.append(b"".join(next(source).data)), count, effort.turn, limit)
        with PlainFile(root / "plain", flushing=durability != "fsync") as file:
            write = file.write_and_sync if durability == "fsync" else file.write
            return repeated(lambda: write(next(source).data), count, effort.turn, limit)

    with directory(root, "append") as path, Engine.open(path, Options(journal_bytes=NEVER)) as engine:

        def work() -> Sample:
            log = _new_log(engine, durability)
            sample = repeated(lambda: log.append(next(source)).wait(), count, effort.turn, limit)
            log.drop().wait()
            return sample

        rounds = in_rounds(work, floor, effort.rounds)
    target = TARGET if (durability, size, count) == ("disk", 64, 1000) else None
    return rounds.row("append", _name(durability, size, count), "records/s", FLOORS[durability], target=target)


def _together(root: Path, effort: Effort, size: int, count: int) -> Row:
    """Many threads, each waiting for the disk, that share the flushes."""
    source = batches(size, count)
    limit = TURN_BYTES // (size * count * THREADS)

    def floor() -> Sample:
        with PlainFile(root / "plain") as file:

            def group() -> None:
                for _ in range(THREADS):
                    file.write(next(source).data)
                file.sync()

            return repeated(group, count * THREADS, effort.turn, limit)

    with directory(root, "append") as path, Engine.open(path, Options(journal_bytes=NEVER)) as engine:

        def work() -> Sample:
            log = _new_log(engine, "fsync")
            sample = _in_threads(log, size, count, effort.turn, limit)
            log.drop().wait()
            return sample

        rounds = in_rounds(work, floor, effort.rounds)
    name = _name("fsync", size, count) + f", {THREADS} threads"
    return rounds.row("append", name, "records/s", f"{THREADS} writev, then one fdatasync; one thread")


def _in_threads(log: Log, size: int, count: int, seconds: float, limit: int) -> Sample:
    done: list[Sample] = []
    start = threading.Barrier(THREADS + 1)

    def write() -> None:
        source = batches(size, count)
        start.wait()
        done.append(repeated(lambda: log.append(next(source)).wait(), count, seconds, limit))

    threads = [threading.Thread(target=write) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return Sample(sum(sample.amount for sample in done), time.perf_counter() - began)


def _new_log(engine: Engine, durability: Durability) -> Log:
    """A log after its first append, which also reserves seqs."""
    log = engine.create(f"{durability}-{engine.next_epoch}", Config(durability=durability)).wait()
    log.append(next(batches(64, 1))).wait()
    return log


def _name(durability: str, size: int, count: int) -> str:
    records = "1 record" if count == 1 else f"{count} records"
    return f"{durability}, {records} of {size} B"
