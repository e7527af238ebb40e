"""Sealing and merging, with the worker process that does the work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

from bench.measure import Effort, Row, Sample, in_rounds, timed
from bench.workload import batches, directory, fill, quiet_engine
from strandline.engine import Engine

#: The size of the compressed pieces, which is that of a segment's blocks.
PIECE = 1 << 20

SEAL_FLOOR = "zstd of the payloads at Arrow's level"
MERGE_FLOOR = "zstd, there and back, of the payloads"


def run(root: Path, effort: Effort) -> Iterator[Row]:
    for size, count, records in ((64, 1000, 600_000), (64, 1, 200_000), (1024, 100, 40_000)):
        yield from _seal(root, effort, size, count, effort.scaled(records, 2000))
    yield _merge(root, effort, effort.scaled(200_000, 2000))


def _seal(root: Path, effort: Effort, size: int, count: int, records: int) -> Iterator[Row]:
    journal = 0

    def work() -> Sample:
        nonlocal journal
        with directory(root, "seal") as path, quiet_engine(path) as engine:
            _warm_up(engine)
            fill(engine, "log", records, count, size)
            journal = engine.stats().journal_bytes
            return timed(records, engine.seal)

    pieces = _pieces(size, records)

    def floor() -> Sample:
        return timed(records, lambda: [pa.compress(piece, codec="zstd") for piece in pieces])

    rounds = in_rounds(work, floor, effort.rounds)
    name = f"seal {records:,} records of {size} B in batches of {count}"
    yield rounds.row("seal", name, "records/s", SEAL_FLOOR)
    yield rounds.row("seal", name + " (journal)", "MB/s", SEAL_FLOOR, scale=journal / records / 1e6)


def _merge(root: Path, effort: Effort, records: int) -> Row:
    """Merge four segments of one log into one."""

    def work() -> Sample:
        with directory(root, "merge") as path, quiet_engine(path) as engine:
            for _ in range(4):
                fill(engine, "log", records)
                engine.seal()
            before = engine.stats().segments
            sample = timed(4 * records, engine.maintain)
            assert engine.stats().segments == before - 3, "the segments were not merged"
            return sample

    pieces = _pieces(64, 4 * records)
    packed = [(pa.compress(piece, codec="zstd"), len(piece)) for piece in pieces]

    def there_and_back() -> None:
        for piece, size in packed:
            pa.compress(pa.decompress(piece, size, codec="zstd"), codec="zstd")

    rounds = in_rounds(work, lambda: timed(4 * records, there_and_back), effort.rounds)
    return rounds.row("seal", f"merge 4 segments of {records:,} records of 64 B", "records/s", MERGE_FLOOR)


def _warm_up(engine: Engine) -> None:
    """The first job starts the worker process, once in the life of an engine."""
    fill(engine, "warm-up", 1, 1)
    engine.seal()


def _pieces(size: int, records: int) -> list[bytes]:
    per_piece = PIECE // size
    chunks = islice(batches(size, min(per_piece, 1000)), -(-records // min(per_piece, 1000)))
    joined = b"".join([b"".join(chunk.data) for chunk in chunks])[: records * size]
    return [joined[at : at + PIECE] for at in range(0, len(joined), PIECE)]
