"""Reads of pages: from the tail in memory, from a segment in the data directory, and from the cold tier."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count as numbers
from pathlib import Path

from bench.measure import Effort, Row, Sample, Target, in_rounds, through
from bench.workload import NEVER, cold_directory, directory, fill, payloads, quiet_engine
from strandline.engine import Engine, Log, Options
from strandline.engine.segments.writer import BLOCK_ROWS

SIZE = 64
PAGES = (1, 256, 1000)
#: Sixteen blocks of a segment. Decompressed, they fit into the cache, so a second read finds them there.
RECORDS = 16 * BLOCK_ROWS

TARGET = Target(1_500_000, "records/s")
FLOOR = "pread, slices, join"


def run(root: Path, effort: Effort) -> Iterator[Row]:
    records = effort.scaled(RECORDS, 2 * BLOCK_ROWS)
    with directory(root, "read") as path, _PlainPages(path, records) as plain:
        yield from _tail(path, effort, records, plain, "tail (batches of 1000)", 1000)
        yield from _tail(path, effort, records, plain, "tail (batches of 1)", 1)
        yield from _segment(path, effort, records, plain, cold=False)
        yield from _segment(path, effort, records, plain, cold=True)


def _tail(root: Path, effort: Effort, records: int, plain: _PlainPages, place: str, batch: int) -> Iterator[Row]:
    with directory(root, "tail") as path, quiet_engine(path) as engine:
        fill(engine, "log", records - records % batch, batch)
        for page in PAGES:
            yield from _rows(effort, place, page, partial(_read, engine, page, effort.turn), plain)


def _segment(root: Path, effort: Effort, records: int, plain: _PlainPages, *, cold: bool) -> Iterator[Row]:
    place = "cold segment" if cold else "hot segment"
    with directory(root, "segment") as path:
        store = cold_directory(path / "cold") if cold else None
        options = Options(journal_bytes=NEVER, hot_segments=0 if cold else 4)

        def opened() -> Engine:
            return quiet_engine(path / "data", cold=store, options=options)

        with opened() as engine:
            fill(engine, "log", records)
            engine.seal()

        def first(page: int) -> Sample:
            with opened() as engine:
                return _read(engine, page, 60.0, once=True)

        for page in PAGES:
            yield from _rows(effort, f"{place}, first reading", page, partial(first, page), plain, once=True)
        with opened() as engine:
            for page in PAGES:
                _read(engine, page, 60.0, once=True)
                again = _rows(effort, f"{place}, cached", page, partial(_read, engine, page, effort.turn), plain)
                yield from again


def _rows(
    effort: Effort, place: str, page: int, work: Callable[[], Sample], plain: _PlainPages, *, once: bool = False
) -> Iterator[Row]:
    rounds = in_rounds(work, lambda: plain.read(page, effort.turn, once=once), effort.rounds)
    name = f"{place}, pages of {page}"
    target = TARGET if page == 1000 and place.startswith(("tail", "hot")) else None
    yield rounds.row("read", name, "records/s", FLOOR, target=target)
    if page > 1:
        yield rounds.row("read", name, "calls/s", FLOOR, scale=1 / page)


def _read(engine: Engine, page: int, seconds: float, *, once: bool = False) -> Sample:
    log = engine.log("log")
    return through(lambda after: _one(log, after, page), _places(log.head, page, once), page, seconds)


def _one(log: Log, after: int, page: int) -> bytes:
    return b"".join(log.read(after, page).data)


def _places(records: int, page: int, once: bool) -> Iterator[int]:
    """The positions where pages begin, in order. They start again at the end, unless ``once`` is set.

    Single records are read in random order; with ``once``, one from every block.
    """
    starts: Sequence[int]
    if page > 1:
        starts = range(0, records - page + 1, page)
    elif once:
        starts = range(BLOCK_ROWS // 2, records, BLOCK_ROWS)
    else:
        starts = random.Random(1).choices(range(records), k=10_000)
    for _ in range(1) if once else numbers():
        yield from starts


class _PlainPages:
    """The floor: only the payloads, without gaps in one file, all of one size."""

    def __init__(self, directory: Path, records: int) -> None:
        self._records = records
        self._file = (directory / "plain").open("w+b")
        data = b"".join(payloads(SIZE))
        for _ in range(-(-records * SIZE // len(data))):
            self._file.write(data)
        self._file.flush()

    def __enter__(self) -> _PlainPages:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, page: int, seconds: float, *, once: bool) -> Sample:
        fd, size = self._file.fileno(), page * SIZE

        def one(after: int) -> bytes:
            raw = os.pread(fd, size, after * SIZE)
            return b"".join([raw[at : at + SIZE] for at in range(0, size, SIZE)])

        return through(one, _places(self._records, page, once), page, seconds)
