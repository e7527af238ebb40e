"""Work that is done in this process instead of on Spark, with everything in the form in which it travels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from strandline.pipeline.round import Round
from strandline.pipeline.tasks import LocalWorkers


class TravellingWorkers(LocalWorkers):
    """What Spark makes of items is tested with Spark."""

    #: Rounds choose the sizes of items by this number.
    parallel = 2

    def __init__(self, wave: int = 3) -> None:
        self.wave = wave

    def _work(self, function: Callable[[Any], Any], wave: Sequence[Any], kind: Any, result: Any) -> list[Any]:
        """The results in another order than the items."""
        there = [travelled(item, kind) for item in wave]
        return [travelled(done, result) for done in reversed(super()._work(function, there, kind, result))]

    def shuffle(
        self,
        spread: Callable[[Any, Any], Iterable[tuple[str, bytes]]],
        gather: Callable[[str, list[bytes], Any], Any],
        items: Sequence[Any],
        kind: Any,
        shared: Any,
        result: Any,
    ) -> list[Any]:
        """As :meth:`strandline.pipeline.tasks.SparkWorkers.shuffle`."""
        shared = travelled(shared, type(shared))
        parts: dict[str, list[bytes]] = {}
        for item in items:
            for destination, part in spread(travelled(item, kind), shared):
                parts.setdefault(destination, []).append(part)
        return [travelled(gather(to, found, shared), result) for to, found in parts.items()]


def travelled(value: Any, kind: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)


def work_here(patch: pytest.MonkeyPatch, wave: int = 3) -> None:
    """Let the items of rounds be worked on in this process."""
    patch.setattr(Round, "workers", TravellingWorkers(wave))
