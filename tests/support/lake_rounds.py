"""What the tests of the lake's tables share: a data directory, its lake, and rounds with or without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.engine import Batch, Config, Engine, Log
from strandline.history.directory import DirectoryHistory, KnownLogs
from strandline.lake import layout, typed_tables
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent, summarize
from strandline.lake.status import Lag, LogLag
from strandline.pipeline.run import RoundResult, run_round
from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry


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

    def typed(self, folder: str) -> list[dict[str, Any]]:
        """The rows of a typed table, in order; none if there is no table."""
        table = typed_tables.typed_table(self.lake, folder)
        if not table.exists:
            return []
        rows = pa.table(table.open().to_pyarrow_table()).to_pylist()
        return sorted(rows, key=lambda row: (row["epoch"], row["seq"]))

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


# --- typed tables ----------------------------------------------------------------------------------------------------


def text_schema(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": [*names]}


def install(log: Log, schema: dict[str, Any], lens: list[dict[str, Any]] | None = None) -> Registry:
    """Give a log its first or its next schema."""
    stored = log.notes.get("registry")
    registry = Registry.empty(log.name) if stored is None else Registry.load(stored)
    update: dict[str, Any] = {"schema": schema}
    if registry.current_version:
        number = registry.current_version
        update["lens"] = {
            "apiVersion": "durable.lens/v1", "schema": log.name, "from": number, "to": number + 1, "ops": lens
        }  # fmt: skip
        registry = registry.update(msgspec.json.encode(update), next_sequence=log.head)
    else:
        # The protocol installs a first schema on empty streams only; the pipeline does not rely on that.
        registry = Registry.installed(log.name, schema)
    log.note({"registry": registry.stored()}).wait()
    return registry


def typed_model(bed: Bed) -> dict[str, list[dict[str, Any]]]:
    """What the typed tables of logs have to be, if all properties are text: every record, promoted."""
    tables: dict[str, list[dict[str, Any]]] = {}
    records = bed.rows()
    for name in bed.engine.names():
        log = bed.engine.log(name)
        registry = None if "registry" not in log.notes else Registry.load(log.notes["registry"])
        rows = [row for row in records if (row["log"], row["epoch"]) == (name, log.epoch)]
        if registry is None or not registry.current_version:
            continue
        columns = list(registry.schemas[registry.current_version]["properties"])
        found = [
            {**{each: row[each] for each in ("log", "epoch", "seq", "ts", "key")}, **_typed(registry, columns, row)}
            for row in rows
        ]
        tables[name] = found
    return tables


def _typed(registry: Registry, columns: list[str], row: dict[str, Any]) -> dict[str, Any]:
    nothing = dict.fromkeys(columns)
    text = row["data"] if row["bytes"] is None else row["bytes"].decode(errors="replace")
    try:
        document = registry.promote(row["seq"], json.loads(text))
        values = {name: document.get(name) for name in columns}
        assert all(value is None or type(value) is str for value in values.values())
    except (ValueError, TypeError, AttributeError, AssertionError, SchemaError):
        return {**nothing, "_corrupt": text}
    return {**values, "_corrupt": None}


def check_typed(bed: Bed) -> None:
    """The typed tables are what the records are, and there are no others."""
    expected = {name: rows for name, rows in typed_model(bed).items() if rows}
    found = {folder: bed.typed(folder) for folder in typed_tables.folders(bed.lake)}
    assert {name: rows for name, rows in found.items() if rows} == expected
