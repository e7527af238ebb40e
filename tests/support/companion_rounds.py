"""Logs that are searched, a lake, and rounds of the companions' stage over them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars

from strandline.engine import Batch, Config, Engine, Log, ManualClock
from strandline.history.directory import DirectoryHistory
from strandline.lake.erasures import ErasureEvents
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline.companions import plan
from strandline.pipeline.companions import stage as companions
from strandline.pipeline.companions.tables import CompanionTable
from strandline.pipeline.companions.work import opened
from strandline.pipeline.round import Round
from strandline.query.config_parser import parse_search_config
from strandline.query.index_files.table import IndexEntry
from strandline.schema.registry import Registry
from support.searched_log import DECLARED

NOW = 1_700_000_000_000
SCHEMA = {"type": "object"}


def registry_of(declared: dict[str, Any] | None = DECLARED, name: str = "log") -> Registry:
    return Registry.installed(name, SCHEMA, search=None if declared is None else parse_search_config(declared))


def document(number: int, **more: Any) -> dict[str, Any]:
    return {
        "at": NOW + number * 250,
        "service": f"service{number % 3}",
        "status": 200 if number % 4 else 500,
        "took": number / 8,
        "ok": number % 4 > 0,
        "note": f"number {number} of many",
        **more,
    }


class Bed:
    def __init__(self, root: Path, spark: Any = None) -> None:
        self.root = root
        self.spark = spark
        self.lake = Lake.at(root / "lake")
        self.clock = ManualClock(NOW)
        self.now = NOW
        self.problems: list[tuple[str | None, int | None, str]] = []

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        with Engine.open(self.root / "data", background=False, clock=self.clock) as engine:
            yield engine

    def create(self, name: str = "log", declared: dict[str, Any] | None = DECLARED, **config: Any) -> None:
        with self.engine() as engine:
            log = engine.create(name, Config(**config)).wait()
            self.configure(log, declared)

    def configure(self, log: Log, declared: dict[str, Any] | None) -> None:
        log.note({"registry": registry_of(declared, log.name).stored()}).wait()

    def reconfigure(self, declared: dict[str, Any] | None, name: str = "log") -> None:
        with self.engine() as engine:
            self.configure(engine.log(name), declared)

    def append(self, *documents: object, name: str = "log", keys: list[str | None] | None = None) -> None:
        data = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in documents]
        with self.engine() as engine:
            engine.log(name).append(Batch(data, keys=keys)).wait()

    def fill(self, first: int, last: int, name: str = "log") -> None:
        self.append(*(document(number) for number in range(first, last + 1)), name=name)

    def round(
        self, *, complete: bool = True, grace_s: int = companions.GRACE_S, rows: int = plan.COMPANION_ROWS
    ) -> dict[int, int]:
        """Run the stage; how far logs are covered by epoch."""
        history = DirectoryHistory(self.root / "data")
        try:
            logs = [info for info in history.logs() if not info.name.startswith("__")]
            round = Round(
                self.spark,
                history,
                self.lake,
                Silent(),
                logs,
                logs,
                ErasureEvents(history),
                complete,
                now=lambda: self.now,
            )
            round.problem = self._problem  # type: ignore[method-assign]
            return companions.run(round, grace_s=grace_s, rows=rows)
        finally:
            history.close()

    def _problem(self, stage: str, log: str | None, seq: int | None, message: str) -> None:
        self.problems.append((log, seq, message))

    # --- looking -----------------------------------------------------------------------------------------------------

    def entries(self) -> list[IndexEntry]:
        return sorted(CompanionTable(self.lake).entries, key=lambda entry: (entry.info.log, entry.info.first))

    def ranges(self, name: str = "log") -> list[tuple[int, int]]:
        return [(entry.info.first, entry.info.last) for entry in self.entries() if entry.info.log == name]

    def seqs(self, name: str = "log") -> list[int]:
        """The records that companions have, in the order of their ranges."""
        found: list[int] = []
        for entry in self.entries():
            if entry.info.log == name:
                chunk = opened(self.lake, entry.path).chunk()
                found += [] if chunk is None else chunk.seqs.tolist()
        return found

    def files(self) -> set[str]:
        return {name for name in self.lake.names("pieces/") if name.endswith(".arrow")}

    def rollups(self) -> polars.DataFrame:
        return polars.read_delta(self.lake.place_of("rollups"))

    def counts(self, name: str = "log", service: str | None = None) -> float:
        """How many records the rollup "requests" counts, by its shortest interval."""
        rows = self.rollups().filter(log=name, rollup="requests", interval_ms=1000, measure="requests")
        return sum(
            row["count"]
            for row in rows.iter_rows(named=True)
            if service is None or row["dimensions"]["service"] == service
        )

    def grep(self, text: bytes) -> list[str]:
        """All files of the lake that have these bytes."""
        root = self.lake.directory
        assert root is not None
        return [
            str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_file() and text in unpacked(path)
        ]


def unpacked(path: Path) -> bytes:
    """What is in a file, whether or not it is compressed."""
    if path.suffix == ".parquet":
        return path.read_bytes() + repr(polars.read_parquet(path).to_dicts()).encode()
    return path.read_bytes()
