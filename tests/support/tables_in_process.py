"""Tables on an engine whose clock is turned by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from strandline.engine import Engine, ManualClock
from strandline.tables import Hooks, Row, TableDeclaration, Tables, Write

T = TypeVar("T")

NOW = 1_700_000_000_000


class Poll(msgspec.Struct):
    title: str
    isPublic: bool = False  # noqa: N815


class Vote(msgspec.Struct):
    optionIdx: int  # noqa: N815
    voter: str = ""
    comment: str = ""


class Bed:
    """With ``sealed`` everything is in segments as soon as it is durable."""

    def __init__(self, directory: Path, sealed: bool = False) -> None:
        self.directory = directory
        self.sealed = sealed
        self.clock = ManualClock(NOW)
        self.engine = self._open()

    def _open(self) -> Engine:
        return Engine.open(self.directory, clock=self.clock, background=False)

    def bind(self, *declarations: TableDeclaration, hooks: Hooks | None = None) -> Tables:
        return Tables(self.engine, declarations, hooks=hooks)

    def logs(self) -> list[str]:
        """The logs of rows and changes."""
        return [name for name in self.engine.names() if not name.startswith("_")]

    def done(self, write: Write[T]) -> T:
        result = write.wait()
        self.settle()
        return result

    def settle(self) -> None:
        if self.sealed:
            self.engine.seal()

    def reopen(self, *declarations: TableDeclaration, hooks: Hooks | None = None) -> Tables:
        """As after a restart of the program."""
        self.close()
        self.engine = self._open()
        return self.bind(*declarations, hooks=hooks)

    def close(self) -> None:
        self.engine.close()


def seqs(rows: list[Row]) -> list[int]:
    return [row.seq for row in rows]


def payloads(rows: list[Row]) -> list[Mapping[str, Any]]:
    return [row.payload for row in rows]
