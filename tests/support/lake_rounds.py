"""What the tests of the lake's tables share: a data directory, its lake, and rounds with or without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.engine import Batch, Config, Engine, Log
from strandline.history.directory import DirectoryHistory, KnownLogs
from strandline.lake import layout
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent, summarize
from strandline.lake.status import Lag, LogLag
from strandline.pipeline.run import RoundResult, run_round


class Heard(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str | None, int | None, str]] = []
        self.last_lag = Lag()
        self.rows: list[LogLag] = []

    def problem(self, stage: str, log: str | None, seq: int | None, message: str) -> None:
        self.problems.append((stage, log, seq, message))

    def lag(self, logs: Iterable[LogLag], erasures: int = 0) -> None:
        self.rows = list(logs)
        self.last_lag = summarize(self.rows, erasures)


class Bed:
    def __init__(self, path: Path, spark: Any = None) -> None:
        self.path = path
        self.spark = spark
        self.engine = Engine.open(path / "data", background=False)
        self.lake = Lake.at(path / "lake")
        self.heard = Heard()
        self.known = KnownLogs()

    def close(self) -> None:
        self.engine.close()

    def log(self, name: str = "a", **config: Any) -> Log:
        return self.engine.create(name, Config(**config)).wait()

    def round(self, **arguments: Any) -> RoundResult:
        history = DirectoryHistory(self.path / "data", known=self.known)
        try:
            return run_round(self.spark, history, self.lake, self.heard, **arguments)
        finally:
            history.close()

    def table(self, name: str) -> Any:
        return {"records": layout.records, "latest": layout.latest, "keys": layout.keys}[name](self.lake)

    def rows(self, name: str = "records") -> list[dict[str, Any]]:
        """In order, without the bucket, which is nobody's business."""
        table = self.table(name)
        if not table.exists:
            return []
        found = pa.table(table.open().to_pyarrow_table()).to_pylist()
        for row in found:
            row.pop("bucket", None)
        return sorted(found, key=lambda row: (row["log"], row["epoch"], row.get("seq", 0), row["key"] or ""))

    def data(self, log: str = "a") -> list[str]:
        return [row["data"] for row in self.rows() if row["log"] == log]

    def grep(self, needle: bytes, place: str = "") -> list[str]:
        """The files that have these bytes, also where they are compressed inside of a Parquet file."""
        found = []
        for path in sorted((self.path / place).rglob("*")):
            if path.is_file():
                raw = path.read_bytes()
                if needle in raw or (raw[:4] == b"PAR1" and needle in parquet_bytes(path)):
                    found.append(str(path.relative_to(self.path)))
        return found


def parquet_bytes(path: Any) -> bytes:
    return repr(pq.ParquetFile(path).read().to_pylist()).encode()


def append(log: Log, *texts: str, key: str | None = None) -> None:
    log.append(Batch([text.encode() for text in texts], keys=[key] * len(texts))).wait()


def derived(rows: list[dict[str, Any]]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """What ``latest`` and ``keys`` have to be, said plainly."""
    latest: dict[Any, Any] = {}
    keys: dict[Any, Any] = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        if row["key"] is None:
            continue
        name = row["log"], row["epoch"], row["key"]
        latest[name] = (row["seq"], row["ts"], row["version"], row["data"], row["bytes"])
        known = keys.get(name)
        count = 1 if known is None else known[-1] + 1
        first = (row["seq"], row["ts"]) if known is None else known[0]
        keys[name] = (first, (row["seq"], row["ts"]), count)
    return latest, keys


def by_key(bed: Bed) -> tuple[dict[Any, Any], dict[Any, Any]]:
    latest = {
        (row["log"], row["epoch"], row["key"]): (row["seq"], row["ts"], row["version"], row["data"], row["bytes"])
        for row in bed.rows("latest")
    }
    keys = {
        (row["log"], row["epoch"], row["key"]): (
            (row["first_seq"], row["first_ts"]),
            (row["last_seq"], row["last_ts"]),
            row["count"],
        )
        for row in bed.rows("keys")
    }
    assert len(latest) == len(bed.rows("latest"))
    assert len(keys) == len(bed.rows("keys"))
    return latest, keys
