"""The parts that all measurements share: payloads, engines, and a plain file to compare with."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import cycle
from pathlib import Path

from strandline.engine import Batch, Engine, Options, SystemClock
from strandline.engine.disk import LocalDisk
from strandline.engine.segments.cold_tier import ColdStore, ObjectStoreCold
from strandline.engine.segments.worker import SealingWorker

#: The size of a journal that never fills up, so that only the measurement seals.
NEVER = 1 << 40
#: How often the engine, and the floor, flush records for which no writer waits.
FLUSH_SECONDS = 0.05
#: More than fit into one block of a segment, so that compression does not profit from repetitions that real data
#: does not have.
DISTINCT = 40_000

_WORDS = ("order", "paid", "sent", "cart", "login", "click", "view", "share", "error", "retry", "done", "stock")


@cache
def payloads(size: int) -> list[bytes]:
    """JSON documents of exactly this size, as different from each other as real events."""
    rng = random.Random(size)
    made = []
    for number in range(DISTINCT if size <= 64 else DISTINCT // 8):
        text = f'{{"id":{number},"user":{rng.randrange(10**6)},"note":"'
        while len(text) < size - 2:
            text += f"{rng.choice(_WORDS)} {rng.randrange(10**4)} "
        made.append((text[: size - 2] + '"}').encode())
    return made


def batches(size: int, count: int) -> Iterator[Batch]:
    """Batches of ``count`` records of ``size`` bytes, without end."""
    return cycle(_distinct_batches(size, count))


@cache
def _distinct_batches(size: int, count: int) -> list[Batch]:
    data = payloads(size)
    return [Batch(data[at : at + count]) for at in range(0, len(data) - count + 1, count)]


def keyed_batches(total: int, keys: Sequence[str]) -> Iterator[Batch]:
    """``total`` records of 64 bytes in batches of 1000, with random keys."""
    rng = random.Random(total)
    for batch in _first(batches(64, 1000), -(-total // 1000)):
        yield Batch(batch.data, keys=rng.choices(keys, k=1000))


def _first(items: Iterator[Batch], count: int) -> Iterator[Batch]:
    for _ in range(count):
        yield next(items)


def fill(engine: Engine, name: str, records: int, count: int = 1000, size: int = 64) -> None:
    """Append ``records`` records to a log in batches of ``count``. A missing log is created."""
    log = engine.find(name) or engine.create(name).wait()
    for batch in _first(batches(size, count), records // count):
        log.append(batch).wait()
    engine.flush()


def quiet_engine(path: Path, *, cold: ColdStore | None = None, options: Options | None = None) -> Engine:
    """An engine with a worker process but without threads: it seals and flushes only on request."""
    path.mkdir(exist_ok=True)
    disk = LocalDisk(path)
    disk.lock()
    return Engine(disk, options or Options(journal_bytes=NEVER), SystemClock(), cold, SealingWorker(path))


def cold_directory(path: Path) -> ColdStore:
    return ObjectStoreCold(path.as_uri())


@contextmanager
def directory(parent: Path, name: str) -> Iterator[Path]:
    """A directory that is removed afterwards."""
    path = parent / name
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


class PlainFile:
    """The floor of writing: joins bytes and writes them, and nothing else.

    With ``flushing``, another thread calls fdatasync as often as the engine does.
    """

    def __init__(self, path: Path, *, flushing: bool = False) -> None:
        self._path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._flush_often) if flushing else None
        if self._thread is not None:
            self._thread.start()

    def write(self, data: Sequence[bytes]) -> None:
        os.writev(self.fd, (b"".join(data),))

    def sync(self) -> None:
        os.fdatasync(self.fd)

    def write_and_sync(self, data: Sequence[bytes]) -> None:
        self.write(data)
        self.sync()

    def _flush_often(self) -> None:
        while not self._ended.wait(FLUSH_SECONDS):
            os.fdatasync(self.fd)

    def __enter__(self) -> PlainFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        os.close(self.fd)
        self._path.unlink()
