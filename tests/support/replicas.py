"""What the tests of the replica share: a store in memory that fails on demand, and engines with it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Literal

from strandline.engine import Engine, ManualClock, Options
from strandline.engine.disk import Disk
from strandline.engine.errors import EngineError
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import ChunkKind
from strandline.engine.replica.store import ReplicaStore
from strandline.engine.testing.fault_disk import FaultDisk
from support.engines import NOW
from support.simulated_store import SimulatedBucket, SimulatedStore


class FaultyStore(SimulatedStore):
    """A store in memory. Several of them can share the objects."""

    def __init__(self, bucket: SimulatedBucket | None = None) -> None:
        self.bucket = bucket or SimulatedBucket(Random(0), 0.0)
        super().__init__(self.bucket, "test")
        #: While it is set, every request fails.
        self.is_away = False
        #: What happens to the next requests that create an object.
        self.creations: list[Literal["lost", "unanswered"]] = []
        #: The names of all objects that were created, put or deleted, in order.
        self.changed: list[str] = []

    @property
    def objects(self) -> dict[str, bytes]:
        return self.bucket.objects

    def names(self, folder: str) -> list[str]:
        return [each.name for each in self.list(folder)]

    def create(self, name: str, data: bytes) -> bool:
        fate = self.creations.pop(0) if self.creations else "done"
        if fate == "lost":
            raise OSError(errno.EIO, "the request was lost")
        result = super().create(name, data)
        self.changed.append(name)
        if fate == "unanswered":
            raise OSError(errno.ETIMEDOUT, "no answer")
        return result

    def put(self, name: str, data: bytes | Path) -> None:
        super().put(name, data)
        self.changed.append(name)

    def delete(self, name: str) -> None:
        super().delete(name)
        self.changed.append(name)

    def _request(self, *args: object, **kwargs: object) -> object:
        if self.is_away:
            raise OSError(errno.EHOSTUNREACH, "the store is away")
        return super()._request(*args, **kwargs)  # type: ignore[arg-type]


def start(path: Path | Disk, store: ReplicaStore, clock: ManualClock | None = None, **options: object) -> Engine:
    return Engine.open(
        path,
        Options(**options),  # type: ignore[arg-type]
        clock=clock or ManualClock(NOW),
        background=False,
        replica=store,
    )


@contextmanager
def served(path: Path | Disk, store: ReplicaStore, **options: object) -> Iterator[Engine]:
    """An engine that is closed afterwards."""
    engine = start(path, store, **options)
    try:
        yield engine
    finally:
        with suppress(EngineError, OSError):
            engine.close()


def kinds(store: ReplicaStore) -> list[ChunkKind]:
    """The kinds of the chunks in the store, in order."""
    chain = Chain(store)
    found = [chain.read(number) for number in chain.numbers()]
    return [chunk.kind for chunk in found if chunk is not None]


def kill(engine: Engine) -> FaultDisk:
    """Kill the process of an engine on a FaultDisk, and return the disk that the next process finds."""
    assert isinstance(engine.disk, FaultDisk)
    disk = engine.disk.process_kill()
    engine.journal.close()
    engine.store.close()
    return disk


def directory(path: Path, name: str) -> FaultDisk:
    """An empty directory of its own."""
    (path / name).mkdir()
    return FaultDisk(path / name)
