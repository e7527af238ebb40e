"""Reads the records of a log in the lake as typed columns, each promoted to the current schema version.

Only the lake is needed: a round stores the registries of all logs there (``keep_registries``), and tasks read the files
of the table ``records`` themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from strandline.history.log_info import ForkOrigin, LogInfo
from strandline.lake import registries
from strandline.lake.fence import BELONGING
from strandline.lake.files import read_lake_file
from strandline.lake.layout import records
from strandline.lake.location import FileState, Lake
from strandline.lake.registries import KeptRegistry, RegistryLayer
from strandline.lake.table import KnownFile, LakeTable
from strandline.pipeline.typed_columns import PayloadColumns
from strandline.schema.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns of every row in addition to the properties of its payload.
RECORD = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.string()),
    ]
)
_READ = ["epoch", "seq", "ts", "key", "data", "bytes"]
_PATHS = pa.schema([pa.field("path", pa.string(), nullable=False)])


class NoSchema(Exception):
    """The lake has no schema for the log."""


def promoted(spark: SparkSession, lake: Lake, log: str) -> DataFrame:
    """The records of a log in the lake: ``log``, ``seq``, ``ts``, ``key``, and the properties of its current schema as
    :class:`PayloadColumns` defines them. The shared records of a fork are included.

    A record that cannot be promoted or does not match has nulls for properties and its text in ``_corrupt``. Rows are
    in no particular order. Raises NoSchema.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    kept = registries.find(lake, log)
    # A registry can have a search configuration without a schema.
    if kept is None or not Registry.load(bytes(kept.registry)).current_version:
        raise NoSchema(f"the lake at {lake.url} has no schema for the log {log!r}")
    columns = pa.schema([*RECORD, *_payload_columns(kept).schema])
    paths = [file.path for file in records(lake).files() if _may_have(file, kept.layers)]
    frame = spark.createDataFrame(pa.table({"path": paths}, schema=_PATHS))
    task = _Promotion(lake, msgspec.json.encode(kept))
    return frame.repartition(max(len(paths), 1)).mapInArrow(task, from_arrow_schema(columns))


def keep_registries(lake: Lake, logs: Sequence[LogInfo], now_ms: int) -> None:
    """Store the registries in the lake. ``logs`` must be all logs. Tables and collections have no schema in their
    registries, only a search configuration, which the lake does not need.

    A process that has stored them before only looks at those that have changed since.
    """
    wanted = {info.name: info for info in logs if info.registry is not None and info.owner is None}
    facts = {name: (info.epoch, info.registry, info.base) for name, info in wanted.items()}
    # A lake that was removed and made again has another file.
    state = lake.state(BELONGING)
    known = _stored.pop(lake.url, None)
    changed: set[str] | None = None
    if known is not None and state is not None and known.state == state:
        changed = {name for name, _ in known.facts.items() ^ facts.items()}
    if changed is None or changed:
        by_epoch = {info.epoch: info for info in logs}
        kept = [
            KeptRegistry(name, info.epoch, layers_of(info, by_epoch), msgspec.Raw(info.registry or b""))
            for name, info in wanted.items()
            if changed is None or name in changed
        ]
        registries.keep(lake, kept, now_ms, changed)
    while len(_stored) >= MAX_STORED:
        del _stored[next(iter(_stored))]
    _stored[lake.url] = _Stored(state, facts)


class _Stored(NamedTuple):
    """What this process has stored last in a lake, and the state of the file with the lake's owner."""

    state: FileState | None
    facts: dict[str, tuple[int, bytes | None, ForkOrigin | None]]


_stored: dict[str, _Stored] = {}
MAX_STORED = 16


def layers_of(info: LogInfo, by_epoch: Mapping[int, LogInfo]) -> list[RegistryLayer]:
    """Where the records of a log are in the lake, oldest first."""
    layers: list[RegistryLayer] = []
    last: int | None = None
    at: LogInfo | None = info
    while at is not None:
        if last is None or at.own_after < last:
            layers.append(RegistryLayer(at.epoch, at.own_after + 1, last))
            last = at.own_after
        at = None if at.base is None else by_epoch.get(at.base.epoch)
    return layers[::-1]


def _may_have(file: KnownFile, layers: Iterable[RegistryLayer]) -> bool:
    epochs, seqs = file.bounds.get("epoch"), file.bounds.get("seq")
    if epochs is None or seqs is None:
        return True
    return any(
        epochs[0] <= layer.epoch <= epochs[1]
        and layer.first <= seqs[1]
        and (layer.last is None or seqs[0] <= layer.last)
        for layer in layers
    )


class _Promotion:
    """Runs in a task: reads files of the table and yields rows."""

    def __init__(self, lake: Lake, kept: bytes) -> None:
        self._lake = lake
        self._kept = kept

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        kept = msgspec.json.decode(self._kept, type=KeptRegistry)
        payload = _payload_columns(kept)
        schema = pa.schema([*RECORD, *payload.schema])
        for batch in batches:
            for path in batch.column("path").to_pylist():
                for found in read_lake_file(self._lake, f"records/{path}", _READ, _wanted(kept.layers)):
                    yield _rows(kept.log, found.sort_by("seq"), payload, schema)


def _payload_columns(kept: KeptRegistry) -> PayloadColumns:
    return PayloadColumns(Registry.load(bytes(kept.registry)), RECORD.names)


def _wanted(layers: Iterable[RegistryLayer]) -> Any:
    """A condition on the columns of a file that selects the rows of the layers."""
    condition: Any = None
    for layer in layers:
        one = (pc.field("epoch") == layer.epoch) & (pc.field("seq") >= layer.first)
        if layer.last is not None:
            one &= pc.field("seq") <= layer.last
        condition = one if condition is None else condition | one
    return condition


def _rows(log: str, found: Any, payload: PayloadColumns, schema: Any) -> Any:
    texts = pc.coalesce(found.column("data").cast(pa.binary()), found.column("bytes"))
    arrays = payload.arrays(found.column("seq").to_pylist(), texts.to_pylist())
    names = pa.array([log]).take(pa.array([0] * found.num_rows))
    return pa.record_batch([names, *(found.column(name) for name in ("seq", "ts", "key")), *arrays], schema=schema)


# --- The tables of the lake as Spark DataFrames ---------------------------------------------------------------------


def lake_table(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """The current version of a table, without its partition column, if it has one. Raises deltalake's
    TableNotFoundError.

    Spark does not support Delta tables itself, so it reads the files of the current version. These files exist for as
    long as replaced files are kept, unless something is erased. Spark must be able to read the location of the lake.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    table = LakeTable(lake, name, None)
    opened = table.open()
    files = opened.file_uris()
    schema = pa.schema(opened.schema().to_arrow())
    partition = opened.metadata().partition_columns
    schema = pa.schema([field for field in schema if field.name not in partition])
    if files:
        # Files from before a table got a column do not have it.
        return spark.read.schema(from_arrow_schema(schema)).parquet(*files)
    return spark.createDataFrame(schema.empty_table())
