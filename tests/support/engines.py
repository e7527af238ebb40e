"""What the engine's tests share: engines that are driven by hand, and short ways to fill and read a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline.engine import Batch, Config, Engine, Log, ManualClock, Options
from strandline.engine.disk import Disk

NOW = 1_700_000_000_000
Open = Callable[..., Engine]


@contextmanager
def opened(path: Path | Disk, clock: ManualClock | None = None, **options: object) -> Iterator[Engine]:
    engine = Engine.open(path, Options(**options), clock=clock or ManualClock(NOW), background=False)  # type: ignore[arg-type]
    try:
        yield engine
    finally:
        engine.close()


def make(engine: Engine, name: str = "a", **config: object) -> Log:
    return engine.create(name, Config(**config)).wait()  # type: ignore[arg-type]


def fill(log: Log, *data: str, key: str | None = None) -> None:
    """One append per record."""
    for text in data:
        log.append(Batch.of(text.encode(), key=key)).wait()


def texts(log: Log, **query: object) -> list[str]:
    return [record.data.decode() for record in log.read(**query)]  # type: ignore[arg-type]
